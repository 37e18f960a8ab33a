//! The authority of a URL, such as `user@host:port` (RFC 3986 section 3.2).

/// Splits a URL whose `scheme://` was removed: the authority, and what follows it.
pub fn split_authority(url_after_scheme: &str) -> (&str, &str) {
    let end = url_after_scheme.find(['/', '?', '#']).unwrap_or(url_after_scheme.len());
    url_after_scheme.split_at(end)
}

/// Returns the host and the port in an authority, without the user.
pub fn without_user(authority: &str) -> &str {
    authority.rsplit('@').next().unwrap_or_default()
}

/// Returns the host in an authority, without the brackets of an IPv6 address. `None` if there is
/// none.
pub fn find_host(authority: &str) -> Option<&str> {
    let host_and_port = without_user(authority);
    let host = match host_and_port.strip_prefix('[') {
        Some(address) => address.split_once(']')?.0,
        None => host_and_port.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests;
