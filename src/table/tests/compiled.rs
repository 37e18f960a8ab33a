//! Compiled tables, valid and damaged.

use std::fs;

use super::support::{BUNDLED_TABLE, NOW, assert_answers, load_lists};
use crate::model::domain::Domain;
use crate::table::aligned_bytes::AlignedBytes;
use crate::table::layout::encode;
use crate::table::layout::sections::write_checksum;
use crate::table::{Table, TableLocation};

#[test]
fn the_same_sources_give_the_same_bytes() {
    let files = [("a.txt", "bad.com ab\n"), ("free.txt", "mail.com\n")];
    let (one, two) = (load_lists(&files), load_lists(&files));
    assert_eq!(one.version(), two.version());
    assert_eq!(one.bytes.as_slice(), two.bytes.as_slice());
    assert_eq!(one.version().len(), 12);
    let other = load_lists(&[("a.txt", "bad.com a\n"), ("free.txt", "mail.com\n")]);
    assert_ne!(one.version(), other.version());
}

#[test]
fn a_written_table_reads_back_the_same_and_replaces_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.table");
    BUNDLED_TABLE.write_to(&path).unwrap();
    let read = Table::load(&TableLocation::Path(path.clone())).unwrap();
    assert_eq!(read.bytes.as_slice(), BUNDLED_TABLE.bytes.as_slice());
    assert_eq!(read.version(), BUNDLED_TABLE.version());
    assert_eq!(read.row_counts_by_rule(), BUNDLED_TABLE.row_counts_by_rule());
    for row in BUNDLED_TABLE.iter_rows() {
        assert!(read.find_row(row.name).unwrap().has_same_answers(&row), "{}", row.name);
    }
    // A second write replaces the first and leaves no temporary file.
    let small = load_lists(&[("a.txt", "bad.com\n")]).with_built_at(NOW).unwrap();
    small.write_to(&path).unwrap();
    let read = Table::load(&TableLocation::Path(path)).unwrap();
    assert_eq!((read.row_count(), read.built_at()), (1, NOW));
    assert_eq!(read.version(), small.version());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The fault that loading these bytes gives, if any.
/// The length byte before a name of 128 characters or more is no ASCII character.
#[test]
fn a_name_of_any_allowed_length_is_kept() {
    for length in [127, 128, 200, 253] {
        let label = "a".repeat(60);
        let mut name = format!("{label}.{label}.{label}.{label}.com");
        name.drain(..name.len().saturating_sub(length));
        let name = name.trim_start_matches('.').replace("..", ".");
        let table = load_lists(&[("a.txt", &format!("{name}\n"))]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.table");
        table.write_to(&path).unwrap();
        let read = Table::load(&TableLocation::Path(path)).unwrap();
        assert!(read.find_row(&name).is_some(), "{} characters", name.len());
    }
}

fn fault_of_loading(bytes: &[u8]) -> Option<String> {
    let mut copy = AlignedBytes::zeroed(bytes.len());
    copy.as_mut_slice().copy_from_slice(bytes);
    Table::from_bytes(copy, "x").err().map(|error| error.to_string())
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() {
    let table = load_lists(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\n")]);
    let sound = table.bytes.as_slice();
    assert_eq!(fault_of_loading(sound), None);
    for length in 0..sound.len() {
        assert!(fault_of_loading(&sound[..length]).is_some(), "{length}");
    }
    assert!(fault_of_loading(&[sound, &[0]].concat()).is_some());
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(fault_of_loading(&flipped).is_some(), "{bit}");
    }
    let mut newer = sound.to_vec();
    newer[8] = 7;
    assert_eq!(
        fault_of_loading(&newer).unwrap(),
        "x: expected a compiled table of format 6, but found format 7, made by a newer riskgate"
    );
    assert_eq!(
        fault_of_loading(b"no table").unwrap(),
        "x: expected a compiled table, but found other bytes"
    );
    let cut = fault_of_loading(&sound[..sound.len() - 1]).unwrap();
    assert!(cut.ends_with(": a truncated file"), "{cut}");
}

#[test]
fn changed_bytes_with_a_matching_checksum_never_panic() {
    let table =
        load_lists(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\nac.uk\n")]);
    let names = ["bad.com", "low.good.org", "x.low.good.org", "a.gov", "b.ac.uk", "none.com"];
    let domains = names.map(|name| Domain::parse(name).unwrap());
    let sound = table.bytes.as_slice();
    for at in 32..sound.len() {
        for value in [0, 1, 0x7f, 0xff, sound[at].wrapping_add(1)] {
            let mut forged = AlignedBytes::zeroed(sound.len());
            forged.as_mut_slice().copy_from_slice(sound);
            forged.as_mut_slice()[at] = value;
            write_checksum(forged.as_mut_slice());
            let Ok(table) = Table::from_bytes(forged, "x") else { continue };
            for domain in &domains {
                let found = table.lookup(domain, NOW);
                assert!(found.json_tail().ends_with('}'));
                found.explain();
            }
            table.iter_rows().for_each(|row| _ = row.own_answer.explain());
        }
    }
}

#[test]
fn a_table_compiled_with_another_suffix_list_gives_the_same_answers() {
    let mut table = load_lists(&[("a.txt", "low.good.org\n"), ("free.txt", "mail.com\n")]);
    table.decoded_table.meta.suffix_list_version = "another list".into();
    let bytes = encode::replace_meta(&table.bytes, &table.decoded_table).unwrap();
    let table = Table::from_bytes(bytes, "x").unwrap();
    assert!(table.has_other_suffix_list);
    assert_answers(&table, &[("x.low.good.org", "disposable 100"), ("x.mail.com", "safe 0 +free")]);
    assert!(table.warnings(NOW).iter().any(|warning| warning.contains("public suffixes")));
}
