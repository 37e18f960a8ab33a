//! The ledger's verbs: one body of tests for both stores, then what only a server can go through.

mod both;
mod errors;
mod loss;
mod network;
mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::model::month::Month;
use crate::store::redis_server::RedisServer;
use crate::store::tests::{TestStore, on_both_stores};
use crate::store::{
    BatchContext, Grant, KnownState, LeaseReport, RedisOptions, Store, StoreError, StoreUrl,
    UsageRow,
};

/// January 2100: numbers of a month that is over would expire at once.
const MONTH: u16 = 1_200;
const ALICE: [u8; 16] = [0xa1; 16];
const BOB: [u8; 16] = [0xb0; 16];
const CAROL: [u8; 16] = [0xca; 16];

fn month() -> Month {
    Month::from_number(MONTH).unwrap()
}

fn open_unconnected(url: &str, options: &RedisOptions, timeout: Duration) -> Store {
    Store::open(&StoreUrl::parse(url).unwrap(), options, timeout).unwrap()
}

/// A store of either kind, ready to be told something.
fn open(place: &TestStore) -> Store {
    let mut store = place.open();
    store.probe(month(), None).unwrap();
    store
}

/// A store on a server, its pulse taken.
fn open_probed(server: &RedisServer) -> Store {
    let mut store =
        open_unconnected(&server.url(), &RedisOptions::default(), Duration::from_secs(5));
    store.probe(month(), None).unwrap();
    store
}

/// A node as the store knows it: it names totals, counts its statements, and believes replies.
#[derive(Clone)]
struct Node {
    id: [u8; 16],
    sequence: u64,
    known: KnownState,
    /// Leased and spent of all others, as far as it knows.
    others_totals: (u64, u64),
    /// For how long it wants accounts to settle.
    settle: Duration,
}

impl Node {
    fn new(id: [u8; 16]) -> Node {
        Node {
            id,
            sequence: 0,
            known: KnownState::default(),
            others_totals: (0, 0),
            settle: Duration::ZERO,
        }
    }

    /// A statement about acme; [floor and spent] are what cannot be taken back.
    fn next_report(
        &mut self,
        target: u64,
        [floor, spent]: [u64; 2],
        limit: Option<u64>,
    ) -> LeaseReport {
        self.sequence += 1;
        LeaseReport {
            account: "acme".to_owned(),
            month: month(),
            sequence: self.sequence,
            target,
            floor,
            spent,
            limit,
            known: self.known,
        }
    }

    fn send(&self, store: &mut Store, statement: &LeaseReport) -> Result<Grant, StoreError> {
        let grants = self.send_all(store, std::slice::from_ref(statement))?;
        Ok(grants[0].expect("a statement that does not fail alone"))
    }

    fn send_all(
        &self,
        store: &mut Store,
        statements: &[LeaseReport],
    ) -> Result<Vec<Option<Grant>>, StoreError> {
        let round = BatchContext {
            node: &self.id,
            month: month(),
            recovery_left: self.settle,
            needs_replicas: true,
        };
        store.report_leases(round, statements)
    }

    /// Remembers a reply as the ledger does: while an account settles, the higher numbers.
    fn record_grant(&mut self, statement: &LeaseReport, standing: Grant) {
        let (mut leased, mut spent) = (standing.others_leased, standing.others_spent);
        if standing.is_recovering {
            leased = leased.max(self.others_totals.0);
            spent = spent.max(self.others_totals.1);
        }
        self.others_totals = (leased, spent);
        self.known = KnownState {
            sequence: statement.sequence,
            revision: standing.revision,
            leased: standing.own_leased + leased,
            spent: statement.spent + spent,
        };
    }

    /// States, and believes the reply.
    #[track_caller]
    fn report(
        &mut self,
        store: &mut Store,
        target: u64,
        floor_and_spent: [u64; 2],
        limit: Option<u64>,
    ) -> Grant {
        let statement = self.next_report(target, floor_and_spent, limit);
        let standing = self.send(store, &statement).unwrap();
        self.record_grant(&statement, standing);
        standing
    }
}

/// Own leased, leased and spent of the others: what both stores have in common.
fn totals(standing: Grant) -> (u64, u64, u64) {
    (standing.own_leased, standing.others_leased, standing.others_spent)
}

fn row(account: &str, spent: u64, leased: u64) -> UsageRow {
    UsageRow { account: account.to_owned(), spent, leased, is_damaged: false }
}

/// Asks until it holds; for what takes a server some time.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
