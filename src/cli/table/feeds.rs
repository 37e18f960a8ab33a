//! `riskgate table update` and `riskgate table feeds`.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::failure::CommandFailure;
use super::super::output::{print_message, print_progress, print_result};
use crate::cli::store_access::{COMMAND_STORE_TIMEOUT, read_table_inputs};
use crate::config::Config;
use crate::feed::{Feed, FeedStatus, Feeds, UpdateOutcome};
use crate::management::read_present_time;
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::format_rfc3339;
use crate::support::counted::CountedNoun;
use crate::table::Table;

/// How long the command waits while a gateway updates the same feed.
const MAX_LOCK_WAIT_OF_COMMAND: Duration = Duration::from_secs(120);

/// Fetches the named feeds once, or all feeds.
pub fn update_feeds(
    names: &[String],
    config: &Config,
    is_forced: bool,
    json: bool,
) -> Result<(), CommandFailure> {
    let feeds = &config.reloadable.feeds;
    check_feed_names(names, feeds)?;
    let now = read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT);
    let table = Table::build(&read_table_inputs(config), now)?;
    // A command has not watched the clock for long, so it deletes nothing by the time.
    let now = BelievedTime { unix_now: now, trust: TimeTrust::Known };
    let is_wanted = |feed: &&Feed| names.is_empty() || names.contains(&feed.name);
    let (mut lines, mut objects, mut failed) = (String::new(), Vec::new(), Vec::new());
    let wanted: Vec<&Feed> = feeds.feeds.iter().filter(is_wanted).collect();
    // All feeds are fetched at the same time, so that a feed that hangs keeps no other one waiting.
    let updates: Vec<_> =
        std::thread::scope(|scope| {
            let (table, dir) = (&table, &feeds.dir);
            let mut threads = Vec::new();
            for feed in wanted.iter().copied() {
                print_progress(format!("fetching {}", feed.name));
                threads.push(scope.spawn(move || {
                    feed.update(dir, table, now, is_forced, MAX_LOCK_WAIT_OF_COMMAND)
                }));
            }
            threads.into_iter().map(|thread| thread.join()).collect()
        });
    for (feed, updated) in wanted.into_iter().zip(updates) {
        let name = &feed.name;
        let updated = updated.map_err(|_| {
            CommandFailure::failed(format!("feed {name}: expected an update, but found a panic"))
        })?;
        let (line, object) = match updated {
            Ok(UpdateOutcome::ListReplaced(rows)) => (
                format!("{name}: {}\n", CountedNoun(rows, "row")),
                json!({ "name": name, "changed": true, "rows": rows, "problem": null }),
            ),
            Ok(UpdateOutcome::Unchanged) => (
                format!("{name}: unchanged\n"),
                json!({ "name": name, "changed": false, "rows": null, "problem": null }),
            ),
            Err(error) => {
                let problem = error.to_string();
                failed.push(format!("feed {problem}"));
                let object = json!({
                    "name": name, "changed": false, "rows": null, "problem": problem,
                });
                (String::new(), object)
            }
        };
        lines += &line;
        objects.push(object);
    }
    tell_if_no_feed_is_enabled(feeds);
    print_result(if json { format!("{:#}\n", Value::Array(objects)) } else { lines })?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure { message_lines: failed, exit_code: 1 }),
    }
}

fn tell_if_no_feed_is_enabled(feeds: &Feeds) {
    if feeds.feeds.is_empty() {
        print_message("no [[table.feed]] is enabled");
    }
}

/// Fails if a name is not the name of an enabled feed.
fn check_feed_names(names: &[String], feeds: &Feeds) -> Result<(), CommandFailure> {
    let unknown = names.iter().find(|name| !feeds.feeds.iter().any(|feed| feed.name == **name));
    if let Some(name) = unknown {
        let known: Vec<&str> = feeds.feeds.iter().map(|feed| feed.name.as_str()).collect();
        return Err(CommandFailure::usage(match known.is_empty() {
            true => format!(
                "feed: expected an enabled [[table.feed]] named {name:?}, but found none; write \
                 [[table.feed]], and below it name = \"castle\""
            ),
            false => {
                format!("feed: expected one of {}, but found {name:?}", known.join(", "))
            }
        }));
    }
    Ok(())
}

/// Prints the status of each feed.
pub fn print_feed_statuses(
    out: &mut dyn Write,
    config: &Config,
    json: bool,
) -> Result<(), CommandFailure> {
    let feeds = &config.reloadable.feeds;
    tell_if_no_feed_is_enabled(feeds);
    let status = feeds.read_status(read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT));
    if json {
        let values: Vec<Value> = status.iter().map(FeedStatus::to_json).collect();
        return Ok(writeln!(out, "{:#}", Value::Array(values))?);
    }
    for FeedStatus { name, url, state, problem } in &status {
        let moment = |at: Option<i64>| at.map_or_else(|| "never".to_owned(), format_rfc3339);
        writeln!(out, "{name}  {url}")?;
        writeln!(out, "  rows     {}", state.rows)?;
        writeln!(out, "  kept     {}", state.kept)?;
        writeln!(out, "  fetched  {}", moment(state.fetched_at))?;
        writeln!(out, "  changed  {}", moment(state.changed_at))?;
        if let Some(problem) = problem {
            writeln!(out, "  problem  {problem}")?;
        }
    }
    Ok(())
}
