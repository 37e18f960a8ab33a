//! What is wrong with rows: faults of one key or account, whose calls are then our failure, and
//! what keeps a ring or a key file from being taken at all.

/// Why one key or account can't be served as it should. Its calls are answered with 500, and
/// nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// An account's plan is not in the config.
    #[error("account {account}: expected one of the plans {known}, but found {found:?}")]
    UnknownPlan {
        /// Whose plan.
        account: String,
        /// The plans there are.
        known: String,
        /// What the account says.
        found: String,
    },
    /// An account's row in the store is none of ours.
    #[error(
        "account {account}: expected a row in the store that can be read, but found another; \
         `riskgate accounts set {account}` with its plan and limit repairs it"
    )]
    DamagedAccount {
        /// Whose row.
        account: String,
    },
    /// A key's row in the store is none of ours.
    #[error("key {id}: expected a row in the store that can be read, but found another")]
    DamagedKey {
        /// Which key.
        id: String,
    },
    /// An origin in the store does not parse.
    #[error(
        "key {id}: origins: expected an origin such as https://app.example.com, but found {found:?}"
    )]
    InvalidOrigin {
        /// Which key.
        id: String,
        /// What it says.
        found: String,
    },
    /// A key of the key file with the id of another key in the store.
    #[error(
        "key {id}: expected one key with this id, but found another in the key file and the store"
    )]
    DuplicateId {
        /// Which id.
        id: String,
    },
}

/// Why a key file, or what a store holds, is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// What the key file says of a key or an account can't be served.
    #[error(transparent)]
    Fault(#[from] RingFault),
    /// One account with two plans in the key file.
    #[error(
        "account {account}: expected one plan for all its keys, but found {first:?} and {second:?}"
    )]
    ConflictingPlans {
        /// Which account.
        account: String,
        /// The plan of an earlier key.
        first: String,
        /// The plan of a later key.
        second: String,
    },
    /// The store lost its mark, or is another one.
    #[error(
        "the store is another one or was emptied: expected version {expected} of {store}, but found {found}"
    )]
    DifferentStore {
        /// The store that the serving ring came from.
        store: String,
        /// Its version.
        expected: u64,
        /// What is there now.
        found: String,
    },
}
