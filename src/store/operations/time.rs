//! The latest month, the clock of a server, and what a store remembers of the time.

use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::rows::MonthRepair;

/// What both kinds of store know of the time.
pub trait TimeBackend {
    /// The latest month that any node has reported to the store; `None` if there is none.
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError>;

    /// The server's clock in Unix seconds; `None` with SQLite, which uses this machine's clock.
    fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// The latest believed time that a gateway has told this store; `None` if there is none.
    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError>;

    /// Remembers the believed time of a gateway. It is no change that the audit records.
    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError>;

    /// As in [`StoreChanges`](super::changes::StoreChanges).
    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError>;
}
