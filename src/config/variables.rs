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
