//! Only one well-formed `Authorization` header with the valid key passes the authorization gate.
//!
//! Each input line is one `Authorization` header. `KEY` stands for the one valid key.

use std::sync::LazyLock;
use std::time::Duration;

use riskgate::gate::admission::{PresentedKey, authenticate_client};
use riskgate::keys::{DeclaredKey, KeyRing, Plans, Token, sha256};
use riskgate::model::refusal::Refusal;
use riskgate::quota::{FailurePolicy, Ledger, LedgerOptions};
use riskgate::store::{KeyRow, MonthlyLimit, RedisOptions, RingRows, Store, StoreUrl};
use riskgate::support::serving_flag::ServingFlag;

use super::ScratchFolder;

const NOW_UNIX_SECONDS: i64 = 1_800_000_000;
const VALID_KEY: &str = "rg_0123456789abcdefghijABCDEFGHIJ01";
const REVOKED_KEY: &str = "rg_revoked456789abcdefghijABCDEFGHI";
const EXPIRED_KEY: &str = "rg_expired456789abcdefghijABCDEFGHI";

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let headers: Vec<Vec<u8>> =
        data.split(|byte| *byte == b'\n').take(3).map(replace_key_placeholder).collect();
    let presented = PresentedKey::read_bearer(headers.iter().map(Vec::as_slice));
    let found = authenticate_client(&KEY_RING, presented, NOW_UNIX_SECONDS);
    let expected = match &headers[..] {
        [header] => parse_bearer_token(header).is_some_and(|token| token == VALID_KEY),
        _ => false,
    };
    match found {
        Ok(key) => {
            assert!(expected, "{headers:?} passes the gate");
            assert_eq!(key.id, "good");
        }
        Err(refusal) => {
            assert!(!expected, "{headers:?} does not pass the gate");
            assert_eq!(refusal, Refusal::Unauthorized, "every cause gives the same refusal");
        }
    }
    if let Some(token) = parse_bearer_token(&headers[0]) {
        assert!(Token::parse(token.to_owned()).is_ok(), "an accepted key is a valid token");
    }
}

/// Replaces `KEY` by the valid key: no fuzzer guesses its 154 random bits.
fn replace_key_placeholder(line: &[u8]) -> Vec<u8> {
    match line.windows(3).position(|window| window == b"KEY") {
        Some(at) => [&line[..at], VALID_KEY.as_bytes(), &line[at + 3..]].concat(),
        None => line.to_vec(),
    }
}

/// A second implementation of RFC 6750 section 2.1: `Bearer`, spaces, and a token up to the end.
fn parse_bearer_token(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    let token = rest.trim_matches(|c: char| matches!(c, ' ' | '\t' | '\r' | '\u{c}'));
    let is_token_char = |c: char| c.is_ascii_graphic() && c != ',';
    let is_valid_token = (16..=256).contains(&token.len()) && token.chars().all(is_token_char);
    (scheme.eq_ignore_ascii_case("bearer") && is_valid_token).then_some(token)
}

static KEY_RING: LazyLock<KeyRing> = LazyLock::new(|| {
    let scratch = ScratchFolder::new("authorization");
    let url = StoreUrl::Sqlite(scratch.path().join("riskgate.db"));
    let redis = RedisOptions::default();
    let open = || Store::open(&url, &redis, Duration::from_secs(5)).expect("a store");
    let deadline = Duration::from_secs(1);
    let options = LedgerOptions {
        store_deadline: deadline,
        on_failure: FailurePolicy::Open,
        max_unsettled: 0,
        serving: ServingFlag::new_serving(),
    };
    let ledger = Ledger::start(open(), open(), options, NOW_UNIX_SECONDS).expect("a ledger");
    let key = |id: &str, token: &str| DeclaredKey {
        plan: None,
        key: KeyRow {
            id: id.to_owned(),
            account: "acme".to_owned(),
            label: None,
            digest: sha256(token.as_bytes()),
            origins: Vec::new(),
            require_origin: false,
            created_at: 0,
            expires_at: (id == "expired").then_some(NOW_UNIX_SECONDS),
            revoked_at: (id == "revoked").then_some(NOW_UNIX_SECONDS),
        },
    };
    let keys = [key("good", VALID_KEY), key("revoked", REVOKED_KEY), key("expired", EXPIRED_KEY)];
    let plans = Plans::from([("free".to_owned(), MonthlyLimit::Calls(100))]);
    // No call is charged: the ledger's thread ends here, and no other thread runs.
    KeyRing::build(&RingRows::default(), &keys, &plans, &ledger)
});
