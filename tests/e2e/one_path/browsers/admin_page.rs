//! The operator's page in a real browser, on top of the admin API of a real gateway: what each
//! action changes, what each token may do, and who can use the page.
//!
//! After each test, the console of the browser must be empty, and the browser must have asked
//! nobody but the gateway.

mod accessibility;
mod accounts;
mod domains;
mod keyboard;
mod keys;
mod operator;
mod other_origin;
mod overview;
mod pictures;
mod tokens;
