//! Builds a table from the lists of a manifest and the added lists. The same lists and the same
//! time `now` give the same table; `now` decides which overrides have expired.
//!
//! A fault rejects the whole table. Only the table's bytes outlive the build.

use std::borrow::Cow;

use xxhash_rust::xxh3::Xxh3Default;

use super::added_lists::{AddedList, drop_guarded_feed_rows};
use super::aligned_bytes::AlignedBytes;
use super::embedded_lists::ListsInCompiledTable;
use super::fault::{TableFault, TableFaults, quote_excerpt};
use super::layout::encode::{self, TableContent};
use super::layout::parts::{ListInfo, TableMeta};
use super::layout::sections::FORMAT_VERSION;
use super::location::{self, SourceFiles};
use super::manifest::{ListKind, ListOrigin, MAX_LISTS, Manifest};
use super::parent_promotion::find_promoted_parents;
use super::resolve::{self, ResolvedTable};
use super::rows::{ParsedLists, Row};
use super::source_packages::{self, SourcePackage};
use crate::model::domain::suffix_list_version;
use crate::model::month::parse_day_as_unix_seconds;
use crate::support::memory;

/// What each build needs, in bytes, besides [`BUILD_BYTES_PER_LINE`] and [`BUILD_BYTES_PER_BYTE`].
/// All three were measured with lists of 0.3, 1 and 2 million names, and rounded up.
const BUILD_BASE_BYTES: u64 = 16 << 20;
/// What a build needs for each line of the lists.
const BUILD_BYTES_PER_LINE: u64 = 176;
/// What a build needs for each byte of the lists, once they are read.
const BUILD_BYTES_PER_BYTE: u64 = 3;

/// What each byte of the overrides needs besides: the audit compares all their rows.
const OVERRIDE_BYTES_PER_BYTE: u64 = 24;

/// Whether a table carries the texts of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListTextsInTable {
    /// The table carries the texts, so that overrides and feeds can be added after compilation.
    Embedded,
    /// The table carries no texts. This is enough for a table that is not written to a file.
    Omitted,
}

/// Builds the bytes of a table from the source files and the added lists. Overrides that have
/// expired at `now`, in seconds since 1970, are ignored.
pub(super) fn build_table_bytes(
    source_files: &SourceFiles,
    added_lists: &[AddedList],
    now: i64,
    list_texts: ListTextsInTable,
) -> Result<AlignedBytes, TableFaults> {
    let manifest_name = source_files.name_in_faults("manifest.toml");
    let ManifestAndSources { mut manifest, sources, texts: [manifest_text, sources_text] } =
        read_manifest_and_sources(source_files)?;
    let mut texts = read_list_texts(source_files, &manifest, &manifest_name)?;
    let mut names_in_faults: Vec<String> =
        manifest.list_specs.iter().map(|list| source_files.name_in_faults(&list.file)).collect();
    let mut embedded_lists = ListsInCompiledTable::new();
    if list_texts == ListTextsInTable::Embedded {
        let files = manifest.list_specs.iter().map(|list| list.file.clone());
        let head = [("manifest.toml", &manifest_text), ("sources.toml", &sources_text)];
        embedded_lists.extend(head.map(|(file, text)| (file.to_owned(), text.clone())));
        embedded_lists.extend(files.zip(texts.iter().cloned()));
    }
    for added in added_lists {
        manifest.list_specs.push(added.list_spec.clone());
        names_in_faults.push(added.name_in_faults.clone());
        texts.push(Cow::Owned(added.list_text.clone()));
    }
    check_list_count(&manifest, &manifest_name)?;
    check_memory(&manifest_name, &texts, added_lists)?;
    names_in_faults.push(manifest_name.clone());
    let mut faults = TableFaults::default();
    let mut lists = parse_lists(&manifest, &names_in_faults, &texts, (&sources, now), &mut faults);
    let promoted_parents = find_promoted_parents(&lists, &manifest);
    let hash = hash_inputs(
        &manifest,
        [&manifest_text, &sources_text],
        &texts,
        &promoted_parents,
        lists.expired_override_count,
    );
    drop_guarded_feed_rows(&mut lists, &manifest);
    lists.rows.extend(promoted_parents);
    // A stable sort, because it is fast on lists that are already sorted.
    lists.rows.sort_by(|a, b| a.name.cmp(&b.name));
    let resolved = resolve::resolve_lists(&lists, &manifest, &names_in_faults, &mut faults);
    if resolved.listed_name_count == 0 && faults.fault_count() == 0 {
        faults.push(TableFault::expected(manifest_name, "lists with rows", "an empty table"));
    }
    faults.into_result()?;

    let meta = build_meta(&manifest, &lists, &resolved, sources);
    let labels = &lists.labels.texts;
    encode::encode_table(&TableContent {
        content_hash: hash,
        resolved_table: &resolved,
        labels,
        meta,
        embedded_lists: &embedded_lists,
    })
    .map_err(TableFaults::from)
}

/// A manifest, the packages of `sources.toml`, and the texts of both files.
pub(super) struct ManifestAndSources {
    pub manifest: Manifest,
    pub sources: Vec<SourcePackage>,
    pub texts: [Cow<'static, str>; 2],
}

/// Reads and parses the manifest and `sources.toml`.
pub(super) fn read_manifest_and_sources(
    source_files: &SourceFiles,
) -> Result<ManifestAndSources, TableFaults> {
    let manifest_name = source_files.name_in_faults("manifest.toml");
    let Some(manifest_text) = source_files.read_text("manifest.toml")? else {
        return Err(TableFault::expected(manifest_name, "a manifest", "no such file").into());
    };
    let sources_text = source_files.read_text("sources.toml")?.unwrap_or_default();
    let sources = source_packages::parse_sources(
        &sources_text,
        &source_files.name_in_faults("sources.toml"),
    )?;
    let manifest = Manifest::parse(&manifest_text, &manifest_name, &sources)?;
    Ok(ManifestAndSources { manifest, sources, texts: [manifest_text, sources_text] })
}

fn check_list_count(manifest: &Manifest, manifest_name_in_faults: &str) -> Result<(), TableFault> {
    let found = manifest.list_specs.len();
    if found <= MAX_LISTS {
        return Ok(());
    }
    let expected = format!("at most {MAX_LISTS} lists and feeds");
    Err(TableFault::expected(manifest_name_in_faults, expected, found.to_string()))
}

/// Fails if the process can't get the memory that the build of a table from these texts needs. A
/// failed allocation during the build would end the process.
fn check_memory(
    at: &str,
    list_texts: &[Cow<'static, str>],
    added_lists: &[AddedList],
) -> Result<(), TableFault> {
    let is_override = |added: &&AddedList| added.list_spec.kind == ListKind::Override;
    let overrides = added_lists.iter().filter(is_override);
    let override_bytes: usize = overrides.map(|added| added.list_text.len()).sum();
    let line_count: usize = list_texts.iter().map(|text| text.lines().count()).sum();
    let byte_count: usize = list_texts.iter().map(|text| text.len()).sum();
    let needed = BUILD_BASE_BYTES
        + BUILD_BYTES_PER_LINE * line_count as u64
        + BUILD_BYTES_PER_BYTE * byte_count as u64
        + OVERRIDE_BYTES_PER_BYTE * override_bytes as u64;
    memory::check_available(needed).map_err(|source| TableFault::Io { at: at.to_owned(), source })
}

/// Reads the text of each list, in the order of the manifest.
fn read_list_texts(
    source_files: &SourceFiles,
    manifest: &Manifest,
    manifest_name_in_faults: &str,
) -> Result<Vec<Cow<'static, str>>, TableFaults> {
    let mut faults = TableFaults::default();
    let mut texts: Vec<Cow<'static, str>> = Vec::with_capacity(manifest.list_specs.len());
    for list in &manifest.list_specs {
        if !location::is_plain_file_name(&list.file) {
            let at = format!("{manifest_name_in_faults}:{}: file", list.manifest_line);
            let found = quote_excerpt(&list.file);
            faults.push(TableFault::expected(at, "the name of a file in this directory", found));
            continue;
        }
        match source_files.read_text(&list.file) {
            Ok(Some(text)) => texts.push(text),
            Ok(None) => {
                let at = format!("{manifest_name_in_faults}:{}: file", list.manifest_line);
                let expected = format!("{} in this directory", list.file);
                faults.push(TableFault::expected(at, expected, "no such file"));
            }
            Err(fault) => faults.push(fault),
        }
    }
    faults.into_result().map(|()| texts)
}

fn parse_lists<'t>(
    manifest: &Manifest,
    names_in_faults: &[String],
    list_texts: &'t [Cow<'static, str>],
    (sources, now): (&[SourcePackage], i64),
    faults: &mut TableFaults,
) -> ParsedLists<'t> {
    let vote_bits = sources
        .iter()
        .filter_map(|source| source.vote)
        .fold(0, |votes, letter| votes | source_packages::vote_bit(letter));
    let line_count = list_texts.iter().map(|text| text.lines().count()).sum();
    let mut lists = ParsedLists::with_capacity(line_count, manifest.list_specs.len());
    lists.build_time = now;
    let mut order: Vec<usize> = (0..list_texts.len()).collect();
    // Lists of kind `mx_label` are parsed first, because lists of kind `mx` need their labels.
    order.sort_by_key(|number| manifest.list_specs[*number].kind != ListKind::MxLabel);
    for number in order {
        let list = (number as u8, &manifest.list_specs[number]);
        let source =
            sources.iter().find(|source| Some(&source.name) == list.1.source_name.as_ref());
        let source_vote_bit = source.and_then(|it| it.vote).map_or(0, source_packages::vote_bit);
        lists.parse_and_add_list(
            list,
            &names_in_faults[number],
            &list_texts[number],
            (vote_bits, source_vote_bit),
            faults,
        );
    }
    lists.seen_rows.sort_by(|a, b| a.name.cmp(&b.name));
    lists
}

/// The hash of the inputs on which the verdicts of the table depend.
fn hash_inputs(
    manifest: &Manifest,
    manifest_and_sources_texts: [&str; 2],
    list_texts: &[Cow<'static, str>],
    promoted_parents: &[Row<'_>],
    expired_override_count: u32,
) -> u128 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(suffix_list_version());
    manifest_and_sources_texts.into_iter().for_each(&mut add);
    for (list, text) in manifest.list_specs.iter().zip(list_texts) {
        // The path of the operator's overrides has no effect on a verdict, so it is not hashed.
        add(if list.list_origin == ListOrigin::Operator { "overrides" } else { &list.file });
        add(list.kind.as_str());
        add(text);
    }
    // An earlier version of riskgate made no rows of promoted parents from the same texts.
    promoted_parents.iter().for_each(|row| add(&row.name));
    hash.update(&FORMAT_VERSION.to_le_bytes());
    hash.update(&expired_override_count.to_le_bytes());
    hash.digest128()
}

fn build_meta(
    manifest: &Manifest,
    lists: &ParsedLists,
    resolved_table: &ResolvedTable,
    sources: Vec<SourcePackage>,
) -> TableMeta {
    let day_of = |name: &str| {
        let source = sources.iter().find(|source| source.name == name)?;
        parse_day_as_unix_seconds(&source.date)
    };
    let is_unsafe = |name: &str| {
        let at = resolved_table
            .names_and_entry_numbers
            .binary_search_by_key(&name, |(name, _)| name)
            .ok()?;
        let entry =
            resolved_table.entries[usize::from(resolved_table.names_and_entry_numbers[at].1) - 1];
        let answer = resolved_table.answers.get(usize::from(entry.own_answer))?;
        Some(!answer.verdict.reason.is_safe())
    };
    let infos = manifest
        .list_specs
        .iter()
        .zip(&lists.ignored_row_count_by_list)
        .zip(&lists.row_count_by_list);
    TableMeta {
        // The build reads no clock, so it uses the date of the youngest source.
        built_at: sources
            .iter()
            .filter_map(|s| parse_day_as_unix_seconds(&s.date))
            .max()
            .unwrap_or(0),
        suffix_list_version: suffix_list_version().to_owned(),
        rows: resolved_table.listed_name_count as u64,
        max_changed_share: manifest.max_changed_share,
        next_override_expiry: lists.next_override_expiry,
        tlds_date: manifest
            .list_specs
            .iter()
            .filter(|list| list.kind == ListKind::Tlds)
            .filter_map(|list| day_of(list.source_name.as_deref()?))
            .min(),
        inferred: manifest.unlisted_rules.clone(),
        mx: resolved_table.mx_answers.clone(),
        mx_address: resolved_table.mx_address_answers.clone(),
        doubtful_override: resolved_table.doubtful_overrides.clone(),
        allow_flagging: manifest.allow_flagging.iter().map(|(name, _)| name.clone()).collect(),
        // A name that an override clears must not stay in the seed of flagged names.
        seed: lists
            .top_list_seed
            .iter()
            .filter(|name| is_unsafe(name) == Some(true))
            .map(|name| name.to_string())
            .collect(),
        list: infos
            .map(|((list, ignored), rows)| ListInfo {
                file: list.file.clone(),
                kind: list.kind.as_str().to_owned(),
                source: list.source_name.clone(),
                rows: *rows,
                ignored: *ignored,
                is_added: list.list_origin != ListOrigin::Manifest,
            })
            .collect(),
        source: sources,
    }
}
