//! Keys, accounts, plans and the monthly quota.

mod client_limit;
mod concurrency;
mod daily_usage;
mod limits;
mod shared_rates;
