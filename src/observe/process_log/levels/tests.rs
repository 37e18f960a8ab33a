use super::*;

#[test]
fn the_longest_name_decides() {
    let levels = LogLevels::parse("warn, riskgate::dns=debug,h2=off,riskgate::dns::a=error");
    let levels = levels.unwrap();
    for (module, expected) in [
        ("riskgate", LevelFilter::Warn),
        ("riskgate::gate", LevelFilter::Warn),
        ("riskgate::dns", LevelFilter::Debug),
        ("riskgate::dns::b", LevelFilter::Debug),
        ("riskgate::dns::a", LevelFilter::Error),
        ("riskgate::dnsx", LevelFilter::Warn),
        ("h2::client", LevelFilter::Off),
        ("hyper", LevelFilter::Warn),
    ] {
        assert_eq!(levels.level_of(module), expected, "{module}");
    }
    assert_eq!(levels.most_detailed(), LevelFilter::Debug);
    assert_eq!(LogLevels::parse("h2=off").unwrap().level_of("riskgate"), LevelFilter::Info);
}

#[test]
fn other_texts_are_no_levels() {
    for text in ["", "loud", "info,warn", "=info", "a b=info", "h2=", "info,"] {
        assert_eq!(LogLevels::parse(text), None, "{text}");
    }
}
