//! `max_per_client`: how often one client may send a request.

use std::time::Duration;

use super::raw_value::{RawValue, parse_duration};
use super::settings::Settings;
use crate::support::client_rates::Rate;

const MAX_REQUESTS: u32 = 1_000_000;
const MAX_REFILL_TIME: Duration = Duration::from_secs(31 * 86_400);

impl Settings {
    /// Reads a rate such as `20/h` or `100/10m`.
    pub fn read_rate(&mut self, key: &str) -> Option<Rate> {
        let expected = "a number of requests and a time, such as 5/s, 20/h or 100/10m";
        self.parse_setting(key, expected, |raw: &RawValue| parse_rate(raw.as_text()?))
    }
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (requests, time) = text.split_once('/')?;
    let is_number = requests.bytes().all(|byte| byte.is_ascii_digit());
    let requests = requests.parse().ok().filter(|n| is_number && *n <= MAX_REQUESTS)?;
    // `h` means `1h`.
    let time = parse_duration(time).or_else(|| parse_duration(&format!("1{time}")))?;
    Rate::new(requests, time).filter(|_| time <= MAX_REFILL_TIME)
}

#[cfg(test)]
mod tests;
