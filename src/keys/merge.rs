//! One key out of what the store and the key file say of it: the stricter of both.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fault::RingFault;
use super::key_file::DeclaredKey;
use crate::model::origin::OriginPattern;
use crate::store::KeyRow;

/// A key as both sources together make it.
#[derive(Clone)]
pub struct MergedKey<'r> {
    /// Its row. Where both have it, id, account and label are those of the file.
    pub row: Cow<'r, KeyRow>,
    /// The origins that every source allows.
    pub origins: Vec<OriginPattern>,
    /// Whether it is restricted to these; without one, no origin is allowed then.
    pub is_restricted: bool,
    /// Why it can't be served.
    pub fault: Option<RingFault>,
}

/// The keys of both sources, each once.
pub fn merge_keys<'r>(rows: &'r [KeyRow], declared: &'r [DeclaredKey]) -> Vec<MergedKey<'r>> {
    let mut declared_ids: HashMap<[u8; 32], &KeyRow> =
        declared.iter().map(|effective| (effective.key.digest, &effective.key)).collect();
    let ids: HashMap<&str, [u8; 32]> = declared
        .iter()
        .map(|effective| (effective.key.id.as_str(), effective.key.digest))
        .collect();
    let mut duplicate_ids: HashMap<[u8; 32], RingFault> = HashMap::new();
    let mut keys = Vec::with_capacity(rows.len() + declared.len());
    for row in rows {
        if let Some(digest) = ids.get(row.id.as_str()).filter(|digest| **digest != row.digest) {
            duplicate_ids.insert(*digest, RingFault::DuplicateId { id: row.id.clone() });
        }
        let key = MergedKey::from_row(row);
        keys.push(match declared_ids.remove(&row.digest) {
            Some(declared) => key.restrict_by(declared),
            None => key,
        });
    }
    keys.extend(declared_ids.into_values().map(MergedKey::from_row));
    if !duplicate_ids.is_empty() {
        for key in &mut keys {
            key.fault = key.fault.take().or_else(|| duplicate_ids.remove(&key.row.digest));
        }
    }
    keys
}

impl<'r> MergedKey<'r> {
    fn from_row(row: &'r KeyRow) -> MergedKey<'r> {
        let mut fault = None;
        let mut pattern = |text: &String| {
            let parsed = OriginPattern::parse(text).ok();
            if parsed.is_none() {
                fault = Some(RingFault::InvalidOrigin { id: row.id.clone(), found: text.clone() });
            }
            parsed
        };
        let origins = row.origins.iter().filter_map(&mut pattern).collect();
        let is_restricted = !row.origins.is_empty();
        MergedKey { row: Cow::Borrowed(row), origins, is_restricted, fault }
    }

    /// The stricter of both.
    fn restrict_by(self, declared: &'r KeyRow) -> MergedKey<'r> {
        let declared_ids = MergedKey::from_row(declared);
        let mut row = declared.clone();
        row.merge_end(&self.row);
        row.require_origin |= self.row.require_origin;
        row.created_at = if row.created_at == 0 { self.row.created_at } else { row.created_at };
        row.label = row.label.or_else(|| self.row.label.clone());
        let origins = match (self.is_restricted, declared_ids.is_restricted) {
            (true, true) => intersect_patterns(&self.origins, &declared_ids.origins),
            (true, false) => self.origins,
            (false, _) => declared_ids.origins,
        };
        MergedKey {
            row: Cow::Owned(row),
            origins,
            is_restricted: self.is_restricted || declared_ids.is_restricted,
            fault: self.fault.or(declared_ids.fault),
        }
    }
}

/// What a pattern of each side covers.
fn intersect_patterns(ours: &[OriginPattern], theirs: &[OriginPattern]) -> Vec<OriginPattern> {
    let mut covered = Vec::new();
    for (one, other) in ours.iter().flat_map(|one| theirs.iter().map(move |other| (one, other))) {
        if let Some(narrower) = one.intersect(other)
            && !covered.contains(narrower)
        {
            covered.push(narrower.clone());
        }
    }
    covered
}
