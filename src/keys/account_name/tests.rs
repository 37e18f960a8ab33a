use super::*;
use crate::store::KeyRow;

fn declared(id: &str, account: &str) -> DeclaredKey {
    let key = KeyRow {
        id: id.to_owned(),
        account: account.to_owned(),
        label: None,
        digest: [0; 32],
        origins: Vec::new(),
        require_origin: false,
        created_at: 0,
        expires_at: None,
        revoked_at: None,
    };
    DeclaredKey { key, plan: None }
}

#[test]
fn accounts_of_a_key_file_that_no_command_would_make_are_told_without_addresses() {
    let keys = [
        declared("one", "acme"),
        declared("two", "jane@a.com"),
        declared("AKIAIOSFODNN7EXAMPLE", "}x"),
        declared("three", "john@a.com"),
    ];
    assert_eq!(
        warn_of_unfit_accounts(&keys),
        [
            "keys.file: expected names of accounts not to begin with }, but found one in a key; \
             on a Redis Cluster, riskgate can't count its calls",
            "keys.file: expected names of accounts without @, but found one in key two, and in 1 \
             more; logs and the audit show names",
        ]
    );
    assert!(warn_of_unfit_accounts(&keys[..1]).is_empty());
}
