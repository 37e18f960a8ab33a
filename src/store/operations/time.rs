//! The latest month, the clock of a server, and what a store remembers of the time.

use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::rows::MonthRepair;

/// What both kinds of store know of the time.
pub trait TimeBackend {
    /// The store's latest month; `None` if there is none. Nodes raise this month, and only
    /// [`TimeBackend::repair_month`] lowers it.
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError>;

    /// The server's clock in Unix seconds; `None` with SQLite, which has no clock of its own.
    fn server_unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// The believed time that a gateway told this store last; `None` if no gateway told one.
    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError>;

    /// Remembers the believed time of a gateway. The audit does not record this.
    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError>;

    /// As in [`StoreEditor`](super::changes::StoreEditor).
    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError>;
}
