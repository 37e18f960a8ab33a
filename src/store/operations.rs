//! The verbs of a store, with the promise of each: written once, kept by both.
//!
//! What a verb has answered is as durable as the store makes it: on disk in the embedded one;
//! acknowledged by the server, and by `store.wait_replicas` of its replicas, in the other. A verb
//! is atomic: it happens whole or not at all.

mod learned;
mod ledger;
pub(super) mod open;
mod ring;
mod top;
