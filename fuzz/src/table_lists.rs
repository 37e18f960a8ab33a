//! If riskgate can build a table from a folder of lists, the compiled table gives the same answers.
//! If it can't, each fault names its file.
//!
//! A line `%% NAME` begins the file of that name.

use std::sync::LazyLock;

use riskgate::model::domain::Domain;
use riskgate::table::{Table, TableLocation};

use super::{ScratchFolder, split_first_line};

static SCRATCH_FOLDER: LazyLock<ScratchFolder> = LazyLock::new(|| ScratchFolder::new("lists"));
const NOW_UNIX_SECONDS: i64 = 1_800_000_000;

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    SCRATCH_FOLDER.clear();
    let folder = SCRATCH_FOLDER.path().join("lists");
    std::fs::create_dir(&folder).expect("a new folder in the scratch folder");
    for part in split_files(data).take(20) {
        let (name, content) = split_first_line(part);
        let name = std::str::from_utf8(name).unwrap_or_default().trim();
        let is_safe_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if (1..=40).contains(&name.len())
            && name.chars().all(is_safe_char)
            && !name.starts_with('.')
        {
            std::fs::write(folder.join(name), content).expect("a writable scratch folder");
        }
    }
    let place = folder.display().to_string();
    match Table::load(&TableLocation::Path(folder)) {
        Err(error) => {
            assert!(error.fault_count() >= error.faults().len() && error.fault_count() > 0);
            for fault in error.faults() {
                let text = fault.to_string();
                assert!(text.starts_with(&place) || text.starts_with("the table"), "{text}");
            }
        }
        Ok(table) => assert_compiled_answers_the_same(table),
    }
}

fn split_files(data: &[u8]) -> impl Iterator<Item = &[u8]> {
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

fn assert_compiled_answers_the_same(table: Table) {
    let path = SCRATCH_FOLDER.path().join("compiled");
    table.write_to(&path).expect("a table that can be written");
    let compiled = Table::load(&TableLocation::Path(path)).expect("a table that can be read");
    assert_eq!(compiled.version(), table.version());
    assert_eq!(compiled.row_count(), table.row_count());
    assert!(table.row_count() > 0, "an empty table");
    assert_eq!(table.iter_rows().count(), table.row_count());
    assert!(table.check_succession(&table).is_ok(), "it may not follow itself");
    for row in table.iter_rows() {
        let other = compiled.find_row(row.name).expect("the same rows");
        assert!(row.has_same_answers(&other), "{}", row.name);
        // A row of one label matches names below it, but is no domain itself.
        let Ok(domain) = Domain::parse(row.name) else { continue };
        assert_eq!(domain.as_str(), row.name, "a row is in its canonical form");
        for name in [row.name.to_owned(), format!("a.{}", row.name)] {
            let Ok(domain) = Domain::parse(&name) else { continue };
            let (from_lists, from_file) = (
                table.lookup(&domain, NOW_UNIX_SECONDS),
                compiled.lookup(&domain, NOW_UNIX_SECONDS),
            );
            assert_eq!(
                (from_lists.verdict, from_lists.matched_name_offset),
                (from_file.verdict, from_file.matched_name_offset),
                "{name}"
            );
            assert_eq!(from_lists.json_tail(), from_file.json_tail(), "{name}");
            assert!(
                from_lists.matched_name_offset.is_none_or(|start| name.is_char_boundary(start))
            );
            let body = format!(r#"{{"domain":"{name}{}"#, from_lists.json_tail());
            body.parse::<serde_json::Value>().expect("JSON");
        }
    }
    for name in table.top_list_seed() {
        let row = table.find_row(name).expect("a row for a name of the seed");
        assert!(!row.own_answer.verdict.reason.is_safe(), "{name} leads the top list");
    }
}
