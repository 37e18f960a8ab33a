//! `riskgate decide`: decides one address by the rules of the config, and counts nothing.

use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::lookup_sources::LookupSources;
use super::output::{print_message, print_result};
use super::standard_input::{read_typed_address, require_dash};
use crate::config::{Config, list_deciding_routes};
use crate::decide::{
    Action, Condition, Decision, DecisionRule, Fact, InboxRules, MAX_COUNT, ScorePolicy,
    decide_strictest, find_contradiction,
};
use crate::gate::address_facts::{AddressFacts, OtherFacts, facts_of_address, look_up_sanitized};
use crate::gate::screen_rules::{ScreenAction, ScreenPolicy};
use crate::model::email::EmailAddress;
use crate::model::route_label::RouteLabel;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// `-`: the address is read from standard input, so that it is in no list of processes.
    #[arg(value_name = "-", value_parser = |text: &str| require_dash(text, "decide"))]
    input: String,
    /// Decide as on this route: the prefix of a screened route, `authz` or `assess`.
    #[arg(long, default_value = RouteLabel::Assess.as_str(), value_name = "ROUTE")]
    route: String,
    /// Suppose that a count has this value, such as inbox_accounts_30d=3. Can be given several
    /// times; other counts have no value.
    #[arg(long = "fact", value_name = "COUNT=NUMBER", value_parser = parse_supposed_count)]
    counts: Vec<(Fact, u32)>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Fails if no address has all of these counts at once.
fn check_counts(counts: &[(Fact, u32)]) -> Result<(), CommandFailure> {
    let condition = |(fact, number): &(Fact, u32)| {
        Condition::parse(&format!("{} == {number}", fact.as_str())).ok()
    };
    let conditions: Vec<Condition> = counts.iter().filter_map(condition).collect();
    match find_contradiction(&conditions) {
        None => Ok(()),
        Some(index) => {
            let last = conditions[index].as_str();
            Err(CommandFailure::usage(format!(
                "--fact: expected counts that can be true together, but found {last} behind another"
            )))
        }
    }
}

fn parse_supposed_count(text: &str) -> Result<(Fact, u32), String> {
    let counts = || Fact::ALL.into_iter().filter(|fact| fact.is_count());
    let expected = || {
        let names: Vec<&str> = counts().map(Fact::as_str).collect();
        format!("expected one of {}, = and a whole number of 0 to {MAX_COUNT}", names.join(", "))
    };
    let (name, number) = text.split_once('=').ok_or_else(expected)?;
    let fact = counts().find(|fact| fact.as_str() == name).ok_or_else(expected)?;
    let number = number.parse().ok().filter(|number| *number <= MAX_COUNT);
    Ok((fact, number.ok_or_else(expected)?))
}

/// The route on which `riskgate decide` decides: its name in the rules, and its scores.
struct DecidingRoute<'c> {
    name: &'c str,
    scores: &'c ScorePolicy,
}

/// Decides on the address that standard input has, and says why.
pub fn run(args: &Args) -> Result<(), CommandFailure> {
    check_counts(&args.counts)?;
    let config = args.config.read_config()?;
    let route = find_deciding_route(&args.route, &config)?;
    let typed = read_typed_address()?;
    let address = &typed.address;
    let mut sources = LookupSources::of_config(&config);
    let table = sources.build_table()?;
    let found = sources.explain(&table, address.domain())?;
    let inboxes = InboxRules::built_in().map_err(CommandFailure::failed)?;
    let inbox = inboxes.canonical_inbox(address);
    let unknown_score = config.reloadable.unknown_score;
    let sanitized = look_up_sanitized(&typed, &inboxes, &table, unknown_score, sources.unix_now());
    let has_other_inbox = sanitized.as_ref().is_some_and(|(it, _)| {
        inboxes.has_rule(it.domain()) && inboxes.canonical_inbox(it) != inbox
    });
    let of_sanitized = sanitized
        .map(|(it, answer)| facts_of_address(it, &answer, table.role_score()))
        .unwrap_or_default();
    let mut of_address = facts_of_address(address, &found.answer, table.role_score());
    let has_domain_counts =
        inbox.counted_domain(address).is_some() && !found.answer.is_protected_or_free_provider();
    suppose_counts(&args.counts, has_domain_counts, &mut of_address);
    let readings = &typed.other_readings;
    let mut others = OtherFacts::look_up(readings, &table, unknown_score, sources.unix_now());
    let by_idna_2003 = others.by_idna_2003.take();
    let as_ascii = others.refused_as_ascii(route.scores);
    // A form with such an address is unscreened, unless it is refused for another reason.
    let is_unscreened = as_ascii.is_some() && route.name != RouteLabel::Assess.as_str();
    let as_ascii = as_ascii.filter(|_| !is_unscreened);
    let judged: Vec<AddressFacts> =
        as_ascii.into_iter().chain(by_idna_2003).chain(of_sanitized).chain(of_address).collect();
    let rules = config.reloadable.decisions.rules();
    let strictest =
        decide_strictest(&judged, |facts| facts.for_rules(), route.name, rules, route.scores);
    let Some((facts, decision)) = strictest else { unreachable!("an address has facts") };
    let mask =
        || EmailAddress::parse(inbox.as_str()).map_or_else(|_| address.masked(), |it| it.masked());
    let inbox = (!has_other_inbox).then(mask);
    let rules: Vec<&DecisionRule> = rules.iter().filter(|it| it.applies_to(route.name)).collect();
    let action = match decision.action {
        Action::Pass | Action::Review if is_unscreened => ScreenAction::Unscreened.as_str(),
        decided => decided.as_str(),
    };
    print_result(match args.json {
        true => render_json(address, inbox.as_deref(), facts, decision, action),
        false => render_text(address, inbox.as_deref(), &rules, facts, decision, action),
    })
}

/// Sets the counts that the user supposes. Leaves out the counts of the domain if gateways give
/// them no value, and says so.
fn suppose_counts(
    counts: &[(Fact, u32)],
    has_domain_counts: bool,
    of_address: &mut [AddressFacts],
) {
    for (fact, number) in counts {
        let is_of_domain = matches!(fact, Fact::DomainAccounts1h | Fact::DomainAccounts1d);
        if is_of_domain && !has_domain_counts {
            print_message(format!(
                "--fact: {} has no value, because the domain is protected or free, or the inboxes \
                 of its provider are on another domain",
                fact.as_str()
            ));
        } else {
            of_address.iter_mut().for_each(|facts| facts.counts.set(*fact, *number));
        }
    }
}

fn find_deciding_route<'c>(
    name: &'c str,
    config: &'c Config,
) -> Result<DecidingRoute<'c>, CommandFailure> {
    let settings = &config.reloadable;
    let known = list_deciding_routes(&settings.upstream_routes, settings.authz.as_deref());
    let known = known.join(", ");
    if name == RouteLabel::Assess.as_str() {
        return Ok(DecidingRoute { name, scores: &settings.decisions.assess_policy });
    }
    let of_authz = settings.authz.as_ref().and_then(|authz| authz.screening.as_ref());
    let policy = match name == RouteLabel::Authz.as_str() {
        true => of_authz.map(|screening| &screening.policy),
        false => {
            let screened = settings.upstream_routes.iter().filter_map(|it| it.screen.as_ref());
            screened.map(|rules| &rules.policy).find(|policy| policy.route == name)
        }
    };
    let Some(ScreenPolicy { route, scores, .. }) = policy else {
        let problem = format!("--route: expected a route that decides: {known}, but found {name}");
        return Err(CommandFailure::usage(problem));
    };
    Ok(DecidingRoute { name: route, scores })
}

fn render_json(
    address: &EmailAddress,
    inbox: Option<&str>,
    facts: &AddressFacts,
    decision: Decision<'_>,
    action: &str,
) -> String {
    let shown = facts.for_rules();
    let value = |fact: Fact| shown.value(fact).map_or(Value::Null, Value::from);
    let facts: serde_json::Map<String, Value> =
        Fact::ALL.into_iter().map(|fact| (fact.as_str().to_owned(), value(fact))).collect();
    let rule = decision.rule.map(|rule| rule.name.as_str());
    let email = address.masked();
    let answer =
        json!({"action": action, "rule": rule, "email": email, "inbox": inbox, "facts": facts});
    format!("{answer:#}\n")
}

fn render_text(
    address: &EmailAddress,
    inbox: Option<&str>,
    rules: &[&DecisionRule],
    facts: &AddressFacts,
    decision: Decision<'_>,
    action: &str,
) -> String {
    let inbox = inbox.unwrap_or("none, because some software reads another inbox in the address");
    let mut out = format!("address  {}\ninbox    {inbox}\n", address.masked());
    let shown = facts.for_rules();
    for fact in Fact::ALL {
        let value = shown.value(fact).map_or("no value".to_owned(), |value| value.to_string());
        out.push_str(&format!("fact     {} = {value}\n", fact.as_str()));
    }
    for rule in rules {
        let failed = rule.conditions.iter().find(|condition| !condition.holds(&shown));
        let outcome = match failed {
            None => format!("holds: {}", rule.then.as_str()),
            Some(condition) if shown.value(condition.fact()).is_none() => {
                format!("no, because {} has no value", condition.fact().as_str())
            }
            Some(condition) => format!("no, because not {}", condition.as_str()),
        };
        out.push_str(&format!("rule     {:?}: {outcome}\n", rule.name.as_str()));
        if failed.is_none() {
            break;
        }
    }
    let why = match decision.rule {
        _ if action == ScreenAction::Unscreened.as_str() => {
            "because some software reads a refused domain in the address".to_owned()
        }
        Some(rule) => format!("by the rule {:?}", rule.name.as_str()),
        None => format!("by the score {}", facts.score.value()),
    };
    out.push_str(&format!("action   {action}, {why}\n"));
    out
}
