//! `[[listen.certificate]]` and TLS to the upstream.

use std::path::PathBuf;

use super::settings::Settings;
use super::written::Written;
use crate::proxy::upstream::UpstreamTls;
use crate::support::certificates::CertificateFiles;

impl Settings {
    /// `[[listen.certificate]]`: needed where TLS is listened for, and of no use elsewhere.
    pub fn certificates(&mut self) -> Vec<CertificateFiles> {
        let members = self.members("listen.certificate");
        let listens = self.found.contains_key("listen.https");
        if listens && members.is_empty() {
            self.missing("listen.certificate", "at least one, since listen.https is set");
        }
        members
            .iter()
            .filter_map(|at| {
                let (chain, key) =
                    (self.file(&format!("{at}.chain")), self.file(&format!("{at}.key")));
                Some(CertificateFiles { chain: chain?, key: key? })
            })
            .collect()
    }

    /// A path that must be given.
    fn file(&mut self, key: &str) -> Option<PathBuf> {
        const EXPECTED: &str = "a path of a file in PEM form";
        if !self.found.contains_key(key) {
            self.missing(key, EXPECTED);
        }
        let path =
            |written: &Written| written.text().filter(|text| !text.is_empty()).map(PathBuf::from);
        self.parsed(key, EXPECTED, path)
    }

    /// TLS to the upstream, if it is spoken.
    pub fn upstream_tls(&mut self, servers: &[String], host: Option<&str>) -> Option<UpstreamTls> {
        let is_on = self.flag("upstream.tls", false);
        let (name, authorities) = (self.text("upstream.tls_name"), self.text("upstream.tls_ca"));
        let verify = self.flag("upstream.tls_verify", true);
        if !is_on {
            return None;
        }
        let name = name.or_else(|| common_name(servers, host));
        if name.is_none() {
            let expected = "the name of the servers' certificate, since neither upstream.host nor \
                            upstream.servers says one";
            self.missing("upstream.tls_name", expected);
        }
        Some(UpstreamTls { name: name?, authorities, verify })
    }
}

/// The name in `upstream.host`, or the one that all servers have.
fn common_name(servers: &[String], host: Option<&str>) -> Option<String> {
    let name = |text: &str| {
        let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
        name.trim_matches(['[', ']']).to_owned()
    };
    if let Some(host) = host {
        return Some(name(host));
    }
    let first = name(servers.first()?);
    servers.iter().all(|server| name(server) == first).then_some(first)
}
