//! Builds a table from a folder of lists: all files are read first, then nothing but them counts.
//!
//! A fault anywhere refuses the whole table. Everything that this makes on the way is dropped
//! before it returns; what stays is the table's bytes.

use std::borrow::Cow;

use xxhash_rust::xxh3::Xxh3Default;

use super::additions::{Addition, drop_guarded_feed_rows};
use super::carried::Carried;
use super::disk::Bytes;
use super::fault::{Fault, TableError, quoted};
use super::layout::encode::{self, Content};
use super::layout::parts::{ListInfo, Meta};
use super::layout::sections::FORMAT;
use super::manifest::{Kind, MAX_LISTS, Manifest, Origin};
use super::packages::{self, SourceInfo};
use super::resolve::{self, Covered};
use super::rows::Lists;
use super::source::{self, Folder};
use crate::model::domain::suffix_list_version;

/// What goes into the bytes beside what is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texts {
    /// The texts of the lists, so that more can be added to a compiled table.
    Carried,
    Left,
}

/// The bytes of the table that a folder describes, with what is added to it. `now` is in seconds
/// since 1970: overrides that have ended by then say nothing.
pub(super) fn build(
    folder: &Folder,
    additions: &[Addition],
    now: i64,
    texts_wanted: Texts,
) -> Result<Bytes, TableError> {
    let manifest_place = folder.place("manifest.toml");
    let Some(manifest_text) = folder.read("manifest.toml")? else {
        return Err(Fault::expected(manifest_place, "a manifest", "no such file").into());
    };
    let sources_text = folder.read("sources.toml")?.unwrap_or_default();
    let sources = packages::read(&sources_text, &folder.place("sources.toml"))?;
    let mut manifest = Manifest::read(&manifest_text, &manifest_place, &sources)?;

    let mut texts = read_texts(folder, &manifest, &manifest_place)?;

    let mut places: Vec<String> =
        manifest.lists.iter().map(|list| folder.place(&list.file)).collect();
    let mut carried = Carried::new();
    if texts_wanted == Texts::Carried {
        let files = manifest.lists.iter().map(|list| list.file.clone());
        let head = [("manifest.toml", &manifest_text), ("sources.toml", &sources_text)];
        carried.extend(head.map(|(file, text)| (file.to_owned(), text.clone())));
        carried.extend(files.zip(texts.iter().cloned()));
    }
    for addition in additions {
        manifest.lists.push(addition.list.clone());
        places.push(addition.place.clone());
        texts.push(Cow::Owned(addition.text.clone()));
    }
    if manifest.lists.len() > MAX_LISTS {
        let expected = format!("at most {MAX_LISTS} lists and feeds");
        let found = manifest.lists.len().to_string();
        return Err(Fault::expected(manifest_place, expected, found).into());
    }
    places.push(manifest_place);
    let mut faults = TableError::default();
    let mut lists = read_lists(&manifest, &places, &texts, (&sources, now), &mut faults);
    let hash = hash_of(&manifest, [&manifest_text, &sources_text], &texts, lists.ended);
    drop_guarded_feed_rows(&mut lists, &manifest);
    // Stable, and so fast on lists that are sorted already.
    lists.rows.sort_by(|a, b| a.name.cmp(&b.name));
    let covered = resolve::cover(&lists, &manifest, &places, &mut faults);
    if covered.rows == 0 && faults.count() == 0 {
        faults.push(Fault::expected(
            &places[places.len() - 1],
            "lists with rows",
            "an empty table",
        ));
    }
    faults.into_result()?;

    let meta = meta(&manifest, &lists, &covered, sources);
    let labels = &lists.labels.texts;
    encode::compose(&Content { hash, covered: &covered, labels, meta, carried: &carried })
        .map_err(TableError::from)
}

/// The text of each list, in the order of the manifest.
fn read_texts(
    folder: &Folder,
    manifest: &Manifest,
    manifest_place: &str,
) -> Result<Vec<Cow<'static, str>>, TableError> {
    let mut faults = TableError::default();
    let mut texts: Vec<Cow<'static, str>> = Vec::with_capacity(manifest.lists.len());
    for list in &manifest.lists {
        if !source::is_plain(&list.file) {
            let at = format!("{manifest_place}:{}: file", list.line);
            let found = quoted(&list.file);
            faults.push(Fault::expected(at, "the name of a file in this folder", found));
            continue;
        }
        match folder.read(&list.file) {
            Ok(Some(text)) => texts.push(text),
            Ok(None) => {
                let at = format!("{manifest_place}:{}: file", list.line);
                let expected = format!("{} in this folder", list.file);
                faults.push(Fault::expected(at, expected, "no such file"));
            }
            Err(fault) => faults.push(fault),
        }
    }
    faults.into_result().map(|()| texts)
}

fn read_lists<'t>(
    manifest: &Manifest,
    places: &[String],
    texts: &'t [Cow<'static, str>],
    (sources, now): (&[SourceInfo], i64),
    faults: &mut TableError,
) -> Lists<'t> {
    let votes = sources
        .iter()
        .filter_map(|source| source.vote)
        .fold(0, |votes, letter| votes | packages::vote_bit(letter));
    let rows = texts.iter().map(|text| text.lines().count()).sum();
    let mut lists = Lists::with_capacity(rows, manifest.lists.len());
    lists.now = now;
    let mut order: Vec<usize> = (0..texts.len()).collect();
    // MX facts are read by means of the MX labels.
    order.sort_by_key(|number| manifest.lists[*number].kind != Kind::MxLabel);
    for number in order {
        let list = (number as u8, &manifest.lists[number]);
        lists.add(list, &places[number], &texts[number], votes, faults);
    }
    lists
}

/// `ended` is how many overrides said nothing any more.
fn hash_of(manifest: &Manifest, heads: [&str; 2], texts: &[Cow<'static, str>], ended: u32) -> u128 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(suffix_list_version());
    heads.into_iter().for_each(&mut add);
    for (list, text) in manifest.lists.iter().zip(texts) {
        // Where an operator keeps overrides says nothing of a verdict; what a feed is does.
        add(if list.origin == Origin::Operator { "overrides" } else { &list.file });
        add(list.kind.word());
        add(text);
    }
    hash.update(&FORMAT.to_le_bytes());
    hash.update(&ended.to_le_bytes());
    hash.digest128()
}

fn meta(manifest: &Manifest, lists: &Lists, covered: &Covered, sources: Vec<SourceInfo>) -> Meta {
    let day_of = |name: &str| {
        let source = sources.iter().find(|source| source.name == name)?;
        packages::unix_day(&source.date)
    };
    let is_flagged = |name: &str| {
        let at = covered.names.binary_search_by_key(&name, |(name, _)| name).ok()?;
        let entry = covered.entries[usize::from(covered.names[at].1) - 1];
        let answer = covered.answers.get(usize::from(entry.own))?;
        Some(answer.verdict.reason.is_flagged())
    };
    let infos = manifest.lists.iter().zip(&lists.ignored).zip(&lists.read);
    Meta {
        // No clock down here: a table is as old as the youngest of its sources.
        built_at: sources.iter().filter_map(|s| packages::unix_day(&s.date)).max().unwrap_or(0),
        suffixes: suffix_list_version().to_owned(),
        rows: covered.rows as u64,
        max_changed_share: manifest.max_changed_share,
        next_end: lists.next_end,
        tlds_date: manifest
            .lists
            .iter()
            .filter(|list| list.kind == Kind::Tlds)
            .filter_map(|list| day_of(list.source.as_deref()?))
            .min(),
        inferred: manifest.inferred.clone(),
        mx: covered.mx.clone(),
        flag_protected: manifest.flag_protected.iter().map(|(name, _)| name.clone()).collect(),
        // A name that an override took back leads no list of flagged names.
        seed: lists
            .seed
            .iter()
            .filter(|name| is_flagged(name) == Some(true))
            .map(|name| name.to_string())
            .collect(),
        list: infos
            .map(|((list, ignored), read)| ListInfo {
                file: list.file.clone(),
                kind: list.kind.word().to_owned(),
                source: list.source.clone(),
                rows: *read,
                ignored: *ignored,
                is_added: list.origin != Origin::Manifest,
            })
            .collect(),
        source: sources,
    }
}
