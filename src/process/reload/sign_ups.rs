//! Exchanges sign-ups and the inbox secret with the store each second, on a thread of its own.
//!
//! Without `[[rule]]` and `[inbox]`, the thread does nothing.

use std::sync::Arc;

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::{StartupConfig, StoreOptions};
use crate::decide::SignUpSync;
use crate::gate::GateState;
use crate::store::{Store, StoreUrl};

/// Starts the thread. It ends when the gate closes.
pub(super) fn start_sign_up_thread(
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    config: &StartupConfig,
) -> std::io::Result<()> {
    let mut random_bytes = [0; 32];
    getrandom::fill(&mut random_bytes)?;
    let store = config.store.clone();
    let is_on_server = matches!(store.url, StoreUrl::Redis(_));
    let random_bytes = config.inbox_secret.is_none().then_some(random_bytes);
    let mut exchange = Exchange {
        sync: SignUpSync::new(random_bytes, is_on_server),
        connection: None,
        state: Arc::clone(&state),
        store,
        status_reporter,
    };
    state.sign_ups.set_thread_running();
    let run = move || {
        exchange.run_once();
        while !state.sign_ups.wait_for_next_exchange() {
            exchange.run_once();
        }
        exchange.run_once();
        state.sign_ups.set_thread_ended();
    };
    std::thread::Builder::new().name("sign-ups".to_owned()).spawn(run).map(drop)
}

struct Exchange {
    sync: SignUpSync,
    /// `None` while the store is not open.
    connection: Option<Store>,
    state: Arc<GateState>,
    store: StoreOptions,
    status_reporter: StatusReporter,
}

impl Exchange {
    fn run_once(&mut self) {
        let is_on = self.state.reloadable_rules.peek().decisions.is_on();
        let problem = if is_on { self.exchange() } else { None };
        self.status_reporter.record_part("sign_ups", problem.as_deref(), false);
    }

    /// Returns what the operator has to know.
    fn exchange(&mut self) -> Option<String> {
        let opened = open_if_none(&mut self.connection, &self.store, self.store.deadline);
        let exchanged = opened.and_then(|store| {
            store.set_time(self.state.ledger.believed_time());
            let now = self.state.ledger.believed_now();
            self.sync.sync_with_store(store, &self.state.sign_ups, now)
        });
        match exchanged {
            Ok(problem) => problem,
            Err(error) => {
                self.connection = None;
                Some(error.to_string())
            }
        }
    }
}
