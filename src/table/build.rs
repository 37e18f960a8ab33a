//! Builds a table from a directory of lists. All files are read first; the result depends only on
//! them and on `now`.
//!
//! A fault in any file rejects the whole table. Only the table's bytes outlive the build.

use std::borrow::Cow;

use xxhash_rust::xxh3::Xxh3Default;

use super::added_lists::{AddedList, drop_guarded_feed_rows};
use super::aligned_bytes::AlignedBytes;
use super::embedded_lists::ListsInCompiledTable;
use super::fault::{TableError, TableFault, quote_excerpt};
use super::layout::encode::{self, TableContent};
use super::layout::parts::{ListInfo, TableMeta};
use super::layout::sections::FORMAT_VERSION;
use super::location::{self, SourceFiles};
use super::manifest::{ListKind, ListOrigin, MAX_LISTS, Manifest};
use super::resolve::{self, ResolvedTable};
use super::rows::ParsedLists;
use super::source_packages::{self, SourcePackage};
use crate::model::domain::suffix_list_version;
use crate::model::month::parse_day_as_unix_seconds;

/// Whether a table carries the texts of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListTextsInTable {
    /// The table carries the texts, so that overrides and feeds can be added after compilation.
    Embedded,
    /// The table can only be looked up: for a table that is not written to a file.
    Omitted,
}

/// Builds the bytes of a table from a directory and the added lists. Overrides that have expired at
/// `now`, in seconds since 1970, are ignored.
pub(super) fn build_table(
    source_files: &SourceFiles,
    added_lists: &[AddedList],
    now: i64,
    list_texts: ListTextsInTable,
) -> Result<AlignedBytes, TableError> {
    let manifest_name = source_files.display_name("manifest.toml");
    let Some(manifest_text) = source_files.read("manifest.toml")? else {
        return Err(TableFault::expected(manifest_name, "a manifest", "no such file").into());
    };
    let sources_text = source_files.read("sources.toml")?.unwrap_or_default();
    let sources =
        source_packages::parse_sources(&sources_text, &source_files.display_name("sources.toml"))?;
    let mut manifest = Manifest::parse(&manifest_text, &manifest_name, &sources)?;

    let mut texts = read_list_texts(source_files, &manifest, &manifest_name)?;

    let mut display_names: Vec<String> =
        manifest.lists.iter().map(|list| source_files.display_name(&list.file)).collect();
    let mut embedded_lists = ListsInCompiledTable::new();
    if list_texts == ListTextsInTable::Embedded {
        let files = manifest.lists.iter().map(|list| list.file.clone());
        let head = [("manifest.toml", &manifest_text), ("sources.toml", &sources_text)];
        embedded_lists.extend(head.map(|(file, text)| (file.to_owned(), text.clone())));
        embedded_lists.extend(files.zip(texts.iter().cloned()));
    }
    for added in added_lists {
        manifest.lists.push(added.list.clone());
        display_names.push(added.display_name.clone());
        texts.push(Cow::Owned(added.text.clone()));
    }
    if manifest.lists.len() > MAX_LISTS {
        let expected = format!("at most {MAX_LISTS} lists and feeds");
        let found = manifest.lists.len().to_string();
        return Err(TableFault::expected(manifest_name, expected, found).into());
    }
    display_names.push(manifest_name);
    let mut faults = TableError::default();
    let mut lists = parse_lists(&manifest, &display_names, &texts, (&sources, now), &mut faults);
    let hash =
        hash_inputs(&manifest, [&manifest_text, &sources_text], &texts, lists.expired_overrides);
    drop_guarded_feed_rows(&mut lists, &manifest);
    // A stable sort, because it is fast on lists that are already sorted.
    lists.rows.sort_by(|a, b| a.name.cmp(&b.name));
    let resolved = resolve::resolve_lists(&lists, &manifest, &display_names, &mut faults);
    if resolved.row_count == 0 && faults.count() == 0 {
        faults.push(TableFault::expected(
            &display_names[display_names.len() - 1],
            "lists with rows",
            "an empty table",
        ));
    }
    faults.into_result()?;

    let meta = build_meta(&manifest, &lists, &resolved, sources);
    let labels = &lists.labels.texts;
    encode::encode_table(&TableContent {
        hash,
        resolved: &resolved,
        labels,
        meta,
        embedded_lists: &embedded_lists,
    })
    .map_err(TableError::from)
}

/// The text of each list, in the order of the manifest.
fn read_list_texts(
    source_files: &SourceFiles,
    manifest: &Manifest,
    manifest_name: &str,
) -> Result<Vec<Cow<'static, str>>, TableError> {
    let mut faults = TableError::default();
    let mut texts: Vec<Cow<'static, str>> = Vec::with_capacity(manifest.lists.len());
    for list in &manifest.lists {
        if !location::is_plain_file_name(&list.file) {
            let at = format!("{manifest_name}:{}: file", list.line);
            let found = quote_excerpt(&list.file);
            faults.push(TableFault::expected(at, "the name of a file in this directory", found));
            continue;
        }
        match source_files.read(&list.file) {
            Ok(Some(text)) => texts.push(text),
            Ok(None) => {
                let at = format!("{manifest_name}:{}: file", list.line);
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
    display_names: &[String],
    texts: &'t [Cow<'static, str>],
    (sources, now): (&[SourcePackage], i64),
    faults: &mut TableError,
) -> ParsedLists<'t> {
    let vote_bits = sources
        .iter()
        .filter_map(|source| source.vote)
        .fold(0, |votes, letter| votes | source_packages::vote_bit(letter));
    let line_count = texts.iter().map(|text| text.lines().count()).sum();
    let mut lists = ParsedLists::with_capacity(line_count, manifest.lists.len());
    lists.now = now;
    let mut order: Vec<usize> = (0..texts.len()).collect();
    // Lists of kind `mx` need the labels of the lists of kind `mx_label`, so the latter come first.
    order.sort_by_key(|number| manifest.lists[*number].kind != ListKind::MxLabel);
    for number in order {
        let list = (number as u8, &manifest.lists[number]);
        lists.parse_list(list, &display_names[number], &texts[number], vote_bits, faults);
    }
    lists
}

/// The hash of everything that the table is built from.
fn hash_inputs(
    manifest: &Manifest,
    head_texts: [&str; 2],
    texts: &[Cow<'static, str>],
    expired_overrides: u32,
) -> u128 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(suffix_list_version());
    head_texts.into_iter().for_each(&mut add);
    for (list, text) in manifest.lists.iter().zip(texts) {
        // The path of the operator's overrides has no effect on a verdict, so it is not hashed.
        add(if list.list_origin == ListOrigin::Operator { "overrides" } else { &list.file });
        add(list.kind.as_str());
        add(text);
    }
    hash.update(&FORMAT_VERSION.to_le_bytes());
    hash.update(&expired_overrides.to_le_bytes());
    hash.digest128()
}

fn build_meta(
    manifest: &Manifest,
    lists: &ParsedLists,
    resolved: &ResolvedTable,
    sources: Vec<SourcePackage>,
) -> TableMeta {
    let day_of = |name: &str| {
        let source = sources.iter().find(|source| source.name == name)?;
        parse_day_as_unix_seconds(&source.date)
    };
    let is_flagged = |name: &str| {
        let at = resolved.names.binary_search_by_key(&name, |(name, _)| name).ok()?;
        let entry = resolved.entries[usize::from(resolved.names[at].1) - 1];
        let answer = resolved.answers.get(usize::from(entry.own_answer))?;
        Some(answer.verdict.reason.is_flagged())
    };
    let infos = manifest.lists.iter().zip(&lists.ignored_counts).zip(&lists.row_counts);
    TableMeta {
        // The date of the youngest source: the build reads no clock.
        built_at: sources
            .iter()
            .filter_map(|s| parse_day_as_unix_seconds(&s.date))
            .max()
            .unwrap_or(0),
        suffix_list_version: suffix_list_version().to_owned(),
        rows: resolved.row_count as u64,
        max_changed_share: manifest.max_changed_share,
        next_override_expiry: lists.next_override_expiry,
        tlds_date: manifest
            .lists
            .iter()
            .filter(|list| list.kind == ListKind::Tlds)
            .filter_map(|list| day_of(list.source.as_deref()?))
            .min(),
        inferred: manifest.unlisted_rules.clone(),
        mx: resolved.mx_answers.clone(),
        allow_flagging: manifest.allow_flagging.iter().map(|(name, _)| name.clone()).collect(),
        // A name that an override clears must not stay in the seed of flagged names.
        seed: lists
            .seed
            .iter()
            .filter(|name| is_flagged(name) == Some(true))
            .map(|name| name.to_string())
            .collect(),
        list: infos
            .map(|((list, ignored), rows)| ListInfo {
                file: list.file.clone(),
                kind: list.kind.as_str().to_owned(),
                source: list.source.clone(),
                rows: *rows,
                ignored: *ignored,
                is_added: list.list_origin != ListOrigin::Manifest,
            })
            .collect(),
        source: sources,
    }
}
