//! Quota webhooks: riskgate tells a receiver that an account has used a share of its month,
//! such as 80 or 100 %.
//!
//! Owns the thresholds, the events, their signatures, and the times of further attempts. This
//! module does no I/O and reads no clock. `store` keeps the events; the threads of
//! `process/reload/webhook` find and send the events.

mod backoff;
mod control;
mod detector;
mod event;
mod options;
mod signature;
mod status;
mod threshold;

pub use backoff::{GIVE_UP_AFTER_SECONDS, retry_delay_seconds};
pub use control::WebhookControl;
pub use detector::ThresholdDetector;
pub use event::{ReachedThreshold, message_id};
pub use options::{WebhookOptions, WebhookUrl};
pub use signature::{WebhookSecret, sign_message};
pub use status::{DeliveryHistory, DeliveryOutcome, WebhookStatus};
pub use threshold::{DEFAULT_THRESHOLDS, MAX_THRESHOLDS, THRESHOLD_RANGE, Thresholds};
