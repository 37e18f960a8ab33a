//! The bytes of a compiled table, sound and damaged.

use std::fs;

use super::support::{BUNDLED, NOW, check, table};
use crate::model::domain::Domain;
use crate::table::disk::Bytes;
use crate::table::layout::encode;
use crate::table::layout::sections::seal;
use crate::table::{Source, Table};

#[test]
fn the_same_sources_give_the_same_bytes() {
    let files = [("a.txt", "bad.com ab\n"), ("free.txt", "mail.com\n")];
    let (one, two) = (table(&files), table(&files));
    assert_eq!(one.version(), two.version());
    assert_eq!(one.bytes.of(), two.bytes.of());
    assert_eq!(one.version().len(), 12);
    let other = table(&[("a.txt", "bad.com a\n"), ("free.txt", "mail.com\n")]);
    assert_ne!(one.version(), other.version());
}

#[test]
fn a_file_gives_the_same_answers_as_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.table");
    BUNDLED.write_to(&path).unwrap();
    let read = Table::load(&Source::Path(path.clone())).unwrap();
    assert_eq!(read.bytes.of(), BUNDLED.bytes.of());
    assert_eq!(read.version(), BUNDLED.version());
    assert_eq!(read.rows_by_class(), BUNDLED.rows_by_class());
    for row in BUNDLED.names() {
        assert!(read.row_of(row.name).unwrap().says_the_same(&row), "{}", row.name);
    }
    // A second write replaces the first, and nothing stays beside it.
    let small = table(&[("a.txt", "bad.com\n")]).stamp(NOW).unwrap();
    small.write_to(&path).unwrap();
    let read = Table::load(&Source::Path(path)).unwrap();
    assert_eq!((read.rows(), read.built_at()), (1, NOW));
    assert_eq!(read.version(), small.version());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The fault of a compiled table with these bytes.
fn fault_of(bytes: &[u8]) -> Option<String> {
    let mut copy = Bytes::zeroed(bytes.len());
    copy.of_mut().copy_from_slice(bytes);
    Table::open(copy, "x").err().map(|error| error.to_string())
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() {
    let table = table(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\n")]);
    let sound = table.bytes.of();
    assert_eq!(fault_of(sound), None);
    for length in 0..sound.len() {
        assert!(fault_of(&sound[..length]).is_some(), "{length}");
    }
    assert!(fault_of(&[sound, &[0]].concat()).is_some());
    for bit in 0..sound.len() * 8 {
        let mut flipped = sound.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(fault_of(&flipped).is_some(), "{bit}");
    }
    let mut newer = sound.to_vec();
    newer[8] = 4;
    assert_eq!(
        fault_of(&newer).unwrap(),
        "x: expected a compiled table of format 3, but found format 4, made by a newer riskgate"
    );
    assert_eq!(
        fault_of(b"no table").unwrap(),
        "x: expected a compiled table, but found other bytes"
    );
    let cut = fault_of(&sound[..sound.len() - 1]).unwrap();
    assert!(cut.ends_with(": a truncated file"), "{cut}");
}

#[test]
fn bytes_with_a_forged_checksum_never_panic() {
    let table = table(&[("a.txt", "bad.com\nlow.good.org\n"), ("protected.txt", "gov\nac.uk\n")]);
    let names = ["bad.com", "low.good.org", "x.low.good.org", "a.gov", "b.ac.uk", "none.com"];
    let domains = names.map(|name| Domain::parse(name).unwrap());
    let sound = table.bytes.of();
    for at in 32..sound.len() {
        for value in [0, 1, 0x7f, 0xff, sound[at].wrapping_add(1)] {
            let mut forged = Bytes::zeroed(sound.len());
            forged.of_mut().copy_from_slice(sound);
            forged.of_mut()[at] = value;
            seal(forged.of_mut());
            let Ok(table) = Table::open(forged, "x") else { continue };
            for domain in &domains {
                let found = table.lookup(domain, NOW);
                assert!(found.tail().ends_with('}'));
                found.explain();
            }
            table.names().for_each(|row| _ = row.own.explain());
        }
    }
}

#[test]
fn other_public_suffixes_only_cost_time() {
    let mut table = table(&[("a.txt", "low.good.org\n"), ("free.txt", "mail.com\n")]);
    table.parts.meta.suffixes = "another list".into();
    let bytes = encode::with_meta(&table.bytes, &table.parts).unwrap();
    let table = Table::open(bytes, "x").unwrap();
    assert!(table.full_walk);
    check(&table, &[("x.low.good.org", "disposable 100"), ("x.mail.com", "safe 0 +free")]);
    assert!(table.warnings(NOW).iter().any(|warning| warning.contains("public suffixes")));
}
