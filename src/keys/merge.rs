//! Merges the keys of the store and of the key file. If a key is in both, the stricter settings
//! apply.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fault::RingFault;
use super::key_file::DeclaredKey;
use crate::model::origin::OriginPattern;
use crate::store::KeyRow;

/// A key, merged from the store and the key file.
#[derive(Clone)]
pub struct MergedKey<'r> {
    /// The key's row. If the key is in the store and in the key file, the id and the account are
    /// those of the key file. If the file has the label or the time of creation, they are those of
    /// the file.
    pub row: Cow<'r, KeyRow>,
    /// The origins that a restricted key allows. If the store and the key file both restrict the
    /// key, these are the origins that both allow.
    pub origins: Vec<OriginPattern>,
    /// Whether the key is restricted to `origins`. If `origins` is empty, a restricted key allows
    /// no origin.
    pub is_origin_restricted: bool,
    /// Whether the store has the key. If not, only the key file has it.
    pub is_in_store: bool,
    /// Why riskgate can't serve the key; `None` if it can.
    pub fault: Option<RingFault>,
}

/// Merges the keys of the store (`rows`) and of the key file (`declared`). Each key appears once.
pub fn merge_keys<'r>(rows: &'r [KeyRow], declared: &'r [DeclaredKey]) -> Vec<MergedKey<'r>> {
    let mut declared_by_digest: HashMap<[u8; 32], &KeyRow> =
        declared.iter().map(|declared| (declared.key.digest, &declared.key)).collect();
    let digest_by_id: HashMap<&str, [u8; 32]> =
        declared.iter().map(|declared| (declared.key.id.as_str(), declared.key.digest)).collect();
    let mut duplicate_id_faults: HashMap<[u8; 32], RingFault> = HashMap::new();
    let mut keys = Vec::with_capacity(rows.len() + declared.len());
    for row in rows {
        let declared_digest = digest_by_id.get(row.id.as_str());
        if let Some(digest) = declared_digest.filter(|digest| **digest != row.digest) {
            duplicate_id_faults.insert(*digest, RingFault::DuplicateId { id: row.id.clone() });
        }
        let key = MergedKey::from_row(row);
        keys.push(match declared_by_digest.remove(&row.digest) {
            Some(declared) => key.merge_with_declared(declared),
            None => key,
        });
    }
    let only_declared = declared_by_digest.into_values().map(MergedKey::from_row);
    keys.extend(only_declared.map(|key| MergedKey { is_in_store: false, ..key }));
    if !duplicate_id_faults.is_empty() {
        for key in &mut keys {
            key.fault = key.fault.take().or_else(|| duplicate_id_faults.remove(&key.row.digest));
        }
    }
    keys
}

impl<'r> MergedKey<'r> {
    fn from_row(row: &'r KeyRow) -> MergedKey<'r> {
        let mut fault = None;
        let mut parse_pattern = |text: &String| {
            let parsed = OriginPattern::parse(text).ok();
            if parsed.is_none() {
                fault = Some(RingFault::InvalidOrigin { id: row.id.clone(), found: text.clone() });
            }
            parsed
        };
        let origins = row.origins.iter().filter_map(&mut parse_pattern).collect();
        let is_origin_restricted = !row.origins.is_empty();
        let row = Cow::Borrowed(row);
        MergedKey { row, origins, is_origin_restricted, is_in_store: true, fault }
    }

    /// Merges this key of the store with its entry in the key file.
    fn merge_with_declared(self, declared: &'r KeyRow) -> MergedKey<'r> {
        let restriction = MergedKey::from_row(declared);
        let mut row = declared.clone();
        row.merge_earlier_end(&self.row);
        row.require_origin |= self.row.require_origin;
        row.created_at = if row.created_at == 0 { self.row.created_at } else { row.created_at };
        row.label = row.label.or_else(|| self.row.label.clone());
        let origins = match (self.is_origin_restricted, restriction.is_origin_restricted) {
            (true, true) => intersect_patterns(&self.origins, &restriction.origins),
            (true, false) => self.origins,
            (false, _) => restriction.origins,
        };
        MergedKey {
            row: Cow::Owned(row),
            origins,
            is_origin_restricted: self.is_origin_restricted || restriction.is_origin_restricted,
            is_in_store: true,
            fault: self.fault.or(restriction.fault),
        }
    }
}

/// Returns patterns for the origins that are covered by both lists.
fn intersect_patterns(left: &[OriginPattern], right: &[OriginPattern]) -> Vec<OriginPattern> {
    let mut covered = Vec::new();
    for (one, other) in left.iter().flat_map(|one| right.iter().map(move |other| (one, other))) {
        if let Some(narrower) = one.intersect(other)
            && !covered.contains(narrower)
        {
            covered.push(narrower.clone());
        }
    }
    covered
}
