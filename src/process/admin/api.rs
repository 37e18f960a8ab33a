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
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http::Response;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::{Access, may_be_cross_origin};
use super::history::TrafficHistory;
use crate::config::{AdminToken, ReloadableConfig, StoreOptions};
use crate::downstream::ConnectionTracker;
use crate::gate::GateState;
use crate::process::reload::{CurrentInputs, ReloadStatus, ReloadTrigger, Reloader};
use crate::process::served_store::{DifferentStore, ServedStore};
use crate::proxy::upstream::Upstreams;
use crate::store::{ChangeAuthor, ChangeSurface, Store, StoreError};
use crate::support::certificates::CurrentCertificates;
use crate::support::lock::lock;
use request::{ApiError, ApiRequest, ChangeAfterStoreFailure, json_response};
use ring_index::RingIndex;

/// The timeout of opening a store, and of the short exchanges with a Redis server. On SQLite,
/// `raise_busy_timeout` sets how long an operation waits for a lock.
const API_STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the answer to a change of keys, accounts or sign-ups waits at most until the change is
/// in effect on this node.
const MAX_EFFECT_WAIT: Duration = Duration::from_secs(1);
const EFFECT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The most requests that use one of the two connections to the store or wait for it, and the most
/// that wait for the effect of their changes. All these together leave connections of
/// `MAX_CONNECTIONS_PER_CLIENT` to probes from the same client.
const MAX_WAITING_REQUESTS: usize = 12;

/// What a handler answers.
type Answer = Result<Response<Vec<u8>>, ApiError>;

type Report = fn(&AdminApi, &ApiRequest) -> Result<Value, ApiError>;

/// The reads that concern all accounts: the path, the parameters, and the handler.
const REPORTS: [(&str, &[&str], Report); 16] = [
    ("status", &[], |api, _| Ok(api.status_json())),
    ("accounts", &["search", "plan", "sort", "limit", "cursor"], AdminApi::list_accounts),
    ("overrides", &["search", "limit", "cursor"], AdminApi::list_overrides),
    ("audit", &["operation", "actor", "target", "limit", "cursor"], AdminApi::list_audit),
    ("history", &["hours", "minutes"], AdminApi::show_history),
    ("verdicts", &[], |api, _| Ok(api.verdict_counts_json())),
    ("top-domains", &[], |api, _| Ok(api.top_domains_json())),
    ("screening", &[], |api, _| Ok(api.form_counts_json())),
    ("refused-forms", &[], |api, _| Ok(api.latest_forms_json(&api.state.refused_forms))),
    ("rule-decisions", &[], |api, _| Ok(api.latest_forms_json(&api.state.forms_decided_by_rules))),
    ("servers", &[], |api, _| Ok(api.servers_json())),
    ("routes", &[], |api, _| Ok(api.routes_json())),
    ("certificates", &[], |api, _| Ok(api.certificates_json())),
    ("lookup", &["domain"], AdminApi::look_up),
    ("lists", &[], |api, _| Ok(api.lists_json())),
    ("feeds", &[], |api, _| Ok(api.feeds_json())),
];

/// The calls of this month by account.
type CallsByAccount = Arc<HashMap<String, u64>>;

/// Answers the requests to the admin API, and reports on the parts of the process.
pub(in crate::process) struct AdminApi {
    pub(super) state: Arc<GateState>,
    pub(super) connection_tracker: Arc<ConnectionTracker>,
    pub(super) upstreams: Arc<Upstreams>,
    reload_status: Arc<Mutex<ReloadStatus>>,
    pub(super) reload_trigger: ReloadTrigger,
    pub(super) inputs: Arc<CurrentInputs>,
    pub(super) history: Arc<TrafficHistory>,
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
        let permit = self.permits.try_acquire().map_err(|_| ApiError::store_busy())?;
        Ok((permit, lock(&self.store)))
    }
}

/// Proof that a request may make a change. Only [`AdminApi::authorize_change`] creates it.
struct AuthorizedChange<'r> {
    token: &'r AdminToken,
    author: ChangeAuthor,
}

impl AdminApi {
    /// Creates the API, which reports on these parts of the process.
    pub(in crate::process) fn new(
        state: Arc<GateState>,
        connection_tracker: Arc<ConnectionTracker>,
        upstreams: Arc<Upstreams>,
        reloader: &Reloader,
        reload_trigger: ReloadTrigger,
        certificates: Option<Arc<CurrentCertificates>>,
    ) -> AdminApi {
        let inputs = reloader.inputs();
        AdminApi {
            history: Arc::new(TrafficHistory::new(Arc::clone(&state))),
            started_at: state.ledger.believed_now(),
            served: ServedStore::new(&inputs.startup.store, None),
            store_options: inputs.startup.store.clone(),
            state,
            connection_tracker,
            upstreams,
            reload_status: reloader.status(),
            reload_trigger,
            inputs,
            certificates,
            read_connection: StoreConnection::new(),
            write_connection: StoreConnection::new(),
            effect_permits: Semaphore::new(MAX_WAITING_REQUESTS),
            ring_index: Mutex::default(),
            calls_by_account: Mutex::default(),
        }
    }

    pub(super) fn lock_reload_status(&self) -> MutexGuard<'_, ReloadStatus> {
        lock(&self.reload_status)
    }

    /// Answers a request.
    pub(super) fn answer(&self, request: &ApiRequest, access: &Access) -> Response<Vec<u8>> {
        let answered = match access.is_unauthenticated() {
            _ if request.segments == ["session"] => {
                request.require_method(&["GET"]).map(|()| json_response(200, &access.to_json()))
            }
            true => Err(ApiError::unauthorized(access)),
            false => self.route_request(request, access),
        };
        answered.unwrap_or_else(ApiError::into_response)
    }

    /// Calls the handler of a request. A handler that shows keys, accounts or usage checks which
    /// accounts the request may see. The handlers of changes need an [`AuthorizedChange`].
    fn route_request(&self, request: &ApiRequest, access: &Access) -> Answer {
        let read = |parameters: &[&str], read: &dyn Fn() -> Result<Value, ApiError>| {
            request.check_parameters(parameters)?;
            Ok(json_response(200, &read()?))
        };
        let change = |change: &dyn Fn(&AuthorizedChange<'_>) -> Answer| {
            let authorized = self.authorize_change(request, access)?;
            request.check_parameters(&[])?;
            change(&authorized)
        };
        let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
        match (&segments[..], request.method.as_str()) {
            (["accounts", name], "GET") => read(&[], &|| self.show_account(access, name)),
            (["accounts", name], "PATCH") => change(&|it| self.set_account(request, it, name)),
            (["accounts", _], _) => Err(ApiError::method_not_allowed(&["GET", "PATCH"])),
            (["keys"], "GET") => {
                let parameters = ["account", "search", "state", "limit", "cursor"];
                read(&parameters, &|| self.list_keys(request, access))
            }
            (["keys"], "POST") => change(&|it| self.create_key(request, it)),
            (["keys"], _) => Err(ApiError::method_not_allowed(&["GET", "POST"])),
            (["keys", id], "GET") => read(&[], &|| self.show_key(access, id)),
            (["plans"], "GET") => read(&[], &|| Ok(self.plans_to_json())),
            (["usage"], "GET") => {
                let parameters = ["month", "account", "key_id", "route", "limit", "cursor"];
                read(&parameters, &|| self.list_usage(request, access))
            }
            (["keys", _] | ["plans"] | ["usage"], _) => Err(ApiError::method_not_allowed(&["GET"])),
            (["overrides", name], "PUT") => change(&|it| self.set_override(request, it, name)),
            (["overrides", name], "DELETE") => change(&|it| self.clear_override(it, name)),
            (["overrides", _], _) => Err(ApiError::method_not_allowed(&["PUT", "DELETE"])),
            (["keys", id, "rotate"], "POST") => change(&|it| self.rotate_key(request, it, id)),
            (["keys", id, "revoke"], "POST") => change(&|it| self.revoke_key(request, it, id)),
            (["sign-ups", "delete"], "POST") => change(&|it| self.delete_sign_ups(request, it)),
            (["reload"], "POST") => change(&|it| self.reload(request, it)),
            (["keys", _, "rotate" | "revoke"] | ["sign-ups", "delete"] | ["reload"], _) => {
                Err(ApiError::method_not_allowed(&["POST"]))
            }
            (segments, _) => self.report(request, access, segments),
        }
    }

    /// Answers a read that concerns all accounts. Refuses a token for one account.
    fn report(&self, request: &ApiRequest, access: &Access, segments: &[&str]) -> Answer {
        let report = REPORTS.iter().find(|(name, ..)| segments == [*name]);
        let Some((_, parameters, report)) = report else {
            return Err(ApiError::not_found("No such endpoint.", None));
        };
        request.require_method(&["GET"])?;
        if !access.may_read_all_accounts() {
            return Err(ApiError::forbidden("This token may read one account only."));
        }
        request.check_parameters(parameters)?;
        Ok(json_response(200, &report(self, request)?))
    }

    /// Checks that the request may make a change: it has a token with the scope `write`, and no
    /// page of another origin can have made it.
    fn authorize_change<'r>(
        &self,
        request: &ApiRequest,
        access: &'r Access,
    ) -> Result<AuthorizedChange<'r>, ApiError> {
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
        Ok(AuthorizedChange { token, author: ChangeAuthor { actor, via, from } })
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
        let locked = self.read_connection.lock();
        locked
            .and_then(|(_permit, mut connection)| self.use_store(&mut connection, read))
            .map_err(|error| error.with_change(ChangeAfterStoreFailure::NotWanted))
    }

    /// Calls `change` with the store that this process serves. Then waits until a change of keys or
    /// accounts is in effect on this node, at most for [`MAX_EFFECT_WAIT`], unless too many
    /// requests wait already. Fails if the config now names another store.
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
            let mut store = self.store_options.open_existing(API_STORE_TIMEOUT)?;
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
