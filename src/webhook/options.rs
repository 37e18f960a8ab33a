//! Where and how messages are sent.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::signature::WebhookSecret;
use super::threshold::Thresholds;
use crate::store::redact_url;

/// The settings of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    /// The receiver.
    pub url: WebhookUrl,
    /// The secret that signs the messages.
    pub secret: WebhookSecret,
    /// The secret before `secret`. If this secret is set, riskgate signs each message with both.
    pub previous_secret: Option<WebhookSecret>,
    /// The thresholds of which riskgate tells the receiver.
    pub thresholds: Thresholds,
    /// Whether the receiver may have an address that is not public.
    pub allow_private: bool,
    /// How long one attempt may take, from the DNS look-up to the last byte of the answer's header.
    pub timeout: Duration,
    /// A file of authorities that riskgate trusts besides the bundled ones and those of the system,
    /// in PEM form.
    pub tls_ca: Option<PathBuf>,
}

/// The URL of a receiver. `Display` and `Debug` leave out user, path and query, which may contain a
/// password or a token.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// Keeps a URL that the config has checked.
    pub fn from_checked(text: String) -> WebhookUrl {
        WebhookUrl(text)
    }

    /// Returns the whole URL.
    pub fn expose_text(&self) -> &str {
        &self.0
    }

    /// Returns true if messages are sent over TLS.
    pub fn has_tls(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url(&self.0))
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
