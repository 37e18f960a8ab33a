//! The names in the file of a feed: those of the last good list, and those that left the list and
//! are kept for a while. Decides which names are kept. No I/O.

use std::collections::{BTreeMap, HashSet};

use crate::model::believed_time::BelievedTime;
use crate::table::FeedList;

/// The names in the file of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredNames {
    /// The names of the last good list.
    pub listed: HashSet<String>,
    /// When riskgate first had this list, in seconds since 1970, if a clock confirmed it.
    pub listed_at: Option<i64>,
    /// The names that have left the list, each with the time at which riskgate first missed the
    /// name in the list, in seconds since 1970.
    pub departed: BTreeMap<String, i64>,
}

impl StoredNames {
    /// Parses the names of a file, one per line.
    pub(super) fn parse(text: &str) -> StoredNames {
        let mut stored = StoredNames::default();
        let mut left_at = None;
        for line in text.lines() {
            if let Some(time) = line.strip_prefix(FeedList::LISTED_LINE_PREFIX) {
                stored.listed_at = time.parse().ok();
            }
            match line.strip_prefix(FeedList::DEPARTURE_LINE_PREFIX) {
                Some(time) => left_at = time.parse().ok(),
                None if line.starts_with('#') => {}
                None => match left_at {
                    None => _ = stored.listed.insert(line.to_owned()),
                    Some(left_at) => _ = stored.departed.insert(line.to_owned(), left_at),
                },
            }
        }
        stored
    }

    /// Returns the departed names after a list with these sorted names was fetched at `now`. A name
    /// that came back is not among them.
    ///
    /// - If a clock confirms `now`, a time of departure that is still to come becomes `now`: the
    ///   clock was ahead then.
    /// - If no clock confirms `now`, the clock may be far behind. So earlier times stay, and names
    ///   that leave now leave no earlier than the last ones.
    pub(super) fn into_departed(
        self,
        fetched_names: &[String],
        now: BelievedTime,
    ) -> BTreeMap<String, i64> {
        let mut departed = self.departed;
        let latest = departed.values().max().copied().unwrap_or(now.unix_now);
        let is_settled = now.allows_deletion();
        let left_now = if is_settled { now.unix_now } else { now.unix_now.max(latest) };
        departed.extend(self.listed.into_iter().map(|name| (name, left_now)));
        departed.retain(|name, left_at| {
            if is_settled {
                *left_at = now.unix_now.min(*left_at);
            }
            fetched_names.binary_search(name).is_err()
        });
        departed
    }
}

/// The lines of a feed's file: when riskgate first had the list (`listed_at`, in seconds since
/// 1970), the names of the list, and then the departed names, the latest departures first. If the
/// file with these lines would be longer than `max_bytes`, omits the departed names that left the
/// list the longest ago.
pub(super) fn render_lines(
    listed_names: &[String],
    listed_at: Option<i64>,
    departed: &BTreeMap<String, i64>,
    max_bytes: u64,
) -> Vec<String> {
    let mut latest_first: Vec<(i64, &String)> =
        departed.iter().map(|(name, left_at)| (*left_at, name)).collect();
    latest_first.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let listed_line = listed_at.map(|time| format!("{}{time}", FeedList::LISTED_LINE_PREFIX));
    let mut lines: Vec<String> = listed_line.into_iter().chain(listed_names.to_vec()).collect();
    let mut bytes =
        FeedList::CHECKSUM_LINE_BYTES + lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
    for group in latest_first.chunk_by(|a, b| a.0 == b.0) {
        let head = format!("{}{}", FeedList::DEPARTURE_LINE_PREFIX, group[0].0);
        for line in std::iter::once(&head).chain(group.iter().map(|(_, name)| *name)) {
            bytes += line.len() as u64 + 1;
            if bytes > max_bytes {
                return lines;
            }
            lines.push(line.clone());
        }
    }
    lines
}

#[cfg(test)]
mod tests;
