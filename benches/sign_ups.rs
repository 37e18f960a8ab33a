//! Measures the recipes of docs/decisions.md on drawn traffic: how many honest sign-ups they review
//! and block, after how many forms they stop a campaign, and what a decision costs.
//!
//! Run `cargo bench --bench sign_ups`; add `-- --quick` for 20,000 honest sign-ups a day in place of
//! 200,000, and `-- --seed N` for other draws. The traffic is an assumption, which `draw_honest_day`
//! and `list_campaigns` state. Time is simulated; only the cost of a decision is measured.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use riskgate::decide::{
    Action, Condition, DecisionRule, InboxSecret, Scope, ScorePolicy, SignUps, decide,
};
use riskgate::gate::address_facts::facts_of_address;
use riskgate::model::email::EmailAddress;
use riskgate::model::verdict::Rule;
use riskgate::table::{Table, TableLocation};

/// 2026-11-21.
const START: i64 = 1_795_219_200;
const DAY: i64 = 86_400;
const ROUTE: &str = "/signup";

/// The recipes of docs/decisions.md.
const RECIPES: [(&str, &[&str], Action); 5] = [
    ("many accounts of one inbox", &["inbox_accounts_30d >= 3"], Action::Block),
    ("another account of one inbox", &["inbox_accounts_30d >= 1"], Action::Review),
    (
        "burst on an unlisted domain",
        &["domain_accounts_1h >= 10", "verdict_source != list", "is_corporate_email == false"],
        Action::Review,
    ),
    (
        "many inboxes of an unlisted domain",
        &["domain_accounts_1d >= 25", "verdict_source != list", "is_corporate_email == false"],
        Action::Review,
    ),
    ("many inboxes from one network", &["client_accounts_1h >= 12"], Action::Review),
];

/// Free providers, each with its share of honest sign-ups in percent: an assumption.
const PROVIDERS: [(&str, usize); 8] = [
    ("gmail.com", 42),
    ("outlook.com", 7),
    ("hotmail.com", 7),
    ("yahoo.com", 6),
    ("icloud.com", 5),
    ("web.de", 2),
    ("mail.ru", 2),
    ("proton.me", 2),
];

/// Generates pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn address(&mut self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0100_0000 + self.below(0xd000_0000) as u32))
    }

    /// A second of the day: most sign-ups are in the afternoon, few at night.
    fn second_of_day(&mut self) -> i64 {
        let noon = (0..3).map(|_| self.below(DAY as usize) as i64).sum::<i64>() / 3;
        if self.one_in(4) { self.below(DAY as usize) as i64 } else { (noon + DAY / 8) % DAY }
    }
}

/// A form that is posted.
struct Form {
    at: i64,
    email: String,
    client: IpAddr,
    /// Why it is sent, for the report.
    cause: &'static str,
}

fn form(at: i64, email: String, client: IpAddr, cause: &'static str) -> Form {
    Form { at, email, client, cause }
}

/// The honest sign-ups of a day. Of 100 people, 73 use a free provider, the others the domain of one
/// of 40,000 companies. One in 30 sends the form twice, one in 50 corrects a typing mistake, one in 40
/// comes through one of 200 networks of mobile operators. One in 1,000 opens a second account with a
/// tag.
fn draw_honest_day(random: &mut Random, day: i64, count: usize, out: &mut Vec<Form>) {
    for _ in 0..count {
        let at = START + day * DAY + random.second_of_day();
        let number = random.below(usize::MAX >> 20);
        let drawn = random.below(100);
        let mut sum = 0;
        let provider = PROVIDERS.iter().find(|(_, share)| {
            sum += share;
            drawn < sum
        });
        let domain = match provider {
            Some((name, _)) => (*name).to_owned(),
            None => format!("firm-{}.example-{}.com", "x", random.below(40_000)),
        };
        let client = match random.one_in(40) {
            true => {
                IpAddr::V4(Ipv4Addr::new(100, 64, random.below(200) as u8, random.below(250) as u8))
            }
            false => random.address(),
        };
        let email = format!("person{number}@{domain}");
        if random.one_in(30) {
            out.push(form(at + 1, email.clone(), client, "the same form twice"));
        }
        if random.one_in(50) {
            out.push(form(
                at - 40,
                format!("persn{number}@{domain}"),
                client,
                "a mistake, corrected",
            ));
        }
        if random.one_in(1_000) {
            let second = format!("person{number}+shop@{domain}");
            out.push(form(at + 3_600, second, client, "a second account"));
        }
        out.push(form(at, email, client, "a person"));
    }
}

/// Crowds of honest people, once in a week.
fn draw_crowds(random: &mut Random, out: &mut Vec<Form>) {
    let office = random.address();
    for number in 0..500 {
        let at = START + DAY + 9 * 3_600 + random.below(3_600) as i64;
        let email = format!("colleague{number}@new-office-4.com");
        out.push(form(at, email, office, "500 colleagues in an hour"));
    }
    let campus: Vec<IpAddr> = (0..10).map(|_| random.address()).collect();
    for number in 0..3_000 {
        let at = START + random.below(6) as i64 * DAY + random.second_of_day();
        let client = campus[random.below(campus.len())];
        let email = format!("student{number}@students.tu-neustadt-4.org");
        out.push(form(at, email, client, "a university's first week"));
    }
    let school = random.address();
    for number in 0..120 {
        let at = START + 2 * DAY + 10 * 3_600 + random.below(3_600) as i64;
        let email = format!("pupil{number}@gmail.com");
        out.push(form(at, email, school, "a school behind one address"));
    }
}

/// Campaigns: their names and their forms.
fn list_campaigns(random: &mut Random) -> Vec<(&'static str, Vec<Form>)> {
    let spread = |random: &mut Random| random.address();
    let start = START + 3 * DAY;
    let mut campaigns = Vec::new();
    let tagged = |number: usize, separator: &str| format!("the.boss{separator}{number}@gmail.com");
    campaigns.push((
        "one inbox, a tag for each account",
        (0..500)
            .map(|n| form(start + n as i64 * 60, tagged(n, "+a"), spread(random), "campaign"))
            .collect::<Vec<_>>(),
    ));
    campaigns.push((
        "one inbox, dots",
        (1..500usize)
            .map(|n| {
                let dotted: String = "thelongname"
                    .char_indices()
                    .flat_map(|(at, c)| {
                        (at > 0 && n >> (at - 1) & 1 == 1).then_some('.').into_iter().chain([c])
                    })
                    .collect();
                form(
                    start + n as i64 * 60,
                    format!("{dotted}@gmail.com"),
                    spread(random),
                    "campaign",
                )
            })
            .collect(),
    ));
    campaigns.push((
        "one new domain, 300 an hour",
        (0..2_000)
            .map(|n| {
                form(
                    start + n as i64 * 12,
                    format!("u{n}@brandneumail-77.com"),
                    spread(random),
                    "campaign",
                )
            })
            .collect(),
    ));
    campaigns.push((
        "80,000 in a week, 160 new domains one by one",
        (0..80_000)
            .map(|n| {
                let name = format!("u{n}@quarzholz{}.com", (n / 500) % 160);
                form(start + n as i64 * 7, name, spread(random), "campaign")
            })
            .collect(),
    ));
    campaigns.push((
        "80,000 in a week, 160 new domains in turn",
        (0..80_000)
            .map(|n| {
                let name = format!("u{n}@quarzholz{}.com", n % 160);
                form(start + n as i64 * 7, name, spread(random), "campaign")
            })
            .collect(),
    ));
    campaigns.push((
        "one an hour over 40 domains",
        (0..400)
            .map(|n| {
                form(
                    start + n as i64 * 3_600,
                    format!("u{n}@lerchenau{}.com", n % 40),
                    spread(random),
                    "campaign",
                )
            })
            .collect(),
    ));
    let one_network = random.address();
    campaigns.push((
        "one network, free providers",
        (0..1_000)
            .map(|n| {
                form(
                    start + n as i64 * 10,
                    format!("free.user{n}@outlook.com"),
                    one_network,
                    "campaign",
                )
            })
            .collect(),
    ));
    campaigns
}

/// The state of a gateway, as far as decisions need it.
struct Model {
    table: Table,
    sign_ups: SignUps,
    rules: Vec<DecisionRule>,
    times: Vec<Duration>,
}

impl Model {
    fn new() -> Model {
        let secret = InboxSecret::new(&[7; 32]).expect("a secret");
        let sign_ups = SignUps::with_secret(Some(&secret)).expect("the list of inbox rules");
        sign_ups.set_loaded();
        let rules = RECIPES.iter().map(|(name, conditions, then)| DecisionRule {
            name: (*name).into(),
            conditions: conditions
                .iter()
                .map(|it| Condition::parse(it).expect("a condition"))
                .collect(),
            then: *then,
            message: None,
            routes: None,
        });
        Model {
            table: Table::load(&TableLocation::Bundled).expect("the bundled table"),
            sign_ups,
            rules: rules.collect(),
            times: Vec::new(),
        }
    }

    /// Decides a form, and counts it unless it is blocked. Returns the action and the rule.
    fn decide(&mut self, form: &Form) -> (Action, &'static str) {
        let address = EmailAddress::parse(&form.email).expect("an address");
        let lookup = self.table.lookup(address.domain(), form.at);
        let started = Instant::now();
        let is_shared = lookup.verdict.rule == Rule::Protected || lookup.verdict.is_free_provider;
        let scope = Scope::Deployment;
        let sign_up =
            self.sign_ups.identify(&address, Some(form.client), !is_shared, scope, form.at);
        let sign_up = sign_up.expect("a secret");
        let counts = self.sign_ups.count_others(&sign_up);
        let mut facts = facts_of_address(&address, &lookup, self.table.role_score());
        facts.iter_mut().for_each(|facts| facts.counts = counts);
        let policy = ScorePolicy::default();
        let decision = decide(&facts[0].for_rules(), ROUTE, &self.rules, &policy);
        if decision.action != Action::Block {
            self.sign_ups.record_form(&[sign_up]);
        }
        self.times.push(started.elapsed());
        let rule = decision.rule.and_then(|it| RECIPES.iter().find(|(name, ..)| it.name == *name));
        // The thread that takes the queued sign-ups to the store is missing here.
        self.sign_ups.take_unsaved();
        (decision.action, rule.map_or("the score", |(name, ..)| name))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_quick = arguments.iter().any(|it| it == "--quick");
    let seed = arguments.iter().position(|it| it == "--seed");
    let seed = seed.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(0);
    let per_day = if is_quick { 20_000 } else { 200_000 };
    let mut random = Random(seed);
    let mut honest = Vec::new();
    for day in 0..7 {
        draw_honest_day(&mut random, day, per_day, &mut honest);
    }
    let people = honest.len();
    draw_crowds(&mut random, &mut honest);
    let campaigns = list_campaigns(&mut random);
    honest.sort_by_key(|form| form.at);
    let mut model = Model::new();
    let mut by_cause: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut total: BTreeMap<&str, usize> = BTreeMap::new();
    for form in &honest {
        let (action, rule) = model.decide(form);
        *total.entry(form.cause).or_default() += 1;
        *by_cause.entry((form.cause, action.as_str(), rule)).or_default() += 1;
    }
    println!(
        "{people} honest sign-ups in a week, and crowds of {}; seed {seed}",
        honest.len() - people
    );
    println!("\n| who | action | by | sign-ups | of these people |\n|---|---|---|---:|---:|");
    for ((cause, action, rule), count) in
        by_cause.iter().filter(|((_, action, _), _)| *action != "pass")
    {
        let share = 100.0 * *count as f64 / total[cause] as f64;
        println!("| {cause} | {action} | {rule} | {count} | {share:.3} % |");
    }
    println!(
        "\n| campaign | forms | passed before the first review or block | passed in all |\n|---|---:|---:|---:|"
    );
    for (name, forms) in campaigns {
        let mut model = Model::new();
        let actions: Vec<Action> = forms.iter().map(|form| model.decide(form).0).collect();
        let first = actions.iter().position(|action| *action != Action::Pass);
        let passed = actions.iter().filter(|action| **action == Action::Pass).count();
        let first = first.map_or("never".to_owned(), |at| at.to_string());
        println!("| {name} | {} | {first} | {passed} |", actions.len());
    }
    model.times.sort_unstable();
    let mean: Duration = model.times.iter().sum::<Duration>() / model.times.len() as u32;
    let at = |share: usize| model.times[model.times.len() * share / 1_000];
    println!(
        "\nid, counts, rules and counting: mean {mean:?}, half {:?}, 99 % {:?}",
        at(500),
        at(990)
    );
}
