//! Shares the rates of clients with the other nodes through a Redis server (`rates.shared`). A
//! thread of its own does so twice a second. No request waits for this thread.
//!
//! While the server does not answer, each node limits its clients by the requests that it knows of.

use std::sync::Arc;
use std::time::Instant;

use super::status_reporter::StatusReporter;
use crate::config::{StartupConfig, StoreOptions};
use crate::gate::GateState;
use crate::model::rate_charge::RateCharge;
use crate::store::{MAX_RATE_CHARGES, Redis, StoreError};
use crate::support::client_rates::BucketCharge;
use crate::support::exchange_thread::STORE_EXCHANGE_INTERVAL;

/// The most statements with charges that the thread sends in one turn.
const MAX_STATEMENTS: usize = 4;

/// Starts the thread if rates are shared. The thread ends when the gate closes.
pub(super) fn start_rate_thread(
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    config: &StartupConfig,
) -> std::io::Result<()> {
    let Some(thread) = state.client_rates.exchange_thread() else { return Ok(()) };
    let mut exchanger = RateExchanger {
        server: None,
        state: Arc::clone(&state),
        store: config.store.clone(),
        status_reporter,
        has_problem: true,
    };
    thread.set_running();
    let run = move || {
        if let Some(thread) = state.client_rates.exchange_thread() {
            thread.run(|| exchanger.run_turn());
        }
    };
    std::thread::Builder::new().name("shared-rates".to_owned()).spawn(run).map(drop)
}

struct RateExchanger {
    /// The connection to the server; `None` until the first exchange.
    server: Option<Redis>,
    state: Arc<GateState>,
    store: StoreOptions,
    status_reporter: StatusReporter,
    /// Whether the last turn failed. True before the first turn.
    has_problem: bool,
}

impl RateExchanger {
    /// Exchanges the charges of this node with the server once.
    fn run_turn(&mut self) {
        // Before this process serves, there is nothing to share.
        if !self.state.serving.is_serving() || !self.state.sign_ups.has_secret() {
            // The pseudonyms need the secret. The thread of the sign-ups asks the store for the
            // secret, and reports a failure.
            return;
        }
        let problem = self.exchange_all().err().map(|error| error.to_string());
        self.has_problem = problem.is_some();
        self.status_reporter.record_part("rates", problem.as_deref(), false);
        self.state.metrics.store.set_lost_rate_requests(self.state.client_rates.untold_requests());
    }

    fn exchange_all(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let max_charges = MAX_STATEMENTS * MAX_RATE_CHARGES;
        let charges = self.state.client_rates.take_charges(max_charges, now);
        // After a failure, a statement without charges shows whether the server is back.
        if charges.is_empty() && self.has_problem {
            return self.exchange(&[], now);
        }
        let mut exchanged = Ok(());
        for page in charges.chunks(MAX_RATE_CHARGES) {
            if exchanged.is_ok() {
                exchanged = self.exchange(page, now);
            }
            if exchanged.is_err() {
                self.state.client_rates.count_lost_charges(page);
            }
        }
        exchanged
    }

    fn exchange(&mut self, charges: &[BucketCharge], now: Instant) -> Result<(), StoreError> {
        let exchanged = self.try_exchange(charges, now);
        self.state.metrics.store.count_rate_exchange(exchanged.is_ok());
        exchanged
    }

    fn try_exchange(&mut self, charges: &[BucketCharge], now: Instant) -> Result<(), StoreError> {
        let sent: Vec<RateCharge> = charges.iter().filter_map(|it| self.to_shared(it)).collect();
        let server = match &mut self.server {
            Some(server) => server,
            none => none.insert(self.store.open_server(STORE_EXCHANGE_INTERVAL)?),
        };
        let times = server.charge_rates(&sent, now)?;
        for (charge, until_full_ns) in charges.iter().zip(times) {
            self.state.client_rates.learn_time_until_full(charge, until_full_ns, now);
        }
        Ok(())
    }

    /// Converts a charge to the form for the server. In this form, a pseudonym names the bucket.
    /// Returns `None` if the inbox secret is not known; an exchange never begins without the
    /// secret.
    fn to_shared(&self, charge: &BucketCharge) -> Option<RateCharge> {
        Some(RateCharge {
            bucket: self.state.sign_ups.rate_bucket_pseudonym(&charge.bucket_name)?,
            refill_ns: charge.refill_ns,
            first_request_age_ns: charge.first_request_age_ns,
            until_full_ns: charge.until_full_ns,
            not_full_for_ns: charge.not_full_for_ns,
            max_until_full_ns: charge.max_until_full_ns,
        })
    }
}
