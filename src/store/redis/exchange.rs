//! Opens connections to single servers, sends commands over them, and reads their replies, by a
//! deadline.

use std::time::{Duration, Instant};

use redis::{
    Client, Cmd, Connection, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, RedisResult,
    TlsCertificates, Value,
};

use super::reply::unwrap_script_error;

/// Prepares connections to a server. Fails if the certificates can't be read.
pub(super) fn open_client(
    address: impl IntoConnectionInfo,
    tls: &Option<TlsCertificates>,
) -> RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(address, tls.clone()),
        None => Client::open(address),
    }
}

/// Connects to a server of a Cluster. Does not tell the server the name of the redis crate: the
/// crate waits for each reply within the timeout, so a server that hangs would take thrice as long.
pub(super) fn connect_to_member(
    url: &str,
    tls: &Option<TlsCertificates>,
    timeout: Duration,
) -> RedisResult<Connection> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    open_client(info.set_redis_settings(settings), tls)?.get_connection_with_timeout(timeout)
}

/// Says why an exchange failed. For a timeout, the text of the system says nothing useful, and for
/// some other errors, that of the redis crate.
pub(super) fn describe_error(error: &RedisError, timeout: Duration) -> String {
    match error.kind() {
        _ if error.is_timeout() => format!("no answer within {} ms", timeout.as_millis()),
        ErrorKind::Parse => "what answers there speaks no Redis".to_owned(),
        ErrorKind::AuthenticationFailed => "the server refuses the user or the password".to_owned(),
        _ => {
            let text = error.to_string();
            if text.contains("refused to switch database") {
                let detail = error.detail().unwrap_or("an error");
                return format!("the server refuses the number behind the address: {detail}");
            }
            // The alert of TLS 1.3.
            let advice = match text.contains("CertificateRequired") {
                true => {
                    "; the server demands a certificate of its clients: set store.tls_certificate \
                     and store.tls_key"
                }
                false => "",
            };
            text + advice
        }
    }
}

/// Packed commands for one connection, and how many replies they have.
pub(super) struct Exchange {
    packed: Vec<u8>,
    reply_count: usize,
    /// When all replies must have arrived.
    deadline: Instant,
}

impl Exchange {
    pub fn empty(deadline: Instant) -> Exchange {
        Exchange { packed: Vec::new(), reply_count: 0, deadline }
    }

    pub fn of_pipeline(commands: &Pipeline, deadline: Instant) -> Exchange {
        let packed = commands.get_packed_pipeline();
        Exchange { packed, reply_count: commands.len(), deadline }
    }

    pub fn of_commands(commands: &[&Cmd], deadline: Instant) -> Exchange {
        let mut exchange = Exchange::empty(deadline);
        commands.iter().for_each(|command| exchange.push(command));
        exchange
    }

    /// Adds a command.
    pub fn push(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.packed);
        self.reply_count += 1;
    }

    /// Sends the commands, and reads the replies.
    pub fn run(&self, connection: &mut Connection) -> RedisResult<Vec<Value>> {
        self.send(connection)?;
        self.receive(connection)
    }

    pub fn send(&self, connection: &mut Connection) -> RedisResult<()> {
        connection.set_write_timeout(Some(self.time_left()))?;
        connection.send_packed_command(&self.packed)
    }

    pub fn receive(&self, connection: &mut Connection) -> RedisResult<Vec<Value>> {
        let mut replies = Vec::with_capacity(self.reply_count);
        for _ in 0..self.reply_count {
            // The redis crate applies its timeout to each reply, and the deadline is for all
            // replies.
            connection.set_read_timeout(Some(self.time_left()))?;
            replies.push(unwrap_script_error(connection.recv_response()?));
        }
        Ok(replies)
    }

    /// Never zero, because a socket takes zero as no timeout.
    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}
