//! The tasks that query the DNS, one for each name.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};

use super::finding::DnsFinding;

/// The tasks in flight. Each task makes the queries about one name, and gives a finding even if it
/// panics.
#[derive(Default)]
pub struct NameQueryTasks {
    tasks: JoinSet<DnsFinding>,
    names_by_task: HashMap<Id, Arc<str>>,
}

impl NameQueryTasks {
    /// The number of names that are being resolved.
    pub fn in_flight_name_count(&self) -> usize {
        self.names_by_task.len()
    }

    /// Starts the task for a name. `query` makes the DNS queries and returns the finding.
    pub fn spawn_name_query(
        &mut self,
        name: Arc<str>,
        query: impl Future<Output = DnsFinding> + Send + 'static,
    ) {
        let id = self.tasks.spawn(query).id();
        self.names_by_task.insert(id, name);
    }

    /// Waits for the next task to end, and returns its name and finding; `None` if no task is in
    /// flight. A cancelled wait loses no finding.
    pub async fn next_finding(&mut self) -> Option<(Arc<str>, DnsFinding)> {
        let (id, finding) = match self.tasks.join_next_with_id().await? {
            Ok(done) => done,
            Err(error) => (error.id(), DnsFinding::Unknown(format!("an internal error: {error}"))),
        };
        Some((self.names_by_task.remove(&id)?, finding))
    }
}

#[cfg(test)]
mod tests;
