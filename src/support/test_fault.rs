//! Named faults that a test injects into a gateway, to show that other tests notice them.
//!
//! These faults exist only in a build with debug assertions, such as that of `cargo test`, where
//! the environment variable `RISKGATE_TEST_FAULT` names one of them. In a release build
//! [`is_injected`] is always false, and the compiler removes the code of each fault;
//! `scripts/release-tools/check-release` checks that the name of the variable is not in the binary.

/// A fault in the gateway's behaviour, named by what the gateway then does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestFault {
    /// A request without a valid key gets the first key that was accepted.
    AcceptAnyKey,
    /// Every request gets the first key that was accepted.
    ReuseFirstKey,
    /// Pingora gets all bytes that were read, not only the header of one request.
    PassWholeReadBuffer,
    /// The gateway reads the body of a request before it refuses the request.
    ReadBodyBeforeRefusal,
    /// The Pingora path changes the bytes of a response body.
    AlterResponseBody,
    /// The Pingora path forwards informational responses.
    ForwardInformational,
    /// Pingora parses the options of `Connection`.
    ParseConnectionInPingora,
    /// An exchange of a check, and a request header on the admin listener, may take an hour.
    NoDeadline,
    /// A request for the usage spends a call.
    CountUsage,
    /// The limits per client address on held bodies and on exchanges do not apply.
    IgnoreClientLimit,
    /// An idle connection does not notice that the process ends.
    IgnoreDrainWhileIdle,
    /// The process reports that it serves before it handles signals.
    InstallSignalsLate,
    /// The target of a check is forwarded as the client wrote it, other targets in upper case.
    ForwardRawTarget,
}

/// Returns true if this process is to break this rule.
#[cfg(not(debug_assertions))]
pub const fn is_injected(_fault: TestFault) -> bool {
    false
}

/// Returns the result of authenticating a client, unless a fault replaces its key.
#[cfg(not(debug_assertions))]
pub fn replace_key_if_injected<K, E>(authenticated: Result<K, E>) -> Result<K, E> {
    authenticated
}

#[cfg(debug_assertions)]
pub use injection::{is_injected, replace_key_if_injected};

#[cfg(debug_assertions)]
mod injection {
    use std::any::Any;
    use std::sync::OnceLock;

    use super::TestFault;

    impl TestFault {
        /// Every fault.
        pub const ALL: [TestFault; 13] = [
            TestFault::AcceptAnyKey,
            TestFault::ReuseFirstKey,
            TestFault::PassWholeReadBuffer,
            TestFault::ReadBodyBeforeRefusal,
            TestFault::AlterResponseBody,
            TestFault::ForwardInformational,
            TestFault::ParseConnectionInPingora,
            TestFault::NoDeadline,
            TestFault::CountUsage,
            TestFault::IgnoreClientLimit,
            TestFault::IgnoreDrainWhileIdle,
            TestFault::InstallSignalsLate,
            TestFault::ForwardRawTarget,
        ];
    }

    /// Returns true if this process is to break this rule.
    pub fn is_injected(fault: TestFault) -> bool {
        static INJECTED: OnceLock<Option<TestFault>> = OnceLock::new();
        let find_injected = || {
            let name = std::env::var("RISKGATE_TEST_FAULT").ok()?;
            TestFault::ALL.into_iter().find(|fault| format!("{fault:?}") == name)
        };
        *INJECTED.get_or_init(find_injected) == Some(fault)
    }

    /// Returns the result of authenticating a client, unless a fault replaces its key.
    pub fn replace_key_if_injected<K, E>(authenticated: Result<K, E>) -> Result<K, E>
    where
        K: Clone + Send + Sync + 'static,
    {
        static FIRST_KEY: OnceLock<Box<dyn Any + Send + Sync>> = OnceLock::new();
        if let Ok(key) = &authenticated {
            FIRST_KEY.get_or_init(|| Box::new(key.clone()));
        }
        let is_replaced = is_injected(TestFault::ReuseFirstKey)
            || authenticated.is_err() && is_injected(TestFault::AcceptAnyKey);
        let first_key = FIRST_KEY.get().filter(|_| is_replaced).and_then(|key| key.downcast_ref());
        first_key.map_or(authenticated, |key: &K| Ok(key.clone()))
    }
}
