//! Lists, creates, rotates and revokes keys.

use http::{HeaderValue, Response};
use serde::Deserialize;
use serde_json::json;

use super::request::{ApiError, ApiRequest, json_response, list_response};
use super::{AdminApi, Writer};
use crate::keys::DEFAULT_PLAN;
use crate::management::{
    KeyEntry, KeyState, NewKey, RepeatableRequest, prepare_key, prepare_rotation, revoke_key,
};
use crate::model::month::format_rfc3339;
use crate::process::admin::access::{Access, read_bearer_token};
use crate::quota::unix_now;
use crate::store::{KeyRow, Store, StoreError};

/// The longest `Idempotency-Key`, in bytes.
const MAX_IDEMPOTENCY_KEY_LEN: usize = 255;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKeyBody {
    account: String,
    plan: Option<String>,
    label: Option<String>,
    #[serde(default)]
    origins: Vec<String>,
    #[serde(default)]
    require_origin: bool,
    expires: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotationBody {
    overlap: Option<String>,
    expires: Option<String>,
}

impl AdminApi {
    pub(super) fn list_keys(
        &self,
        request: &ApiRequest,
        access: &Access,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&["account", "search", "state", "limit", "cursor"])?;
        let page = request.page()?;
        let account = visible_account(access, request.filter("account"))?;
        let state = request.filter("state").map(|text| {
            let expected = "state: expected active, expired or revoked";
            KeyState::parse(text)
                .ok_or_else(|| ApiError::invalid(format!("{expected}, but found {text:?}")))
        });
        let state = state.transpose()?;
        let search = request.filter("search").map(str::to_lowercase);
        let after = page.cursor.as_deref().map(parse_key_cursor).transpose()?;
        let (directory, now) = (self.directory()?, unix_now());
        let contains =
            |text: &str| search.as_ref().is_none_or(|it| text.to_lowercase().contains(it));
        let is_match = |key: &&KeyEntry| {
            state.is_none_or(|state| key.state_at(now) == state)
                && (contains(&key.id)
                    || contains(&key.account)
                    || key.label.as_deref().is_some_and(contains))
        };
        let (mut items, mut total, mut last) = (Vec::new(), 0, None);
        let mut next_cursor = None;
        for key in directory.newest_keys(account).filter(is_match) {
            total += 1;
            let is_after = after.as_ref().is_none_or(|(created_at, id)| {
                (key.created_at, key.id.as_str()) < (*created_at, id.as_str())
            });
            if is_after && items.len() < page.limit {
                items.push(key.to_json(now));
                last = Some(key);
            } else if is_after && next_cursor.is_none() {
                next_cursor = last.map(|key| format!("{} {}", key.created_at, key.id));
            }
        }
        Ok(list_response(items, next_cursor, Some(total)))
    }

    pub(super) fn show_key(
        &self,
        request: &ApiRequest,
        access: &Access,
        id: &str,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let directory = self.directory()?;
        let is_visible =
            |key: &&KeyEntry| access.only_account().is_none_or(|account| key.account == account);
        match directory.find_key(id).filter(is_visible) {
            Some(key) => Ok(json_response(200, &key.to_json(unix_now()))),
            None => Err(unknown_key(id)),
        }
    }

    pub(super) fn create_key(
        &self,
        request: &ApiRequest,
        writer: &Writer<'_>,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let body: NewKeyBody = request.parse_body()?;
        let new = NewKey {
            account: body.account,
            plan: body.plan,
            label: body.label,
            origins: body.origins,
            require_origin: body.require_origin,
            expires: body.expires,
        };
        let repeatable = repeatable_request(request, writer)?;
        let config = self.config();
        let (key, plan) = self.with_write_store(|store| {
            let key = prepare_key(store, &config, &new, repeatable.as_ref())?;
            key.add(store, &writer.author)?;
            let plan = plan_of(store, &key.row)?;
            Ok::<_, crate::management::ManagementFault>((key, plan))
        })?;
        let mut object = KeyEntry::of_stored_key(&key.row, &plan).to_json(unix_now());
        object["key"] = json!(key.token.expose_text());
        let mut response = json_response(201, &object);
        set_location(&mut response, &key.row.id);
        Ok(response)
    }

    pub(super) fn rotate_key(
        &self,
        request: &ApiRequest,
        writer: &Writer<'_>,
        id: &str,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let body: RotationBody = request.parse_body()?;
        let times = [body.overlap.as_deref(), body.expires.as_deref()];
        let repeatable = repeatable_request(request, writer)?;
        let config = self.config();
        let (rotation, plan) = self.with_write_store(|store| {
            let rotation = prepare_rotation(store, &config, id, times, repeatable.as_ref())?;
            rotation.make(store, &writer.author)?;
            let plan = plan_of(store, &rotation.new_key)?;
            Ok::<_, crate::management::ManagementFault>((rotation, plan))
        })?;
        let mut object = KeyEntry::of_stored_key(&rotation.new_key, &plan).to_json(unix_now());
        object["key"] = json!(rotation.token.expose_text());
        object["replaces"] = json!(id);
        object["replaced_expires_at"] = json!(format_rfc3339(rotation.old_expires_at));
        let mut response = json_response(201, &object);
        set_location(&mut response, &rotation.new_key.id);
        Ok(response)
    }

    pub(super) fn revoke_key(
        &self,
        request: &ApiRequest,
        writer: &Writer<'_>,
        id: &str,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NoMembers {}
        let NoMembers {} = request.parse_body()?;
        let config = self.config();
        self.with_write_store(|store| revoke_key(store, &config, &writer.author, id))?;
        match self.directory()?.find_key(id) {
            Some(key) => Ok(json_response(200, &key.to_json(unix_now()))),
            None => Err(unknown_key(id)),
        }
    }
}

/// The account whose items a request may see: that of its token, or the one it asks for.
pub(super) fn visible_account<'r>(
    access: &'r Access,
    asked: Option<&'r str>,
) -> Result<Option<&'r str>, ApiError> {
    match (access.only_account(), asked) {
        (Some(own), Some(asked)) if own != asked => {
            Err(ApiError::forbidden("This token may read one account only."))
        }
        (Some(own), _) => Ok(Some(own)),
        (None, asked) => Ok(asked),
    }
}

fn plan_of(store: &mut Store, key: &KeyRow) -> Result<String, StoreError> {
    let account = store.find_account(&key.account)?;
    Ok(account.and_then(|account| account.plan).unwrap_or_else(|| DEFAULT_PLAN.to_owned()))
}

fn unknown_key(id: &str) -> ApiError {
    let detail = format!("expected the id of a key, but found {id:?}");
    ApiError::not_found("There is no such key.", Some(detail))
}

fn set_location(response: &mut Response<Vec<u8>>, id: &str) {
    let location = HeaderValue::from_str(&format!("/api/v1/keys/{id}")).ok();
    response.headers_mut().extend(location.map(|it| (http::header::LOCATION, it)));
}

/// The request as one that can be repeated, if it has an `Idempotency-Key`.
fn repeatable_request<'r>(
    request: &'r ApiRequest,
    writer: &'r Writer<'_>,
) -> Result<Option<RepeatableRequest<'r>>, ApiError> {
    let mut values = request.headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_good = |text: &&str| {
        (1..=MAX_IDEMPOTENCY_KEY_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let text = value.to_str().ok().filter(is_good).filter(|_| values.next().is_none());
    let (Some(idempotency_key), Some(token_text)) = (text, read_bearer_token(&request.headers))
    else {
        let expected =
            format!("one text of 1 to {MAX_IDEMPOTENCY_KEY_LEN} visible ASCII characters");
        return Err(ApiError::invalid(format!("Idempotency-Key: expected {expected}")));
    };
    Ok(Some(RepeatableRequest {
        token_name: &writer.token.name,
        token_text,
        idempotency_key,
        content: [request.target.as_bytes(), b" ", &request.body].concat(),
    }))
}

/// Parses where a page begins: the time and the id of the last key before it.
fn parse_key_cursor(cursor: &str) -> Result<(i64, String), ApiError> {
    let parts = cursor.split_once(' ');
    let parsed = parts.and_then(|(time, id)| Some((time.parse().ok()?, id.to_owned())));
    parsed.ok_or_else(|| invalid_cursor(cursor))
}

pub(super) fn invalid_cursor(cursor: &str) -> ApiError {
    ApiError::invalid(format!("cursor: expected a next_cursor of this list, but found {cursor:?}"))
}
