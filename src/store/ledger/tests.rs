//! Tests of the ledger operations. Each test in `both` runs on SQLite and on Redis. The other
//! modules test what only happens with a server.

mod both;
mod cluster;
mod errors;
mod loss;
mod network;
mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::model::month::Month;
use crate::store::redis_server::RedisServer;
use crate::store::tests::{TestStore, on_each_store};
use crate::store::{
    ClientCertificatePaths, Grant, LeaseReport, Probe, RedisOptions, ReportBatchContext,
    ReportOutcome, Store, StoreError, StoreUrl, TotalsKnownToNode, UsageRow,
};

/// January 2100. The totals of a past month would expire at once.
const JANUARY_2100_NUMBER: u16 = 1_200;
// The ids of three nodes.
const ALICE: [u8; 16] = [0xa1; 16];
const BOB: [u8; 16] = [0xb0; 16];
const CAROL: [u8; 16] = [0xca; 16];

fn test_month() -> Month {
    Month::from_number(JANUARY_2100_NUMBER).unwrap()
}

fn open_without_connecting(url: &str, options: &RedisOptions, timeout: Duration) -> Store {
    Store::open(&StoreUrl::parse(url).unwrap(), options, timeout).unwrap()
}

/// A store of either kind, probed.
fn open_and_probe(location: &TestStore) -> Store {
    let mut store = location.open();
    store.probe(test_month(), None).unwrap();
    store
}

/// A store on a server, probed.
fn open_probed_server(server: &RedisServer) -> Store {
    let mut store =
        open_without_connecting(&server.url(), &RedisOptions::default(), Duration::from_secs(5));
    store.probe(test_month(), None).unwrap();
    store
}

/// A node that sends the reports that a test tells it to send, and remembers its grants.
#[derive(Clone)]
struct TestNode {
    id: [u8; 16],
    sequence: u64,
    known: TotalsKnownToNode,
    /// The leased and the spent total of all other nodes, as far as this node knows.
    others_leased_and_spent: (u64, u64),
    /// For how much longer the store recovers, as this node knows from a probe.
    recovery_left: Duration,
}

impl TestNode {
    fn new(id: [u8; 16]) -> TestNode {
        TestNode {
            id,
            sequence: 0,
            known: TotalsKnownToNode::default(),
            others_leased_and_spent: (0, 0),
            recovery_left: Duration::ZERO,
        }
    }

    /// Builds the next report about the account acme, and does not send it.
    fn next_report(
        &mut self,
        target: u64,
        [floor, spent]: [u64; 2],
        limit: Option<u64>,
    ) -> LeaseReport {
        self.sequence += 1;
        let others = self.others_leased_and_spent;
        let known = TotalsKnownToNode {
            leased_by_all: floor + others.0,
            spent_by_all: spent + others.1,
            ..self.known
        };
        (self.known.reported_leased, self.known.reported_spent) = (floor, spent);
        LeaseReport {
            account: "acme".to_owned(),
            month: test_month(),
            sequence: self.sequence,
            target,
            floor,
            spent,
            limit,
            known,
            usage: Vec::new(),
        }
    }

    fn send_report(&self, store: &mut Store, report: &LeaseReport) -> Result<Grant, StoreError> {
        self.send_reports(store, std::slice::from_ref(report))?.remove(0)
    }

    fn send_reports(
        &self,
        store: &mut Store,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        let context = ReportBatchContext {
            node_id: &self.id,
            latest_begun_month: test_month(),
            recovery_left: self.recovery_left,
            needs_replicas: true,
        };
        store.report_leases(context, reports)
    }

    /// Records a grant as the ledger does. While an account recovers, the higher totals of the
    /// others stay.
    fn record_grant(&mut self, report: &LeaseReport, grant: Grant) {
        let (mut leased, mut spent) = (grant.others_leased, grant.others_spent);
        if grant.is_recovering {
            leased = leased.max(self.others_leased_and_spent.0);
            spent = spent.max(self.others_leased_and_spent.1);
        }
        self.others_leased_and_spent = (leased, spent);
        self.known = TotalsKnownToNode {
            sequence: report.sequence,
            revision: grant.revision,
            leased_by_all: grant.own_leased + leased,
            spent_by_all: report.spent + spent,
            own_leased: grant.own_leased,
            reported_leased: grant.own_leased,
            reported_spent: report.spent,
        };
    }

    /// Sends a report and records its grant.
    #[track_caller]
    fn report(
        &mut self,
        store: &mut Store,
        target: u64,
        floor_and_spent: [u64; 2],
        limit: Option<u64>,
    ) -> Grant {
        let report = self.next_report(target, floor_and_spent, limit);
        let grant = self.send_report(store, &report).unwrap();
        self.record_grant(&report, grant);
        grant
    }
}

/// Three fields of a grant: the node's leased total, and the leased and the spent total of the
/// other nodes. Only Redis fills in the other fields.
fn grant_totals(grant: Grant) -> (u64, u64, u64) {
    (grant.own_leased, grant.others_leased, grant.others_spent)
}

fn usage_row(account: &str, spent: u64, leased: u64) -> UsageRow {
    UsageRow { account: account.to_owned(), spent, leased, is_damaged: false }
}

/// Polls until the condition holds; for changes that take a server some time.
#[track_caller]
fn wait_until(condition_text: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited 20 s until {condition_text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
