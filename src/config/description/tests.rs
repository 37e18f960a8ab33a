use super::*;
use crate::config::parse_duration;

#[test]
fn a_duration_is_shown_as_the_config_may_have_it() {
    for (text, shown) in
        [("0", "0"), ("500ms", "500ms"), ("2.5s", "2500ms"), ("60s", "1m"), ("7d", "7d")]
    {
        let duration = parse_duration(text).unwrap();
        assert_eq!(toml_duration(duration), format!("\"{shown}\""));
        assert_eq!(parse_duration(shown), Some(duration));
    }
}
