//! `riskgate decide`: decides one address by the rules of the config, and counts nothing.

use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::lookup_sources::LookupSources;
use super::output::print_result;
use super::standard_input::{read_typed_address, require_dash};
use crate::config::{Config, list_deciding_routes};
use crate::decide::{
    Action, Decision, DecisionRule, Fact, InboxRules, MAX_COUNT, ScorePolicy, decide_strictest,
};
use crate::gate::address_facts::{AddressFacts, OtherFacts, facts_of_address};
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
    let config = args.config.read_config()?;
    let route = find_deciding_route(&args.route, &config)?;
    let typed = read_typed_address()?;
    let address = &typed.address;
    let mut sources = LookupSources::of_config(&config);
    let table = sources.build_table()?;
    let found = sources.explain(&table, address.domain())?;
    let mut of_address = facts_of_address(address, &found.answer, table.role_score());
    for (fact, number) in &args.counts {
        of_address.iter_mut().for_each(|facts| facts.counts.set(*fact, *number));
    }
    let unknown_score = config.reloadable.unknown_score;
    let readings = &typed.other_readings;
    let mut others = OtherFacts::look_up(readings, &table, unknown_score, sources.unix_now());
    let by_idna_2003 = others.by_idna_2003.take();
    let as_ascii = others.refused_as_ascii(route.scores);
    // A form with such an address is unscreened, unless it is refused for another reason.
    let is_unscreened = as_ascii.is_some() && route.name != RouteLabel::Assess.as_str();
    let as_ascii = as_ascii.filter(|_| !is_unscreened);
    let judged: Vec<AddressFacts> =
        as_ascii.into_iter().chain(by_idna_2003).chain(of_address).collect();
    let rules = config.reloadable.decisions.rules();
    let strictest =
        decide_strictest(&judged, |facts| facts.for_rules(), route.name, rules, route.scores);
    let Some((facts, decision)) = strictest else { unreachable!("an address has facts") };
    let inboxes = InboxRules::built_in().map_err(CommandFailure::failed)?;
    let inbox = inboxes.canonical_inbox(address);
    let inbox =
        EmailAddress::parse(inbox.as_str()).map_or_else(|_| address.masked(), |it| it.masked());
    let rules: Vec<&DecisionRule> = rules.iter().filter(|it| it.applies_to(route.name)).collect();
    let action = match decision.action {
        Action::Pass | Action::Review if is_unscreened => ScreenAction::Unscreened.as_str(),
        decided => decided.as_str(),
    };
    print_result(match args.json {
        true => render_json(address, &inbox, facts, decision, action),
        false => render_text(address, &inbox, &rules, facts, decision, action),
    })
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
    inbox: &str,
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
    inbox: &str,
    rules: &[&DecisionRule],
    facts: &AddressFacts,
    decision: Decision<'_>,
    action: &str,
) -> String {
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
