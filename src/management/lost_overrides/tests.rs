use super::*;
use crate::store::{ChangeAuthor, ChangeSurface};

const CONFIRMED_AT: i64 = 1_000;
const TIMES: ComparisonTimes = ComparisonTimes { confirmed_at: CONFIRMED_AT, now: 1_800_000_000 };

fn stored(text: &str, created_at: i64) -> StoredOverride {
    let row = OverrideListRow::parse(text).unwrap();
    let author =
        ChangeAuthor { actor: "x".to_owned(), via: ChangeSurface::File, from: String::new() };
    let (domain, is_exact) = (row.domain, row.is_exact);
    StoredOverride { domain, is_exact, text: text.to_owned(), author, created_at }
}

fn losses(known: &[&str], store: &[StoredOverride]) -> LostOverrides {
    let mut lost = LostOverrides::default();
    let known = render_override_list(known.iter().copied());
    lost.add_differences(Some(&known), store, TIMES);
    lost
}

#[test]
fn each_lost_override_is_named_with_its_command_until_its_name_changes() {
    let kept = "kept.com,subtree,disposable,100,,,,,";
    let before = stored("changed.com,subtree,disposable,100,,,,,", 500);
    let cleared = stored("cleared.com,subtree,disposable,100,,,,,", 500);
    let new = stored("new.com,subtree,disposable,100,,,,,", CONFIRMED_AT + 1);
    let mut store = vec![before, cleared, stored(kept, 500), new];
    let mut lost = losses(
        &[
            kept,
            "changed.com,subtree,safe,0,,,,,",
            "gone.com,exact,disposable,100,,,,why,2099-12-31",
            "gone.com,subtree,safe,0,,,,,",
            "ended.com,subtree,disposable,100,,,,,2020-01-01",
            "kind.com,subtree,,,true,,,,",
        ],
        &store,
    );
    lost.forget_names_set_again(&store);
    assert_eq!(
        lost.describe_losses(),
        [
            "override of changed.com: the store lost it, and the one before it is in force again; \
             run `riskgate table allow changed.com`, or set the right one",
            "override of cleared.com: the store lost that it was cleared or replaced, and it is in \
             force again; run `riskgate table clear cleared.com`, or set the right one",
            "override of gone.com: the store lost it, and it is no longer in force; run `riskgate \
             table allow gone.com` and run `riskgate table deny gone.com --exact --until \
             2099-12-31`, or set the right one",
            "override of kind.com: the store lost it, and it is no longer in force; write its row \
             into the file of table.overrides, or set the right one",
        ]
    );
    store[0].created_at = 2_000;
    store.remove(1);
    store.push(stored("gone.com,subtree,safe,0,,,,,", 2_000));
    lost.forget_names_set_again(&store);
    let lines = lost.describe_losses();
    assert!(lines.len() == 1 && lines[0].starts_with("override of kind.com: "), "{lines:?}");
}

#[test]
fn a_name_that_was_set_after_the_loss_is_not_lost() {
    let again = stored("a.com,subtree,safe,0,,,,,", CONFIRMED_AT + 1);
    let lost = losses(&["a.com,subtree,disposable,100,,,,,"], &[again]);
    assert!(lost.describe_losses().is_empty());
}

#[test]
fn only_the_first_lost_overrides_are_listed() {
    let rows: Vec<String> =
        (0..9).map(|n| format!("n{n}.com,subtree,disposable,100,,,,,")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let lines = losses(&rows, &[]).describe_losses();
    assert_eq!((lines.len(), lines[5].as_str()), (6, "and 4 more"));
}
