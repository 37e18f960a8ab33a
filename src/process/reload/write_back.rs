//! Writing back what the store lost: offered at once, and then ever less often.
//!
//! What the store took comes back with its next changes; some of it may never, such as a key that
//! an unfinished import holds.

use std::time::{Duration, Instant};

use crate::store::{AccountRow, KeyRow, LostRows, Store};

/// A store that did not take it is left alone for this long, then for twice as long each time.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// How far it is.
#[derive(Default)]
pub(super) struct WriteBack {
    /// What was offered last.
    keys: Vec<KeyRow>,
    accounts: Vec<AccountRow>,
    /// It was written, and fewer replicas have it than `store.wait_replicas`.
    lacks_replicas: bool,
    /// What keeps it from being done.
    problem: Option<String>,
    /// Not before this moment, and how long the pause before it is.
    not_before: Option<Instant>,
    backoff: Duration,
}

impl WriteBack {
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Something was lost anew.
    pub(super) fn reset_backoff(&mut self) {
        (self.not_before, self.backoff) = (None, Duration::ZERO);
    }

    /// Offers the store what it lost, if it is time to; true if it did.
    pub(super) fn restore_if_due(
        &mut self,
        lost: &LostRows,
        store: &mut Store,
        now: Instant,
    ) -> bool {
        if lost.is_fully_restored() && !self.lacks_replicas {
            *self = WriteBack::default();
            return false;
        }
        if self.not_before.is_some_and(|next| now < next) {
            return false;
        }
        if !lost.is_fully_restored() {
            (self.keys, self.accounts) = lost.rows_to_restore();
        }
        self.problem = match store.restore_rows(&self.keys, &self.accounts) {
            Ok(missing) => {
                self.lacks_replicas = missing > 0;
                let what = "what the store lost is written back";
                let told = || format!("{what}, but {missing} of store.wait_replicas lack it");
                self.lacks_replicas.then(told)
            }
            Err(error) => Some(error.to_string()),
        };
        self.backoff = (self.backoff * 2).clamp(MIN_BACKOFF, MAX_BACKOFF);
        self.not_before = Some(now + self.backoff);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{RedisOptions, RingRows, StoreUrl};

    #[test]
    fn a_store_that_never_takes_what_it_lost_is_asked_ever_less_often() {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(folder.path().join("store.db"));
        let patience = Duration::from_secs(5);
        let mut store = Store::open(&url, &RedisOptions::default(), patience).unwrap();
        let key = |digest: u8| KeyRow {
            id: "web".to_owned(),
            account: "acme".to_owned(),
            label: None,
            digest: [digest; 32],
            origins: Vec::new(),
            require_origin: false,
            created_at: 0,
            expires_at: None,
            revoked_at: None,
        };
        // The id is another key's by now, of which nothing is heard yet.
        store.add_keys(&[(key(2), None)]).unwrap();
        let known = RingRows { keys: vec![key(1)], ..RingRows::default() };
        let mut lost = LostRows::default();
        lost.keep_lost_rows(&known, &mut RingRows::default(), true);
        let (mut write_back, begun) = (WriteBack::default(), Instant::now());
        let mut offer = |quarters: u32| {
            let now = begun + Duration::from_millis(250) * quarters;
            write_back.restore_if_due(&lost, &mut store, now)
        };
        assert!(offer(0), "at once");
        assert!(!offer(3) && offer(4), "after a second");
        let offers = (5..2_400).filter(|quarters| offer(*quarters)).count();
        assert!((10..=15).contains(&offers), "{offers} in ten minutes");
        write_back.reset_backoff();
        assert!(
            write_back.restore_if_due(&lost, &mut store, begun),
            "what is lost anew waits for none"
        );
    }
}
