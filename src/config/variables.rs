//! The variables of the environment that set one setting each, and hints for texts that contain the
//! name of a variable.

/// How the variables begin that set one setting each.
pub const ENV_PREFIX: &str = "RISKGATE__";

/// Returns the hint for a setting whose text contains the name of a variable. `can_be_set` tells
/// whether the environment can set the setting. `file_key` is the setting that may name a file with
/// the value.
pub fn hint_for_variable(key: &str, can_be_set: bool, file_key: Option<&str>) -> String {
    if !can_be_set {
        return "write the value: riskgate replaces no variables".to_owned();
    }
    let file = file_key.and_then(|key| key.rsplit('.').next());
    let file = file.map(|name| format!(", or name a file in {name}")).unwrap_or_default();
    format!(
        "set {} in the environment{file}: riskgate replaces no variables here",
        variable_name(key)
    )
}

/// Returns the name of the variable that sets a setting.
pub fn variable_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

/// Returns what to write for a secret that is a credential of systemd. `file_key` is the
/// setting that names its file.
pub fn hint_for_credential(file_key: &str) -> String {
    let name = name_of_secret(file_key);
    format!(
        "remove this value, and write LoadCredential={name}:/etc/riskgate/{name} and \
         Environment={}=%d/{name} into the unit of systemd: riskgate itself replaces no %d",
        variable_name(file_key)
    )
}

/// The last name of a setting that names the file of a secret, without `_file`.
pub fn name_of_secret(file_key: &str) -> &str {
    let name = file_key.rsplit('.').next().unwrap_or_default();
    name.strip_suffix("_file").unwrap_or(name)
}
