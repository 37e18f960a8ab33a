//! Which settings are read only when the process starts.

/// The settings, and the sections with a dot at their end, that are read only at the start.
const READ_AT_START: [&str; 15] = [
    "admin.metrics_public",
    "audit.",
    "authz.path",
    "drain.",
    "inbox.",
    "keys.header",
    "listen.",
    "log.kept_files",
    "log.max_bytes",
    "log.path",
    "process.",
    "rates.",
    "store.",
    "traces.",
    "upstream.",
];
/// The parts of these sections that a reload reads again.
const READ_AGAIN_AT_RELOAD: [&str; 3] =
    ["listen.certificate.", "store.on_failure", "upstream.route."];

/// Returns true if a change of this setting takes effect only when the process starts.
pub(super) fn is_read_at_start(key: &str) -> bool {
    READ_AT_START.iter().any(|it| match it.strip_suffix('.') {
        Some(section) => key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')),
        None => key == *it,
    }) && !READ_AGAIN_AT_RELOAD.iter().any(|it| key.starts_with(it))
}
