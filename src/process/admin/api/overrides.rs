//! Lists overrides, allows and denies domains, and clears overrides.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::request::{ApiError, ApiRequest, json_response, list_to_json};
use super::{AdminApi, Answer, AuthorizedChange};
use crate::management::{
    ListedOverride, NameSearch, OverrideOrigin, OverrideRequest, clear_override, list_overrides,
    set_overrides,
};
use crate::table::OverrideAction;

/// How long the answer to a changed override waits at most until a table with the change serves. A
/// build of two million rows takes some seconds.
const MAX_TABLE_WAIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideBody {
    action: OverrideAction,
    #[serde(default)]
    exact: bool,
    /// A list of overrides has `null` for a row without a note.
    note: Option<String>,
    until: Option<String>,
    #[serde(default)]
    force: bool,
}

/// The place of an override in the list: first those of the file, then those of the store, each by
/// domain.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OverridePlace {
    is_of_store: bool,
    domain: String,
    is_subtree: bool,
}

impl OverridePlace {
    /// The first word of a cursor, with `is_of_store` and `is_subtree`.
    const KINDS: [(&str, bool, bool); 4] = [
        ("file-exact", false, false),
        ("file-subtree", false, true),
        ("exact", true, false),
        ("subtree", true, true),
    ];

    fn of(listed: &ListedOverride) -> OverridePlace {
        OverridePlace {
            is_of_store: matches!(listed.origin, OverrideOrigin::Store(..)),
            domain: listed.row.domain.clone(),
            is_subtree: !listed.row.is_exact,
        }
    }

    fn format(&self) -> String {
        let has_kind =
            |kind: &&(_, bool, bool)| (kind.1, kind.2) == (self.is_of_store, self.is_subtree);
        let word = OverridePlace::KINDS.iter().find(has_kind).map_or("", |kind| kind.0);
        format!("{word} {}", self.domain)
    }

    fn parse(cursor: &str) -> Option<OverridePlace> {
        let (word, domain) = cursor.split_once(' ')?;
        let kind = OverridePlace::KINDS.into_iter().find(|kind| kind.0 == word);
        let (_, is_of_store, is_subtree) = kind?;
        Some(OverridePlace { is_of_store, domain: domain.to_owned(), is_subtree })
    }
}

impl AdminApi {
    pub(super) fn list_overrides(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let page = request.parse_page()?;
        let search = request.nonempty_parameter("search").map(NameSearch::new);
        let config = self.config();
        let all = self.read_from_store(|store| list_overrides(store, &config.table))?;
        let mut rows: Vec<(OverridePlace, ListedOverride)> = all
            .into_iter()
            .map(|it| (OverridePlace::of(&it), it))
            .filter(|(_, it)| search.as_ref().is_none_or(|search| search.finds(it)))
            .collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (shown, next_cursor) =
            page.select_from(&rows, OverridePlace::parse, OverridePlace::format)?;
        let items = shown.iter().map(|(_, it)| it.to_json()).collect();
        Ok(list_to_json(items, next_cursor, Some(rows.len())))
    }

    pub(super) fn set_override(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
        domain: &str,
    ) -> Answer {
        let body: OverrideBody = request.parse_body()?;
        let domains = [domain.to_owned()];
        let wanted = OverrideRequest {
            domains: &domains,
            action: body.action,
            is_exact: body.exact,
            note: body.note.as_deref().unwrap_or_default(),
            until: body.until.as_deref(),
            is_forced: body.force,
        };
        let config = self.config();
        let changes = self.change_store_and_wait(|store| {
            set_overrides(store, &config.table, &authorized.author, &wanted)
        })?;
        self.wait_for_table()?;
        Ok(json_response(200, &changes[0].to_json()))
    }

    pub(super) fn clear_override(&self, authorized: &AuthorizedChange<'_>, domain: &str) -> Answer {
        let config = self.config();
        let change = self.change_store_and_wait(|store| {
            clear_override(store, &config.table, &authorized.author, domain)
        })?;
        self.wait_for_table()?;
        Ok(json_response(200, &change.to_json()))
    }

    /// Waits until a table with the changed overrides serves. Fails if none serves within
    /// [`MAX_TABLE_WAIT`], or if too many requests wait already.
    fn wait_for_table(&self) -> Result<(), ApiError> {
        let permit = self.effect_permits.try_acquire();
        let max_wait = if permit.is_ok() { MAX_TABLE_WAIT } else { Duration::ZERO };
        let rebuild = self.reload_trigger.rebuild_table_and_wait(max_wait);
        match tokio::runtime::Handle::current().block_on(rebuild) {
            None => Ok(()),
            Some(_) if permit.is_err() => Err(ApiError::conflict(
                "the change is written and recorded, and soon in effect, but too many requests \
                 wait for the table already",
            )),
            Some(problem) => Err(ApiError::conflict(format!(
                "the change is written and recorded, but the former table still serves: {problem}"
            ))),
        }
    }
}
