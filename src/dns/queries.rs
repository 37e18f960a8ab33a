//! The names that are being asked about, each as a task of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};

use super::finding::DnsFinding;

/// Tasks that ask about names. Each name comes back, also from a task that panicked.
#[derive(Default)]
pub struct QueryTasks {
    tasks: JoinSet<DnsFinding>,
    names: HashMap<Id, Arc<str>>,
}

impl QueryTasks {
    /// How many names are being asked about.
    pub fn in_flight_count(&self) -> usize {
        self.names.len()
    }

    /// Asks about a name.
    pub fn spawn_query(
        &mut self,
        name: Arc<str>,
        query: impl Future<Output = DnsFinding> + Send + 'static,
    ) {
        let id = self.tasks.spawn(query).id();
        self.names.insert(id, name);
    }

    /// The next name that was asked about, and what came of it; `None` while none is. Nothing is
    /// lost if the wait is cancelled.
    pub async fn next_finding(&mut self) -> Option<(Arc<str>, DnsFinding)> {
        let (id, finding) = match self.tasks.join_next_with_id().await? {
            Ok(done) => done,
            Err(error) => (error.id(), DnsFinding::Unknown(format!("an internal error: {error}"))),
        };
        Some((self.names.remove(&id)?, finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_whose_query_panics_comes_back_as_unknown() {
        let mut queries = QueryTasks::default();
        queries.spawn_query("broken.com".into(), async { panic!("an internal error") });
        let (name, finding) = queries.next_finding().await.unwrap();
        assert_eq!((&*name, finding.outcome()), ("broken.com", "unknown"));
        assert_eq!(queries.in_flight_count(), 0);
        assert_eq!(queries.next_finding().await, None);
    }
}
