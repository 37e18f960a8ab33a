//! `[traces]`: where traces are sent.

use super::description::toml_text;
use super::settings::Settings;
use crate::observe::traces::{TraceOptions, TraceProtocol};

impl Settings {
    /// Reads where and how traces are sent; `None` if they are off.
    pub fn read_trace_options(&mut self) -> Option<TraceOptions> {
        let protocol = match self.read_choice("traces.protocol", &["http/protobuf", "grpc"]) {
            "grpc" => TraceProtocol::Grpc,
            _ => TraceProtocol::Http,
        };
        let has_user = self.texts_of("traces.endpoint").any(|it| it.contains('@'));
        let expected = match protocol {
            _ if has_user => "a URL without user and password",
            TraceProtocol::Http => "a URL such as http://127.0.0.1:4318/v1/traces",
            TraceProtocol::Grpc => "a URL without TLS, such as http://127.0.0.1:4317",
        };
        let endpoint = self.parse_setting("traces.endpoint", expected, |raw| {
            let text = raw.as_text()?;
            let (scheme, rest) = text.split_once("://")?;
            let is_known = scheme == "http" || scheme == "https" && protocol == TraceProtocol::Http;
            let is_url = text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some());
            (is_known && is_url && !rest.contains('@')).then(|| text.to_owned())
        });
        let text = self.texts_of("traces.endpoint").next().filter(|_| endpoint.is_none());
        if let Some(server) = text.filter(|text| !text.contains(['/', '@']) && text.contains(':')) {
            let url = match protocol {
                // The port of collectors for gRPC.
                TraceProtocol::Http if server.ends_with(":4317") => {
                    format!("\"http://{server}\", and protocol = \"grpc\"")
                }
                TraceProtocol::Http => format!("\"http://{server}/v1/traces\""),
                TraceProtocol::Grpc => format!("\"http://{server}\""),
            };
            self.replace_last_hint(format!("write {url}"));
        }
        if let Some(endpoint) = &endpoint {
            self.warn_of_unlikely_endpoint(endpoint, protocol);
        }
        let sample_one_in = self.read_integer("traces.sample_one_in", 1..=1_000_000_000, 100);
        let service_name = self.read_text("traces.service_name");
        self.note_default(toml_text("riskgate"));
        let service_name = service_name.unwrap_or_else(|| "riskgate".to_owned());
        let tls_ca = self.read_further_authorities("traces.tls_ca");
        Some(TraceOptions { endpoint: endpoint?, protocol, sample_one_in, service_name, tls_ca })
    }

    /// Warns if the port of the collector is the usual one of the other protocol, or if the URL
    /// has no path, although the protocol needs one.
    fn warn_of_unlikely_endpoint(&mut self, endpoint: &str, protocol: TraceProtocol) {
        let Ok(url) = endpoint.parse::<http::Uri>() else { return };
        let of_other = |other: &str| {
            format!(
                "expected protocol = \"{other}\", because collectors take no other at this port"
            )
        };
        let problem = match (protocol, url.port_u16()) {
            (TraceProtocol::Http, Some(4317)) => of_other("grpc"),
            (TraceProtocol::Grpc, Some(4318)) => of_other("http/protobuf"),
            (TraceProtocol::Http, _) if url.path() == "/" => {
                // A user, a password and a query may be secrets.
                let (scheme, host) = (url.scheme_str().unwrap_or("http"), url.host());
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                format!(
                    "expected a URL with a path, because collectors take spans only at one; write \
                     \"{scheme}://{}{port}/v1/traces\"",
                    host.unwrap_or_default()
                )
            }
            _ => return,
        };
        self.warn_at_value("traces.endpoint", &problem, None);
    }
}
