use super::*;
use crate::store::{ChangeAuthor, ChangeSurface};
use crate::table::render_override_list;

const CONFIRMED_AT: i64 = 1_000;
const NOW: i64 = 1_800_000_000;
const TIMES: ComparisonTimes = ComparisonTimes { confirmed_at: CONFIRMED_AT, now: NOW };

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
    let acceptance = |domain: &str| {
        format!(
            "; to accept the loss, set it, and run `riskgate table clear {domain}` once /readyz no \
             longer names it"
        )
    };
    assert_eq!(
        lost.describe_losses(NOW),
        [
            "override of changed.com: the store lost it, and the one before it is in force again; \
             run `riskgate table allow changed.com`, or set the right one"
                .to_owned(),
            "override of cleared.com: the store lost that it was cleared or replaced, and it is in \
             force again; run `riskgate table clear cleared.com`, or set the right one"
                .to_owned(),
            "override of gone.com: the store lost it, and it is no longer in force; run `riskgate \
             table allow gone.com` and run `riskgate table deny gone.com --exact --until \
             2099-12-31`, or set the right one"
                .to_owned()
                + &acceptance("gone.com"),
            "override of kind.com: the store lost it, and it is no longer in force; write its row \
             into the file of table.overrides, or set the right one"
                .to_owned()
                + &acceptance("kind.com"),
        ]
    );
    store[0].created_at = 2_000;
    store.remove(1);
    store.push(stored("gone.com,subtree,safe,0,,,,,", 2_000));
    lost.forget_names_set_again(&store);
    let lines = lost.describe_losses(NOW);
    assert!(lines.len() == 1 && lines[0].starts_with("override of kind.com: "), "{lines:?}");
}

/// The way to accept a loss, which [`LostDomain::describe_loss`] names.
#[test]
fn an_override_that_is_set_and_then_cleared_is_no_longer_lost() {
    let mut lost = losses(&["a.com,subtree,safe,0,,,,,"], &[]);
    assert!(tells_lost_override(&lost.describe_losses(NOW)[0]));
    // A node that sees neither change can't tell a loss that was accepted.
    lost.forget_names_set_again(&[]);
    assert_eq!(lost.describe_losses(NOW).len(), 1);
    lost.forget_names_set_again(&[stored("a.com,subtree,safe,0,,,,,", CONFIRMED_AT + 1)]);
    lost.forget_names_set_again(&[]);
    assert!(lost.describe_losses(NOW).is_empty());
}

#[test]
fn a_name_that_was_set_after_the_loss_is_not_lost() {
    let again = stored("a.com,subtree,safe,0,,,,,", CONFIRMED_AT + 1);
    let lost = losses(&["a.com,subtree,disposable,100,,,,,"], &[again]);
    assert!(lost.describe_losses(NOW).is_empty());
}

#[test]
fn only_the_first_lost_overrides_are_listed() {
    let rows: Vec<String> =
        (0..9).map(|n| format!("n{n}.com,subtree,disposable,100,,,,,")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let lines = losses(&rows, &[]).describe_losses(NOW);
    assert_eq!((lines.len(), lines[5].as_str()), (6, "and 4 more"));
}

/// The steps of the only line, from its command on.
#[track_caller]
fn repair(known: &[&str], store: &[StoredOverride]) -> String {
    let lines = losses(known, store).describe_losses(NOW);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].split_once("; ").unwrap().1.to_owned()
}

#[test]
fn the_commands_lead_to_all_rows_that_were_in_force() {
    let [deny, allow, deny_exact, allow_exact] = [
        "a.com,subtree,disposable,100,,,,,",
        "a.com,subtree,safe,0,,,,,",
        "a.com,exact,disposable,100,,,,,",
        "a.com,exact,safe,0,,,,,",
    ];
    let old = |text: &str| stored(text, 500);
    let [clear, set, set_exact] = ["clear a.com", "allow a.com", "deny a.com --exact"]
        .map(|words| format!("run `riskgate table {words}`"));
    let or = ", or set the right one";
    // The subtree was cleared: setting the exact one alone would leave the subtree in force.
    assert_eq!(repair(&[deny_exact], &[old(deny)]), format!("{clear} and {set_exact}{or}"));
    assert_eq!(repair(&[allow], &[old(deny_exact)]), format!("{set}{or}"));
    assert_eq!(repair(&[deny_exact], &[old(allow_exact)]), format!("{set_exact}{or}"));
    // What a command removes beside the wrong one is set again.
    let kept = [old(deny_exact), old(deny)];
    assert_eq!(repair(&[deny_exact], &kept), format!("{clear} and {set_exact}{or}"));
    assert_eq!(repair(&[deny_exact, allow], &kept), format!("{set} and {set_exact}{or}"));
    let kind = "a.com,exact,,,true,,,,";
    let file = "write its row into the file of table.overrides";
    assert_eq!(repair(&[kind], &[old(deny)]), format!("{clear} and {file}{or}"));
    // A kept one is not in force again.
    let lines = losses(&[deny_exact, allow], &[old(allow)]).describe_losses(NOW);
    assert!(lines[0].contains("it is no longer in force; run"), "{lines:?}");
}

#[test]
fn an_override_that_may_be_set_after_the_loss_is_not_simply_to_be_cleared() {
    let set = |at: i64| stored("after.com,subtree,safe,0,,,,,", at);
    let right = "if it is right, set it again, else run `riskgate table clear after.com`";
    for at in [CONFIRMED_AT - 5, CONFIRMED_AT] {
        assert_eq!(repair(&[], &[set(at)]), right);
    }
    assert!(!repair(&[], &[set(CONFIRMED_AT - 6)]).contains("if it is right"));
    assert!(losses(&[], &[set(CONFIRMED_AT + 1)]).describe_losses(NOW).is_empty());
}

#[test]
fn a_damaged_row_hides_no_other_loss() {
    let mut damaged = stored("damaged.com,subtree,safe,0,,,,,", 500);
    damaged.text = "damaged.com,subtree,nonsense,0,,,,,".to_owned();
    let cleared = stored("cleared.com,subtree,safe,0,,,,,", 500);
    let lines = losses(&[], &[damaged, cleared]).describe_losses(NOW);
    assert!(lines.len() == 1 && lines[0].starts_with("override of cleared.com: "), "{lines:?}");
}

#[test]
fn a_lost_override_that_has_ended_is_named_no_more() {
    let lost = losses(&["a.com,subtree,safe,0,,,,,2099-12-31"], &[]);
    let end = crate::model::month::parse_rfc3339("2100-01-01T00:00:00Z").unwrap();
    assert_eq!((lost.describe_losses(end - 1).len(), lost.describe_losses(end).len()), (1, 0));
}

#[test]
fn a_name_that_the_file_decides_is_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overrides.csv");
    let mut inputs = TableInputs { overrides_path: Some(path.clone()), ..TableInputs::default() };
    let rows = ["kind.a.com", "b.com", "c.com"].map(|name| format!("{name},exact,,,true,,,,"));
    let mut lost = losses(&rows.each_ref().map(String::as_str), &[]);
    let mut names_with_file = |rows: &[&str], inputs: &TableInputs| -> Vec<String> {
        std::fs::write(&path, render_override_list(rows.iter().copied())).unwrap();
        lost.read_override_file(inputs);
        let lines = lost.describe_losses(NOW).into_iter();
        lines.map(|line| line.split([' ', ':']).nth(2).unwrap().to_owned()).collect()
    };
    let rows = ["a.com,subtree,,,true,,,,", "b.com,exact,,,true,,,,"];
    assert_eq!(names_with_file(&rows, &inputs), ["c.com"]);
    assert_eq!(names_with_file(&["x.b.com,exact,,,true,,,,"], &inputs).len(), 3);
    assert_eq!(names_with_file(&["c.com,exact,,,true,,,,2020-01-01"], &inputs).len(), 3);
    // The store takes the rows of the default file over.
    inputs.is_default_overrides_path = true;
    assert_eq!(names_with_file(&rows, &inputs).len(), 3);
}
