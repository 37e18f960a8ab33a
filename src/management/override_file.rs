//! The file of overrides that the operator writes. Its rows win over those of the store, even over
//! more specific ones. riskgate never writes this file.

use std::collections::HashMap;
use std::path::PathBuf;

use super::fault::ManagementFault;
use crate::model::domain::DnsName;
use crate::table::{OverrideListRow, TableInputs};

/// What a file of overrides has.
#[derive(Clone, Debug, Default)]
pub(super) struct OverrideFile {
    path: PathBuf,
    /// The rows that win over those of the store: none if the file is faulty, or if it is that of
    /// earlier versions, whose rows the store takes over.
    winning_rows: Vec<OverrideListRow>,
    /// Why no row of the file can be read.
    fault: Option<String>,
}

impl OverrideFile {
    /// Reads the file of these inputs, if they name one.
    pub(super) fn read(inputs: &TableInputs) -> OverrideFile {
        let Some(path) = &inputs.overrides_path else { return OverrideFile::default() };
        let (mut winning_rows, fault) = match OverrideListRow::read_file(path) {
            Ok(rows) => (rows, None),
            Err(faults) => (Vec::new(), Some(faults.to_string())),
        };
        if inputs.is_default_overrides_path {
            winning_rows.clear();
        }
        OverrideFile { path: path.clone(), winning_rows, fault }
    }

    /// Whether no row of the file can be read.
    pub(super) fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    /// The fault of the file, and what it means for a change of the store.
    pub(super) fn warning(&self) -> Option<String> {
        let meaning = "gateways keep the rows of this file that they read last, and those win";
        self.fault.as_ref().map(|fault| format!("{fault}; {meaning}"))
    }

    /// Fails if a row of the name itself counts at `now`, in seconds since 1970.
    pub(super) fn check_has_no_row(&self, name: &DnsName, now: i64) -> Result<(), ManagementFault> {
        self.check_no_row(name, now, |row| row.domain == name.as_str())
    }

    /// Fails if a row decides the name, because no override of the store could then decide it. Such
    /// a row counts at `now`, in seconds since 1970. It is a row of the name, or the row of a
    /// parent that covers the names below the parent.
    pub(super) fn check_does_not_decide(
        &self,
        name: &DnsName,
        now: i64,
    ) -> Result<(), ManagementFault> {
        self.check_no_row(name, now, |row| {
            let below = name.as_str().strip_suffix(row.domain.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.') && !row.is_exact)
        })
    }

    /// Finds, for each of these names, the rows of which one decides the name unless it has ended,
    /// as in [`OverrideFile::check_does_not_decide`].
    pub(super) fn find_deciding_rows<'n>(
        &self,
        names: impl Iterator<Item = &'n String>,
    ) -> HashMap<String, Vec<OverrideListRow>> {
        let mut rows_by_domain: HashMap<&str, Vec<&OverrideListRow>> = HashMap::new();
        for row in &self.winning_rows {
            rows_by_domain.entry(&row.domain).or_default().push(row);
        }
        let find = |name: &str| -> Vec<OverrideListRow> {
            let own_and_parents = std::iter::successors(Some(name), |name| {
                name.split_once('.').map(|(_, parent)| parent)
            });
            let rows = own_and_parents.filter_map(|it| rows_by_domain.get(it)).flatten();
            rows.filter(|row| row.domain == name || !row.is_exact).copied().cloned().collect()
        };
        names.map(|name| (name.clone(), find(name))).filter(|(_, rows)| !rows.is_empty()).collect()
    }

    fn check_no_row(
        &self,
        name: &DnsName,
        now: i64,
        is_meant: impl Fn(&OverrideListRow) -> bool,
    ) -> Result<(), ManagementFault> {
        let mut rows = self.winning_rows.iter();
        match rows.find(|row| !row.has_ended(now) && is_meant(row)) {
            Some(row) => Err(ManagementFault::Conflict(format!(
                "{}:{}: this file of table.overrides has a row of {}, which wins over the store \
                 for {name}; change it there, because riskgate never writes this file",
                self.path.display(),
                row.line,
                row.domain,
            ))),
            None => Ok(()),
        }
    }
}
