//! Measures the recipes of docs/decisions.md on drawn traffic: how many honest sign-ups they review
//! and block, after how many forms they stop a campaign, and what a decision costs.
//!
//! Run `cargo bench --bench sign_ups`; add `-- --quick` for 20,000 honest sign-ups a day in place of
//! 200,000, and `-- --seed N` for other draws. `-- --memory` prints the memory of the process after
//! millions of sign-ups instead. The traffic is an assumption, which `sign_ups/traffic.rs` and
//! `sign_ups/campaigns.rs` state. Time is simulated; only the cost of a decision is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use riskgate::decide::{Action, DecisionRule};

#[path = "sign_ups/campaigns.rs"]
mod campaigns;
#[path = "sign_ups/memory.rs"]
mod memory;
#[path = "sign_ups/model.rs"]
mod model;
#[path = "sign_ups/traffic.rs"]
mod traffic;

use campaigns::list_campaigns;
use memory::print_memory;
use model::{Model, read_recipes};
use traffic::{HonestForm, Random, draw_crowds, draw_day};

const DAYS: i64 = 7;

#[derive(Default)]
struct Options {
    is_quick: bool,
    is_memory: bool,
    seed: u64,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo adds it.
                "--bench" => {}
                "--quick" => options.is_quick = true,
                "--memory" => options.is_memory = true,
                "--seed" => {
                    let found = arguments.next().unwrap_or_default();
                    let fault = |_| format!("--seed: expected a whole number, but found {found:?}");
                    options.seed = found.parse().map_err(fault)?;
                }
                other => {
                    let expected = "expected --quick, --memory or --seed N";
                    return Err(format!("{expected}, but found {other:?}"));
                }
            }
        }
        Ok(options)
    }
}

/// What followed for the people of one kind.
#[derive(Default)]
struct Outcome {
    forms: usize,
    reviewed: usize,
    blocked: usize,
    by: BTreeMap<String, usize>,
}

impl Outcome {
    fn add(&mut self, action: Action, by: String) {
        self.forms += 1;
        match action {
            Action::Pass => return,
            Action::Review => self.reviewed += 1,
            Action::Block => self.blocked += 1,
        }
        *self.by.entry(by).or_default() += 1;
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("{fault}");
            return ExitCode::FAILURE;
        }
    };
    let mut random = Random(options.seed);
    if options.is_memory {
        print_memory(&mut random);
        return ExitCode::SUCCESS;
    }
    let per_day = if options.is_quick { 20_000 } else { 200_000 };
    let mut people = Vec::new();
    for day in 0..DAYS {
        draw_day(&mut random, day, per_day, &mut people);
    }
    let mut crowds = Vec::new();
    draw_crowds(&mut random, &mut crowds);
    let (of_people, of_crowds, seed) = (people.len(), crowds.len(), options.seed);
    println!("{of_people} honest forms in {DAYS} days, and {of_crowds} of crowds; seed {seed}\n");
    let recipes = read_recipes();
    let mut model = Model::new(recipes.clone());
    print_honest(&mut model, people, crowds);
    print_campaigns(&mut random, &recipes);
    print_times(&mut model.times);
    ExitCode::SUCCESS
}

fn print_honest(model: &mut Model, people: Vec<HonestForm>, crowds: Vec<HonestForm>) {
    let of_crowd: BTreeSet<&str> = crowds.iter().map(|(cause, _)| *cause).collect();
    let mut forms = people;
    forms.extend(crowds);
    forms.sort_by_key(|(_, form)| form.at);
    let mut outcomes: BTreeMap<&str, Outcome> = BTreeMap::new();
    for (cause, form) in &forms {
        let (action, by) = model.decide(form);
        outcomes.entry(cause).or_default().add(action, by);
    }
    println!("| who | forms | reviewed | blocked | by |\n|---|---:|---:|---:|---|");
    for (cause, outcome) in &outcomes {
        let Outcome { forms, reviewed, blocked, by } = outcome;
        let share = 100.0 * *reviewed as f64 / *forms as f64;
        let by: Vec<String> = by.iter().map(|(rule, count)| format!("{rule}: {count}")).collect();
        println!("| {cause} | {forms} | {share:.2} % | {blocked} | {} |", by.join(", "));
    }
    let sum = |is_counted: &dyn Fn(&str) -> bool| {
        let counted = outcomes.iter().filter(|(cause, _)| is_counted(cause));
        counted.fold((0, 0, 0), |(forms, reviewed, blocked), (_, it)| {
            (forms + it.forms, reviewed + it.reviewed, blocked + it.blocked)
        })
    };
    let without_crowds = sum(&|cause| !of_crowd.contains(cause));
    for (what, (forms, reviewed, blocked)) in
        [("all", sum(&|_| true)), ("all without the crowds", without_crowds)]
    {
        let share = 100.0 * reviewed as f64 / forms as f64;
        println!("| {what} | {forms} | {share:.2} % | {blocked} | |");
    }
}

fn print_campaigns(random: &mut Random, recipes: &[DecisionRule]) {
    println!("\n| campaign | forms | passed before the first review or block | passed in all |");
    println!("|---|---:|---:|---:|");
    for (name, forms) in list_campaigns(random) {
        let mut model = Model::new(recipes.to_vec());
        let actions: Vec<Action> = forms.iter().map(|form| model.decide(form).0).collect();
        let first = actions.iter().position(|action| *action != Action::Pass);
        let passed = actions.iter().filter(|action| **action == Action::Pass).count();
        let first = first.map_or("never".to_owned(), |at| at.to_string());
        println!("| {name} | {} | {first} | {passed} |", actions.len());
    }
}

fn print_times(times: &mut [Duration]) {
    times.sort_unstable();
    let mean: Duration = times.iter().sum::<Duration>() / times.len() as u32;
    let at = |share: usize| times[times.len() * share / 1_000];
    let (half, most) = (at(500), at(990));
    println!("\nid, counts, rules and counting: mean {mean:?}, half {half:?}, 99 % {most:?}");
}
