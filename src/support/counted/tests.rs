use super::*;

#[test]
fn one_thing_is_in_the_singular() {
    let all = [0, 1, 2].map(|count| CountedNoun(count, "key").to_string());
    assert_eq!(all, ["0 keys", "1 key", "2 keys"]);
}
