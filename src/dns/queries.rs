//! The names that are being asked about, each as a task of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::task::{Id, JoinSet};

use super::finding::DnsFinding;

/// Tasks that ask about names. Each name comes back, also from a task that panicked.
#[derive(Default)]
pub struct Queries {
    tasks: JoinSet<DnsFinding>,
    names: HashMap<Id, Arc<str>>,
}

impl Queries {
    /// How many names are being asked about.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Asks about a name.
    pub fn spawn(
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
            Err(error) => (error.id(), DnsFinding::NotKnown(format!("a fault of ours: {error}"))),
        };
        Some((self.names.remove(&id)?, finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_whose_query_panics_comes_back_as_not_known() {
        let mut queries = Queries::default();
        queries.spawn("broken.com".into(), async { panic!("a fault of ours") });
        let (name, finding) = queries.next_finding().await.unwrap();
        assert_eq!((&*name, finding.word()), ("broken.com", "not_known"));
        assert_eq!(queries.count(), 0);
        assert_eq!(queries.next_finding().await, None);
    }
}
