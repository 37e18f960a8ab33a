//! Lists, creates, rotates and revokes keys.

use std::sync::Arc;

use http::{HeaderValue, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{ApiError, ApiRequest, invalid_cursor, json_response, list_to_json};
use super::{AdminApi, Answer, AuthorizedChange};
use crate::keys::Token;
use crate::management::{
    KeyEntry, KeyState, ManagementFault, NewKey, RepeatableRequest, describe_unknown_id,
    prepare_key, prepare_rotation, read_declared_keys, read_plan_of_account, revoke_key,
};
use crate::model::month::format_rfc3339;
use crate::process::admin::access::{Access, bearer_token};
use crate::store::KeyRow;

/// The longest `Idempotency-Key`, in bytes.
const MAX_IDEMPOTENCY_KEY_LEN: usize = 255;

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
    ) -> Result<Value, ApiError> {
        let page = request.parse_page()?;
        let account = choose_visible_account(access, request.nonempty_parameter("account"))?;
        let state = request.nonempty_parameter("state").map(|text| {
            let expected = "active, expired or revoked";
            KeyState::parse(text).ok_or_else(|| ApiError::unexpected("state", expected, text))
        });
        let state = state.transpose()?;
        let search = request.nonempty_parameter("search").map(str::to_lowercase);
        let after = page.cursor.as_deref().map(parse_key_cursor).transpose()?;
        let (ring_index, now) = (self.ring_index()?, self.state.ledger.believed_now());
        let is_match = |key: &&KeyEntry| state.is_none_or(|state| key.state_at(now) == state);
        let (mut items, mut total, mut last) = (Vec::new(), 0, None);
        let mut next_cursor = None;
        for key in ring_index.iter_keys_newest_first(account, search.as_deref()).filter(is_match) {
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
        Ok(list_to_json(items, next_cursor, Some(total)))
    }

    pub(super) fn show_key(&self, access: &Access, id: &str) -> Result<Value, ApiError> {
        let ring_index = self.ring_index()?;
        let is_visible =
            |key: &&KeyEntry| access.only_account().is_none_or(|account| key.account == account);
        match ring_index.find_key(id).filter(is_visible) {
            Some(key) => Ok(key.to_json(self.state.ledger.believed_now())),
            None => {
                let known = ring_index.keys.iter().filter(is_visible).map(|key| key.id.as_str());
                let detail = describe_unknown_id(id, &[], known);
                Err(ApiError::not_found("There is no such key.", Some(detail)))
            }
        }
    }

    pub(super) fn create_key(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
    ) -> Answer {
        let new: NewKey = request.parse_body()?;
        let repeatable = read_repeatable_request(request, authorized)?;
        let config = self.config();
        let (key, plan) = self.change_store_and_wait(|store| {
            let key = prepare_key(store, &config, &new, repeatable.as_ref())?;
            key.add(store, &authorized.author)?;
            let plan = read_plan_of_account(store, &config, &key.row.account)?;
            Ok::<_, ManagementFault>((key, plan))
        })?;
        let now = self.state.ledger.believed_now();
        Ok(new_key_response(&key.row, &describe_new_key(&key.row, &plan, &key.token, now)))
    }

    pub(super) fn rotate_key(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
        id: &str,
    ) -> Answer {
        let body: RotationBody = request.parse_body()?;
        let (overlap, expires) = (body.overlap.as_deref(), body.expires.as_deref());
        let repeatable = read_repeatable_request(request, authorized)?;
        let config = self.config();
        let (prepared, plan) = self.change_store_and_wait(|store| {
            let prepared =
                prepare_rotation(store, &config, id, overlap, expires, repeatable.as_ref())?;
            prepared.commit(store, &authorized.author)?;
            let plan = read_plan_of_account(store, &config, &prepared.rotation.new_key.account)?;
            Ok::<_, ManagementFault>((prepared, plan))
        })?;
        let now = self.state.ledger.believed_now();
        let mut object = describe_new_key(&prepared.rotation.new_key, &plan, &prepared.token, now);
        object["replaces"] = json!(id);
        object["replaced_expires_at"] = json!(format_rfc3339(prepared.rotation.old_expires_at));
        Ok(new_key_response(&prepared.rotation.new_key, &object))
    }

    pub(super) fn revoke_key(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
        id: &str,
    ) -> Answer {
        request.require_empty_body()?;
        // The declared keys in force are used if they are known, so that a key can be revoked while
        // the key file is faulty.
        let declared_keys = || match self.inputs.keys() {
            Some((_, inputs)) => Ok(inputs.declared),
            None => read_declared_keys(&self.config()).map(Arc::new),
        };
        let config = self.config();
        let of_store = self.change_store_and_wait(|store| {
            let Some(row) = revoke_key(store, &authorized.author, id, declared_keys)?.row else {
                return Ok::<_, ManagementFault>(None);
            };
            let plan = read_plan_of_account(store, &config, &row.account)?;
            Ok(Some(KeyEntry::from_row(&row, &plan)))
        })?;
        // The lists show a key by its id in the key file, which may differ from its id in the
        // store.
        let ring_index = self.ring_index().ok();
        let of_ring = ring_index.as_ref().and_then(|ring_index| ring_index.find_key(id));
        match of_ring.or(of_store.as_ref()) {
            Some(key) => Ok(json_response(200, &key.to_json(self.state.ledger.believed_now()))),
            None => {
                Err(ApiError::internal(format!("key {id} is revoked, but its row can't be read")))
            }
        }
    }
}

/// Chooses the account whose items the request gets: the account of its token, or the account that
/// the request asks for. Returns `None` for all accounts. Fails if the token may not read the
/// account that the request asks for.
pub(super) fn choose_visible_account<'r>(
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

/// Renders a new key, with its secret text.
fn describe_new_key(key: &KeyRow, plan: &str, token: &Token, unix_now: i64) -> Value {
    let mut object = KeyEntry::from_row(key, plan).to_json(unix_now);
    object["key"] = json!(token.expose_text());
    object
}

fn new_key_response(key: &KeyRow, object: &Value) -> Response<Vec<u8>> {
    let mut response = json_response(201, object);
    let location = HeaderValue::from_str(&format!("/api/v1/keys/{}", key.id)).ok();
    response.headers_mut().extend(location.map(|it| (http::header::LOCATION, it)));
    response
}

/// Reads the `Idempotency-Key` of a request that creates a key. Returns `None` if the request has
/// no such field.
fn read_repeatable_request<'r>(
    request: &'r ApiRequest,
    authorized: &'r AuthorizedChange<'_>,
) -> Result<Option<RepeatableRequest<'r>>, ApiError> {
    let mut values = request.headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_valid = |text: &&str| {
        (1..=MAX_IDEMPOTENCY_KEY_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let text = value.to_str().ok().filter(is_valid).filter(|_| values.next().is_none());
    let (Some(idempotency_key), Some(token_text)) = (text, bearer_token(&request.headers)) else {
        let expected =
            format!("one text of 1 to {MAX_IDEMPOTENCY_KEY_LEN} visible ASCII characters");
        return Err(ApiError::invalid(format!(
            "Idempotency-Key: expected {expected}, but found something else"
        )));
    };
    Ok(Some(RepeatableRequest {
        token_name: &authorized.token.name,
        token_text,
        idempotency_key,
        content: [request.target.as_bytes(), b" ", &request.body].concat(),
    }))
}

/// Parses a cursor of the list of keys: the creation time and the id of the last key before the
/// page.
fn parse_key_cursor(cursor: &str) -> Result<(i64, String), ApiError> {
    let parts = cursor.split_once(' ');
    let parsed = parts.and_then(|(time, id)| Some((time.parse().ok()?, id.to_owned())));
    parsed.ok_or_else(|| invalid_cursor(cursor))
}
