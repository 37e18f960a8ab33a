use super::*;

#[test]
fn rate_limit_fields_have_only_integers_of_structured_fields() {
    let fields_of = |limit, remaining| {
        let allowance = Some(Allowance { limit, remaining, reset_in_seconds: 9 });
        let mut fields = Vec::new();
        CommonHeaders { allowance, ..CommonHeaders::default() }.for_each_field(
            &mut |field, value| {
                if field.h1_name().to_ascii_lowercase().starts_with("ratelimit") {
                    fields.push(String::from_utf8_lossy(value).into_owned());
                }
            },
        );
        fields
    };
    let largest = "999999999999999";
    let policy = format!("\"monthly\";q={largest}");
    let of_largest = [policy.clone(), format!("\"monthly\";r={largest};t=9")];
    assert_eq!(fields_of(i64::MAX.cast_unsigned(), u64::MAX), of_largest);
    assert_eq!(fields_of(999_999_999_999_999, 999_999_999_999_999), of_largest);
    assert_eq!(fields_of(1_000_000_000_000_000, 5), [policy, "\"monthly\";r=5;t=9".to_owned()]);
}
