//! Queries the DNS for names about which the lists do not decide, on a low-priority thread.
//!
//! HTTP requests only queue names, and never wait for the DNS. The thread limits its concurrent
//! queries. The thread trusts resolvers only if they know the mail hosts of a large provider. It
//! holds back each finding that mail can't reach a name, until a later probe has passed. Each
//! second, the thread writes what it learned to the store, and reads what other nodes learned.
//! Before this process serves, the thread only reads the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::status_reporter::StatusReporter;
use crate::config::StoreOptions;
use crate::dns::{
    DnsClient, DnsFactSync, DnsFinding, DnsOptions, DnsStatus, HeldFindings, MAX_HELD_FINDINGS,
    NameQueryTasks, Pacer,
};
use crate::gate::GateState;

/// How often the thread syncs with the store and publishes its status.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a successful probe the thread probes the resolvers again. Until that probe ends,
/// the thread trusts what the resolvers say, unless they deny that mail reaches a name.
const PROBE_INTERVAL: Duration = Duration::from_mins(1);
/// The shortest time between two probes for held findings, in slots of the pacer. A probe takes one
/// query, or up to three if the resolvers don't know the first providers. So these probes take at
/// most a tenth of the queries, or three tenths with such resolvers.
const PROBE_SPACING_IN_SLOTS: u32 = 10;
/// How soon the thread probes the resolvers again after a failed probe.
const PROBE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The `nice` value of the thread, so that request threads go first if processors are busy.
const THREAD_NICENESS: i32 = 10;

/// Controls the thread that queries the DNS. The thread ends when its `DnsLearner` is dropped.
pub(super) struct DnsLearner {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    store: StoreOptions,
    /// Sends changed options to the thread; `None` until learning is first enabled.
    options_sender: Option<watch::Sender<DnsOptions>>,
}

impl DnsLearner {
    /// Creates the learner, and starts the thread if learning is enabled.
    pub(super) fn start(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        store: StoreOptions,
        options: DnsOptions,
    ) -> std::io::Result<DnsLearner> {
        let mut learner = DnsLearner { state, status_reporter, store, options_sender: None };
        learner.set_options(options)?;
        Ok(learner)
    }

    /// Applies changed options. Starts the thread when learning is enabled for the first time.
    pub(super) fn set_options(&mut self, options: DnsOptions) -> std::io::Result<()> {
        if let Some(changes) = &self.options_sender {
            changes.send_replace(options);
        } else if options.is_learning_enabled {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let pacer = Arc::new(Pacer::new(options.max_queries_per_second));
            let (changes, option_changes) = watch::channel(options);
            let worker = Worker {
                state: Arc::clone(&self.state),
                status_reporter: self.status_reporter.clone(),
                store: self.store.clone(),
                pacer,
                sync: None,
                store_problem: None,
            };
            let thread = std::thread::Builder::new().name("dns".to_owned());
            thread.spawn(move || {
                // If the call fails, the thread works at normal priority.
                let _ = rustix::process::nice(THREAD_NICENESS);
                runtime.block_on(worker.run(option_changes));
            })?;
            self.options_sender = Some(changes);
        }
        Ok(())
    }
}

/// The state of the thread.
struct Worker {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    store: StoreOptions,
    pacer: Arc<Pacer>,
    /// The open store; `None` while no store is open.
    sync: Option<DnsFactSync>,
    store_problem: Option<String>,
}

impl Worker {
    async fn run(mut self, mut changes: watch::Receiver<DnsOptions>) {
        loop {
            let options = changes.borrow_and_update().clone();
            let cache = &self.state.dns;
            cache.enable_or_clear(options.is_learning_enabled);
            cache.forget_queries_in_flight();
            self.pacer.set_rate(options.max_queries_per_second);
            if !options.is_learning_enabled {
                (self.sync, self.store_problem) = (None, None);
                self.publish_status(None);
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = self.learn(&options), if options.is_learning_enabled => {}
            }
        }
    }

    /// Queries the DNS for queued names, records the findings, and syncs with the store, until the
    /// caller drops this future.
    async fn learn(&mut self, options: &DnsOptions) {
        let cache = &Arc::clone(&self.state).dns;
        let mut sync_timer = interval(SYNC_INTERVAL);
        sync_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resolvers =
            Resolvers::new(options.clone(), Arc::clone(&self.state), Arc::clone(&self.pacer));
        let mut queries = NameQueryTasks::default();
        loop {
            let in_flight = queries.in_flight_name_count();
            let may_query = in_flight < options.max_names_in_flight
                && in_flight + resolvers.held.count() < MAX_HELD_FINDINGS;
            let client = resolvers.trusted_client.as_ref().filter(|_| may_query).cloned();
            tokio::select! {
                _ = sync_timer.tick() => {
                    if self.state.serving.is_serving() {
                        resolvers.probe_if_due();
                    }
                    self.sync_with_store().await;
                    self.publish_status(resolvers.problem.as_deref());
                }
                Some(probed) = resolvers.probes.join_next() => {
                    let probed = probed.unwrap_or_else(|error| Err(error.to_string()));
                    match resolvers.record_probe(probed) {
                        Some(confirmed) => {
                            confirmed.into_iter().for_each(|it| self.record_finding(it));
                        }
                        None => {
                            queries = NameQueryTasks::default();
                            cache.forget_queries_in_flight();
                        }
                    }
                }
                Some((name, finding)) = queries.next_finding() => match finding.denies_mail() {
                    true => resolvers.held.hold(name, finding),
                    false => self.record_finding((name, finding)),
                },
                name = cache.wait_and_dequeue_name(), if client.is_some() => {
                    let (Some(client), state) = (client, Arc::clone(&self.state)) else { continue };
                    queries.spawn_name_query(Arc::clone(&name), async move {
                        let table = state.table.snapshot();
                        client.query_mail_hosts(&name, |host| table.known_mx_answer(host)).await
                    });
                }
            }
        }
    }

    fn record_finding(&self, (name, finding): (Arc<str>, DnsFinding)) {
        let (table, now) = (self.state.table.snapshot(), self.state.ledger.believed_now());
        self.state.dns.record_finding(&name, finding, &table, now);
    }

    /// Writes learned facts to the store, and reads what other nodes have learned.
    async fn sync_with_store(&mut self) {
        let (state, store, sync) = (Arc::clone(&self.state), self.store.clone(), self.sync.take());
        let synced = spawn_blocking(move || {
            let (table, now) = (state.table.snapshot(), state.ledger.believed_now());
            state.dns.update_shared_addresses(&table, now);
            let mut sync = match sync {
                Some(sync) => sync,
                None => DnsFactSync::new(store.open_existing(store.deadline)?),
            };
            let outcome = sync.sync_with_store(&state.dns, &table, now);
            Ok::<_, crate::store::StoreError>((sync, outcome))
        });
        self.store_problem = match synced.await {
            Ok(Ok((sync, outcome))) => {
                self.sync = Some(sync);
                outcome.err().map(|error| error.to_string())
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
    }

    /// Publishes the status and the metrics. If both the resolvers and the store have a problem,
    /// the status shows only the problem of the resolvers.
    fn publish_status(&self, resolver_problem: Option<&str>) {
        let cache = &self.state.dns;
        let status = DnsStatus {
            is_learning: cache.is_enabled(),
            known_names: cache.known_name_count(),
            queued_names: cache.queued_name_count(),
            dropped_names: cache.dropped_name_count(),
            last_answered_at: cache.last_answered_at(),
            problem: resolver_problem.or(self.store_problem.as_deref()).map(str::to_owned),
        };
        self.status_reporter.record_part("dns", status.problem.as_deref(), false);
        self.state.metrics.dns.set_dns_metrics(
            status.known_names,
            status.queued_names,
            status.dropped_names,
            cache.finding_counts_by_outcome(),
        );
        self.status_reporter.update(|all| all.dns = status);
    }
}

/// The resolvers, and whether they are trusted.
struct Resolvers {
    options: DnsOptions,
    state: Arc<GateState>,
    /// All clients share one pacer, so that a new client does not raise the rate.
    pacer: Arc<Pacer>,
    /// `None` while the resolvers are not trusted. Meanwhile, the thread queries no name.
    trusted_client: Option<Arc<DnsClient>>,
    probes: JoinSet<Result<Arc<DnsClient>, String>>,
    next_probe_at: Instant,
    /// When the thread may probe the resolvers for held findings.
    next_probe_of_held_at: Instant,
    /// Findings of the trusted client that wait for a probe.
    held: HeldFindings,
    problem: Option<String>,
}

impl Resolvers {
    fn new(options: DnsOptions, state: Arc<GateState>, pacer: Arc<Pacer>) -> Resolvers {
        let (probes, next_probe_at) = (JoinSet::new(), Instant::now());
        Resolvers {
            options,
            state,
            pacer,
            trusted_client: None,
            probes,
            next_probe_at,
            next_probe_of_held_at: next_probe_at,
            held: HeldFindings::default(),
            problem: None,
        }
    }

    /// Starts a probe of the resolvers if one is due and none runs. If `dns.resolvers` is empty,
    /// each probe reads the system's resolvers again, because these may have changed.
    fn probe_if_due(&mut self) {
        let now = Instant::now();
        let is_due = now >= self.next_probe_at
            || (self.held.count() > 0 && now >= self.next_probe_of_held_at);
        if !is_due || !self.probes.is_empty() {
            return;
        }
        let slots_per_second = self.options.max_queries_per_second.max(1);
        let spacing = Duration::from_secs(1) * PROBE_SPACING_IN_SLOTS / slots_per_second;
        self.next_probe_of_held_at = now + spacing;
        self.held.note_probe_began();
        let (options, table) = (self.options.clone(), self.state.table.snapshot());
        let (pacer, trusted) = (Arc::clone(&self.pacer), self.trusted_client.clone());
        self.probes.spawn(async move {
            let client = match trusted {
                Some(client) if !options.resolver_addresses.is_empty() => client,
                trusted => {
                    let client = DnsClient::new(&options, pacer)?;
                    trusted.filter(|it| it.has_resolvers_of(&client)).unwrap_or(Arc::new(client))
                }
            };
            client.probe_resolvers(table.resolver_probe_providers()).await.map(|()| client)
        });
    }

    /// Records the result of a probe. Returns the findings that the probe confirms. If the probe
    /// failed, or was the first one of these resolvers, drops the held findings and returns `None`:
    /// the caller then drops the queries in flight, which the former resolvers would answer.
    fn record_probe(
        &mut self,
        probed: Result<Arc<DnsClient>, String>,
    ) -> Option<Vec<(Arc<str>, DnsFinding)>> {
        let (client, problem, delay) = match probed {
            Ok(client) => (Some(client), None, PROBE_INTERVAL),
            Err(problem) => (None, Some(problem), PROBE_RETRY_DELAY),
        };
        let are_same = match (&self.trusted_client, &client) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        (self.trusted_client, self.problem, self.next_probe_at) =
            (client, problem, Instant::now() + delay);
        if !are_same {
            self.held = HeldFindings::default();
            return None;
        }
        Some(self.held.take_confirmed())
    }
}
