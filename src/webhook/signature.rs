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
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standards_own_libraries() {
        // The vector in the tests of the libraries of standard-webhooks.
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign_message(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn only_texts_of_the_standard_are_secrets() {
        let secret = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for bytes in [24, 32, 64] {
            assert!(WebhookSecret::parse(&secret(bytes)).is_some(), "{bytes}");
        }
        let without_prefix = secret(32).replace("whsec_", "");
        for text in ["", "whsec_", "whsec_!", &without_prefix, &secret(23), &secret(65)] {
            assert!(WebhookSecret::parse(text).is_none(), "{text}");
        }
        let debug = format!("{:?}", WebhookSecret::parse(&secret(24)));
        assert_eq!(debug, "Some(…)");
    }
}
