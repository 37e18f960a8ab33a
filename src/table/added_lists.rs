//! Lists that are added to the lists of the manifest: the operator's overrides, and the lists of
//! feeds.
//!
//! Drops the rows of feeds that must not change an answer. `resolve/overrides` owns the precedence
//! of overrides. This module reads local files; `feed` fetches lists.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::fault::{TableFaults, fault_from_read_error};
use super::kept_lists::KeptLists;
use super::location::{MAX_LIST_BYTES, TableLocation, read_list_file};
use super::manifest::{ListKind, ListOrigin, ListSpec, Manifest};
use super::rows::{Coverage, NO_REGISTRABLE_DOMAIN, ParsedLists, Row};
use super::rules::{self, rule_bit};
use crate::model::domain::self_and_parent_offsets;
use crate::model::verdict::Rule;
use crate::support::regular_file::ReadError;

/// What riskgate builds a serving table from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInputs {
    /// The lists to which the overrides and the feeds are added, or a compiled table.
    pub base_location: TableLocation,
    /// The operator's file of overrides, a CSV file. The file need not exist.
    pub overrides_path: Option<PathBuf>,
    /// Whether `overrides_path` is the default path of earlier versions, which wrote this file. The
    /// store takes the rows of this file over.
    pub is_default_overrides_path: bool,
    /// The overrides of the store, as the text of a file. `None` if the store has none.
    pub stored_overrides: Option<Arc<str>>,
    /// The last text of the file of overrides that had no fault. Set while the file has a fault:
    /// riskgate then uses this text instead of the file.
    pub last_good_overrides_text: Option<String>,
    /// The last lists without a fault. Set while those of `base_location` are refused; riskgate
    /// then uses these lists instead.
    pub last_good_lists: Option<Arc<KeptLists>>,
    /// The lists of feeds. Their files need not exist.
    pub feeds: Vec<FeedList>,
}

/// The name of the list of the store's overrides.
pub const STORED_OVERRIDES_LIST_NAME: &str = "overrides of the store";

/// The beginning of the first line of a feed's list on disk. The checksum follows.
const CHECKSUM_LINE_PREFIX: &str = "# xxh3 ";

/// The list of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedList {
    /// The feed's name, which is unique.
    pub name: String,
    /// The kind of the list's names.
    pub kind: FeedKind,
    /// The file with the feed's last good list, in the format of
    /// [`FeedList::render_with_checksum`].
    pub path: PathBuf,
}

/// The kind of names in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// Disposable domains of this tier.
    Disposable(FeedTier),
    /// Alias and relay services.
    Alias,
    /// Free mailbox providers.
    Free,
}

/// How reliable a feed of disposable domains is. The manifest gives each tier its score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedTier {
    /// Reviewed by people.
    A,
    /// Confirmed, for example by a second source.
    B,
    /// One source.
    C,
    /// One source that is probably out of date.
    D,
}

impl FeedKind {
    /// The kind's name in the config, without the tier.
    pub fn as_str(self) -> &'static str {
        match self {
            FeedKind::Disposable(_) => "disposable",
            FeedKind::Alias => "alias",
            FeedKind::Free => "free",
        }
    }

    fn to_list_kind(self) -> ListKind {
        match self {
            FeedKind::Disposable(FeedTier::A) => ListKind::Disposable(Rule::DisposableA),
            FeedKind::Disposable(FeedTier::B) => ListKind::Disposable(Rule::DisposableB),
            FeedKind::Disposable(FeedTier::C) => ListKind::Disposable(Rule::DisposableC),
            FeedKind::Disposable(FeedTier::D) => ListKind::Disposable(Rule::DisposableD),
            FeedKind::Alias => ListKind::Alias,
            FeedKind::Free => ListKind::Free,
        }
    }
}

impl FeedList {
    /// The longest file that can be read, in bytes.
    pub const MAX_FILE_BYTES: u64 = MAX_LIST_BYTES;
    /// The length of the line with the checksum: its beginning, 16 digits and a line feed.
    pub const CHECKSUM_LINE_BYTES: u64 = CHECKSUM_LINE_PREFIX.len() as u64 + 17;
    /// The beginning of a line before the names of the last good list. After it follows when
    /// riskgate first had this list, in seconds since 1970.
    pub const LISTED_LINE_PREFIX: &str = "# on the list at ";
    /// The beginning of a line before names that left the list. The time at which they left
    /// follows, in seconds since 1970.
    pub const DEPARTURE_LINE_PREFIX: &str = "# left the list at ";

    /// Parses the time of a line that begins with one of these prefixes, in seconds since 1970. The
    /// names below such a line were on the list at this time, or until this time.
    pub(super) fn parse_time_line(line: &str) -> Option<i64> {
        let prefixes = [FeedList::LISTED_LINE_PREFIX, FeedList::DEPARTURE_LINE_PREFIX];
        prefixes.into_iter().find_map(|prefix| line.strip_prefix(prefix)?.parse().ok())
    }

    /// The text of a feed's list on disk: a line with the checksum of the others, then these lines.
    pub fn render_with_checksum(lines: &[String]) -> String {
        let mut text = lines.join("\n");
        text.push('\n');
        format!("{CHECKSUM_LINE_PREFIX}{:016x}\n{text}", xxh3_64(text.as_bytes()))
    }

    /// Reads a file in the format of [`FeedList::render_with_checksum`], and returns the lines
    /// behind the checksum. `None` if the file does not exist.
    ///
    /// # Errors
    /// If the file can't be read, or does not match its checksum. The error says what was found.
    pub fn read_verified_text(path: &Path) -> Result<Option<String>, ReadError> {
        let Some(text) = read_list_file(path)? else { return Ok(None) };
        let head = text.strip_prefix(CHECKSUM_LINE_PREFIX).and_then(|rest| rest.split_once('\n'));
        match head {
            Some((sum, names)) if sum == format!("{:016x}", xxh3_64(names.as_bytes())) => {
                Ok(Some(names.to_owned()))
            }
            _ => Err(io::Error::other("bytes that have another checksum").into()),
        }
    }
}

impl TableInputs {
    /// The lists of this location, without overrides and feeds.
    pub fn from_base(base_location: TableLocation) -> TableInputs {
        TableInputs { base_location, ..TableInputs::default() }
    }

    /// The paths of all inputs: the directory or compiled file, the overrides, and the lists of
    /// feeds. They need not exist.
    pub fn input_paths(&self) -> Vec<PathBuf> {
        let base = match &self.base_location {
            TableLocation::Bundled => None,
            TableLocation::Path(path) => Some(path.clone()),
        };
        let feeds = self.feeds.iter().map(|feed| feed.path.clone());
        base.into_iter().chain(self.overrides_path.clone()).chain(feeds).collect()
    }

    /// Reads the file of overrides and the lists of feeds, if they exist, and adds the overrides of
    /// the store. Skips the list of a feed that is damaged, or that this user may not read. If the
    /// system can't read the list of a feed for now, or the file of overrides for any reason, this
    /// is a fault.
    pub(super) fn read_added_lists(&self) -> Result<Vec<AddedList>, TableFaults> {
        let mut faults = TableFaults::default();
        let mut added_lists = Vec::new();
        let mut add = |file: String, kind, list_origin, path: &Path, text| {
            let list_spec = ListSpec::added(file, kind, list_origin);
            let name_in_faults = path.display().to_string();
            added_lists.push(AddedList { list_spec, name_in_faults, list_text: text });
        };
        // The store's list comes first: of two overrides with the same name and scope, the later
        // one applies, which is that of the file.
        if let Some(text) = &self.stored_overrides {
            let (name, kind) = (STORED_OVERRIDES_LIST_NAME, ListKind::Override);
            add(name.to_owned(), kind, ListOrigin::Store, Path::new(name), text.to_string());
        }
        if let Some(path) = &self.overrides_path {
            let text = match &self.last_good_overrides_text {
                // There was no file.
                Some(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
                None => read_list_file(path),
            };
            match text {
                Ok(None) => {}
                Err(found) => faults.push(fault_from_read_error(path, found)),
                Ok(Some(text)) => {
                    let (name, kind) = (path.display().to_string(), ListKind::Override);
                    add(name, kind, ListOrigin::Operator, path, text);
                }
            }
        }
        for FeedList { name, kind, path } in &self.feeds {
            match FeedList::read_verified_text(path) {
                Ok(Some(text)) => {
                    add(format!("feed {name}"), kind.to_list_kind(), ListOrigin::Feed, path, text);
                }
                // Without the list, the table would call its names safe.
                Err(found) if found.is_transient() && !is_permission_denied(&found) => {
                    faults.push(fault_from_read_error(path, found));
                }
                Ok(None) | Err(_) => {}
            }
        }
        faults.into_result()?;
        Ok(added_lists)
    }
}

/// A list that this user may not read stays skipped until somebody changes its permissions.
fn is_permission_denied(found: &ReadError) -> bool {
    matches!(found, ReadError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied)
}

/// A list that the manifest does not name.
pub(super) struct AddedList {
    pub list_spec: ListSpec,
    /// The name of the list's file in faults.
    pub name_in_faults: String,
    pub list_text: String,
}

/// The facts that guard a name. A feed can't change the answer for a guarded name.
pub(super) const GUARDING_BITS: u32 = rules::CLEARED_BIT
    | rule_bit(Rule::SpecialUse)
    | rule_bit(Rule::Protected)
    | rule_bit(Rule::Alias)
    | rule_bit(Rule::AgentInbox)
    | rule_bit(Rule::Role)
    | rule_bit(Rule::Free);

/// Drops the rows of feeds that must not change the answer for their name. A look-up uses the
/// nearest row, so a remaining row of a feed would win. A row of a feed is dropped in four cases:
///
/// - Its name is guarded, or is in the same registrable domain below a guarded name whose row
///   covers the names below. A name is guarded if it is protected, cleared, an alias, an inbox
///   service for programs, a role, a free provider or for special use.
/// - The feed has disposable names of tier B, C or D, and the row's name is a real name, is below a
///   protected public suffix, or is above a guarded name in the same registrable domain.
/// - The feed has aliases or free providers, and its name is at or below a role name, or a
///   disposable name of any list or feed.
/// - A row of a name above it, in the same registrable domain, flags its name at least as strongly.
pub(super) fn drop_guarded_feed_rows(lists: &mut ParsedLists<'_>, manifest: &Manifest) {
    let is_feed_list =
        |list: u8| manifest.list_specs[usize::from(list)].list_origin == ListOrigin::Feed;
    if !manifest.list_specs.iter().any(|list| list.list_origin == ListOrigin::Feed) {
        return;
    }
    // Before the rest, because such a row covers no row of a name below it.
    drop_milder_feed_rows_above_guarded_names(lists, is_feed_list);
    // The first map has facts about each name itself. The second map has the facts that cover the
    // names below as well. Of a feed, both have only whether it flags the name.
    let (mut bits_of_name, mut bits_covering_subdomains): (HashMap<&str, u32>, HashMap<&str, u32>) =
        Default::default();
    let mut protected_suffixes: HashSet<&str> = HashSet::new();
    for row in &lists.rows {
        let relevant_bits = match is_feed_list(row.list_number) {
            true => rules::FLAGGING_LIST_BITS,
            false => GUARDING_BITS | rules::KNOWN_OR_CLEARED_BIT | rules::FLAGGING_LIST_BITS,
        };
        let bits = row.fact_bits & relevant_bits;
        if bits == 0 {
            continue;
        }
        *bits_of_name.entry(&row.name).or_default() |= bits;
        if row.coverage != Coverage::NameOnly {
            *bits_covering_subdomains.entry(&row.name).or_default() |= bits;
        }
        if row.coverage == Coverage::AcrossSuffixes && bits & rule_bit(Rule::Protected) != 0 {
            protected_suffixes.insert(&row.name);
        }
    }
    let kept_rows: Vec<bool> = lists
        .rows
        .iter()
        .map(|row| {
            if !is_feed_list(row.list_number) {
                return true;
            }
            let covering_bits = parent_offsets_to_registrable(row)
                .filter_map(|at| bits_covering_subdomains.get(&row.name[at..]))
                .fold(0, |a, b| a | b);
            let own_bits = bits_of_name.get(&*row.name).copied().unwrap_or_default();
            match row.fact_bits & rules::FLAGGING_LIST_BITS {
                0 => (own_bits | covering_bits) & (GUARDING_BITS | rules::FLAGGING_LIST_BITS) == 0,
                // The strongest tier has the lowest bit.
                tier => {
                    let as_strong_bits = rules::FLAGGING_LIST_BITS & (tier | (tier - 1));
                    let has_protected_suffix = || {
                        let mut parents = self_and_parent_offsets(&row.name).skip(1);
                        parents.any(|at| protected_suffixes.contains(&row.name[at..]))
                    };
                    let is_strongest = tier & rule_bit(Rule::DisposableA) != 0;
                    (own_bits | covering_bits) & GUARDING_BITS == 0
                        && covering_bits & as_strong_bits == 0
                        && (is_strongest
                            || (own_bits & rules::KNOWN_OR_CLEARED_BIT == 0
                                && !has_protected_suffix()))
                }
            }
        })
        .collect();
    retain_rows(lists, &kept_rows);
}

/// Drops the rows of feeds of tier B, C or D whose names are above a guarded name, up to its
/// registrable domain: a service that people trust has a name below such a name, so the name
/// belongs to a known owner.
fn drop_milder_feed_rows_above_guarded_names(
    lists: &mut ParsedLists<'_>,
    is_feed_list: impl Fn(u8) -> bool,
) {
    let is_guarding =
        |row: &&Row| row.fact_bits & GUARDING_BITS != 0 && !is_feed_list(row.list_number);
    let names_above_guarded: HashSet<&str> = lists
        .rows
        .iter()
        .filter(is_guarding)
        .flat_map(|row| parent_offsets_to_registrable(row).map(move |at| &row.name[at..]))
        .collect();
    let milder_tiers = rules::FLAGGING_LIST_BITS & !rule_bit(Rule::DisposableA);
    let is_kept = |row: &Row| {
        !is_feed_list(row.list_number)
            || row.fact_bits & milder_tiers == 0
            || !names_above_guarded.contains(&*row.name)
    };
    let kept_rows: Vec<bool> = lists.rows.iter().map(is_kept).collect();
    retain_rows(lists, &kept_rows);
}

/// Drops the rows that are not to be kept, and counts them as ignored rows of their lists.
fn retain_rows(lists: &mut ParsedLists<'_>, kept_rows: &[bool]) {
    let mut keep = kept_rows.iter();
    let ignored_counts = &mut lists.ignored_row_count_by_list;
    lists.rows.retain(|row| {
        let is_kept = keep.next().copied().unwrap_or(true);
        ignored_counts[usize::from(row.list_number)] += u32::from(!is_kept);
        is_kept
    });
}

/// The byte offsets at which the parents of the row's name begin, up to the registrable domain.
/// There are none if the name is a registrable domain or a public suffix.
fn parent_offsets_to_registrable(row: &Row) -> impl Iterator<Item = usize> {
    let registrable_start = match row.registrable_start {
        NO_REGISTRABLE_DOMAIN => 0,
        start => usize::from(start),
    };
    self_and_parent_offsets(&row.name).skip(1).take_while(move |at| *at <= registrable_start)
}
