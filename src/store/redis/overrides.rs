//! The operator's overrides on a server, in one hash. The version is a field of the metadata of the
//! ring.

use std::collections::BTreeMap;

use serde_json::json;

use super::audit::format_change;
use super::connection::Redis;
use super::fill::{OnExistingKey, Staging};
use super::key_names::{AUDIT, OVERRIDES, RING_META_KEY, SOURCE_STATES};
use super::scripts::Script;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::OverrideBackend;
use crate::store::overrides::{
    MAX_STORED_OVERRIDES, OverrideTakeOver, OverrideUpdate, OverridesVersion, StoredOverride,
    StoredOverrides, scope_of, too_many_overrides_error,
};

const READ_OPERATION: &str = "reading the overrides";
const WRITE_OPERATION: &str = "changing overrides";
/// How often riskgate reads all overrides at most, if some keep changing during the read. The last
/// read counts in any case.
const MAX_READS_OF_OVERRIDES: u32 = 8;

/// A field of the hash, and its value.
type Field = (String, Option<Vec<u8>>);

impl OverrideBackend for Redis {
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError> {
        let Some((version, found)) = self.read_version_and_count()? else { return Ok(None) };
        match version.filter(|version| version.count == found) {
            Some(version) => Ok(Some(version)),
            None => {
                let expected = "the overrides that were written";
                Err(self.unusable_error(expected, format!("{found} overrides")))
            }
        }
    }

    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.read_overrides_of_one_version(Redis::overrides_version)
    }

    fn remaining_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.read_overrides_of_one_version(|store| {
            let read = store.read_version_and_count()?;
            Ok(read.map(|(version, _)| version.unwrap_or_default()))
        })
    }

    fn override_change_id(&mut self, number: u64) -> Result<Option<String>, StoreError> {
        let entry = format!("override_change:{number}");
        self.query_within(READ_OPERATION, self.timeout, "HGET", (RING_META_KEY, entry))
    }

    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError> {
        let fields = self.read_fields(domain)?.into_iter();
        Ok(fields.filter_map(|(field, text)| parse_row(&field, &text?)).collect())
    }

    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        updates: &[OverrideUpdate<'_>],
    ) -> Result<bool, StoreError> {
        let [id, most] = [self.random_id()?, MAX_STORED_OVERRIDES.to_string()];
        let author_json = author.to_json().to_string();
        let mut arguments = vec![id.into_bytes(), author_json.into_bytes(), most.into_bytes()];
        for update in updates {
            let Some(of_domain) = self.prepare_update(author, update)? else { return Ok(false) };
            arguments.extend(of_domain);
        }
        let names = [RING_META_KEY, OVERRIDES, AUDIT];
        let script = Script::UpdateOverrides;
        match self.run_write_script::<i64>(WRITE_OPERATION, script, &names, &arguments)? {
            -1 => Err(too_many_overrides_error()),
            changed => Ok(changed == 1),
        }
    }

    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError> {
        let [author, operation, target, _, after] = format_change(author, &take_over.to_change());
        let [content, file] = take_over.subjects.clone();
        let most = MAX_STORED_OVERRIDES.to_string();
        let mut arguments = vec![self.random_id()?, author, target, after, most, content, file];
        arguments.extend([take_over.remembered_state(), operation]);
        if take_over.rows.len() > MAX_STORED_OVERRIDES {
            return Err(too_many_overrides_error());
        }
        arguments.extend(take_over.rows.iter().map(|row| {
            let field = format_field(&row.domain, row.is_exact);
            format!("{field} {}", format_row_and_author(&row.text, &row.author))
        }));
        let names = [RING_META_KEY, OVERRIDES, AUDIT, SOURCE_STATES];
        let script = Script::TakeOverOverrides;
        match self.run_write_script::<i64>(WRITE_OPERATION, script, &names, &arguments)? {
            -1 => Err(too_many_overrides_error()),
            added => Ok(usize::try_from(added).ok()),
        }
    }
}

impl Redis {
    /// Makes the arguments of the script for the overrides of one domain; `None` if the store's
    /// overrides of the domain are not `update.before`.
    fn prepare_update(
        &mut self,
        author: &ChangeAuthor,
        update: &OverrideUpdate<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let (mut of_fields, mut removes_damaged_rows) = (Vec::new(), false);
        for (field, stored) in self.read_fields(update.domain)? {
            let of_field = |rows: &[StoredOverride]| {
                rows.iter().find(|row| format_field(&row.domain, row.is_exact) == field).cloned()
            };
            let (before, after) = (of_field(update.before), of_field(update.after));
            // A value that can't be read is replaced as if there was none.
            let present = stored.as_ref().and_then(|text| parse_row(&field, text));
            if present != before {
                return Ok(None);
            }
            removes_damaged_rows |= stored.is_some() && present.is_none();
            let new = match after {
                Some(row) if Some(&row) == before.as_ref() => "=".to_owned(),
                Some(row) => format_row_and_author(&row.text, author),
                None => String::new(),
            };
            of_fields.extend([field.into_bytes(), stored.unwrap_or_default(), new.into_bytes()]);
        }
        let [_, of_change @ ..] = format_change(author, &update.to_change(removes_damaged_rows));
        let of_change = of_change.into_iter().map(String::into_bytes);
        Ok(Some(of_change.chain(of_fields).collect()))
    }

    /// Reads the version, and counts the rows in the same step. `None` if the store is not
    /// initialized. The version is `None` if riskgate did not write it.
    fn read_version_and_count(
        &mut self,
    ) -> Result<Option<(Option<OverridesVersion>, u64)>, StoreError> {
        type MetaFields = (Option<String>, Option<String>);
        let script = (Script::ReadOverridesState, &[RING_META_KEY, OVERRIDES][..]);
        let ((store_id, text), found): (MetaFields, u64) =
            self.run_read_script(READ_OPERATION, self.timeout, script, &[])?;
        let Some(store_id) = store_id else { return Ok(None) };
        Ok(Some((OverridesVersion::parse(store_id, text.as_deref()), found)))
    }

    /// Reads all overrides between two reads of the same version, if that succeeds within
    /// [`MAX_READS_OF_OVERRIDES`] reads.
    fn read_overrides_of_one_version(
        &mut self,
        read_version: impl Fn(&mut Redis) -> Result<Option<OverridesVersion>, StoreError>,
    ) -> Result<Option<StoredOverrides>, StoreError> {
        let mut reads = 1;
        loop {
            let Some(version) = read_version(self)? else { return Ok(None) };
            let (rows, damaged) = self.scan_overrides()?;
            // If the overrides keep changing, the next version is read soon.
            if read_version(self)?.as_ref() == Some(&version) || reads == MAX_READS_OF_OVERRIDES {
                return Ok(Some(StoredOverrides { version, rows, damaged }));
            }
            reads += 1;
        }
    }

    /// Reads the two fields of a domain, that of the exact override first, and their values.
    fn read_fields(&mut self, domain: &str) -> Result<Vec<Field>, StoreError> {
        let fields = [true, false].map(|is_exact| format_field(domain, is_exact));
        let values: [Option<Vec<u8>>; 2] =
            self.query(READ_OPERATION, "HMGET", (OVERRIDES, &fields))?;
        Ok(fields.into_iter().zip(values).collect())
    }

    /// Reads all overrides, sorted, and the fields that can't be read.
    fn scan_overrides(&mut self) -> Result<(Vec<StoredOverride>, Vec<String>), StoreError> {
        let (mut rows, mut damaged) = (BTreeMap::new(), Vec::new());
        self.scan_hash_fields(READ_OPERATION, OVERRIDES, |field, text| {
            let field = String::from_utf8_lossy(&field).into_owned();
            match parse_row(&field, &text) {
                Some(row) => drop(rows.insert((row.domain.clone(), row.scope()), row)),
                None => damaged.push(field),
            }
        })?;
        damaged.sort_unstable();
        damaged.dedup();
        Ok((rows.into_values().collect(), damaged))
    }

    /// Stages copied overrides. The last step of the copy sets their version.
    pub(super) fn stage_overrides(
        &mut self,
        staging: &mut Staging,
        rows: &[StoredOverride],
    ) -> Result<(), StoreError> {
        let fields: Vec<(String, String)> = rows
            .iter()
            .map(|row| (format_field(&row.domain, row.is_exact), format_row(row)))
            .collect();
        self.stage_hash(staging, OVERRIDES, OnExistingKey::Fail, &fields)
    }
}

fn format_field(domain: &str, is_exact: bool) -> String {
    format!("{domain} {}", scope_of(is_exact))
}

fn format_row(row: &StoredOverride) -> String {
    format!("{} {}", row.created_at, format_row_and_author(&row.text, &row.author))
}

/// The value of a field without the time, which a script puts in front.
fn format_row_and_author(text: &str, author: &ChangeAuthor) -> String {
    json!([text, author.to_json()]).to_string()
}

/// Returns `None` if riskgate did not write the field.
fn parse_row(field: &str, text: &[u8]) -> Option<StoredOverride> {
    let (domain, scope) = field.split_once(' ')?;
    let is_exact = scope == scope_of(true);
    let (created_at, json) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let [text, author]: [serde_json::Value; 2] = serde_json::from_str(json).ok()?;
    (scope == scope_of(is_exact)).then_some(StoredOverride {
        domain: domain.to_owned(),
        is_exact,
        text: text.as_str()?.to_owned(),
        author: ChangeAuthor::from_json(&author)?,
        created_at: created_at.parse().ok()?,
    })
}
