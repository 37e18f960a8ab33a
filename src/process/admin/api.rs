//! The admin API: `/api/v1/…` on `listen.admin`.
//!
//! This module owns the routes, who may use which route, and what each route answers. `management`
//! makes the changes, for the admin API as for the commands. Every request runs on a thread that
//! may block, because operations of the store block.

mod accounts;
mod audit;
mod keys;
mod overrides;
mod reports;
pub(super) mod request;
mod ring_index;
mod served;
mod sign_ups;
mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Response;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::{Access, may_be_cross_origin};
use super::history::TrafficHistory;
use crate::config::{AdminToken, ReloadableConfig, StoreOptions};
use crate::gate::GateState;
use crate::process::reload::{CurrentInputs, ReloadStatus, ReloadTrigger};
use crate::process::served_store::{DifferentStore, ServedStore};
use crate::proxy::upstream::Upstreams;
use crate::store::{ChangeAuthor, ChangeSurface, Store, StoreError};
use crate::support::certificates::CurrentCertificates;
use request::{ApiError, ApiRequest, ChangeAfterStoreFailure};
use ring_index::RingIndex;

/// How long an operation on a Redis server may take, and opening a store. On SQLite,
/// `raise_busy_timeout` sets how long an operation waits for a lock.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the answer to a change of keys, accounts or sign-ups waits at most until the change is
/// in effect on this node.
const MAX_EFFECT_WAIT: Duration = Duration::from_secs(1);
const EFFECT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The most requests that use one of the two connections to the store or wait for it, and the most
/// that wait for the effect of their changes. All these together leave connections of
/// `MAX_CONNECTIONS_PER_CLIENT` to probes from the same client.
const MAX_WAITING_REQUESTS: usize = 12;

/// The calls of this month by account.
type CallsByAccount = Arc<HashMap<String, u64>>;

/// Answers the requests to the admin API.
pub(super) struct AdminApi {
    state: Arc<GateState>,
    inputs: Arc<CurrentInputs>,
    reload_status: Arc<Mutex<ReloadStatus>>,
    reload_trigger: ReloadTrigger,
    history: Arc<TrafficHistory>,
    upstreams: Arc<Upstreams>,
    /// The certificates of the HTTPS listener; `None` if the config has no such listener.
    pub(super) certificates: Option<Arc<CurrentCertificates>>,
    pub(super) started_at: i64,
    /// The store that this process serves: the store of the config at the start.
    served: ServedStore,
    /// How that store is opened.
    store_options: StoreOptions,
    read_connection: StoreConnection,
    write_connection: StoreConnection,
    /// The permits to wait for the effect of a change. A request that gets none does not wait.
    effect_permits: Semaphore,
    /// The last index that was built, with the generation of the keys from which it was built.
    ring_index: Mutex<Option<(u64, Arc<RingIndex>)>>,
    /// The calls that were read last, and when.
    calls_by_account: Mutex<Option<(Instant, CallsByAccount)>>,
}

/// A connection to the store, which one request uses at a time.
struct StoreConnection {
    /// `None` before the first use, and after a failure.
    store: Mutex<Option<Store>>,
    permits: Semaphore,
}

impl StoreConnection {
    fn new() -> StoreConnection {
        StoreConnection { store: Mutex::default(), permits: Semaphore::new(MAX_WAITING_REQUESTS) }
    }

    /// Waits for the connection. Fails if [`MAX_WAITING_REQUESTS`] use it or wait for it already.
    /// The caller drops the connection before the permit.
    fn lock(&self) -> Result<(SemaphorePermit<'_>, MutexGuard<'_, Option<Store>>), ApiError> {
        let message = "Too many requests wait for the store. Send the request again.";
        let refuse = |_| ApiError::store_unavailable(message);
        Ok((self.permits.try_acquire().map_err(refuse)?, lock(&self.store)))
    }
}

/// Proof that a request may make a change. Only [`AdminApi::permit_change`] creates it.
struct ChangePermit<'r> {
    token: &'r AdminToken,
    author: ChangeAuthor,
}

impl AdminApi {
    pub(super) fn new(
        state: Arc<GateState>,
        inputs: Arc<CurrentInputs>,
        reload_status: Arc<Mutex<ReloadStatus>>,
        reload_trigger: ReloadTrigger,
        history: Arc<TrafficHistory>,
        upstreams: Arc<Upstreams>,
    ) -> AdminApi {
        let started_at = state.ledger.believed_now();
        AdminApi {
            served: ServedStore::new(&inputs.startup.store, None),
            store_options: inputs.startup.store.clone(),
            state,
            inputs,
            reload_status,
            reload_trigger,
            history,
            upstreams,
            certificates: None,
            started_at,
            read_connection: StoreConnection::new(),
            write_connection: StoreConnection::new(),
            effect_permits: Semaphore::new(MAX_WAITING_REQUESTS),
            ring_index: Mutex::default(),
            calls_by_account: Mutex::default(),
        }
    }

    /// Answers a request. `status` renders the object of `/status`.
    pub(super) fn answer(
        &self,
        request: &ApiRequest,
        access: &Access,
        status: &dyn Fn() -> Value,
    ) -> Response<Vec<u8>> {
        if request.segments == ["session"] {
            let allowed = request.require_method(&["GET"]);
            return match allowed {
                Ok(()) => request::json_response(200, &access.to_json()),
                Err(error) => error.into_response(),
            };
        }
        let answered = match access.is_unauthenticated() {
            true => Err(ApiError::unauthorized(access)),
            false => self.route_request(request, access, status),
        };
        answered.unwrap_or_else(ApiError::into_response)
    }

    /// Calls the handler of a request. A handler that shows keys, accounts or usage checks which
    /// accounts the request may see. The handlers of changes need a [`ChangePermit`].
    fn route_request(
        &self,
        request: &ApiRequest,
        access: &Access,
        status: &dyn Fn() -> Value,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["accounts", name] if request.method == "PATCH" => {
                self.set_account(request, &self.permit_change(request, access)?, name)
            }
            ["accounts", name] => request
                .require_method(&["GET", "PATCH"])
                .and_then(|()| self.show_account(request, access, name)),
            ["keys"] if request.method == "POST" => {
                self.create_key(request, &self.permit_change(request, access)?)
            }
            ["keys"] => request
                .require_method(&["GET", "POST"])
                .and_then(|()| self.list_keys(request, access)),
            ["keys", id] => {
                request.require_method(&["GET"]).and_then(|()| self.show_key(request, access, id))
            }
            ["keys", id, "rotate"] => request
                .require_method(&["POST"])
                .and_then(|()| self.rotate_key(request, &self.permit_change(request, access)?, id)),
            ["keys", id, "revoke"] => request
                .require_method(&["POST"])
                .and_then(|()| self.revoke_key(request, &self.permit_change(request, access)?, id)),
            ["plans"] => request.require_method(&["GET"]).and_then(|()| self.list_plans(request)),
            ["usage"] => {
                request.require_method(&["GET"]).and_then(|()| self.list_usage(request, access))
            }
            ["overrides", domain] => match request.method.as_str() {
                "PUT" => self.set_override(request, &self.permit_change(request, access)?, domain),
                "DELETE" => {
                    self.clear_override(request, &self.permit_change(request, access)?, domain)
                }
                _ => Err(ApiError::method_not_allowed(&["PUT", "DELETE"])),
            },
            ["sign-ups", "delete"] => request.require_method(&["POST"]).and_then(|()| {
                self.delete_sign_ups(request, &self.permit_change(request, access)?)
            }),
            ["reload"] => request
                .require_method(&["POST"])
                .and_then(|()| self.reload(request, &self.permit_change(request, access)?)),
            _ => self.route_report(request, access, &segments, status),
        }
    }

    /// Calls the handler of a read that concerns all accounts. Refuses a token for one account.
    fn route_report(
        &self,
        request: &ApiRequest,
        access: &Access,
        segments: &[&str],
        status: &dyn Fn() -> Value,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        type ReportHandler = fn(&AdminApi, &ApiRequest) -> Result<Response<Vec<u8>>, ApiError>;
        let handler: ReportHandler = match segments {
            ["status"] => |_, request| request.check_parameters(&[]).map(|()| Response::default()),
            ["accounts"] => AdminApi::list_accounts,
            ["overrides"] => AdminApi::list_overrides,
            ["audit"] => AdminApi::list_audit,
            ["history"] => AdminApi::show_history,
            ["verdicts"] => AdminApi::show_verdict_counts,
            ["top-domains"] => AdminApi::list_top_domains,
            ["screening"] => AdminApi::show_form_counts,
            ["refused-forms"] => AdminApi::list_refused_forms,
            ["rule-decisions"] => AdminApi::list_rule_decisions,
            ["servers"] => AdminApi::list_servers,
            ["routes"] => AdminApi::list_routes,
            ["certificates"] => AdminApi::list_certificates,
            ["lookup"] => AdminApi::look_up,
            ["lists"] => AdminApi::list_lists,
            ["feeds"] => AdminApi::list_feeds,
            _ => return Err(ApiError::not_found("No such endpoint.", None)),
        };
        request.require_method(&["GET"])?;
        if !access.may_read_all_accounts() {
            return Err(ApiError::forbidden("This token may read one account only."));
        }
        let response = handler(self, request)?;
        match segments {
            ["status"] => Ok(request::json_response(200, &status())),
            _ => Ok(response),
        }
    }

    /// Checks that the request may make a change: it has a token with the scope `write`, and no
    /// page of another origin can have made it.
    fn permit_change<'r>(
        &self,
        request: &ApiRequest,
        access: &'r Access,
    ) -> Result<ChangePermit<'r>, ApiError> {
        let Some(token) = access.write_token() else {
            return Err(match access {
                Access::Open => ApiError::unauthorized(access),
                _ => ApiError::forbidden("Changes need a token with the scope write."),
            });
        };
        if may_be_cross_origin(&request.headers) {
            return Err(ApiError::forbidden("Pages of other origins may not make changes."));
        }
        let is_page = request.headers.get("x-riskgate-client").is_some_and(|it| it == "page");
        let via = if is_page { ChangeSurface::Page } else { ChangeSurface::Api };
        let (actor, from) = (token.name.clone(), request.client.to_string());
        Ok(ChangePermit { token, author: ChangeAuthor { actor, via, from } })
    }

    /// Returns the keys and accounts in force on this node. Builds the index again if they have
    /// changed.
    fn ring_index(&self) -> Result<Arc<RingIndex>, ApiError> {
        let mut known = lock(&self.ring_index);
        if let Some((generation, ring_index)) = known.as_ref()
            && *generation == self.inputs.keys_generation()
        {
            return Ok(Arc::clone(ring_index));
        }
        let (generation, inputs) = self.inputs.keys().ok_or_else(|| {
            ApiError::store_unavailable("The keys have not been read from the store yet.")
        })?;
        let ring_index = Arc::new(RingIndex::build(&inputs, &self.config().plans));
        *known = Some((generation, Arc::clone(&ring_index)));
        Ok(ring_index)
    }

    fn config(&self) -> Arc<ReloadableConfig> {
        self.inputs.config.snapshot()
    }

    /// Calls `read` with the connection for reads.
    fn read_from_store<T, E: From<StoreError>>(
        &self,
        read: impl FnOnce(&mut Store) -> Result<T, E>,
    ) -> Result<T, ApiError>
    where
        ApiError: From<E>,
    {
        let (_permit, mut connection) = self.read_connection.lock()?;
        self.use_store(&mut connection, read)
            .map_err(|error| error.with_change(ChangeAfterStoreFailure::NotWanted))
    }

    /// Calls `change` with the store that this process serves. Then waits until a change of keys or
    /// accounts is in effect on this node, at most for [`MAX_EFFECT_WAIT`]. Fails if the config now
    /// names another store.
    fn change_store_and_wait<T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&mut Store) -> Result<T, E>,
    ) -> Result<T, ApiError>
    where
        ApiError: From<E>,
    {
        let (changed, version) = {
            let (_permit, mut connection) = self.write_connection.lock()?;
            self.open_served_store(&mut connection)?;
            let changed = self.use_store(&mut connection, change)?;
            let version = connection.as_mut().and_then(|store| store.ring_version().ok().flatten());
            (changed, version.map_or(0, |version| version.version))
        };
        let deadline = Instant::now() + MAX_EFFECT_WAIT;
        let served_version =
            || self.state.keys.peek().as_ref().as_ref().map_or(0, |ring| ring.version());
        self.reload_trigger.check_for_changes();
        let Ok(_permit) = self.effect_permits.try_acquire() else { return Ok(changed) };
        while served_version() < version && Instant::now() < deadline {
            std::thread::sleep(EFFECT_POLL_INTERVAL);
        }
        Ok(changed)
    }

    /// Opens the store for changes.
    ///
    /// # Errors
    /// - If the store is not the one that this process serves: its file was moved or replaced, or
    ///   its server was emptied or replaced.
    /// - If the store can't keep a change, for example because the server may evict it.
    /// - If the store fails.
    fn open_served_store(&self, connection: &mut Option<Store>) -> Result<(), ApiError> {
        let refuse = |found: String| StoreError::Conflict(format!("{found}; nothing was changed"));
        self.check_served_place()?;
        let checked: Result<(), ApiError> = self.use_store(connection, |store| {
            store.check_still_safe().map_err(|error| refuse(error.to_string()))?;
            let ring = self.state.keys.snapshot();
            let id = ring.as_ref().as_ref().map(|ring| ring.store_id().to_owned());
            let Some(found) = store.ring_version()?.map(|version| version.store_id) else {
                let advice = match id {
                    Some(_) => "bring the store back with its data, or stop the gateways first",
                    None => "`riskgate store init` makes one",
                };
                let found = "expected a store, but found an empty server";
                return Err(refuse(format!("{found}: {advice}")));
            };
            let served = ServedStore { id, ..self.served.clone() };
            served.check_id(Some(&found)).map_err(|error| refuse(error.to_string()))
        });
        checked.map_err(|error| {
            *connection = None;
            error.with_change(ChangeAfterStoreFailure::NotMade)
        })
    }

    /// Fails if the store in the config, or the file of the store, is another one than the served.
    fn check_served_place(&self) -> Result<(), ApiError> {
        match self.served.check_place(&self.inputs.next_startup.peek().store) {
            // The use of the store fails with 503 then.
            Ok(()) | Err(DifferentStore::MissingFile { .. }) => Ok(()),
            Err(other) => Err(StoreError::Conflict(format!("{other}; nothing was changed")).into()),
        }
    }

    /// Tells the store the time, and calls `operation` with the store. If no connection is open,
    /// first opens one. While the ledger counts the store as down, fails at once.
    fn use_store<T, E: From<StoreError>>(
        &self,
        connection: &mut Option<Store>,
        operation: impl FnOnce(&mut Store) -> Result<T, E>,
    ) -> Result<T, ApiError>
    where
        ApiError: From<E>,
    {
        if self.state.ledger.status().store_down {
            return Err(ApiError::store_down());
        }
        let open = || {
            let mut store = self.store_options.open_existing(STORE_TIMEOUT)?;
            store.raise_busy_timeout()?;
            Ok(store)
        };
        let opened = connection.take().map_or_else(open, Ok);
        let mut store = opened.map_err(|error: StoreError| {
            <ApiError as From<StoreError>>::from(error)
                .with_change(ChangeAfterStoreFailure::NotMade)
        })?;
        store.set_time(self.state.ledger.believed_time());
        let done = operation(&mut store).map_err(ApiError::from);
        // After a failure of the store, the next request opens another connection.
        if done.as_ref().err().is_none_or(|error| !error.is_store_failure()) {
            *connection = Some(store);
        }
        done
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
