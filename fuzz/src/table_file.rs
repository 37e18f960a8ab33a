//! riskgate either refuses the bytes of a table file with an error, or loads a table that answers
//! every look-up without a panic.
//!
//! The target loads each input twice: unchanged, and with a corrected header and checksum. The
//! second load reaches the code that runs after the check of the checksum.

use std::path::Path;
use std::sync::LazyLock;

use riskgate::model::domain::Domain;
use riskgate::model::month::format_rfc3339;
use riskgate::table::{Table, TableLocation};
use xxhash_rust::xxh3::xxh3_64;

use super::ScratchFolder;

static SCRATCH_FOLDER: LazyLock<ScratchFolder> = LazyLock::new(|| ScratchFolder::new("table-file"));
/// The version of the table format that this build writes, as in a table file.
static FORMAT_VERSION: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let path = SCRATCH_FOLDER.path().join("format");
    Table::load(&TableLocation::Bundled).unwrap().write_to(&path).unwrap();
    std::fs::read(path).unwrap()[8..16].try_into().unwrap()
});
/// The length of the header, and the offset at which the checksummed bytes begin.
const HEADER_BYTES: usize = 256;
const CHECKSUMMED_BYTES_START: usize = 32;

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    assert_refused_or_usable(data);
    if data.len() >= HEADER_BYTES {
        assert_refused_or_usable(&with_valid_header(data));
    }
}

fn with_valid_header(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let length = bytes.len() as u64;
    bytes[..8].copy_from_slice(b"riskgate");
    bytes[8..16].copy_from_slice(&*FORMAT_VERSION);
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    let sum = xxh3_64(&bytes[CHECKSUMMED_BYTES_START..]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn assert_refused_or_usable(bytes: &[u8]) {
    let path = SCRATCH_FOLDER.write_file("compiled", bytes);
    match Table::load(&TableLocation::Path(path.clone())) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(&path.display().to_string()), "{text}");
        }
        Ok(table) => {
            look_up_all_rows(&table);
            let version = table.version().to_owned();
            let stamped = table.with_built_at(1).expect("a table that can be stamped");
            assert_eq!((stamped.version(), stamped.built_at()), (version.as_str(), 1));
            assert_survives_write_and_load(&stamped, &SCRATCH_FOLDER.path().join("stamped"));
        }
    }
}

fn look_up_all_rows(table: &Table) {
    let asked = ["first.test", "a.b.first.test", "gmail.com", "co.uk", "x.nosuchtld", "a.pp.ua"];
    let rows: Vec<String> = table.iter_rows().map(|row| row.name.to_owned()).collect();
    let children = rows.iter().map(|name| format!("a.{name}"));
    let all = asked.iter().map(|&name| name.to_owned()).chain(rows.iter().cloned()).chain(children);
    for domain in all.filter_map(|name| Domain::parse(&name).ok()) {
        let _ = table.lookup(&domain, i64::MIN);
        let found = table.lookup(&domain, i64::MAX);
        assert!(
            found.matched_name_offset.is_none_or(|start| domain.as_str().is_char_boundary(start))
        );
        assert!(found.explain().lists.len() <= table.lists().len());
        let body = format!(r#"{{"domain":"{domain}{}"#, found.json_tail());
        body.parse::<serde_json::Value>().expect("JSON");
    }
    for name in &rows {
        // Two slots may hold the same name; the look-up finds one of them.
        let _ = table.find_row(name);
    }
    // A damaged table may report wrong facts about itself, but must not panic.
    let _ = (table.check_succession(table), table.row_counts_by_rule(), table.row_count());
    let _ = (table.warnings(i64::MAX), table.warnings(i64::MIN), format_rfc3339(table.built_at()));
}

fn assert_survives_write_and_load(table: &Table, path: &Path) {
    table.write_to(path).expect("a table that can be written");
    let again =
        Table::load(&TableLocation::Path(path.to_owned())).expect("a table that can be read");
    assert_eq!(again.version(), table.version());
    assert_eq!(again.iter_rows().count(), table.iter_rows().count());
}
