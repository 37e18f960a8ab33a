//! `riskgate demo`: a gateway and a stand-in upstream server on loopback.
//!
//! The command creates a temporary store with one key. It starts a stand-in for the upstream
//! server, which checks addresses and has a sign-up page. It then runs the same gateway as
//! `riskgate run`, and prints three requests to paste. `--upstream-only` runs the stand-in alone,
//! for a gateway that the user starts.

mod sign_up;
mod stand_in;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::author::find_command_author;
use super::failure::CommandFailure;
use super::output::{self, print_warning};
use super::run;
use crate::config::{Config, ConfigFile, ConfigSources};
use crate::keys::Token;
use crate::management::set_present_time;
use crate::process::server::StartMode;
use crate::store::{KeyRow, NewKeyPlan, RedisOptions, Store, StoreUrl};
use crate::support::machine_clock::machine_unix_now;
use crate::support::work_dir::WorkDir;
use crate::table::{Table, TableLocation};

/// Where `--upstream-only` listens if it names no address, unless this address is taken.
const DEFAULT_UPSTREAM_ADDRESS: &str = "127.0.0.1:9000";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only the stand-in checking service, on ADDR; by default on 127.0.0.1:9000 if it is
    /// free, else on any free port.
    #[arg(long, value_name = "ADDR")]
    upstream_only: Option<Option<SocketAddr>>,
}

pub fn run(args: &Args) -> Result<(), CommandFailure> {
    match args.upstream_only {
        Some(address) => run_upstream_only(address),
        None => run_gateway_and_upstream(),
    }
}

fn run_upstream_only(address: Option<SocketAddr>) -> Result<(), CommandFailure> {
    let listener = listen_for_upstream(address)?;
    let address = listener.local_addr()?;
    let table = Table::load(&TableLocation::Bundled)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        std::thread::spawn(move || stand_in::serve_stand_in_upstream(&listener, table));
        output::print_result(format!(
            "riskgate demo: stand-in checking service on http://{address}; Ctrl-C here ends it.\n\
             Put riskgate in front of it from another terminal:\n\n\
             riskgate run --upstream {address}\n"
        ))?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}

/// Listens on the named address. If none is named, listens on the default address, or, if that is
/// taken, on any free loopback port.
fn listen_for_upstream(named: Option<SocketAddr>) -> Result<TcpListener, CommandFailure> {
    if let Some(address) = named {
        return TcpListener::bind(address).map_err(|error| {
            CommandFailure::failed(format!(
                "--upstream-only: expected to listen on {address}, but found {error}; name \
                 another address (port 0 is any free port)"
            ))
        });
    }
    TcpListener::bind(DEFAULT_UPSTREAM_ADDRESS).or_else(|error| {
        print_warning(format!(
            "expected to listen on {DEFAULT_UPSTREAM_ADDRESS}, but found {error}; listening on a \
             free port instead (`--upstream-only ADDR` names one)"
        ));
        Ok(TcpListener::bind("127.0.0.1:0")?)
    })
}

fn run_gateway_and_upstream() -> Result<(), CommandFailure> {
    // Loading the table takes time. It comes before the choice of free addresses, so that the
    // gateway binds them soon after the choice.
    let table = Table::load(&TableLocation::Bundled)?;
    let temp_dir = WorkDir::create_in(&std::env::temp_dir(), "riskgate-demo-")?;
    let store = temp_dir.path().join("riskgate.db");
    let http = find_free_address("127.0.0.1:8080")?;
    let admin = find_free_address("127.0.0.1:9090")?;
    let upstream = TcpListener::bind("127.0.0.1:0")?;
    let servers = upstream.local_addr()?.to_string();
    std::thread::spawn(move || stand_in::serve_stand_in_upstream(&upstream, table));

    let token =
        Token::generate("rg_").map_err(|error| CommandFailure::failed(error.to_string()))?;
    let key = KeyRow {
        id: "demo".to_owned(),
        account: "demo".to_owned(),
        label: Some("made by riskgate demo".to_owned()),
        digest: token.sha256(),
        origins: Vec::new(),
        require_origin: false,
        created_at: machine_unix_now(),
        expires_at: None,
        revoked_at: None,
    };
    let options = RedisOptions::default();
    let url = StoreUrl::Sqlite(store.clone());
    let mut new_store = Store::open(&url, &options, Duration::from_secs(5))?;
    set_present_time(&mut new_store)?;
    let plan = Some(NewKeyPlan::of_store_account("pro"));
    new_store.add_keys(&find_command_author(), &[(key, plan)], None)?;

    let flags = [
        ("listen.http", http.to_string()),
        ("listen.admin", admin.to_string()),
        ("upstream.servers", servers),
        ("store.url", format!("sqlite:{}", store.display())),
        ("log.access", "false".to_owned()),
        ("process.runtime_dir", String::new()),
    ];
    let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let config = temp_dir.path().join("riskgate.toml");
    std::fs::write(&config, render_demo_config())?;
    let config_sources = ConfigSources { file: ConfigFile::Path(config.clone()), flags };
    // Faults are reported before the demo prints any request.
    Config::read(&config_sources).map_err(CommandFailure::config_faults)?;
    std::thread::spawn(move || {
        if wait_until_accepting(http) {
            print_example_requests(http, admin, &config, &token);
        }
    });
    let remove_store = Box::new(move || drop(temp_dir));
    run::run_server(config_sources, StartMode::Standalone, Some(remove_store))
}

/// Renders the config of the demo: a route for the sign-up page, whose forms riskgate screens.
fn render_demo_config() -> String {
    format!(
        "# The demo fetches no lists.\n\
         [[table.feed]]\n\
         name    = \"castle\"\n\
         enabled = false\n\n\
         # The sign-up page of the demo. A change takes effect within two seconds.\n\
         [[upstream.route]]\n\
         prefix  = {:?}\n\
         methods = [\"GET\", \"HEAD\", \"POST\"]\n\
         key     = false\n\n\
         [upstream.route.screen]\n\
         fields   = [\"email\"]\n\
         mode     = \"block\"   # or \"annotate\", or \"shadow\"\n\
         redirect = {:?}\n",
        sign_up::PATH,
        sign_up::REFUSED_TARGET
    )
}

fn print_example_requests(http: SocketAddr, admin: SocketAddr, config: &Path, token: &Token) {
    let key = token.expose_text();
    let mut text = format!(
        "\nriskgate demo: gateway on http://{http}, status page on http://{admin}/\n\
         Paste into another terminal; Ctrl-C here ends the demo and removes its store.\n\n"
    );
    for path in ["public/domain/yopmail.com", "public/top-domains", "check/jane%40example.org"] {
        text += &format!("curl -s -H 'Authorization: Bearer {key}' http://{http}/v1/{path}\n");
    }
    text += &format!(
        "\nOr open http://{http}{} in a browser: a sign-up page whose forms riskgate screens, as \
         {} says.\n",
        sign_up::PATH,
        config.display()
    );
    // The gateway runs without these lines, so a failed write does not end the demo.
    if let Err(error) = output::write_stdout(text.as_bytes()) {
        log::error!("{}", output::describe_stdout_error(&error));
    }
}

/// Waits until a connection to this address succeeds. Returns false if none does within 30 s.
fn wait_until_accepting(address: SocketAddr) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Returns the preferred address if it is free, else a loopback address with any free port. Before
/// the gateway binds the address, another process may take it.
fn find_free_address(preferred: &str) -> Result<SocketAddr, CommandFailure> {
    let listener = TcpListener::bind(preferred).or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    Ok(listener.local_addr()?)
}
