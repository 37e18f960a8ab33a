//! `riskgate doctor`: checks a running deployment from outside of its process.
//!
//! With a faulty config, the command checks nothing else. If another file is faulty, it leaves out
//! the certificate files and the resolvers. Some checks build on others, such as those of `--url`.
//! The command changes nothing but a Redis key of its own, which soon expires. riskgate charges
//! none of the command's requests. It may forward only those to the host of `--url`.

mod ages;
mod gateway;
mod listeners;
mod public_url;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config_args::{ConfigArgs, describe_source};
use super::failure::CommandFailure;
use super::findings::print_findings;
use super::http_client::create_http_client;
use super::store::check_store;
use crate::config::{Config, ConfigSources, EffectiveSetting, SettingOrigin};
use crate::process::server::StartupInputs;
use crate::store::Finding;
use crate::support::regular_file::decode_text;
use public_url::PublicUrl;

/// The settings that say where the deployment is. If the config lacks one, its default may lead the
/// checks to another deployment.
const ADDRESS_SETTINGS: [&str; 4] =
    ["listen.http", "listen.admin", "store.url", "upstream.servers"];
/// How long each operation of `doctor` on the store may take.
const DOCTOR_STORE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Also checks what clients see at this URL: name, TLS, redirect, HSTS, clock, and whether the
    /// proxy in front names its clients.
    #[arg(long, value_name = "URL", value_parser = PublicUrl::parse)]
    url: Option<PublicUrl>,
    /// A file with a token of the admin API, which /status demands if the config has tokens.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Checks the deployment of a config, and prints what was found. Fails if there is a fault.
pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let sources = args.config.config_sources();
    let inputs = StartupInputs::read(&sources);
    let mut read = None;
    let config = match &inputs {
        Ok(inputs) => &inputs.config,
        Err(faults) => match Config::read(&sources) {
            Ok(config) => &*read.insert(config),
            Err(_) => return Err(CommandFailure::config(faults.clone())),
        },
    };
    let token = args.token_file.as_deref().map(read_token);
    let client = create_http_client(None);
    let mut findings = match &inputs {
        Ok(_) => vec![name_config_and_defaults(&sources, config)],
        Err(faults) => faults.iter().map(|fault| describe_file_fault(fault)).collect(),
    };
    let certificates = inputs.iter().filter_map(|inputs| inputs.certificates.as_ref());
    let of_certificates: Vec<Finding> =
        certificates.flat_map(listeners::check_certificate_files).collect();
    let of_servers = servers::check_servers(config);
    let of_gateway = gateway::check_gateway(&client, config, token.transpose()?.as_deref());
    findings.extend(of_gateway.into_iter().filter(|it| {
        !is_told_by(it, &of_servers) && !listeners::is_told_by_files(it, &of_certificates)
    }));
    findings.extend(listeners::check_listeners(&client, config));
    findings.extend(check_store(config, DOCTOR_STORE_TIMEOUT).into_iter().map(prefix_with_store));
    findings.extend(of_servers);
    if let Ok(inputs) = &inputs {
        findings.extend(servers::check_resolvers(config, &inputs.table));
    }
    findings.extend(of_certificates);
    if let Some(url) = &args.url {
        findings.extend(public_url::check_public_url(url, config));
    }
    print_findings(&findings, args.json, "the deployment")
}

/// Returns true if a finding of the gateway is a fault of the servers, and the check of the servers
/// has found the servers faulty as well.
fn is_told_by(finding: &Finding, of_servers: &[Finding]) -> bool {
    let is_fault = |it: &Finding| it.level.is_fault() && it.subject == finding.subject;
    is_fault(finding) && of_servers.iter().any(is_fault)
}

/// Makes the finding of a fault of the config, of which the further lines show the file.
fn describe_file_fault(fault: &str) -> Finding {
    let found = fault.lines().next().unwrap_or_default();
    Finding::fault("config", found, "correct it; riskgate check shows the whole fault")
}

/// Names the config that is checked, and the defaults of [`ADDRESS_SETTINGS`] that it leaves in
/// force. The running gateway may have another config.
fn name_config_and_defaults(sources: &ConfigSources, config: &Config) -> Finding {
    let settings = Config::read_effective_settings(sources).map(|it| it.0).unwrap_or_default();
    let is_default = |it: &&EffectiveSetting| {
        it.origin == SettingOrigin::Default && ADDRESS_SETTINGS.contains(&it.key.as_str())
    };
    let defaults = settings.iter().filter(is_default).filter_map(|it| {
        let name = it.key.as_str();
        match (name, &it.value) {
            ("store.url", _) => Some(format!("{name} = {}", config.startup.store.shown_address())),
            (_, value) => Some(format!("{name} = {}", value.as_ref()?)),
        }
    });
    let defaults: Vec<String> = defaults.collect();
    let source = describe_source(config);
    Finding::good(
        "config",
        match defaults.is_empty() {
            true => source,
            false => format!("{source}; by default {}", defaults.join(", ")),
        },
    )
}

/// Reads a token of the admin API from a file.
fn read_token(file: &Path) -> Result<String, CommandFailure> {
    let failure = |found: &str| {
        let expected = "expected a token of the admin API";
        CommandFailure::failed(format!("{}: {expected}, but found {found}", file.display()))
    };
    let bytes = fs::read(file).map_err(|error| failure(&error.to_string()))?;
    let text = decode_text(bytes).map_err(|error| failure(&error.to_string()))?;
    match text.trim() {
        "" => Err(failure("nothing")),
        token if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(token.to_owned()),
        _ => Err(failure("a blank or a character that no token has")),
    }
}

/// Puts the word `store` before the subject of a finding about the store, because subjects such as
/// `version` and `clock` would else be taken for those of the gateway.
fn prefix_with_store(finding: Finding) -> Finding {
    match &*finding.subject {
        "store" => finding,
        subject => Finding { subject: format!("store {subject}").into(), ..finding },
    }
}
