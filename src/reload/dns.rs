//! Asks the DNS about names that no list has, on a thread that lets requests go first.
//!
//! Requests only leave names with it. It asks as many at a time as it may, believes resolvers that
//! know the mail hosts of large providers, and exchanges what it learned with the store each second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::report::Report;
use crate::config::StoreOptions;
use crate::dns::{Asker, DnsOptions, DnsStatus, Keeper, Said};
use crate::gate::State;

/// How often it writes and reads what nodes learn, and says how it stands.
const EXCHANGE: Duration = Duration::from_secs(1);
/// How long resolvers that told the truth are believed.
const BELIEVED: Duration = Duration::from_mins(1);
/// How soon those that did not are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How far its thread stands behind those of requests where both want a processor (`nice`).
const BEHIND_REQUESTS: i32 = 10;

/// Learns; it ends with this.
pub(super) struct DnsLearner {
    state: Arc<State>,
    report: Report,
    store: StoreOptions,
    /// Where the thread hears of other options; none where it was never wanted.
    changes: Option<watch::Sender<DnsOptions>>,
}

impl DnsLearner {
    /// Learns with these options from now on, and keeps what it learns in this store.
    pub(super) fn start(
        state: Arc<State>,
        report: Report,
        store: StoreOptions,
        options: DnsOptions,
    ) -> std::io::Result<DnsLearner> {
        let mut learner = DnsLearner { state, report, store, changes: None };
        learner.follow(options)?;
        Ok(learner)
    }

    /// Learns with other options from now on, or not any more.
    pub(super) fn follow(&mut self, options: DnsOptions) -> std::io::Result<()> {
        if let Some(changes) = &self.changes {
            changes.send_replace(options);
        } else if options.learn {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (changes, heard) = watch::channel(options);
            let worker = Worker {
                state: Arc::clone(&self.state),
                report: self.report.clone(),
                store: self.store.clone(),
                keeper: None,
                store_problem: None,
            };
            let thread = std::thread::Builder::new().name("dns".to_owned());
            thread.spawn(move || {
                // Without it the work is done all the same.
                let _ = rustix::process::nice(BEHIND_REQUESTS);
                runtime.block_on(worker.run(heard));
            })?;
            self.changes = Some(changes);
        }
        Ok(())
    }
}

struct Worker {
    state: Arc<State>,
    report: Report,
    store: StoreOptions,
    /// None while it is not open.
    keeper: Option<Keeper>,
    store_problem: Option<String>,
}

impl Worker {
    async fn run(mut self, mut changes: watch::Receiver<DnsOptions>) {
        loop {
            let options = changes.borrow_and_update().clone();
            let memory = &self.state.dns;
            memory.switch(options.learn);
            memory.forget_asked();
            if !options.learn {
                (self.keeper, self.store_problem) = (None, None);
                self.show(None);
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = self.learn(&options), if options.learn => {}
            }
        }
    }

    /// Asks and learns, for as long as it is let.
    async fn learn(&mut self, options: &DnsOptions) {
        let memory = &Arc::clone(&self.state).dns;
        let mut second = interval(EXCHANGE);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resolvers = Resolvers::new(options.clone(), Arc::clone(&self.state));
        let mut asked: JoinSet<(Arc<str>, Said)> = JoinSet::new();
        loop {
            let asker = resolvers.sound().filter(|_| asked.len() < options.concurrency).cloned();
            tokio::select! {
                _ = second.tick() => {
                    resolvers.probe_if_due();
                    self.exchange().await;
                    self.show(resolvers.problem.as_deref());
                }
                Some(probed) = resolvers.probes.join_next() => {
                    resolvers.judge(probed.unwrap_or_else(|error| Err(error.to_string())));
                }
                Some(done) = asked.join_next() => {
                    let Ok((name, said)) = done else { continue };
                    let learned = memory.answer(&name, said, self.state.ledger.now());
                    if let (Some(learned), Some(keeper)) = (learned, &mut self.keeper) {
                        keeper.add(learned);
                    }
                }
                name = memory.next_wanted(), if asker.is_some() => {
                    let (Some(asker), state) = (asker, Arc::clone(&self.state)) else { continue };
                    asked.spawn(async move {
                        let table = state.table.snapshot();
                        let said = asker.ask(&name, |host| table.knows_mx_host(host)).await;
                        (name, said)
                    });
                }
            }
        }
    }

    /// Tells the store what was learned, and hears what other nodes have.
    async fn exchange(&mut self) {
        let (state, store, keeper) =
            (Arc::clone(&self.state), self.store.clone(), self.keeper.take());
        let exchanged = spawn_blocking(move || {
            let mut keeper = match keeper {
                Some(keeper) => keeper,
                None => Keeper::new(store.open(store.deadline)?),
            };
            let outcome = keeper.exchange(&state.dns, state.ledger.now());
            Ok::<_, crate::store::StoreError>((keeper, outcome))
        });
        self.store_problem = match exchanged.await {
            Ok(Ok((keeper, outcome))) => {
                self.keeper = Some(keeper);
                outcome.err().map(|error| error.to_string())
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
    }

    /// Tells how it stands.
    fn show(&self, problem: Option<&str>) {
        let memory = &self.state.dns;
        let status = DnsStatus {
            is_learning: memory.is_on(),
            known: memory.known(),
            queue: memory.queued(),
            dropped: memory.dropped(),
            answered_at: memory.answered_at(),
            problem: problem.or(self.store_problem.as_deref()).map(str::to_owned),
        };
        self.report.note("dns", status.problem.as_deref(), false);
        let (known, queue) = (status.known, status.queue);
        self.state.metrics.show_dns(known, queue, status.dropped, memory.asked());
        self.report.show_dns(status);
    }
}

/// Whom is asked, and whether they are believed.
struct Resolvers {
    options: DnsOptions,
    state: Arc<State>,
    asker: Option<Arc<Asker>>,
    probes: JoinSet<Result<Arc<Asker>, String>>,
    probe_at: Instant,
    problem: Option<String>,
}

impl Resolvers {
    fn new(options: DnsOptions, state: Arc<State>) -> Resolvers {
        let (probes, probe_at) = (JoinSet::new(), Instant::now());
        Resolvers { options, state, asker: None, probes, probe_at, problem: None }
    }

    /// Those that are believed.
    fn sound(&self) -> Option<&Arc<Asker>> {
        self.asker.as_ref()
    }

    /// Looks whether they can be believed. The system's resolvers may be others each time.
    fn probe_if_due(&mut self) {
        if Instant::now() < self.probe_at || !self.probes.is_empty() {
            return;
        }
        let (options, table) = (self.options.clone(), self.state.table.snapshot());
        let kept = self.asker.clone().filter(|_| !options.resolvers.is_empty());
        self.probes.spawn(async move {
            let asker = match kept {
                Some(asker) => asker,
                None => Arc::new(Asker::new(&options)?),
            };
            asker.probe(table.large_providers()).await.map(|()| asker)
        });
    }

    fn judge(&mut self, probed: Result<Arc<Asker>, String>) {
        let now = Instant::now();
        match probed {
            Ok(asker) => {
                (self.asker, self.problem, self.probe_at) = (Some(asker), None, now + BELIEVED);
            }
            Err(problem) => {
                (self.asker, self.problem, self.probe_at) = (None, Some(problem), now + TRY_AGAIN);
            }
        }
    }
}
