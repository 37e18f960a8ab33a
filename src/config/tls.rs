//! `[[listen.certificate]]`, and TLS to the upstream servers.

use std::path::PathBuf;

use super::description::toml_text;
use super::raw_value::RawValue;
use super::settings::Settings;
use crate::proxy::upstream::{ServerName, UpstreamTls, find_other_verified_name};
use crate::support::certificate_probe::is_certificate_name;
use crate::support::certificates::{CertificateFiles, read_authorities};

impl Settings {
    /// Reads `[[listen.certificate]]`, which is required if `listen.https` is set.
    pub fn read_certificate_files(&mut self) -> Vec<CertificateFiles> {
        let members = self.list_table_array_keys("listen.certificate");
        if self.has_value("listen.https")
            && members.is_empty()
            // `listen.certificate` in another form is reported as an unknown setting.
            && !self.values.contains_key("listen.certificate")
        {
            let hint = "write [[listen.certificate]], and below it chain = \"…\" and key = \"…\"";
            let problem = "expected a [[listen.certificate]] too, but found none";
            let fault = self.begin_fault_at_value("listen.https").with_problem(problem);
            let fault = fault.with_missing_key("listen.certificate");
            self.faults.push(fault.with_hint(Some(hint.to_owned())));
        }
        members
            .iter()
            .filter_map(|at| {
                let (chain, key) = (
                    self.require_path(&format!("{at}.chain")),
                    self.require_path(&format!("{at}.key")),
                );
                Some(CertificateFiles { chain: chain?, key: key? })
            })
            .collect()
    }

    /// Reads a path that has no default.
    fn require_path(&mut self, key: &str) -> Option<PathBuf> {
        const EXPECTED: &str = "a path of a file in PEM form";
        let path =
            |raw: &RawValue| raw.as_text().filter(|text| !text.is_empty()).map(str::to_owned);
        let example = format!("\"/etc/riskgate/{}.pem\"", key.rsplit('.').next().unwrap_or("tls"));
        let path = self.require_setting(key, (EXPECTED, &example), path)?;
        self.path_of_text(key, path)
    }

    /// Reads the path of a file with authorities that riskgate trusts for outgoing requests,
    /// besides the bundled ones and those of the system. Reports a file that can't be read or has
    /// no certificate.
    pub(super) fn read_further_authorities(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.read_path(key)?;
        self.files.push(path.clone());
        if let Err(fault) = read_authorities(&path) {
            self.has_transient_fault |= fault.is_transient();
            self.report_at_key(key, &fault.to_string(), None);
        }
        Some(path)
    }

    /// Reads the settings of TLS to the upstream servers. Returns None if `upstream.tls` is off. If
    /// no setting says which name the servers' certificate must have, or if riskgate would verify
    /// another name, reports a fault and returns None.
    pub fn read_upstream_tls(
        &mut self,
        servers: &[ServerName],
        host: Option<&str>,
    ) -> Option<UpstreamTls> {
        let is_on = self.read_boolean("upstream.tls", false);
        let read_name = |raw: &RawValue| {
            let name = raw.as_text().filter(|text| text.is_empty() || is_certificate_name(text));
            name.map(str::to_owned)
        };
        let name = self.parse_setting("upstream.tls_name", TLS_NAME_FORMAT, read_name);
        let is_faulty = name.is_none() && self.values.contains_key("upstream.tls_name");
        let name = name.filter(|name| !name.is_empty());
        let authorities = self.read_path("upstream.tls_ca");
        let authorities = authorities.map(|path| path.display().to_string());
        let verify = self.read_boolean("upstream.tls_verify", true);
        if !is_on || is_faulty {
            return None;
        }
        let name = name.or_else(|| default_tls_name(servers, host));
        if name.is_none() {
            let expected = "the name of the servers' certificate, since neither upstream.host nor \
                            upstream.servers says one";
            self.report_required("upstream.tls_name", expected);
        }
        if verify && let Some(other) = name.as_deref().and_then(find_other_verified_name) {
            let name = name.unwrap_or_default();
            let expected = format!(
                "the name of the servers' certificate, since in place of {name}, which has an \
                 underscore in its first label, riskgate would verify {other}"
            );
            let hint = format!("write tls_name = {}", toml_text(&other));
            self.report_required_with_hint("upstream.tls_name", &expected, Some(hint));
            return None;
        }
        Some(UpstreamTls { server_name: name?, ca_file: authorities, verify_certificate: verify })
    }
}

/// What `upstream.tls_name` takes.
const TLS_NAME_FORMAT: &str =
    "a name in a certificate, such as check.internal, or an IP address, without a port";

/// Returns the host in `upstream.host` without its port, else the host that all servers share. None
/// if the servers have different hosts.
fn default_tls_name(servers: &[ServerName], host: Option<&str>) -> Option<String> {
    if let Some(host) = host {
        let authority: http::uri::Authority = host.parse().ok()?;
        let name = authority.host().trim_matches(['[', ']']);
        return is_certificate_name(name).then(|| name.to_owned());
    }
    let first = servers.first()?.host();
    servers.iter().all(|server| server.host() == first).then_some(first)?
}
