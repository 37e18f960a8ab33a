//! `riskgate ready`: asks the running gateway whether it may get traffic. A container without a
//! shell has this command as its health check.

use std::net::SocketAddr;

use super::config_args::{ConfigArgs, hint_for_address};
use super::failure::CommandFailure;
use super::http_client::create_http_client;
use super::output::print_result;
use crate::config::TextKind;
use crate::model::network::loopback_if_unspecified;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The address of the admin listener. The command then reads no config, so it works while the
    /// config file has a fault and the gateway serves its last good config.
    #[arg(long, value_name = "ADDR", value_parser = parse_admin)]
    admin: Option<SocketAddr>,
}

fn parse_admin(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "expected an address such as 127.0.0.1:9090{}",
            hint_for_address(text, TextKind::ServerAddress)
        )
    })
}

/// Prints the answer of `/readyz` on the admin listener. Fails if the status of the answer is not
/// 200, if no gateway answers, or if the config is needed and faulty.
pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let admin = match args.admin {
        Some(address) => address,
        None => args.config.read_config()?.startup.admin,
    };
    let url = format!("http://{}/readyz", loopback_if_unspecified(admin));
    let failure = |found: &str| {
        CommandFailure::failed(format!("{url}: expected status 200, but found {found}"))
    };
    let client = create_http_client(None);
    let mut response = client.get(&url).call().map_err(|error| failure(&error.to_string()))?;
    let status = response.status();
    let body = response.body_mut().read_to_string();
    let body = body.map_err(|error| failure(&format!("{status} and {error}")))?;
    match status.as_u16() {
        200 => print_result(body),
        code => Err(failure(&format!("{code}: {}", body.trim_end()))),
    }
}
