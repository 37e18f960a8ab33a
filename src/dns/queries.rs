//! The DNS look-ups in flight, one task for each name.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};

use super::finding::DnsFinding;

/// The look-ups in flight. Every name gets a finding, even if its task panics.
#[derive(Default)]
pub struct QueryTasks {
    tasks: JoinSet<DnsFinding>,
    names_by_task: HashMap<Id, Arc<str>>,
}

impl QueryTasks {
    /// The number of names that are being resolved.
    pub fn in_flight_count(&self) -> usize {
        self.names_by_task.len()
    }

    /// Starts the look-up of a name.
    pub fn spawn_query(
        &mut self,
        name: Arc<str>,
        query: impl Future<Output = DnsFinding> + Send + 'static,
    ) {
        let id = self.tasks.spawn(query).id();
        self.names_by_task.insert(id, name);
    }

    /// Waits for the next finding and its name; `None` if no look-up is in flight. A cancelled wait
    /// loses no finding.
    pub async fn next_finding(&mut self) -> Option<(Arc<str>, DnsFinding)> {
        let (id, finding) = match self.tasks.join_next_with_id().await? {
            Ok(done) => done,
            Err(error) => (error.id(), DnsFinding::Unknown(format!("an internal error: {error}"))),
        };
        Some((self.names_by_task.remove(&id)?, finding))
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
