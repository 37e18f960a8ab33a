//! Sends one message to the receiver.

use ureq::Error;
use ureq::unversioned::transport::DefaultConnector;

use super::resolver::{AllowedAddresses, FilteringResolver};
use crate::support::certificates::CertificateFault;
use crate::support::trusted_authorities::client_tls_config;
use crate::webhook::{WebhookOptions, sign_message};

/// The largest header of an answer, in bytes.
const MAX_ANSWER_HEADER_BYTES: usize = 16 * 1024;

/// Why a message was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PostError {
    /// What riskgate found instead of an answer that accepts the message. The text contains no
    /// secret, no whole URL, and nothing of the answer's body. It may contain the receiver's host.
    pub found: String,
    /// Whether the receiver wants no further attempts.
    pub is_final: bool,
}

/// Sends a message once. If the status of the answer is 200 to 299, the receiver has accepted the
/// message. riskgate does not read the body of the answer.
pub(super) fn post_message(
    options: &WebhookOptions,
    message_id: &str,
    body: &str,
    unix_now: i64,
) -> Result<(), PostError> {
    let secrets = std::iter::once(&options.secret).chain(&options.previous_secret);
    let signatures = secrets.map(|secret| sign_message(secret, message_id, unix_now, body));
    let signatures: Vec<String> = signatures.collect();
    let agent = create_agent(options).map_err(|fault| PostError {
        found: format!("no authorities to trust: webhook.tls_ca: {fault}"),
        is_final: false,
    })?;
    let request = agent
        .post(options.url.expose_text())
        .content_type("application/json")
        .header("webhook-id", message_id)
        .header("webhook-timestamp", unix_now.to_string())
        .header("webhook-signature", signatures.join(" "));
    match request.send(body) {
        Ok(answer) => match answer.status().as_u16() {
            200..=299 => Ok(()),
            status => Err(PostError { found: format!("status {status}"), is_final: status == 410 }),
        },
        Err(error) => Err(PostError { found: describe_error(&error, options), is_final: false }),
    }
}

/// Creates an agent for one message, so that no connection outlives the check of its address.
fn create_agent(options: &WebhookOptions) -> Result<ureq::Agent, CertificateFault> {
    let allowed = match (options.allow_private, options.url.has_tls()) {
        (false, _) => AllowedAddresses::Public,
        (true, true) => AllowedAddresses::All,
        (true, false) => AllowedAddresses::Private,
    };
    let config = match options.url.has_tls() {
        true => {
            ureq::Agent::config_builder().tls_config(client_tls_config(options.tls_ca.as_deref())?)
        }
        false => ureq::Agent::config_builder(),
    };
    // A proxy that the environment names may be for other programs. A redirect could lead anywhere.
    let config = config
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(options.timeout))
        .max_response_header_size(MAX_ANSWER_HEADER_BYTES)
        .max_idle_connections(0)
        .user_agent(concat!("riskgate/", env!("CARGO_PKG_VERSION")))
        .build();
    let resolver = FilteringResolver(allowed);
    Ok(ureq::Agent::with_parts(config, DefaultConnector::default(), resolver))
}

/// Describes an error without the URL, because the URL may contain a password or a token.
fn describe_error(error: &Error, options: &WebhookOptions) -> String {
    match error {
        Error::Timeout(_) => format!("no answer within {} ms", options.timeout.as_millis()),
        Error::BadUri(_) | Error::Http(_) => "a URL that can't be used".to_owned(),
        Error::Io(error) => error.to_string(),
        Error::HostNotFound => "no address of the receiver".to_owned(),
        error => {
            let text = error.to_string();
            let is_shown = |word: &&str| !word.contains("://") && !word.contains('@');
            text.split(' ').filter(is_shown).collect::<Vec<_>>().join(" ")
        }
    }
}
