//! Exchanges sign-ups and the inbox secret with the store twice a second, on a thread of its own.
//! Once an hour, the thread deletes what is past its time from the store.
//!
//! If no decision needs sign-ups (no `[[rule]]`, no `[inbox]`), the thread exchanges no sign-ups.
//! It then exchanges the secret only if the rates of clients are shared. Before this process
//! serves, the thread only reads the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::{StartupConfig, StoreOptions};
use crate::decide::{SignUpSync, delete_expired_sign_ups};
use crate::dns::latest_useless_expiry;
use crate::gate::GateState;
use crate::store::{Store, StoreError, StoreUrl};

/// How often the thread deletes what is past its time.
const DELETION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Starts the thread. The thread ends when the gate closes.
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
    let mut exchanger = SignUpExchanger {
        sync: SignUpSync::new(random_bytes, is_on_server),
        connection: None,
        state: Arc::clone(&state),
        store,
        status_reporter,
        last_deletion: None,
    };
    state.sign_ups.exchange_thread().set_running();
    let run = move || state.sign_ups.exchange_thread().run(|| exchanger.run_turn());
    std::thread::Builder::new().name("sign-ups".to_owned()).spawn(run).map(drop)
}

struct SignUpExchanger {
    sync: SignUpSync,
    /// The connection to the store; `None` while no store is open.
    connection: Option<Store>,
    state: Arc<GateState>,
    store: StoreOptions,
    status_reporter: StatusReporter,
    last_deletion: Option<Instant>,
}

impl SignUpExchanger {
    /// Exchanges the sign-ups of this node with the store once.
    fn run_turn(&mut self) {
        let rules = self.state.reloadable_rules.peek();
        let decisions = &rules.decisions;
        let (is_on, is_by_account) = (decisions.counts_sign_ups(), decisions.is_by_account);
        let problem = match (self.state.serving.is_serving(), is_on) {
            (false, _) => self.read(is_on),
            (true, true) => self.exchange(is_by_account),
            (true, false) => self.exchange_secret_for_rates(),
        };
        if self.state.serving.is_serving() {
            self.delete_expired();
        }
        self.status_reporter.record_part("sign_ups", problem.as_deref(), false);
    }

    /// Reads what this node needs once it serves, and changes nothing in the store. Returns the
    /// problem, if any.
    fn read(&mut self, is_counting: bool) -> Option<String> {
        if !is_counting && self.state.client_rates.exchange_thread().is_none() {
            return None;
        }
        let read = self.with_store(|sync, store, state, now| match is_counting {
            true => sync.read_from_store(store, &state.sign_ups, now),
            false => sync.read_secret(store, &state.sign_ups, now),
        });
        // Without sign-ups, other threads report a failure of the store.
        read.err().filter(|_| is_counting).map(|error| error.to_string())
    }

    /// Deletes what is past its time. The store may have rows from a time when sign-ups were
    /// counted, or DNS facts learned.
    fn delete_expired(&mut self) {
        let is_early = self.last_deletion.is_some_and(|at| at.elapsed() < DELETION_INTERVAL);
        if is_early || !self.state.ledger.believed_time().allows_deletion() {
            return;
        }
        self.last_deletion = Some(Instant::now());
        let deleted = self.with_store(|_, store, _, now| {
            let sign_ups = delete_expired_sign_ups(store, now);
            store.delete_expired_rows(latest_useless_expiry(now)).and(sign_ups)
        });
        if let Err(error) = deleted {
            log::warn!("what is past its time stays in the store for another hour: {error}");
        }
        // Without sign-ups and shared rates, this thread needs no connection for an hour.
        if !self.state.reloadable_rules.peek().decisions.counts_sign_ups() {
            self.connection = None;
        }
    }

    /// Exchanges the secret with the store if rates are shared: the pseudonyms of clients need the
    /// secret. Returns the problem of the secret, if any. A failure of the store is a problem of
    /// the rates, as long as the secret is not known.
    fn exchange_secret_for_rates(&mut self) -> Option<String> {
        self.state.client_rates.exchange_thread()?;
        let exchanged = self
            .with_store(|sync, store, state, now| sync.sync_secret(store, &state.sign_ups, now));
        exchanged.unwrap_or_else(|error| {
            self.report_unshared_rates(&error);
            None
        })
    }

    /// Reports that the rates of clients are not shared, if they need the secret, and the exchange
    /// of the secret has failed. Once the secret is known, the thread of the rates reports.
    fn report_unshared_rates(&self, error: &StoreError) {
        let shares_rates = self.state.client_rates.exchange_thread().is_some();
        if shares_rates && !self.state.sign_ups.has_secret() {
            self.state.metrics.store.count_rate_exchange(false);
            self.status_reporter.record_part("rates", Some(&error.to_string()), false);
        }
    }

    /// Exchanges sign-ups and the secret with the store. Returns the problem, if any.
    fn exchange(&mut self, ids_are_by_account: bool) -> Option<String> {
        let exchanged = self.with_store(|sync, store, state, now| {
            sync.sync_with_store(store, &state.sign_ups, ids_are_by_account, now)
        });
        exchanged.unwrap_or_else(|error| {
            self.report_unshared_rates(&error);
            Some(error.to_string())
        })
    }

    /// Tells the store the time, and calls `act` with the store. If the store is not open, first
    /// opens it. If `act` fails, closes the store.
    fn with_store<T>(
        &mut self,
        act: impl FnOnce(&mut SignUpSync, &mut Store, &GateState, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let opened = open_if_none(&mut self.connection, &self.store, self.store.deadline);
        let done = opened.and_then(|store| {
            store.set_time(self.state.ledger.believed_time());
            act(&mut self.sync, store, &self.state, self.state.ledger.believed_now())
        });
        if done.is_err() {
            self.connection = None;
        }
        done
    }
}
