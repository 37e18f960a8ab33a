//! Updates of a feed over weeks: pauses, lists that change by design, and names that are kept.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::checks::check_changed_share;
use super::*;
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::parse_day_as_unix_seconds;
use crate::table::{FeedKind, FeedTier, Table, TableLocation};

const DAY: i64 = 86_400;
const NOW: i64 = 1_795_219_200;

fn feed_of_file(path: &Path) -> Feed {
    Feed {
        name: "daily".to_owned(),
        url: FeedLocation::File(path.to_owned()),
        kind: FeedKind::Disposable(FeedTier::B),
        fetch_interval: Duration::from_hours(24),
        max_unchanged_age: Duration::from_hours(30 * 24),
        max_list_bytes: 1 << 20,
        max_changed_percent: 50,
        is_rolling: false,
        keep_departed: Duration::from_hours(90 * 24),
        sha256_url: None,
        minisign_public_key: None,
        tls_ca: None,
        proxy: ProxySettings::default(),
        verified_list: VerifiedList::default(),
    }
}

/// A feed whose list is a file, and the folder of its state.
struct FileFeed {
    folder: tempfile::TempDir,
    feed: Feed,
    table: Table,
}

impl FileFeed {
    fn new() -> FileFeed {
        let folder = tempfile::tempdir().unwrap();
        let feed = feed_of_file(&folder.path().join("published.txt"));
        FileFeed { folder, feed, table: Table::load(&TableLocation::Bundled).unwrap() }
    }

    fn update_by(
        &self,
        names: &[String],
        unix_now: i64,
        trust: TimeTrust,
    ) -> Result<UpdateOutcome, FeedError> {
        fs::write(self.folder.path().join("published.txt"), names.join("\n")).unwrap();
        let now = BelievedTime { unix_now, trust };
        self.feed.update(&self.folder.path().join("feeds"), &self.table, now, false, Duration::ZERO)
    }

    fn update(&self, names: &[String], unix_now: i64) -> Result<UpdateOutcome, FeedError> {
        self.update_by(names, unix_now, TimeTrust::Settled)
    }

    /// The names from which the table is built.
    fn names_in_file(&self) -> HashSet<String> {
        let path = self.feed.list_path(&self.folder.path().join("feeds"));
        let text = crate::table::FeedList::read_verified_text(&path).unwrap().unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}

/// The names with these numbers.
fn numbered(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|n| format!("abused-{n}.com")).collect()
}

/// Castle's list of each day from 2026-05-11, as far as the first day, the last day and the number
/// of days of each name tell. Between its first and its last day, a name is on the list of as many
/// days as Castle says, chosen by its hash.
fn castle_lists() -> BTreeMap<i64, Vec<String>> {
    let text = fs::read_to_string("data/castle.tsv").unwrap();
    let mut lists: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let day = |text: &str| parse_day_as_unix_seconds(text).unwrap() / DAY;
        let (first, last) = (day(fields[1]), day(fields[2]));
        let count: i64 = fields[3].parse().unwrap();
        for day in first..=last {
            let hash = xxhash_rust::xxh3::xxh3_64(format!("{} {day}", fields[0]).as_bytes());
            let is_inner = first < day && day < last;
            if !is_inner || (hash % 1_000) as i64 * (last - first - 1) < 1_000 * (count - 2) {
                lists.entry(day).or_default().push(fields[0].to_owned());
            }
        }
    }
    lists
}

#[test]
fn a_list_is_accepted_after_every_pause_of_castles_history() {
    let lists = castle_lists();
    assert!(lists.len() == 82 && lists.values().all(|names| (700..1_400).contains(&names.len())));
    let sets: BTreeMap<i64, HashSet<String>> =
        lists.iter().map(|(day, names)| (*day, names.iter().cloned().collect())).collect();
    let (mut pairs, mut most_gone) = (0, 0.0_f64);
    for is_rolling in [false, true] {
        let feed = Feed { is_rolling, ..feed_of_file(Path::new("x")) };
        for (day, before) in &sets {
            for pause in 1..=90 {
                // After the end of the history, its last list is the one that is published.
                let now = (day + pause).min(*lists.keys().last().unwrap());
                let gone = before.difference(&sets[&now]).count() as f64 / before.len() as f64;
                (pairs, most_gone) = (pairs + 1, most_gone.max(gone));
                let age = Duration::from_secs((pause * DAY) as u64);
                let checked = check_changed_share(&feed, before, &lists[&now], age);
                // A list that is not declared as rolling may wait for some days, but no longer.
                if is_rolling || pause >= 7 {
                    checked.unwrap_or_else(|error| panic!("{pause} days after {day}: {error}"));
                }
            }
        }
    }
    assert_eq!(pairs, 2 * 82 * 90);
    // Lists of one feed that had to be accepted at once would not show anything.
    assert!(most_gone > 0.6, "{most_gone}");
}

#[test]
fn a_feed_that_was_off_for_45_days_takes_another_list_and_soon_after_a_day_it_does_not() {
    for (pause, is_accepted) in [(1, false), (3, false), (8, true), (45, true), (90, true)] {
        let feed = FileFeed::new();
        feed.update(&numbered(0..100), NOW).unwrap();
        let updated = feed.update(&numbered(100..200), NOW + pause * DAY);
        assert_eq!(updated.is_ok(), is_accepted, "{pause}: {updated:?}");
    }
}

#[test]
fn a_refused_list_is_accepted_by_itself_once_the_last_good_list_is_old() {
    let feed = FileFeed::new();
    feed.update(&numbered(0..100), NOW).unwrap();
    // The state is lost, so nothing tells how old the list is.
    fs::write(feed.folder.path().join("feeds/daily.json"), "{").unwrap();
    for day in 0..8 {
        let error = feed.update(&numbered(100..200), NOW + day * DAY).unwrap_err().to_string();
        assert!(error.contains("100 new and 100 gone"), "{day}: {error}");
    }
    feed.update(&numbered(100..200), NOW + 8 * DAY).unwrap();
    // The publisher goes back to the first list.
    let earlier = numbered(100..190);
    feed.update(&earlier, NOW + 9 * DAY).unwrap();
    let error = feed.update(&numbered(100..200), NOW + 10 * DAY).unwrap_err().to_string();
    assert!(error.contains("fetched before"), "{error}");
    feed.update(&numbered(100..200), NOW + 16 * DAY).unwrap();
}

#[test]
fn an_age_by_a_clock_that_was_ahead_counts_from_now() {
    let feed = FileFeed::new();
    feed.update(&numbered(0..100), NOW + 400 * DAY).unwrap();
    feed.update(&numbered(100..200), NOW).unwrap_err();
    feed.update(&numbered(100..200), NOW + 7 * DAY).unwrap_err();
    feed.update(&numbered(100..200), NOW + 8 * DAY).unwrap();
}

#[test]
fn a_rolling_list_may_exchange_all_names_but_not_shrink_or_grow_too_much() {
    let mut feed = FileFeed::new();
    feed.feed.is_rolling = true;
    feed.update(&numbered(0..100), NOW).unwrap();
    feed.update(&numbered(100..200), NOW + DAY).unwrap();
    for bad in [numbered(200..249), numbered(200..400)] {
        let error = feed.update(&bad, NOW + 2 * DAY).unwrap_err().to_string();
        assert!(error.contains("of 100 rows more or fewer, but found"), "{error}");
    }
    feed.update(&numbered(200..260), NOW + 2 * DAY).unwrap();
}

#[test]
fn names_that_left_the_list_are_kept_for_90_days_and_a_returning_name_for_90_days_more() {
    let feed = FileFeed::new();
    let has = |name: &str| feed.names_in_file().contains(name);
    feed.update(&numbered(0..100), NOW).unwrap();
    feed.update(&numbered(10..110), NOW + DAY).unwrap();
    assert_eq!(feed.names_in_file().len(), 110);
    let status = feed.feed.read_status(&feed.folder.path().join("feeds"), NOW + DAY);
    assert_eq!((status.state.rows, status.state.kept), (100, 10));
    // A name comes back and leaves again.
    feed.update(&numbered(9..110), NOW + 2 * DAY).unwrap();
    feed.update(&numbered(10..109), NOW + 50 * DAY).unwrap();
    assert!(has("abused-0.com") && has("abused-9.com") && has("abused-109.com"));
    // The list does not change, but nine names have been kept long enough.
    assert_eq!(feed.update(&numbered(10..109), NOW + 91 * DAY).unwrap(), UpdateOutcome::Unchanged);
    assert!(has("abused-0.com"));
    assert_eq!(feed.update(&numbered(10..109), NOW + 92 * DAY).unwrap(), UpdateOutcome::Unchanged);
    assert!(!has("abused-0.com") && !has("abused-8.com"));
    assert!(has("abused-9.com") && has("abused-109.com"));
    feed.update(&numbered(10..108), NOW + 141 * DAY).unwrap();
    assert!(!has("abused-9.com") && !has("abused-109.com") && has("abused-108.com"));
}

#[test]
fn no_kept_name_is_removed_by_a_time_that_no_clock_confirms() {
    let feed = FileFeed::new();
    feed.update(&numbered(0..100), NOW).unwrap();
    feed.update(&numbered(10..110), NOW + DAY).unwrap();
    for trust in [TimeTrust::Known, TimeTrust::LowerBound] {
        feed.update_by(&numbered(10..110), NOW + 400 * DAY, trust).unwrap();
        assert_eq!(feed.names_in_file().len(), 110, "{trust:?}");
    }
    feed.update(&numbered(10..110), NOW + 400 * DAY).unwrap();
    assert_eq!(feed.names_in_file().len(), 100);
}

#[test]
fn names_are_kept_only_from_the_same_source_and_only_if_the_config_says_so() {
    let mut feed = FileFeed::new();
    feed.update(&numbered(0..100), NOW).unwrap();
    feed.update(&numbered(10..110), NOW + DAY).unwrap();
    feed.feed.keep_departed = Duration::ZERO;
    feed.update_by(&numbered(10..110), NOW + DAY, TimeTrust::LowerBound).unwrap();
    assert_eq!(feed.names_in_file().len(), 100);
    feed.feed.keep_departed = Duration::from_hours(24);
    feed.feed.sha256_url = Some(FeedLocation::File(feed.folder.path().join("sum")));
    let digest = fetch::sha256_hex(numbered(200..300).join("\n").as_bytes());
    fs::write(feed.folder.path().join("sum"), digest).unwrap();
    feed.update(&numbered(200..300), NOW + DAY).unwrap();
    assert_eq!(feed.names_in_file(), numbered(200..300).into_iter().collect());
}

#[test]
fn after_a_failed_first_fetch_from_a_changed_source_its_list_is_taken_whole() {
    let other = || numbered(200..260);
    let sum_of = |names: &[String]| fetch::sha256_hex(names.join("\n").as_bytes());
    for setting in ["url", "sha256_url", "kind"] {
        let mut feed = FileFeed::new();
        let folder = feed.folder.path().to_owned();
        feed.update(&numbered(0..60), NOW).unwrap();
        feed.update(&numbered(10..70), NOW + DAY).unwrap();
        // Once the file `second` is there, the new source has the other list.
        let second = folder.join("second");
        match setting {
            "url" => feed.feed.url = FeedLocation::File(second.clone()),
            "sha256_url" => feed.feed.sha256_url = Some(FeedLocation::File(second.clone())),
            _ => {
                feed.feed.kind = FeedKind::Free;
                feed.feed.url = FeedLocation::File(second.clone());
            }
        }
        feed.update(&other(), NOW + 2 * DAY).unwrap_err();
        let status = feed.feed.read_status(&folder.join("feeds"), NOW + 2 * DAY);
        assert!(status.problem.is_some(), "{setting}");
        let tried = feed.feed.read_last_attempt(&folder.join("feeds")).unwrap();
        assert!(tried.has_failed && tried.at == NOW + 2 * DAY, "{setting}: {tried:?}");
        let text = if setting == "sha256_url" { sum_of(&other()) } else { other().join("\n") };
        fs::write(&second, text).unwrap();
        let updated = feed.update(&other(), NOW + 2 * DAY).unwrap();
        assert_eq!(updated, UpdateOutcome::ListReplaced(60), "{setting}");
        assert_eq!(feed.names_in_file(), other().into_iter().collect(), "{setting}");
    }
}

#[test]
fn a_failed_fetch_from_another_source_changes_nothing_once_the_first_one_is_back() {
    let mut feed = FileFeed::new();
    let first = feed.feed.url.clone();
    feed.update(&numbered(0..60), NOW).unwrap();
    feed.update(&numbered(10..70), NOW + DAY).unwrap();
    feed.feed.url = FeedLocation::File(feed.folder.path().join("missing"));
    feed.update(&numbered(10..70), NOW + 2 * DAY).unwrap_err();
    feed.feed.url = first;
    assert!(feed.feed.read_last_attempt(&feed.folder.path().join("feeds")).is_none());
    let error = feed.update(&numbered(200..260), NOW + 2 * DAY).unwrap_err().to_string();
    assert!(error.contains("60 new and 60 gone"), "{error}");
    let same = feed.update(&numbered(10..70), NOW + 2 * DAY).unwrap();
    assert_eq!((same, feed.names_in_file().len()), (UpdateOutcome::Unchanged, 70));
}

#[test]
fn a_kind_that_comes_back_does_not_bring_its_old_list_back() {
    let mut feed = FileFeed::new();
    feed.update(&numbered(0..60), NOW).unwrap();
    feed.feed.kind = FeedKind::Free;
    feed.update(&numbered(100..160), NOW + DAY).unwrap();
    feed.feed.kind = FeedKind::Disposable(FeedTier::B);
    let updated = feed.update(&numbered(100..160), NOW + DAY).unwrap();
    assert_eq!(updated, UpdateOutcome::ListReplaced(60));
    assert_eq!(feed.names_in_file(), numbered(100..160).into_iter().collect());
}

#[test]
fn a_state_of_an_earlier_version_keeps_its_departed_names() {
    let feed = FileFeed::new();
    feed.update(&numbered(0..60), NOW).unwrap();
    let path = feed.folder.path().join("feeds/daily.json");
    let mut state: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let digest = fetch::sha256_hex(format!("{}\n\n", feed.feed.url).as_bytes());
    state["source_digest"] = digest.into();
    state.as_object_mut().unwrap().remove("attempted_source_digest");
    fs::write(&path, state.to_string()).unwrap();
    assert!(feed.feed.read_last_attempt(&feed.folder.path().join("feeds")).is_some());
    feed.update(&numbered(10..70), NOW + DAY).unwrap();
    assert_eq!(feed.names_in_file().len(), 70);
}

#[test]
fn a_list_that_was_removed_is_a_fault_until_it_is_fetched_again() {
    let mut feed = FileFeed::new();
    let folder = feed.folder.path().join("feeds");
    assert!(!feed.feed.has_damaged_list(&folder), "nothing was fetched yet");
    feed.update(&numbered(0..60), NOW).unwrap();
    fs::remove_file(feed.feed.list_path(&folder)).unwrap();
    assert!(feed.feed.has_damaged_list(&folder));
    let problem = feed.feed.read_status(&folder, NOW).problem.unwrap();
    assert!(problem.contains("daily.disposable.txt: expected the kept list"), "{problem}");
    assert!(problem.ends_with("but found no such file"), "{problem}");
    feed.feed.kind = FeedKind::Free;
    assert!(!feed.feed.has_damaged_list(&folder), "a list of this kind was never there");
    feed.feed.kind = FeedKind::Disposable(FeedTier::B);
    feed.update(&numbered(0..60), NOW).unwrap();
    assert!(!feed.feed.has_damaged_list(&folder));
    assert_eq!(feed.feed.read_status(&folder, NOW).problem, None);
}

#[test]
fn the_file_of_a_list_never_becomes_longer_than_max_bytes() {
    let mut feed = FileFeed::new();
    let folder = feed.folder.path().join("feeds");
    let file_length = |feed: &FileFeed| fs::metadata(feed.feed.list_path(&folder)).unwrap().len();
    // In the file, each of these names is longer than where it was published.
    let longer = |count: u32| -> Vec<String> { (0..count).map(|n| format!("ü{n}.com")).collect() };
    feed.feed.max_list_bytes = 300;
    feed.update(&numbered(0..10), NOW).unwrap();
    let before = feed.names_in_file();
    let error = feed.update(&longer(19), NOW).unwrap_err().to_string();
    assert!(error.contains("expected a list whose file has at most 300 bytes"), "{error}");
    assert_eq!(feed.names_in_file(), before, "the last good list stays");
    // Names that have left the list are left out before that.
    feed.update(&longer(12), NOW).unwrap();
    assert!(file_length(&feed) <= 300 && feed.names_in_file().len() > 12);
}

#[test]
fn the_checksum_of_a_copied_list_is_verified_once() {
    let feed = FileFeed::new();
    let folder = feed.folder.path().join("feeds");
    feed.update(&numbered(0..60), NOW).unwrap();
    let list = feed.feed.list_path(&folder);
    let copy = folder.join("copy");
    fs::copy(&list, &copy).unwrap();
    fs::rename(&copy, &list).unwrap();
    let verified_by = |feed: &Feed| feed.verified_list.fingerprint();
    assert_eq!(verified_by(&feed.feed), None, "the fingerprint in the state was enough");
    // The gateway works with clones of the feed.
    assert_eq!(feed.feed.clone().read_status(&folder, NOW).problem, None);
    let verified = verified_by(&feed.feed);
    let written = storage::read_written_state(&folder, &feed.feed.name);
    assert!(verified.is_some() && verified != written.list_fingerprint);
    assert_eq!(feed.update(&numbered(0..60), NOW).unwrap(), UpdateOutcome::Unchanged);
    let written = storage::read_written_state(&folder, &feed.feed.name);
    assert_eq!(written.list_fingerprint, verified, "the next process need not verify it");
    // A later change is found.
    fs::write(&list, "damaged.com\n").unwrap();
    assert!(feed.feed.read_status(&folder, NOW).problem.is_some());
}
