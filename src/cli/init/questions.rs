//! The four questions of `riskgate init`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::SocketAddr;

use super::answers::{Answers, Args, Upstream};
use super::files::HOST_OF_CONTAINER;
use crate::cli::config_args::hint_for_address;
use crate::cli::failure::CommandFailure;
use crate::config::{TextKind, guess_path};
use crate::management::check_new_account_name;
use crate::model::path_prefix::{PathPrefix, is_own_target};
use crate::proxy::upstream::ServerName;

/// The default port of `listen.admin`, on which riskgate serves the operator's pages.
const ADMIN_PORT: u16 = 9090;
/// Paths on `listen.admin` that people may take for paths of their form.
const OPERATOR_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const DEFAULT_ACCOUNT: &str = "main";
const UPSTREAM_FAULT: &str = "expected a host and a port such as 127.0.0.1:3000, without a scheme \
                               and a path, or https:// before them if the server speaks TLS";
const SIGN_UP_PATH_FAULT: &str =
    "expected a path such as /signup, without a scheme, a host, a query and a / at its end";

/// Asks a person, or takes the defaults if no person is at a terminal.
pub(super) struct Interview {
    is_on_terminal: bool,
}

impl Interview {
    pub fn new() -> Interview {
        Interview { is_on_terminal: io::stdin().is_terminal() && io::stderr().is_terminal() }
    }

    /// Asks the questions that no option has answered. Fails before the first question if an option
    /// is faulty. The exception: whether `--upstream` is the address of riskgate itself shows only
    /// after the question for that address.
    pub fn ask(&self, args: &Args) -> Result<Answers, CommandFailure> {
        let listen = parse_option("--listen", args.listen.as_deref(), parse_listen)?;
        // Without --listen, this address stands for one at which no server is. Once the question
        // for the real address is answered, --upstream is checked again.
        let listen_of_option = listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let parse_upstream_for = |text: &str, listen: SocketAddr| match args.compose {
            true => parse_upstream(text, None),
            false => parse_upstream(text, Some(listen)),
        };
        let parse_upstream_option = |listen: SocketAddr| {
            parse_option("--upstream", args.upstream.as_deref(), |text| {
                parse_upstream_for(text, listen)?.ok_or_else(|| UPSTREAM_FAULT.to_owned())
            })
        };
        let upstream = parse_upstream_option(listen_of_option)?;
        let sign_up = parse_option("--sign-up", args.sign_up.as_deref(), |text| {
            parse_sign_up(text)?.ok_or_else(|| SIGN_UP_PATH_FAULT.to_owned())
        })?;
        let account = parse_option("--account", args.account.as_deref(), parse_account)?;
        let listen = match listen {
            Some(address) => address,
            None => self.ask_until_valid(
                "1/4  The address for requests; 0.0.0.0:8080 for clients of other machines",
                DEFAULT_LISTEN,
                parse_listen,
            )?,
        };
        let upstream = match upstream {
            Some(_) => parse_upstream_option(listen)?,
            None => self.ask_until_valid(
                "2/4  Your server behind riskgate, such as 127.0.0.1:3000; empty for none",
                "",
                |text| parse_upstream_for(text, listen),
            )?,
        };
        let sign_up = match (sign_up, &upstream) {
            (Some(path), _) => Some(path),
            (None, None) => None,
            (None, Some(_)) => self.ask_until_valid(
                "3/4  The path to which its sign-up form is posted, such as /signup; empty for none",
                "",
                parse_sign_up,
            )?,
        };
        let account = match account {
            Some(name) => name,
            None => self.ask_until_valid(
                "4/4  The account of the first key",
                DEFAULT_ACCOUNT,
                parse_account,
            )?,
        };
        Ok(Answers { listen, upstream, sign_up, account })
    }

    /// Asks until the answer is valid. Without a terminal, takes the default, and fails if the
    /// default is invalid.
    fn ask_until_valid<T>(
        &self,
        question: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, CommandFailure> {
        loop {
            let answer = match self.is_on_terminal {
                true => read_answer(question, default)?,
                false => default.to_owned(),
            };
            match parse(&answer) {
                Ok(value) => return Ok(value),
                Err(expected) if self.is_on_terminal => print_indented(&expected),
                Err(expected) => return Err(CommandFailure::usage(expected)),
            }
        }
    }
}

/// Parses the text of an option. Returns `None` without a text.
fn parse_option<T>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, CommandFailure> {
    let parsed = text.map(parse).transpose();
    parsed.map_err(|expected| CommandFailure::usage(format!("{name}: {expected}")))
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.trim().parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
    let address = address.ok_or_else(|| {
        let hint = hint_for_address(text.trim(), TextKind::ListenAddress);
        format!("expected an address such as 127.0.0.1:8080, but found {text:?}{hint}")
    })?;
    match address.port() == ADMIN_PORT {
        true => Err(format!(
            "expected another port than {ADMIN_PORT}, at which operators reach riskgate, but found \
             {address}"
        )),
        false => Ok(address),
    }
}

/// Parses the server behind riskgate. Returns `None` if the text is empty. `listen` is the address
/// at which riskgate listens; `None` if riskgate runs in a container.
fn parse_upstream(text: &str, listen: Option<SocketAddr>) -> Result<Option<Upstream>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let (server, speaks_tls) = match text.strip_prefix("https://") {
        Some(rest) => (with_port_of_https(rest.strip_suffix('/').unwrap_or(rest)), true),
        None => (text.to_owned(), false),
    };
    let Some(name) = ServerName::parse(&server) else {
        let rest = text.split_once("://").and_then(|(_, rest)| rest.split('/').next());
        let is_server = |it: &&str| match speaks_tls {
            true => ServerName::parse(&with_port_of_https(it)).is_some(),
            false => ServerName::parse(it).is_some(),
        };
        let meant = rest.filter(is_server);
        let scheme = if speaks_tls { "https://" } else { "" };
        return Err(match meant {
            Some(server) => format!("{UPSTREAM_FAULT}; write {scheme}{server}"),
            None if ServerName::parse(&format!("{text}:80")).is_some() => {
                format!("{UPSTREAM_FAULT}; the port is missing: write {text}:PORT")
            }
            None => UPSTREAM_FAULT.to_owned(),
        });
    };
    let port = server.rsplit_once(':').map(|(_, port)| port).unwrap_or_default();
    if port.parse() == Ok(0_u16) {
        return Err(format!("expected a port from 1 to 65535, but found {text}"));
    }
    match listen {
        None if name.is_on_loopback() => Err(format!(
            "expected a server that a container reaches, but found {text}: the loopback of a \
             container is not that of this machine; write {HOST_OF_CONTAINER}:{port} for a server on \
             this machine that listens beyond loopback, or SERVICE:{port} for another service of the \
             compose file"
        )),
        Some(listen) if name.is_listener_at(listen) => Err(format!(
            "expected another server than riskgate itself, but found {text}, where riskgate listens: \
             each request would come back to it; let the server listen at another port, or riskgate, \
             by --listen"
        )),
        _ => Ok(Some(Upstream { server, speaks_tls })),
    }
}

/// Returns a text with the port of HTTPS, unless the text names a server already.
fn with_port_of_https(text: &str) -> String {
    match ServerName::parse(text) {
        Some(_) => text.to_owned(),
        None => format!("{text}:443"),
    }
}

/// Parses the path of the sign-up form. Returns `None` if the text is empty.
fn parse_sign_up(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    match PathPrefix::parse(text) {
        _ if text.is_empty() => Ok(None),
        Some(_) if is_own_path(text) => Err(format!(
            "expected the path of a form of your server, but found {text}, which riskgate answers \
             itself"
        )),
        Some(_) => Ok(Some(text.to_owned())),
        None => {
            let meant = guess_path(text).filter(|it| !is_own_path(it));
            let hint = meant.map(|it| format!("; write {it}")).unwrap_or_default();
            Err(format!("{SIGN_UP_PATH_FAULT}{hint}"))
        }
    }
}

/// Returns true for a path that riskgate answers itself to clients, and for [`OPERATOR_PATHS`].
fn is_own_path(path: &str) -> bool {
    is_own_target(path.to_ascii_lowercase().as_bytes()) || OPERATOR_PATHS.contains(&path)
}

fn parse_account(text: &str) -> Result<String, String> {
    match check_new_account_name("account", text) {
        Ok(()) => Ok(text.to_owned()),
        Err(fault) => Err(fault.to_string().replacen("account: ", "", 1)),
    }
}

/// Prints a question, and reads a line. Returns the default if the line is empty.
fn read_answer(question: &str, default: &str) -> Result<String, CommandFailure> {
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    let _ = write!(io::stderr(), "{question}{shown}: ");
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(CommandFailure::failed("expected an answer, but the input has ended"));
    }
    let answer = line.trim();
    Ok(if answer.is_empty() { default.to_owned() } else { answer.to_owned() })
}

fn print_indented(text: &str) {
    let _ = writeln!(io::stderr(), "     {text}");
}
