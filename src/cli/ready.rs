//! `riskgate ready`: asks the running gateway whether it may get traffic. A container without a
//! shell needs it as its health check.

use std::net::SocketAddr;
use std::time::Duration;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::print_result;
use crate::model::network::loopback_if_unspecified;

/// Less than the time that a health check usually has.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The address of the admin listener. The command then reads no config, so it works while the
    /// config file has a fault and the gateway serves its last good config.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

/// Prints the answer of `/readyz` of the admin listener. Fails if its status is not 200, or if no
/// gateway answers.
pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let admin = match args.admin {
        Some(address) => address,
        None => args.config.read_config()?.startup.admin,
    };
    let url = format!("http://{}/readyz", loopback_if_unspecified(admin));
    let failure = |found: &str| {
        CommandFailure::failed(format!("{url}: expected status 200, but found {found}"))
    };
    // The environment may name a proxy for other programs.
    let agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None);
    let agent = ureq::Agent::new_with_config(agent.http_status_as_error(false).build());
    let mut response = agent.get(&url).call().map_err(|error| failure(&error.to_string()))?;
    let status = response.status();
    let body = response.body_mut().read_to_string();
    let body = body.map_err(|error| failure(&format!("{status} and {error}")))?;
    match status.as_u16() {
        200 => print_result(body),
        code => Err(failure(&format!("{code}: {}", body.trim_end()))),
    }
}
