//! Variables of the environment that were meant for riskgate, which does not read them.

use super::fault::ConfigFault;
use super::settings::Settings;
use super::unknown_keys::find_meant_setting;
use super::variables::variable_name;

/// How other variables of riskgate begin, in small letters.
const RISKGATE_PREFIX: &str = "riskgate_";
/// How these variables go on, if the documents, the tests or Kubernetes define them. riskgate does
/// not warn of them.
const TOLERATED_NAMES: [&str; 5] = ["config", "key", "url", "binary", "home"];
const OTHER_VARIABLE_PREFIXES: [&str; 3] = ["test_", "service_", "port_"];

impl Settings {
    /// Warns of a variable that was probably meant for riskgate, which does not read it.
    pub fn warn_of_unread_variable(&mut self, name: &str, value: &str) {
        self.warnings.extend(find_warning(name, value).map(ConfigFault::new));
    }
}

fn find_warning(name: &str, value: &str) -> Option<String> {
    let rest = name.to_ascii_lowercase();
    let rest = rest.strip_prefix(RISKGATE_PREFIX)?.trim_start_matches('_');
    // Kubernetes sets RISKGATE_PORT to such a URL for a service of this name.
    let is_of_kubernetes = value.starts_with("tcp://") || value.starts_with("udp://");
    let is_other = TOLERATED_NAMES.contains(&rest)
        || OTHER_VARIABLE_PREFIXES.iter().any(|prefix| rest.starts_with(prefix));
    if name == super::CONFIG_FILE_VARIABLE
        || is_of_kubernetes
        || is_other && name.starts_with("RISKGATE_")
    {
        return None;
    }
    let meant = match rest.split('_').next() {
        Some("config" | "conf") => super::CONFIG_FILE_VARIABLE.to_owned(),
        _ => variable_name(&find_meant_setting(rest)?),
    };
    Some(format!("{name}: riskgate reads no such variable; did you mean {meant}?"))
}
