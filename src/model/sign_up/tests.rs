use super::*;

#[test]
fn a_deletion_covers_what_was_written_before_it() {
    let inbox = |number| Pseudonym([number; 16]);
    let sign_up = |at, number| {
        let (inbox, address) = (inbox(number), Pseudonym([9; 16]));
        SignUp { at, inbox, address, domain: None, client: None }
    };
    let deletion = InboxDeletion { at: 7, inbox: inbox(1) };
    let entries = [
        SignUpEntry::SignUp(sign_up(9, 1)),
        SignUpEntry::SignUp(sign_up(5, 2)),
        SignUpEntry::Deletion(deletion),
        SignUpEntry::SignUp(sign_up(6, 1)),
    ];
    assert_eq!(apply_deletions(&entries), (vec![sign_up(5, 2), sign_up(6, 1)], vec![deletion]));
}

#[test]
fn a_pseudonym_is_written_as_32_digits() {
    let mut bytes = [0; 16];
    bytes[15] = 0xaf;
    assert_eq!(Pseudonym(bytes).to_string(), "000000000000000000000000000000af");
}
