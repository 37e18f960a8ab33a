//! Faults of keys and accounts.
//!
//! A [`RingFault`] concerns the calls of one key or account. For a [`RingError`], riskgate rejects
//! a whole key file, or all rows of a store.

/// Why riskgate can't serve one key or account. riskgate answers the calls of this key or account
/// with 500, or with 401 if the key is revoked or expired. It answers 401 to a damaged key whose
/// row does not tell its digest, because it can't recognize the key. Other keys and accounts are
/// not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The config does not define an account's plan.
    #[error("account {account}: expected one of the plans {known}, but found {found:?}")]
    UnknownPlan {
        /// The account.
        account: String,
        /// The plans of the config.
        known: String,
        /// The account's plan.
        found: String,
    },
    /// riskgate can't read an account's row in the store.
    #[error(
        "account {account}: expected a readable row in the store, but found a damaged one; run \
         `riskgate accounts set {account}` with its plan and limit to repair it"
    )]
    DamagedAccount {
        /// The account.
        account: String,
    },
    /// riskgate can't read a key's row in the store.
    #[error("key {id}: expected a readable row in the store, but found a damaged one")]
    DamagedKey {
        /// The key's id.
        id: String,
    },
    /// An origin in the store is not valid.
    #[error(
        "key {id}: origins: expected an origin such as https://app.example.com, but found {found:?}"
    )]
    InvalidOrigin {
        /// The key's id.
        id: String,
        /// The text in the store.
        found: String,
    },
    /// A key of the key file has the id of another key in the store.
    #[error(
        "key {id}: expected one key with this id, but found another in the key file and the store"
    )]
    DuplicateId {
        /// The id.
        id: String,
    },
}

/// Why riskgate rejects a key file, or the contents of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The key file names a plan that the config does not define.
    #[error(transparent)]
    Fault(#[from] RingFault),
    /// The key file gives one account two plans.
    #[error(
        "account {account}: expected one plan for all its keys, but found {first:?} and {second:?}"
    )]
    ConflictingPlans {
        /// The account.
        account: String,
        /// The plan of an earlier key.
        first: String,
        /// The plan of a later key.
        second: String,
    },
    /// The store is another one than that of the serving ring, or is an empty server.
    #[error(
        "the store is another one or was emptied: expected version {expected} of {store}, \
         but found {found}"
    )]
    DifferentStore {
        /// The id of the store that the serving ring was built from.
        store: String,
        /// The version of the serving ring.
        expected: u64,
        /// The version and id that the store has now, or `none`.
        found: String,
    },
}
