//! Reads pages of the audit.

use super::fault::ManagementFault;
use crate::store::{AuditOperation, AuditRecord, Store, StoreError};

/// Once riskgate has read this number of records for one page, the page ends, even if it has fewer
/// matches than the caller asked for.
const MAX_SCANNED_RECORDS: usize = 50_000;
const SCANNED_RECORDS_PER_READ: usize = 1_000;

/// Which records of the audit match. An empty filter matches all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// The operation, such as `key.create`; or the part up to the dot, such as `key.`, for all
    /// operations that begin with it.
    pub operation: Option<String>,
    /// A part of the actor.
    pub actor: Option<String>,
    /// A part of the target.
    pub target: Option<String>,
}

impl AuditFilter {
    fn matches(&self, record: &AuditRecord) -> bool {
        let contains = |part: &Option<String>, text: &str| {
            part.as_ref().is_none_or(|part| text.contains(part))
        };
        self.operation.as_ref().is_none_or(|wanted| match wanted.ends_with('.') {
            true => record.operation.starts_with(wanted),
            false => record.operation == *wanted,
        }) && contains(&self.actor, &record.author.actor)
            && contains(&self.target, &record.target)
    }
}

/// Checks the operation of a filter: it is the name of one, or the part up to the dot of several.
///
/// # Errors
/// If no operation has this name.
pub fn check_operation(wanted: &str) -> Result<(), ManagementFault> {
    let names = AuditOperation::ALL.map(AuditOperation::as_str);
    let is_known = |name: &&str| match wanted.ends_with('.') {
        true => name.starts_with(wanted),
        false => *name == wanted,
    };
    if names.iter().any(is_known) {
        return Ok(());
    }
    let expected = format!("one of {}", names.join(", "));
    let meant = names.iter().find(|name| name.rsplit('.').next() == Some(wanted));
    let fault = ManagementFault::invalid("operation", expected, format!("{wanted:?}"));
    Err(fault.with_meant(meant.map(|it| (*it).to_owned())))
}

/// Reads up to `count` records that match, the newest first. All of them are older than the record
/// `before_id`, if one is given. Returns the id before which the next page begins; `None` only if
/// there are no older records.
///
/// # Errors
/// If the store fails.
pub fn read_audit_page(
    store: &mut Store,
    filter: &AuditFilter,
    before_id: Option<&str>,
    count: usize,
) -> Result<(Vec<AuditRecord>, Option<String>), StoreError> {
    let (mut matches, mut scanned) = (Vec::new(), 0);
    let mut next_id = before_id.map(str::to_owned);
    loop {
        let read = store.read_audit_before(next_id.as_deref(), SCANNED_RECORDS_PER_READ)?;
        let is_last = read.len() < SCANNED_RECORDS_PER_READ;
        scanned += read.len();
        for record in read {
            if matches.len() == count {
                return Ok((matches, next_id));
            }
            next_id = Some(record.id.clone());
            if filter.matches(&record) {
                matches.push(record);
            }
        }
        if is_last {
            return Ok((matches, None));
        }
        if scanned >= MAX_SCANNED_RECORDS {
            return Ok((matches, next_id));
        }
    }
}
