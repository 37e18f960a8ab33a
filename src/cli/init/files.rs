//! The files that `riskgate init` writes.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

use super::answers::{Answers, Upstream};
use crate::cli::failure::CommandFailure;
use crate::config::RelativePathBases;
use crate::support::regular_file::parent_dir;

/// The name of the unit for systemd, which is written beside the config.
pub(super) const UNIT_FILE: &str = "riskgate.service";
/// The name of the compose file, which is written beside the config.
pub(super) const COMPOSE_FILE: &str = "compose.yaml";

/// The name by which a container reaches its machine. On Linux, the compose file must have this
/// name as an extra host.
pub(super) const HOST_OF_CONTAINER: &str = "host.docker.internal";

const CONFIG_HEAD: &str = "\
# The config of riskgate. `riskgate check` reports every fault in it, `riskgate config show` prints
# what is in force, and conf/riskgate.toml in the sources has every setting with its reason.
# riskgate reads a change within two seconds; the log names settings that need a restart.
";

const FEED_SECTIONS: &str = "
# Lists that riskgate fetches: names that are abused today. Write enabled = false below both if this
# machine fetches nothing.
[[table.feed]]
name = \"castle\"
# Names that left the list stay that long.
keep = \"90d\"
[[table.feed]]
name = \"reviewed\"
";

/// Renders the config. riskgate listens at `listen`.
pub(super) fn render_config(answers: &Answers, listen: SocketAddr) -> String {
    let mut text = CONFIG_HEAD.to_owned();
    // Writing to a string can't fail.
    let _ = write!(
        text,
        "\n[listen]\n# 127.0.0.1: only this machine can send requests. 0.0.0.0: others too.\n\
         http = \"{listen}\"\n\n[check]\n\
         # riskgate answers /v1/check/ itself, from its table. \"upstream\" and \"fallback\" ask \
         your\n# checking service.\nanswer = \"table\"\n\n[upstream]\n"
    );
    match &answers.upstream {
        None => {
            text.push_str(
                "# Name the servers of your service, and remove the second line: it turns their \
                 health checks off.\n# servers = [\"10.0.0.7:9000\"]\nhealth_interval = \"0\"\n",
            );
        }
        Some(Upstream { server, speaks_tls }) => {
            let server = format_toml_text(server);
            let tls = match speaks_tls {
                true => "# The certificate of the server must be for its name.\ntls = true\n",
                false => "",
            };
            let _ = write!(
                text,
                "servers = [{server}]\n{tls}\n# riskgate stands in front of the whole site. Without key \
                 = false, each request would need an API key.\n[[upstream.route]]\nprefix = \"/\"\n\
                 key = false\n"
            );
        }
    }
    if let Some(path) = &answers.sign_up {
        let path = format_toml_text(path);
        let _ = write!(
            text,
            "\n# Forms that are posted to these paths are judged by the address in the field. \
             shadow: only\n# counted, see /screening on the admin listener; annotate: the server \
             gets X-Riskgate-Action;\n# block: a risky form is refused.\n[upstream.route.screen]\n\
             paths = [{path}]\nfields = [\"email\", \"user.email\"]\nmode = \"shadow\"\n"
        );
    }
    text.push_str(FEED_SECTIONS);
    text
}

/// Renders a text as TOML. The texts that people type have the same escapes in TOML and in JSON.
fn format_toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Fails if root runs this command in the folder of another user. The service would run as root,
/// and that user could change its config.
pub(super) fn check_user_of_unit(folder: &Path) -> Result<(), CommandFailure> {
    let owner = fs::metadata(folder)?.uid();
    if geteuid().is_root() && owner != 0 {
        return Err(CommandFailure::failed(format!(
            "--systemd: expected the user {owner}, who owns {} and may write a config for the \
             service there, but found root; write sudo -u '#{owner}' before the command",
            folder.display()
        )));
    }
    Ok(())
}

/// Renders a unit for systemd. The service runs as the user who runs this command, because that
/// user has made the store. The service may write to the folder at which the default paths start,
/// even if the folder is below one that `ProtectSystem` makes read-only.
pub(super) fn render_unit(config: &Path, answers: &Answers) -> Result<String, CommandFailure> {
    let (program, config) = (std::env::current_exe()?, std::path::absolute(config)?);
    let (folder, user) = (parent_dir(&config), geteuid().as_raw());
    let folder = folder.display().to_string().replace('%', "%%");
    let writable = RelativePathBases::of_config(&config, Path::new("/")).of_defaults;
    let writable = quote_for_systemd(&writable);
    let (program, config) = (quote_for_systemd(&program), quote_for_systemd(&config));
    // systemd replaces variables in the arguments, but not in the name of the program.
    let config = config.replace('$', "$$");
    let capabilities = match answers.has_privileged_port() && !geteuid().is_root() {
        true => {
            "# For a port below 1024.\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n\
             CapabilityBoundingSet=CAP_NET_BIND_SERVICE\n"
        }
        false => "",
    };
    Ok(format!(
        "# riskgate under systemd. An upgrade without a refused connection needs two instances:\n\
         # see conf/systemd in the sources.\n\
         [Unit]\nDescription=riskgate\nAfter=network-online.target\nWants=network-online.target\n\
         # systemd would give up after five quick failures, for example while another process has \
         the port.\nStartLimitIntervalSec=0\n\n\
         [Service]\nType=notify\nWatchdogSec=10\nUser={user}\nWorkingDirectory={folder}\n\
         ExecStart={program} run -c {config}\n\
         ExecReload=/bin/sh -c \"kill -HUP $MAINPID\"\n\
         # Longer than drain.delay and drain.grace together.\nTimeoutStopSec=60\n\
         Restart=on-failure\nRestartSec=1\n# A restart does not repair a broken config.\n\
         RestartPreventExitStatus=78\nLimitNOFILE=65536\n{capabilities}NoNewPrivileges=yes\n\
         ProtectSystem=full\nReadWritePaths=-{writable}\nPrivateTmp=yes\nUMask=0077\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    ))
}

/// Formats a path as a word for a shell.
pub(super) fn quote_path_for_shell(path: &Path) -> String {
    quote_for_shell(&path.display().to_string())
}

/// Formats a text as a word for a shell.
pub(super) fn quote_for_shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Formats a path as a word of a setting of systemd. systemd replaces `%` there, so `%` is doubled.
fn quote_for_systemd(path: &Path) -> String {
    let text = path.display().to_string();
    let text = text.replace('\\', r"\\").replace('"', r#"\""#);
    format!("\"{}\"", text.replace('%', "%%"))
}

/// Renders a compose file. The image is one that `scripts/release` has built.
pub(super) fn render_compose_file(config: &Path, answers: &Answers) -> String {
    let (listen, inner_port) = (answers.listen, answers.listen_in_container().port());
    let server = answers.upstream.as_ref().map_or("", |upstream| &upstream.server);
    // On Linux, Docker knows the name of the machine only by this line.
    let hosts = match server.starts_with(HOST_OF_CONTAINER) {
        true => format!("    extra_hosts: [\"{HOST_OF_CONTAINER}:host-gateway\"]\n"),
        false => String::new(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let name = config.file_name().unwrap_or_default().to_string_lossy();
    // A text in JSON is a text in YAML. Docker replaces variables in texts, so `$` is doubled.
    let path = format_toml_text(&format!("/etc/riskgate/{name}")).replace('$', "$$");
    format!(
        "# riskgate with its store in a volume. Build the image with scripts/release in the sources,\n\
         # and load it: docker load -i target/release-files/riskgate-{version}-image.tar\n\
         services:\n  riskgate:\n    image: riskgate:{version}\n    \
         command: [run, -c, {path}]\n    restart: unless-stopped\n    \
         read_only: true\n    cap_drop: [ALL]\n    environment:\n      \
         RISKGATE_CONFIG: {path}\n    volumes:\n      \
         - state:/var/lib/riskgate\n      \
         # The folder: an editor may replace a file, and a mount of the file would keep the old \
         one.\n      - .:/etc/riskgate:ro\n    ports: [\"{listen}:{inner_port}\"]\n{hosts}    \
         # Longer than drain.delay and drain.grace together.\n    stop_grace_period: 40s\n\n\
         volumes:\n  state: {{}}\n"
    )
}
