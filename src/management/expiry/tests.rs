use super::*;

#[test]
fn a_key_expires_after_some_time() {
    assert!(matches!(Expiry::parse("90d"), Ok(Expiry::After(7_776_000))));
    for none in ["0", "0d", "0s", "", "soon"] {
        assert!(Expiry::parse(none).is_err(), "{none:?}");
    }
    let told = |text: &str| Expiry::parse(text).err().unwrap().to_string();
    assert!(told("30").ends_with("but found \"30\"; write 30d"), "{}", told("30"));
    assert!(told("2 weeks").ends_with("; write 14d"), "{}", told("2 weeks"));
}
