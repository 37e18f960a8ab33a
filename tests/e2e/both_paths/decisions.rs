//! Decisions on sign-ups: by rules, inboxes and counts, on routes, for proxies that ask, and on
//! `/v1/assess`.

mod assess;
mod early_leaves;
mod rules;
mod shared_counts;

use crate::harness::{Gateway, Request, Response, Setup, request, wait_until};

/// Rules as the documents recommend them.
pub const RULES: &str = r#"
[[rule]]
name = "many accounts of one inbox"
if = ["inbox_accounts_30d >= 3"]
then = "block"
message = "This inbox has accounts already."
[[rule]]
name = "second account of an inbox"
if = ["inbox_accounts_30d >= 1"]
then = "review"
[[rule]]
name = "new domain"
if = ["domain_accounts_1h >= 3", "verdict_source == none"]
then = "review"
"#;

/// A route that screens sign-ups in this mode, and rules.
fn sign_up_route(mode: &str, more: &str) -> String {
    format!(
        "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n\
         [upstream.route.screen]\nfields = [\"email\"]\nmode = \"{mode}\"\n{more}\n"
    )
}

fn form(email: &str) -> Request {
    let body = format!("email={}", email.replace('+', "%2B").replace('@', "%40"));
    let form = "application/x-www-form-urlencoded";
    request("POST", "/signup").with_header("Content-Type", form).body(&body)
}

/// Starts a gateway, and waits until it counts sign-ups.
pub fn start_counting(setup: Setup) -> Gateway {
    let gateway = setup.start();
    wait_until("sign-ups are counted", || is_counting(&gateway));
    gateway
}

fn is_counting(gateway: &Gateway) -> bool {
    !gateway.readyz().text().contains("sign_ups")
}

fn post(gateway: &Gateway, email: &str) -> Response {
    gateway.send_request(&form(email))
}
