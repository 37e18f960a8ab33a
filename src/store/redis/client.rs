//! Opens connections to single servers.

use std::time::Duration;

use redis::{Client, Connection, IntoConnectionInfo, TlsCertificates};

/// Prepares connections to a server. Fails if the certificates can't be read.
pub(super) fn open_client(
    address: impl IntoConnectionInfo,
    tls: &Option<TlsCertificates>,
) -> redis::RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(address, tls.clone()),
        None => Client::open(address),
    }
}

/// Connects to a server of a Cluster. Does not tell the server the name of the redis crate: the
/// crate waits for the replies, each within the timeout, so a server that hangs takes thrice as
/// long.
pub(super) fn connect_to_member(
    url: &str,
    tls: &Option<TlsCertificates>,
    timeout: Duration,
) -> redis::RedisResult<Connection> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    open_client(info.set_redis_settings(settings), tls)?.get_connection_with_timeout(timeout)
}
