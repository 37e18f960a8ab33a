//! What a setting says about a value that stands elsewhere, or is not in the config at all.

use super::Config;
use super::description::without_indexes;
use super::raw_value::RawValue;
use super::settings::{RawSetting, Settings};

/// Returns what a setting expects in place of a value, and what to write; `None` if it takes the
/// value.
pub(super) fn judge_value(key: &str, raw: &RawValue) -> Option<(String, Option<String>)> {
    const LOCATION: &str = "the judged value";
    let mut settings = Settings::of_each_section();
    Config::from_settings(None, &mut settings);
    let of_entry = settings.descriptions.iter().find(|it| without_indexes(&it.key) == key);
    let whole_key = of_entry.map_or_else(|| key.to_owned(), |it| it.key.clone());
    let mut settings = Settings::of_each_section();
    settings.values.insert(whole_key, RawSetting::from_process(raw.clone(), LOCATION.to_owned()));
    Config::from_settings(None, &mut settings);
    let fault = settings.faults.iter().find_map(|it| it.expected_and_hint(LOCATION));
    fault.map(|(problem, hint)| (problem.to_owned(), hint.map(str::to_owned)))
}
