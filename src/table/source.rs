//! Where a table comes from, and how its files are read.
//!
//! Reads whole files and nothing else: it never waits for a FIFO, never reads past a limit, and
//! never follows a name out of its folder. What the files mean is not its business.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use super::carried::Carried;
use super::fault::{Fault, quoted, unreadable};
use crate::support::regular_file::{Unreadable, read_regular};

/// The largest list, in bytes.
pub(super) const MAX_LIST: u64 = 64 << 20;

/// Where a table comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The lists inside the binary.
    Bundled,
    /// A folder with a `manifest.toml`, or a compiled file.
    Path(PathBuf),
}

/// The lists inside the binary: every file that the manifest names, and itself.
const BUNDLED: &[(&str, &str)] = &[
    ("manifest.toml", include_str!("../../data/manifest.toml")),
    ("sources.toml", include_str!("../../data/sources.toml")),
    ("overrides.csv", include_str!("../../data/overrides.csv")),
    ("special-use.txt", include_str!("../../data/special-use.txt")),
    ("tlds.txt", include_str!("../../data/tlds.txt")),
    ("protected.txt", include_str!("../../data/protected.txt")),
    ("organisations.txt", include_str!("../../data/organisations.txt")),
    ("corporate.txt", include_str!("../../data/corporate.txt")),
    ("alias.txt", include_str!("../../data/alias.txt")),
    ("disposable-a.txt", include_str!("../../data/disposable-a.txt")),
    ("disposable-castle.txt", include_str!("../../data/disposable-castle.txt")),
    ("disposable-b.txt", include_str!("../../data/disposable-b.txt")),
    ("disposable-c.txt", include_str!("../../data/disposable-c.txt")),
    ("role.txt", include_str!("../../data/role.txt")),
    ("free.txt", include_str!("../../data/free.txt")),
    ("free-subdomains.txt", include_str!("../../data/free-subdomains.txt")),
    ("known.txt", include_str!("../../data/known.txt")),
    ("cleared.txt", include_str!("../../data/cleared.txt")),
    ("labels.csv", include_str!("../../data/labels.csv")),
    ("mx-labels.csv", include_str!("../../data/mx-labels.csv")),
    ("mx.csv", include_str!("../../data/mx.csv")),
    ("seed.txt", include_str!("../../data/seed.txt")),
];

/// A folder of lists.
pub(super) enum Folder<'s> {
    Bundled,
    Path(&'s Path),
    /// The texts that the compiled table at this path carries.
    Compiled(&'s Path, Carried),
}

impl Folder<'_> {
    /// How faults call a file of this folder.
    pub(super) fn place(&self, file: &str) -> String {
        match self {
            Folder::Bundled => format!("data/{file}"),
            Folder::Path(path) => path.join(file).display().to_string(),
            Folder::Compiled(path, _) => format!("{}: {file}", path.display()),
        }
    }

    /// The text of a file; `None` if there is none of that name.
    pub(super) fn read(&self, file: &str) -> Result<Option<Cow<'static, str>>, Fault> {
        let place = self.place(file);
        if !is_plain(file) {
            return Err(Fault::expected(place, "the name of a file in this folder", quoted(file)));
        }
        let folder = match self {
            Folder::Bundled => {
                let bundled = BUNDLED.iter().find(|(name, _)| *name == file);
                return Ok(bundled.map(|(_, text)| Cow::Borrowed(*text)));
            }
            Folder::Compiled(_, carried) => {
                let found = carried.iter().find(|(name, _)| name == file);
                return Ok(found.map(|(_, text)| text.clone()));
            }
            Folder::Path(path) => path,
        };
        let path = folder.join(file);
        let bytes = match read_regular(&path, MAX_LIST) {
            Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            read => read.map_err(|found| unreadable(&path, found))?,
        };
        String::from_utf8(bytes).map(|text| Some(Cow::Owned(text))).map_err(|error| {
            let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            Fault::expected(format!("{place}:{line}"), "valid UTF-8", "other bytes")
        })
    }
}

/// Whether a name is that of a file in a folder, and leads nowhere else.
pub(super) fn is_plain(file: &str) -> bool {
    Path::new(file).components().count() == 1
        && !file.contains(['/', '\\', '\0'])
        && !matches!(file, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_holds_what_the_manifest_names_and_no_more() {
        let manifest: toml::Table =
            Folder::Bundled.read("manifest.toml").unwrap().unwrap().parse().unwrap();
        let mut named: Vec<&str> = manifest["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|list| list["file"].as_str().unwrap())
            .chain(["manifest.toml", "sources.toml"])
            .collect();
        let mut held: Vec<&str> = BUNDLED.iter().map(|(name, _)| *name).collect();
        named.sort_unstable();
        held.sort_unstable();
        assert_eq!(held, named);
    }

    #[test]
    fn only_regular_files_of_the_folder_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = Folder::Path(folder.path());
        assert!(at.read("none.txt").unwrap().is_none());
        for name in ["../secret", "/etc/passwd", "a/b", "..", "."] {
            let text = at.read(name).unwrap_err().to_string();
            assert!(text.contains("expected the name of a file in this folder"), "{text}");
        }
        std::fs::create_dir(folder.path().join("dir.txt")).unwrap();
        let text = at.read("dir.txt").unwrap_err().to_string();
        assert!(text.ends_with("dir.txt: expected a regular file, but found a folder"), "{text}");
        let status = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
        assert!(status.unwrap().success());
        let text = at.read("pipe").unwrap_err().to_string();
        assert!(text.ends_with("pipe: expected a regular file, but found a FIFO"), "{text}");
        std::fs::write(folder.path().join("bad.txt"), b"a.com\n\xff\n").unwrap();
        let text = at.read("bad.txt").unwrap_err().to_string();
        assert!(text.ends_with("bad.txt:2: expected valid UTF-8, but found other bytes"), "{text}");
        let large = std::fs::File::create(folder.path().join("large.txt")).unwrap();
        large.set_len(MAX_LIST + 1).unwrap();
        let text = at.read("large.txt").unwrap_err().to_string();
        assert!(text.contains("expected at most 67108864 bytes"), "{text}");
    }
}
