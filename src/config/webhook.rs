//! `[webhook]`: the receiver of quota webhooks.

use std::net::IpAddr;
use std::time::Duration;

use super::description::SettingKind;
use super::settings::Settings;
use crate::model::public_address::is_public_address;
use crate::store::redact_url;
use crate::webhook::{
    DEFAULT_THRESHOLDS, MAX_THRESHOLDS, THRESHOLD_RANGE, Thresholds, WebhookOptions, WebhookSecret,
    WebhookUrl,
};

const DEFAULT_WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// With a longer timeout, a slow receiver would delay the other events for too long.
const MAX_WEBHOOK_TIMEOUT: Duration = Duration::from_mins(2);
/// The command that prints a new secret.
const NEW_SECRET: &str = "echo whsec_$(openssl rand -base64 32)";
const SECRET_SYNTAX: &str = "whsec_ and the Base64 of 24 to 64 bytes";

impl Settings {
    /// Reads the receiver of webhooks; `None` if there is none.
    pub fn read_webhook_options(&mut self) -> Option<WebhookOptions> {
        let allow_private = self.read_boolean("webhook.allow_private", false);
        let timeout = self.read_nonzero_duration("webhook.timeout", DEFAULT_WEBHOOK_TIMEOUT);
        if timeout > MAX_WEBHOOK_TIMEOUT {
            let found = format!("{}s", timeout.as_secs());
            let problem = format!("expected at most 2m, but found {found}");
            self.report_at_value("webhook.timeout", &found, &problem, None);
        }
        let url = self.read_webhook_url(allow_private);
        let secret = self.read_webhook_secret("webhook.secret", url.is_some());
        let previous_secret = self.read_webhook_secret("webhook.previous_secret", false);
        let thresholds = self.read_thresholds();
        let tls_ca = self.read_further_authorities("webhook.tls_ca");
        Some(WebhookOptions {
            url: url?,
            secret: secret?,
            previous_secret,
            thresholds,
            allow_private,
            timeout,
            tls_ca,
        })
    }

    fn read_webhook_url(&mut self, allow_private: bool) -> Option<WebhookUrl> {
        let setting = self.read_and_mark_known("webhook.url", SettingKind::Text)?;
        let text = setting.raw.as_text().unwrap_or_default();
        let fault = find_url_fault(text, allow_private);
        if let Some(expected) = fault {
            // The path may contain a token, so the fault does not show it.
            let (shown, found) = match text.split_once("://") {
                Some(_) => (format!("{:?}", redact_url(text)), format!("{:?}", redact_url(text))),
                None => ("…".to_owned(), "something else".to_owned()),
            };
            let problem = format!("expected {expected}, but found {found}");
            let is_private = !allow_private && find_url_fault(text, true).is_none();
            let hint =
                "write https, or, if the receiver is in your own network, allow_private = true too";
            let lacks_scheme = find_url_fault(&format!("https://{text}"), allow_private).is_none();
            let hint = match (is_private, lacks_scheme && !text.contains("://")) {
                (true, _) => Some(hint.to_owned()),
                (false, true) => Some("write https:// before it".to_owned()),
                (false, false) => None,
            };
            self.report_at_value("webhook.url", &shown, &problem, hint);
            return None;
        }
        Some(WebhookUrl::from_checked(text.to_owned()))
    }

    fn read_webhook_secret(&mut self, key: &str, is_required: bool) -> Option<WebhookSecret> {
        self.read_secret_from_file(key);
        let file_key = format!("{key}_file");
        let Some(setting) = self.read_and_mark_known(key, SettingKind::Secret) else {
            // The file has a fault of its own.
            let is_faulty = self.has_value(&file_key);
            if is_required && !is_faulty {
                let expected = format!("{SECRET_SYNTAX}, since webhook.url is set");
                let hint = format!("write secret = \"whsec_…\", the output of: {NEW_SECRET}");
                self.report_required_with_hint(key, &expected, Some(hint));
            }
            return None;
        };
        let secret = setting.raw.as_text().and_then(WebhookSecret::parse);
        let file = self.values.get(&file_key).filter(|_| self.has_value(&file_key));
        match file.and_then(|setting| setting.raw.as_text()) {
            _ if secret.is_some() => {}
            Some(file) => {
                let problem = format!(
                    "expected a file {file} with {SECRET_SYNTAX}, but found something else"
                );
                let hint = format!("write one with: {NEW_SECRET} > {file}");
                self.report_at_key(&file_key, &problem, Some(hint));
                self.mark_fault_of_secret(&file_key);
            }
            None => {
                self.report_hidden_fault(key, SECRET_SYNTAX);
                self.hint_last_fault(Some(format!("write the output of: {NEW_SECRET}")));
            }
        }
        secret
    }

    fn read_thresholds(&mut self) -> Thresholds {
        let expected = format!(
            "1 to {MAX_THRESHOLDS} percentages of the limit from {} to {}, such as [75, 90, 100]",
            THRESHOLD_RANGE.start(),
            THRESHOLD_RANGE.end(),
        );
        let parsed = self.parse_integer_list("webhook.thresholds", &expected, |percents| {
            let percents = percents.iter().map(|percent| u16::try_from(*percent).ok());
            Thresholds::new(&percents.collect::<Option<Vec<u16>>>()?)
        });
        self.note_default(format!("{DEFAULT_THRESHOLDS:?}"));
        parsed.unwrap_or_default()
    }
}

/// Returns what was expected of the URL; `None` if the URL is right. The addresses of a name are
/// checked later, when riskgate connects.
fn find_url_fault(text: &str, allow_private: bool) -> Option<&'static str> {
    const EXPECTED_URL: &str =
        "https://…, or with webhook.allow_private http://… in your own network, without a #";
    let uri = text.parse::<http::Uri>().ok().filter(|_| !text.contains('#'));
    let Some((uri, host)) = uri.as_ref().and_then(|uri| Some((uri, uri.host()?))) else {
        return Some(EXPECTED_URL);
    };
    let is_http = match uri.scheme_str() {
        Some("https") => false,
        Some("http") if allow_private => true,
        _ => return Some(EXPECTED_URL),
    };
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_public = match literal {
        Ok(address) => is_public_address(address),
        // The addresses of all other names are known when riskgate connects.
        Err(_) => !is_local_name(host),
    };
    match (is_public, allow_private) {
        (false, false) => Some("a public address, because webhook.allow_private is false"),
        (true, _) if is_http && literal.is_ok() => Some(EXPECTED_URL),
        _ => None,
    }
}

fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests;
