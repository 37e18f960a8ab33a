//! A key file yields keys that form a key ring, or faults that name their lines. No fault shows a
//! key.

use std::collections::HashSet;
use std::sync::LazyLock;

use riskgate::keys::{MIN_KEY_LEN, is_valid_id_or_account, read_key_file};
use riskgate::model::origin::OriginPattern;

use super::ScratchFolder;

static SCRATCH_FOLDER: LazyLock<ScratchFolder> = LazyLock::new(|| ScratchFolder::new("key-file"));
/// The key in the environment variable, which the seeds also put in wrong places.
const SECRET: &str = "rg_s3cr3tQWERTYUIOPasdfghjklZXCVBNM";

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let path = SCRATCH_FOLDER.write_file("keys.toml", data);
    let variable = |name: &str| match name {
        "WEB_KEY" => Some(SECRET.to_owned()),
        "BAD_KEY" => Some(format!("{SECRET} {SECRET}")),
        _ => None,
    };
    match read_key_file(&path, &variable) {
        Ok(keys) => {
            let ids: HashSet<&str> = keys.iter().map(|declared| declared.key.id.as_str()).collect();
            assert_eq!(ids.len(), keys.len(), "an id twice");
            let digests: HashSet<[u8; 32]> = keys.iter().map(|d| d.key.digest).collect();
            assert_eq!(digests.len(), keys.len(), "a key twice");
            for declared in &keys {
                assert!(
                    is_valid_id_or_account(&declared.key.id)
                        && is_valid_id_or_account(&declared.key.account)
                );
                for origin in &declared.key.origins {
                    assert!(OriginPattern::parse(origin).is_ok());
                }
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            let lines = 1 + data.iter().filter(|byte| **byte == b'\n').count();
            for fault in &faults {
                let rest = fault.at.strip_prefix(&path.display().to_string()).expect("a place");
                if let Some(place) = rest.strip_prefix(':') {
                    let (line, column) = place.split_once(':').expect("a line and a column");
                    let line: usize = line.parse().expect("a line");
                    let column: usize = column.parse().expect("a column");
                    assert!((1..=lines).contains(&line) && column > 0, "{fault}");
                }
                assert!(!fault.message.is_empty());
                let said = fault.to_text();
                // A fragment shorter than the shortest key reveals no key.
                let mut parts =
                    (0..=SECRET.len() - MIN_KEY_LEN).map(|at| &SECRET[at..][..MIN_KEY_LEN]);
                assert!(!parts.any(|part| said.contains(part)), "{said}");
            }
        }
    }
}
