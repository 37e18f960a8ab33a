//! Signatures in the form of Standard Webhooks (standardwebhooks.com, version 1.0.0).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How the text of a secret begins.
const SECRET_PREFIX: &str = "whsec_";
/// The lengths of a secret in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secret that sender and receiver share. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// Parses `whsec_` and the Base64 of 24 to 64 bytes; `None` for any other text.
    pub fn parse(text: &str) -> Option<WebhookSecret> {
        let bytes = STANDARD.decode(text.strip_prefix(SECRET_PREFIX)?).ok()?;
        SECRET_BYTES.contains(&bytes.len()).then_some(WebhookSecret(bytes))
    }
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Signs a message. Returns the value of the field `webhook-signature`: `v1,` and the Base64 of the
/// HMAC-SHA256 over id, time (Unix seconds) and body.
pub fn sign_message(secret: &WebhookSecret, id: &str, unix_seconds: i64, body: &str) -> String {
    // HMAC takes a key of any length, so this never fails.
    let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(&secret.0) else { return String::new() };
    hmac.update(format!("{id}.{unix_seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(hmac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests;
