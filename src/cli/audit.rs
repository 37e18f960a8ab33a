//! `riskgate audit`: who changed what.

use serde_json::Value;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_message, print_result};
use super::store_access::open_store_to_read;
use crate::management::{AuditFilter, check_operation, read_audit_page};
use crate::model::month::format_rfc3339;
use crate::store::{AuditRecord, Store, StoreError};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this operation, such as key.create; with the part up to the dot, such as "key.", all
    /// operations that begin with it.
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only changes by actors whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    actor: Option<String>,
    /// Only changes of keys, accounts, domains or files whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// How many records to print, the newest first.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Only records older than the record with this id.
    #[arg(long, value_name = "ID")]
    before: Option<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandFailure> {
    if let Some(id) = args.before.as_ref().filter(|id| AuditRecord::parse_id(id).is_none()) {
        let line = format!("--before: expected the id of a record, but found {id:?}");
        return Err(CommandFailure::usage(line));
    }
    if let Some(operation) = &args.operation {
        check_operation(operation)?;
    }
    let config = args.config.read_config()?;
    let filter = AuditFilter {
        operation: args.operation.clone(),
        actor: args.actor.clone(),
        target: args.target.clone(),
    };
    let before = args.before.as_deref();
    let (records, next_id) = match open_store_to_read(&config)? {
        Some(mut store) => read_matches(&mut store, &filter, before, args.limit)?,
        None => Default::default(),
    };
    if args.json {
        print_result(records.iter().map(format_json_line).collect::<String>())?;
    } else {
        let header = ["TIME", "ACTOR", "VIA", "FROM", "OPERATION", "TARGET", "BEFORE", "AFTER"];
        print_result(format_columns(&header, &records.iter().map(format_row).collect::<Vec<_>>()))?;
    }
    if let Some(id) = next_id {
        print_message(format!("there are older records: --before {id}"));
    }
    Ok(())
}

/// Reads pages until there are `limit` matches or no more records. A page may have few matches.
fn read_matches(
    store: &mut Store,
    filter: &AuditFilter,
    before_id: Option<&str>,
    limit: usize,
) -> Result<(Vec<AuditRecord>, Option<String>), StoreError> {
    let (mut matches, mut next_id) = read_audit_page(store, filter, before_id, limit)?;
    while matches.len() < limit
        && let Some(before_id) = next_id
    {
        let left = limit - matches.len();
        let (page, next) = read_audit_page(store, filter, Some(&before_id), left)?;
        matches.extend(page);
        next_id = next;
    }
    Ok((matches, next_id))
}

fn format_json_line(record: &AuditRecord) -> String {
    format!("{}\n", record.to_json())
}

fn format_row(record: &AuditRecord) -> Vec<String> {
    let state = |state: &Value| match state {
        Value::Null => "-".to_owned(),
        state => state.to_string(),
    };
    vec![
        format_rfc3339(record.at),
        record.author.actor.clone(),
        record.author.via.as_str().to_owned(),
        record.author.from.clone(),
        record.operation.clone(),
        record.target.clone(),
        state(&record.before),
        state(&record.after),
    ]
}
