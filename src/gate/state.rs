//! What requests are judged by: the data that all of them share.
//!
//! It decides nothing.

use std::sync::Arc;

use crate::dns::LearnedCache;
use crate::keys::KeyRing;
use crate::message::request_id::RequestIdGenerator;
use crate::model::verdict::Score;
use crate::observe::access_log::AccessLog;
use crate::observe::metrics::Metrics;
use crate::observe::top_domains::TopList;
use crate::quota::Ledger;
use crate::support::snapshot::SnapshotCell;
use crate::table::Table;

use super::route::UpstreamRoute;

/// What may change of the rules while requests run.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Further prefixes that are passed upstream.
    pub upstream_routes: Vec<UpstreamRoute>,
    /// The score of a domain in no list, if not the table's.
    pub unknown_score: Option<Score>,
}

/// Everything that requests are judged by.
pub struct GateState {
    /// What is known of domains.
    pub table: Arc<SnapshotCell<Table>>,
    /// Who may call; none until a key set could be loaded, and then it is our failure.
    pub keys: SnapshotCell<Option<KeyRing>>,
    /// What the DNS says of domains that the table does not have.
    pub dns: LearnedCache,
    /// What they may still spend.
    pub ledger: Ledger,
    /// What was flagged most.
    pub top_domains: TopList,
    /// What happened, in numbers.
    pub metrics: Metrics,
    /// What happened, in lines.
    pub access_log: AccessLog,
    /// Makes ids for requests without one.
    pub request_ids: RequestIdGenerator,
    /// The rest of the rules.
    pub policy: SnapshotCell<Policy>,
}
