//! A folder of lists makes a table that answers, compiled too; or every fault says where.
//!
//! A line `%% NAME` begins the file of that name.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use riskgate::model::domain::Domain;
use riskgate::table::{Source, Table};
use riskgate_fuzz::{Scratch, first_line};

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("lists"));
const NOW: i64 = 1_800_000_000;

fuzz_target!(|data: &[u8]| {
    SCRATCH.clear();
    let folder = SCRATCH.path().join("lists");
    std::fs::create_dir(&folder).expect("a folder of our own");
    for part in split(data).take(20) {
        let (name, content) = first_line(part);
        let name = std::str::from_utf8(name).unwrap_or_default().trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if (1..=40).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
            std::fs::write(folder.join(name), content).expect("a file of our own");
        }
    }
    let place = folder.display().to_string();
    match Table::load(&Source::Path(folder)) {
        Err(error) => {
            assert!(error.count() >= error.faults().len() && error.count() > 0);
            for fault in error.faults() {
                let text = fault.to_string();
                assert!(text.starts_with(&place) || text.starts_with("the table"), "{text}");
            }
        }
        Ok(table) => answers_the_same_compiled(table),
    }
});

fn split(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data.strip_prefix(b"%%");
    std::iter::from_fn(move || {
        let all = rest?;
        match all.windows(3).position(|window| window == b"\n%%") {
            Some(end) => {
                rest = Some(&all[end + 3..]);
                Some(&all[..=end])
            }
            None => rest.take(),
        }
    })
}

fn answers_the_same_compiled(table: Table) {
    let path = SCRATCH.path().join("compiled");
    table.write_to(&path).expect("a table that can be written");
    let compiled = Table::load(&Source::Path(path)).expect("a table that can be read");
    assert_eq!(compiled.version(), table.version());
    assert_eq!(compiled.rows(), table.rows());
    assert!(table.rows() > 0, "an empty table");
    assert_eq!(table.names().count(), table.rows());
    assert!(table.accept(&table).is_ok(), "it may not follow itself");
    for row in table.names() {
        let other = compiled.row_of(row.name).expect("the same rows");
        assert!(row.says_the_same(&other), "{}", row.name);
        // A row of one label covers names below it, and is no domain itself.
        let Ok(domain) = Domain::parse(row.name) else { continue };
        assert_eq!(domain.as_str(), row.name, "a row is in its canonical form");
        for name in [row.name.to_owned(), format!("a.{}", row.name)] {
            let Ok(domain) = Domain::parse(&name) else { continue };
            let (one, two) = (table.lookup(&domain, NOW), compiled.lookup(&domain, NOW));
            assert_eq!((one.verdict, one.matched), (two.verdict, two.matched), "{name}");
            assert_eq!(one.tail(), two.tail(), "{name}");
            assert!(one.matched.is_none_or(|start| name.is_char_boundary(start)));
            let body = format!(r#"{{"domain":"{name}{}"#, one.tail());
            body.parse::<serde_json::Value>().expect("JSON");
        }
    }
    for name in table.seed() {
        let row = table.row_of(name).expect("a row for a name of the seed");
        assert!(row.own.verdict.reason.is_flagged(), "{name} leads the top list");
    }
}
