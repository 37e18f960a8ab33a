//! What commands look domains up in: the table, overrides and DNS facts of a gateway of the config,
//! or a table alone.

use std::path::PathBuf;

use super::output::print_message;
use super::store_access::{COMMAND_STORE_TIMEOUT, read_table_inputs};
use crate::config::{Config, StoreOptions};
use crate::management::{ExplainedDomain, explain_domain, read_present_time};
use crate::model::domain::Domain;
use crate::model::verdict::Score;
use crate::store::{Store, StoreError};
use crate::table::{Table, TableFaults, TableInputs, TableLocation};

/// The lists, overrides and DNS facts from which a look-up takes its answer.
pub struct LookupSources {
    inputs: TableInputs,
    /// The score of a name about which nothing is known; `None` for the score of the table.
    unknown_score: Option<Score>,
    /// The store with the facts learned from the DNS, which decide if no list does. `None` if
    /// look-ups do without these facts.
    store: Option<Store>,
    /// The time of the look-up in Unix seconds.
    unix_now: i64,
}

impl LookupSources {
    /// The sources of a gateway with this config: its lists and its score of unknown names, and the
    /// overrides and the DNS facts of its store. If the store fails, or if it is missing and
    /// `dns.learn` is on, prints a message; the look-ups then do without the store.
    pub fn of_config(config: &Config) -> LookupSources {
        LookupSources {
            inputs: read_table_inputs(config),
            unknown_score: config.reloadable.unknown_score,
            store: open_store_with_dns_facts(config),
            unix_now: read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT),
        }
    }

    /// A directory or a compiled table alone, at this time.
    pub fn of_table_alone(path: PathBuf, unix_now: i64) -> LookupSources {
        LookupSources {
            inputs: TableInputs::from_base(TableLocation::Path(path)),
            unknown_score: None,
            store: None,
            unix_now,
        }
    }

    /// The time of the look-ups in Unix seconds.
    pub fn unix_now(&self) -> i64 {
        self.unix_now
    }

    /// Builds the table of these sources.
    pub fn build_table(&self) -> Result<Table, TableFaults> {
        Table::build(&self.inputs, self.unix_now)
    }

    /// Looks a domain up in the table of these sources.
    pub fn explain<'t>(
        &mut self,
        table: &'t Table,
        domain: &Domain,
    ) -> Result<ExplainedDomain<'t>, StoreError> {
        explain_domain(table, domain, self.unknown_score, self.store.as_mut(), self.unix_now)
    }
}

/// Opens the store for its learned DNS facts. Returns None if `dns.learn` is off. If the store does
/// not exist or fails, prints a message and returns None.
fn open_store_with_dns_facts(config: &Config) -> Option<Store> {
    let StoreOptions { url, redis, .. } = &config.startup.store;
    if !config.reloadable.dns.is_learning_enabled {
        return None;
    }
    let opened = Store::open_to_read(url, redis, COMMAND_STORE_TIMEOUT).and_then(|mut store| {
        store.find_dns_fact("a.test")?;
        Ok(store)
    });
    match opened {
        Ok(store) => Some(store),
        Err(error) => {
            print_message(format!("expected the learned DNS results, but found: {error}"));
            None
        }
    }
}
