use super::*;

#[test]
fn a_signature_is_that_of_the_standards_own_libraries() {
    // The vector in the tests of the libraries of standard-webhooks.
    let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let signature = sign_message(
        &secret,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
    );
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn only_texts_of_the_standard_are_secrets() {
    let secret = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
    for bytes in [24, 32, 64] {
        assert!(WebhookSecret::parse(&secret(bytes)).is_some(), "{bytes}");
    }
    let without_prefix = secret(32).replace("whsec_", "");
    for text in ["", "whsec_", "whsec_!", &without_prefix, &secret(23), &secret(65)] {
        assert!(WebhookSecret::parse(text).is_none(), "{text}");
    }
    let debug = format!("{:?}", WebhookSecret::parse(&secret(24)));
    assert_eq!(debug, "Some(…)");
}
