//! `[top]`: the list of the most frequently flagged domains.

use std::time::Duration;

use super::settings::Settings;
use crate::observe::top_domains::TopDomainsOptions;
use crate::store::MAX_TOP_ROW_ACCOUNTS;

impl Settings {
    /// Reads the options of the top list.
    pub fn read_top_domains_options(&mut self) -> TopDomainsOptions {
        let week = Duration::from_secs(7 * 86_400);
        let accounts = 1..=MAX_TOP_ROW_ACCOUNTS as u64;
        TopDomainsOptions {
            limit: self.read_integer("top.limit", 1..=1_000, 100) as usize,
            min_accounts: self.read_integer("top.min_accounts", accounts, 1) as usize,
            half_life_seconds: self
                .read_nonzero_duration("top.half_life", week)
                .as_secs_f64()
                .max(1.0),
        }
    }
}
