use super::*;

#[test]
fn a_limit_below_zero_damages_its_account_alone() {
    let connection = Connection::open_in_memory().unwrap();
    let rows = "CREATE TABLE account (name, plan, calls, unlimited, version);
                    INSERT INTO account VALUES ('a', NULL, -1, 0, 1), ('b', NULL, 0, 0, 1)";
    connection.execute_batch(rows).unwrap();
    let mut damaged = DamagedRows::default();
    let accounts = read_changed_accounts(&connection, 0, &mut damaged).unwrap();
    let limits: Vec<_> = accounts.iter().map(|row| (&*row.name, row.own_limit)).collect();
    assert_eq!(limits, [("b", Some(MonthlyLimit::Calls(0)))]);
    assert_eq!(damaged.account_names.into_iter().collect::<Vec<_>>(), ["a"]);
}
