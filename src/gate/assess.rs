//! `POST /v1/assess`: the decision on a sign-up, with its reasons and facts.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::decide::{Action, Fact};
use crate::message::response::Reply;
use crate::model::network::parse_hop_address;
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::model::typed_address::TypedAddress;
use crate::model::verdict::VerdictSource;

use super::address_facts::AddressFacts;
use super::json_body::parse_json_object;
use super::judged_values::{JudgedValue, JudgingContext};
use super::request_context::RequestContext;
use super::screen_rules::ScreenMode;
use super::state::Gate;

/// The longest body, in bytes.
pub(super) const MAX_ASSESS_BODY_BYTES: usize = 4 * 1024;

/// The JSON in the body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    email: String,
    /// The address of the client that signs up.
    #[serde(default)]
    ip: Option<String>,
    /// Whether the client asks riskgate to count the sign-up.
    #[serde(default)]
    count: bool,
}

impl Gate {
    /// Decides the sign-up in a body. `has_origin_field` says whether the request has `Origin`, as
    /// most posts of pages in browsers have.
    pub(super) async fn assess(
        &self,
        body: &[u8],
        has_origin_field: bool,
        ctx: &mut RequestContext,
    ) -> Result<Reply, Refusal> {
        let (question, client) = parse_question(body).map_err(Refusal::InvalidAssessment)?;
        self.charge(1, ctx).await?;
        // A page must not learn who has signed up.
        let is_of_browser =
            has_origin_field || ctx.key.as_ref().is_some_and(|key| key.is_for_browsers());
        let table = self.state.table.peek();
        let typed = TypedAddress::parse(&question.email).map_err(Refusal::InvalidEmail)?;
        let address = &typed.address;
        let (route, rules) = (RouteLabel::Assess.as_str(), Arc::clone(&ctx.rules));
        let scores = &rules.decisions.assess_policy;
        let judging = JudgingContext {
            table: &table,
            scores,
            client,
            wants_counts: !is_of_browser,
            request: ctx,
        };
        let mut judged = self.judge_typed_address(&typed, judging);
        if is_of_browser {
            judged.iter_mut().for_each(|value| value.facts.sign_up = None);
        }
        let reasons = list_reasons(&judged);
        let decision = self.decide_form(judged, route, scores, ctx);
        let decision = decision.ok_or(Refusal::Internal)?;
        let (action, decided) = (decision.action, &decision.value);
        let facts = &decided.facts;
        let answer = json_in_order(&[
            ("action", json!(action.as_str())),
            ("rule", json!(decision.rule.as_ref().map(|rule| rule.name.as_str()))),
            ("risk_score", json!(facts.score.value())),
            ("reasons", reasons),
            ("email", json!(address.masked())),
            ("domain", json!(address.domain().as_str())),
            ("inbox", json!(decision.single_inbox().map(|it| it.to_string()))),
            ("did_you_mean", json!(decided.suggestion.as_ref().map(SmolStr::as_str))),
        ]);
        let answer =
            format!("{},\"facts\":{}}}", &answer[..answer.len() - 1], render_facts(decided));
        if question.count && action != Action::Block {
            self.state.sign_ups.record_form(&decision.sign_ups);
        }
        ctx.verdict_reason = Some(facts.reason.as_str());
        self.record_screening(decision.into_result(ScreenMode::Block), route, ctx);
        Ok(Reply::of_json(Bytes::from(answer)))
    }
}

/// Returns the question in a body, and the address of the client that signs up. The error says what
/// was expected and what was found.
fn parse_question(body: &[u8]) -> Result<(Question, Option<IpAddr>), String> {
    let expected =
        r#"expected {"email":"…","ip":"…","count":false}, where ip and count may be missing"#;
    let question: Question = parse_json_object(body, expected)?;
    let parse_ip = |text: &str| {
        let found = "an ip that is no address";
        parse_hop_address(text.trim()).ok_or_else(|| format!("{expected}, but found {found}"))
    };
    let ip = question.ip.as_deref().filter(|text| !text.trim().is_empty());
    let client = ip.map(parse_ip).transpose()?;
    Ok((question, client))
}

/// Returns the reasons of the address, each with its score, the highest score first. If the verdict
/// on the domain comes from no list, the code is the rule of the table instead of the reason.
fn list_reasons(judged: &[JudgedValue]) -> Value {
    let code = |facts: &AddressFacts| match facts.of_domain {
        Some(known)
            if !facts.is_about_local_part && known.verdict_source != VerdictSource::List =>
        {
            known.table_rule.as_str()
        }
        _ => facts.reason.as_str(),
    };
    let mut reasons: Vec<&AddressFacts> = judged.iter().map(|value| &value.facts).collect();
    reasons.sort_by_key(|facts| std::cmp::Reverse(facts.score));
    // Two readings of an address may have one reason.
    let mut codes = Vec::new();
    reasons.retain(|facts| {
        let is_new = !codes.contains(&code(facts));
        codes.push(code(facts));
        is_new
    });
    let render = |facts: &AddressFacts| json!({"code": code(facts), "score": facts.score.value()});
    reasons.into_iter().map(render).collect()
}

/// Returns the facts as a JSON object, in the order of [`Fact::ALL`].
fn render_facts(decided: &JudgedValue) -> String {
    let facts = decided.facts.for_rules();
    let value = |fact: Fact| facts.value(fact).map_or(Value::Null, Value::from);
    json_in_order(&Fact::ALL.map(|fact| (fact.as_str(), value(fact))))
}

/// Returns a JSON object with its members in this order.
fn json_in_order(members: &[(&str, Value)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", members.join(","))
}
