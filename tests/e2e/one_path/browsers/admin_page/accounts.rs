//! Accounts on the page: search, plan, limit, usage by day, and the file for bills.

use std::path::Path;

use crate::harness::{Gateway, get, wait_for, wait_until};

use super::operator::{OperatorPage, hook, setup, start_signed_in};

fn row_of(account: &str) -> String {
    format!("{}[data-name=\"{account}\"]", hook("account-row"))
}

fn spend_calls(gateway: &Gateway, key: &str, calls: u64) {
    let mut connection = gateway.connect();
    for _ in 0..calls {
        connection.send_request(&get("/v1/public/domain/first.test").key(key)).expect(200);
    }
}

/// Sets the plan and the limit of the account that the page shows.
fn save_limit(page: &OperatorPage, plan: &str, limit: &str) {
    page.choose("account-plan", plan);
    page.fill("account-limit", limit);
    page.click("account-save");
    page.wait_for_text("account-saved", "Saved.");
}

#[test]
fn a_limit_of_the_page_is_in_force_and_the_account_shows_its_use() {
    let (gateway, page) = start_signed_in(setup());
    let key = gateway.create_active_key("acme", &[]);
    gateway.create_active_key("other", &[]);
    spend_calls(&gateway, &key, 4);
    page.go_to("accounts", "Accounts");
    page.wait_for_element(&row_of("other"));
    page.fill("account-search", "ACM");
    page.wait_for_absence(&row_of("other"));
    page.click_on(&format!("{} a", row_of("acme")));
    wait_until("the account is shown", || page.browser.text("#section h1") == "acme");
    page.fill("account-limit", "many");
    page.click("account-save");
    page.wait_for_text("error", "Enter a whole number");
    save_limit(&page, "free", "5");
    // The answer came once the limit was in force.
    gateway.get_domain("first.test", &key).expect(200);
    gateway.get_domain("first.test", &key).expect(429);
    wait_until("the page shows the use", || {
        page.click("account-refresh");
        page.wait_until_loaded();
        page.text("account-facts").contains("100 % spent")
    });
    assert!(page.text("account-facts").contains("5 (own)"), "{}", page.text("account-facts"));
    let today = jiff::Timestamp::now().strftime("%-d %b").to_string();
    let month = jiff::Timestamp::now().strftime("%B %Y").to_string();
    wait_until("the chart shows the calls", || {
        page.click("account-refresh");
        page.wait_until_loaded();
        let summary = page.browser.text(&format!("{} > .quiet", hook("account-usage")));
        summary == format!("5 calls in {month}, most of them on {today} (5).")
    });
    assert_eq!(page.count(&format!("{} svg rect", hook("account-usage"))), today_as_number());
    save_limit(&page, "pro", "plan");
    assert!(page.text("account-facts").contains("50,000 (of the plan)"));
    gateway.get_domain("first.test", &key).expect(200);
    let accounts = gateway.cli(&["accounts", "list", "--json"]).expect(0).json();
    let acme = accounts.as_array().unwrap().iter().find(|it| it["name"] == "acme").unwrap();
    assert_eq!((&acme["plan"], &acme["limit"]), (&"pro".into(), &50_000.into()));
}

fn today_as_number() -> u64 {
    jiff::Timestamp::now().strftime("%-d").to_string().parse().unwrap()
}

#[test]
fn an_account_of_any_name_is_created_on_the_page() {
    let (gateway, page) = start_signed_in(setup());
    page.go_to("accounts?search=new/%20customer", "Accounts");
    // A space is part of no name.
    assert_eq!(page.count("main a[href*='new']"), 0);
    page.fill("account-search", "new/customer?#%");
    page.click_on("main a[href='#/accounts/new%2Fcustomer%3F%23%25']");
    page.wait_for_text("account-missing", "No account has this name.");
    save_limit(&page, "pro", "unlimited");
    page.wait_for_absence(&hook("account-missing"));
    let accounts = gateway.cli(&["accounts", "list", "--json"]).expect(0).json();
    assert_eq!(accounts[0]["name"], "new/customer?#%");
    assert_eq!(accounts[0]["limit"], "unlimited");
}

#[test]
fn an_account_is_created_without_a_search() {
    let (gateway, page) = start_signed_in(setup());
    page.go_to("accounts", "Accounts");
    page.click("create-account-open");
    page.fill("create-account-name", "two words");
    page.click("confirm");
    page.wait_for_text("error", "without spaces");
    page.fill("create-account-name", "acme");
    page.click("confirm");
    page.wait_for_text("account-missing", "Set its plan to create it.");
    save_limit(&page, "pro", "plan");
    let accounts = gateway.cli(&["accounts", "list", "--json"]).expect(0).json();
    assert_eq!((&accounts[0]["name"], &accounts[0]["plan"]), (&"acme".into(), &"pro".into()));
}

/// The file of this name, once the browser has written it.
fn read_download(folder: &Path, name: &str) -> String {
    wait_for("the file is saved", || std::fs::read_to_string(folder.join(name)).ok())
}

#[test]
fn the_usage_of_a_month_is_saved_as_the_same_csv_that_the_command_prints() {
    let (gateway, page) = start_signed_in(setup());
    for (account, calls) in [("acme", 3), ("=1+1", 2)] {
        let key = gateway.create_active_key(account, &[]);
        spend_calls(&gateway, &key, calls);
    }
    let month = jiff::Timestamp::now().strftime("%Y-%m").to_string();
    let print = || gateway.cli(&["usage", "--month", &month, "--csv"]).expect(0).stdout;
    wait_until("the calls are counted", || print().lines().count() == 3);
    page.go_to("usage", "Usage");
    page.wait_for_text("list-range", "Rows 1 to 2 of 2");
    let folder = tempfile::tempdir().unwrap();
    page.browser.save_downloads_in(folder.path());
    page.click("usage-csv");
    page.wait_for_text("usage-saved", "Saved 2 rows");
    let saved = read_download(folder.path(), &format!("riskgate-usage-{month}.csv"));
    assert_eq!(saved, print());
    // A spreadsheet would run a cell that begins with an equals sign.
    assert!(saved.contains(",'=1+1,") && !saved.contains(",=1+1"), "{saved}");
    page.fill("usage-account", "acme");
    page.wait_for_text("list-range", "Rows 1 to 1 of 1");
    assert!(page.text("usage-row").contains("acme"), "{}", page.text("usage-row"));
}
