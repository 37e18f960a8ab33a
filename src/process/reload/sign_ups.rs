//! Exchanges sign-ups and the inbox secret with the store each second, on a thread of its own.
//!
//! Without `[[rule]]` and `[inbox]`, the thread does nothing.

use std::sync::Arc;

use super::status_reporter::StatusReporter;
use super::store_connection::open_if_none;
use crate::config::StoreOptions;
use crate::decide::SignUpSync;
use crate::gate::GateState;
use crate::store::Store;

/// The name of the part in `degraded`.
const PART: &str = "sign_ups";

/// Starts the thread. It ends when the gate closes.
pub(super) fn start_sign_up_thread(
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    store: StoreOptions,
    is_secret_of_file: bool,
) -> std::io::Result<()> {
    let mut random_bytes = [0; 32];
    getrandom::fill(&mut random_bytes)?;
    let mut sync = SignUpSync::new((!is_secret_of_file).then_some(random_bytes));
    let mut connection: Option<Store> = None;
    let thread = std::thread::Builder::new().name("sign-ups".to_owned());
    state.sign_ups.set_thread_running();
    let run = move || {
        loop {
            let is_closing = state.sign_ups.wait_for_next_exchange();
            if state.reloadable_rules.peek().decisions.is_on() {
                let exchanged =
                    open_if_none(&mut connection, &store, store.deadline).and_then(|store| {
                        store.set_time(state.ledger.believed_time());
                        let now = state.ledger.believed_now();
                        sync.sync_with_store(store, &state.sign_ups, now)
                    });
                let problem = match exchanged {
                    Ok(problem) => problem,
                    Err(error) => {
                        connection = None;
                        Some(error.to_string())
                    }
                };
                let not_loaded = || {
                    (!state.sign_ups.is_loaded()).then(|| "not read from the store yet".to_owned())
                };
                let problem = problem.or_else(not_loaded);
                status_reporter.record_part(PART, problem.as_deref(), false);
            } else {
                status_reporter.record_part(PART, None, false);
            }
            if is_closing {
                state.sign_ups.set_thread_ended();
                return;
            }
        }
    };
    thread.spawn(run).map(drop)
}
