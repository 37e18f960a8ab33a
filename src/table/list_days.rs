//! How old each list of a table is: the day of the newest source that it was made from.

use super::layout::parts::ListInfo;
use super::seen_days::Day;
use super::source_packages::{SourcePackage, vote_bit};
use super::table_data::Table;

impl Table {
    /// The day on which the newest source of each list was published, in seconds since 1970, in the
    /// order of [`Table::lists`]. If the manifest names no source of a list, the list's sources are
    /// those whose votes its rows have. `None` if no source is known.
    pub fn newest_source_days_of_lists(&self) -> Vec<Option<i64>> {
        let votes_of = |number: usize| {
            let answers = self.decoded_table.answers.iter();
            let of_list = answers.filter(|answer| answer.list_bits >> number & 1 == 1);
            of_list.fold(0, |votes, answer| votes | answer.vote_bits)
        };
        let newest = |(number, list): (usize, &ListInfo)| {
            let votes = if list.source.is_none() { votes_of(number) } else { 0 };
            let is_of_list = |source: &&SourcePackage| match &list.source {
                Some(name) => *name == source.name,
                None => votes & source.vote.map_or(0, vote_bit) != 0,
            };
            let days = self.sources().iter().filter(is_of_list);
            let days = days.map(|source| Day::parse(&source.date).unwrap_or_default());
            days.max().and_then(Day::to_unix_seconds)
        };
        self.lists().iter().enumerate().map(newest).collect()
    }
}
