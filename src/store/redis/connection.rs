//! The connection to a server, and its deadlines.
//!
//! A connection that failed in any way is dropped, since nobody knows what else it would say.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::{Client, Connection, ConnectionLike, FromRedisValue, Pipeline, ServerErrorKind, Value};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::foreign::ForeignEntries;
use super::reply::{info_field, server_error, source};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::url::RedisUrl;
use crate::support::regular_file::read_regular_file;

/// For a connection to be made, TLS and log-in included; operations have their own deadline.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// One exchange of many rows takes longer than a lease may.
pub(super) const BULK_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest file of certificates, in bytes.
const MAX_CA_BYTES: u64 = 1 << 20;
/// Rows in one exchange.
pub(super) const CHUNK_ROWS: usize = 1_000;

/// How the server is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisOptions {
    /// So many replicas must have what the ledger states before it counts as stated.
    pub wait_replicas: usize,
    /// A file with the certificate of the authority to trust instead of the system's.
    pub tls_ca: Option<PathBuf>,
}

/// A server, and the connection to it while there is one.
pub struct Redis {
    pub(super) client: Client,
    pub(super) place: String,
    pub(super) patience: Duration,
    pub(super) wait_replicas: usize,
    pub(super) connection: Option<Connection>,
    /// The digests by which servers know our scripts; the first one said them itself.
    pub(super) script_digests: Vec<String>,
    /// How many of `wait_replicas` did not have what was last written here.
    pub(super) missing_replicas: usize,
    /// What lies among the keys and accounts, and is none of ours.
    pub(super) foreign: ForeignEntries,
    /// Accounts whose numbers can't be read, and when that was told.
    pub(super) warned_accounts: HashMap<String, Instant>,
}

impl Redis {
    /// Prepares a connection; the server need not be there yet.
    pub(in crate::store) fn new(
        url: &RedisUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Redis, StoreError> {
        let place = url.redacted();
        let unusable =
            |expected, found| StoreError::Unusable { location: place.clone(), expected, found };
        if url.has_tls() {
            // Fails when it was done before, and that is as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = match &options.tls_ca {
            Some(path) if url.has_tls() => {
                let expected = "store.tls_ca to be a file of certificates in PEM form";
                let wrong =
                    |found: String| unusable(expected, format!("{found}: {}", path.display()));
                let root = read_regular_file(path, MAX_CA_BYTES)
                    .map_err(|found| wrong(found.to_string()))?;
                // The crate would take a file without one, and then trust nobody.
                let found = CertificateDer::pem_slice_iter(&root).collect::<Result<Vec<_>, _>>();
                match found {
                    Ok(found) if found.is_empty() => return Err(wrong("none".to_owned())),
                    Ok(_) => {}
                    Err(error) => return Err(wrong(error.to_string())),
                }
                let certificates =
                    redis::TlsCertificates { client_tls: None, root_cert: Some(root) };
                Client::build_with_tls(url.0.as_str(), certificates)
                    .map_err(|error| unusable(expected, error.to_string()))?
            }
            _ => Client::open(url.0.as_str())
                .map_err(|error| unusable("an address of a server", error.to_string()))?,
        };
        Ok(Redis {
            client,
            place,
            patience: timeout,
            wait_replicas: options.wait_replicas,
            connection: None,
            script_digests: Vec::new(),
            missing_replicas: 0,
            foreign: ForeignEntries::default(),
            warned_accounts: HashMap::new(),
        })
    }

    /// Refuses a server that may throw keys away when its memory is full. One that does not
    /// answer is not refused.
    pub(in crate::store) fn check(&mut self) -> Result<(), StoreError> {
        let info = match self.query("reading its settings", redis::pipe().cmd("INFO").arg("memory"))
        {
            Ok(mut replies) => source(replies.pop().unwrap_or(Value::Nil)),
            Err(StoreError::Unavailable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        match info_field(&info, "maxmemory_policy") {
            Some("noeviction") => Ok(()),
            found => Err(StoreError::Unusable {
                location: self.place.clone(),
                expected: "maxmemory-policy noeviction, since others throw counts away",
                found: found.unwrap_or("a server that does not tell").to_owned(),
            }),
        }
    }

    pub(super) fn unavailable(&self, doing: &'static str, found: impl Into<String>) -> StoreError {
        StoreError::Unavailable {
            location: self.place.clone(),
            operation: doing,
            found: found.into(),
        }
    }

    /// Connects where there is no connection.
    pub(super) fn connect(&mut self) -> Result<(), StoreError> {
        self.connect_within(self.patience.max(CONNECT_TIMEOUT))
    }

    pub(super) fn connect_within(&mut self, timeout: Duration) -> Result<(), StoreError> {
        if self.is_connected() {
            return Ok(());
        }
        self.connection = None;
        let made = self.client.get_connection_with_timeout(timeout);
        let connection = made.map_err(|error| self.unavailable("connecting", error.to_string()))?;
        self.connection = Some(connection);
        Ok(())
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(ConnectionLike::is_open)
    }

    pub(super) fn load_scripts(&mut self, timeout: Duration) -> Result<(), StoreError> {
        const OPERATION: &str = "loading its scripts";
        let mut load = redis::pipe();
        for script in Script::ALL {
            load.cmd("SCRIPT").arg("LOAD").arg(script.reply_text());
        }
        let loaded = self.send_once(OPERATION, &load, timeout)?;
        if let Some(found) = loaded.iter().find_map(server_error) {
            self.connection = None;
            return Err(self.unavailable(OPERATION, found));
        }
        self.script_digests = loaded.into_iter().map(source).collect();
        Ok(())
    }

    /// Sends commands that may be said twice, and reads as many replies; connects first where
    /// needed. A kept connection that turns out to be dead is no answer: they are asked for once
    /// more on a new one, in the time that is left. An error in one reply fails all.
    pub(super) fn query(
        &mut self,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        self.query_within(doing, self.patience, commands)
    }

    /// As [`Redis::ask`], for what takes longer than a lease may.
    pub(super) fn query_within(
        &mut self,
        doing: &'static str,
        timeout: Duration,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        let until = Instant::now() + timeout;
        let was_connected = self.is_connected();
        self.connect()?;
        let mut replies = self.send_once(doing, commands, timeout);
        let left = || until.saturating_duration_since(Instant::now());
        if replies.is_err() && was_connected && !left().is_zero() {
            self.connect_within(left())?;
            replies = self.send_once(doing, commands, left());
        }
        let replies = replies?;
        match replies.iter().find_map(server_error) {
            Some(found) => {
                self.connection = None;
                Err(self.unavailable(doing, found))
            }
            None => Ok(replies),
        }
    }

    /// The last of the replies to bulk commands, as what it should be.
    pub(super) fn query_last<T: FromRedisValue>(
        &mut self,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<T, StoreError> {
        let last = self.query_within(doing, BULK_TIMEOUT, commands)?.pop();
        self.parse_reply(doing, last.unwrap_or(Value::Nil))
    }

    /// Reads a reply in the expected form. The error never quotes the reply: that may hold
    /// anything, and errors are logged. The connection is dropped then, because what else comes
    /// on it may belong to another question.
    pub(super) fn parse_reply<T: FromRedisValue>(
        &mut self,
        doing: &'static str,
        reply: Value,
    ) -> Result<T, StoreError> {
        redis::from_redis_value(reply).map_err(|_| {
            self.connection = None;
            self.unavailable(doing, "a reply of another form")
        })
    }

    /// Runs scripts, which a server may have forgotten meanwhile: then they are loaded anew, and
    /// since none of them ran, all are sent once more.
    pub(super) fn run_scripts(
        &mut self,
        doing: &'static str,
        commands: impl Fn(&[String]) -> Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        self.run_scripts_within(doing, self.patience, commands)
    }

    /// As [`Redis::run`], for what takes longer than a lease may.
    pub(super) fn run_scripts_within(
        &mut self,
        doing: &'static str,
        timeout: Duration,
        commands: impl Fn(&[String]) -> Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        self.connect()?;
        if self.script_digests.is_empty() {
            self.load_scripts(timeout)?;
        }
        for last_try in [false, true] {
            let replies = self.send_once(doing, &commands(&self.script_digests), timeout)?;
            let forgotten = |value: &Value| {
                matches!(value, Value::ServerError(error)
                    if error.kind() == Some(ServerErrorKind::NoScript))
            };
            if last_try || !replies.iter().any(forgotten) {
                return Ok(replies);
            }
            self.load_scripts(timeout)?;
        }
        Err(self.unavailable(doing, "a server that forgets our scripts at once"))
    }

    /// One exchange within `patience`, all replies together; whatever goes wrong costs the
    /// connection.
    pub(super) fn send_once(
        &mut self,
        doing: &'static str,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        let Some(mut connection) = self.connection.take() else {
            return Err(self.unavailable(doing, "no connection"));
        };
        let until = Instant::now() + timeout;
        let mut send_and_receive = || -> redis::RedisResult<Vec<Value>> {
            connection.set_write_timeout(Some(timeout))?;
            connection.send_packed_command(&commands.get_packed_pipeline())?;
            let mut replies = Vec::with_capacity(commands.len());
            for _ in 0..commands.len() {
                // The crate would wait anew for each reply of a silent server.
                let left = until.saturating_duration_since(Instant::now());
                connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                replies.push(connection.recv_response()?);
            }
            Ok(replies)
        };
        let replies = send_and_receive().map_err(|error| {
            let found = match error.is_timeout() {
                true => format!("no answer within {} ms", timeout.as_millis()),
                false => error.to_string(),
            };
            self.unavailable(doing, found)
        })?;
        self.connection = Some(connection);
        Ok(replies)
    }
}
