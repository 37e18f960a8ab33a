//! A folder of lists that a test may change, small enough to load quickly.

use std::path::PathBuf;

/// The source directory of a table.
pub struct ListFolder {
    pub path: PathBuf,
}

const MANIFEST: &str = "\
[[list]]
file = \"overrides.csv\"
kind = \"override\"

[[list]]
file = \"protected.txt\"
kind = \"protected\"

[[list]]
file = \"corporate.txt\"
kind = \"corporate\"

[[list]]
file = \"disposable.txt\"
kind = \"disposable\"
tier = \"a\"

[[list]]
file = \"role.txt\"
kind = \"role\"

[[list]]
file = \"free.txt\"
kind = \"free\"

[[list]]
file = \"labels.csv\"
kind = \"label\"

[[list]]
file = \"seed.txt\"
kind = \"seed\"

[guard]
max_changed_share = 1.0
";

impl ListFolder {
    /// The small table, in a folder of this name.
    pub fn create(path: impl Into<PathBuf>) -> ListFolder {
        let lists = ListFolder { path: path.into() };
        std::fs::create_dir_all(&lists.path).unwrap();
        for (file, text) in [
            ("manifest.toml", MANIFEST),
            (
                "overrides.csv",
                "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label\n",
            ),
            ("protected.txt", "gmail.com\nsafe-corp.com\n"),
            ("corporate.txt", "safe-corp.com\n"),
            ("disposable.txt", "first.test\nsecond.test\nthird.test\n=exact.test\nmail.com\n"),
            ("role.txt", "lists.test\n"),
            ("free.txt", "gmail.com\n"),
            ("labels.csv", "domain,label\nfirst.test,First Mail\ngmail.com,Gmail\n"),
            ("seed.txt", "first.test\nsecond.test\nthird.test\n"),
        ] {
            lists.write(file, text);
        }
        lists
    }

    pub fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the file in place.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file_path(name), text).unwrap();
    }

    /// Writes a temporary file and renames it over the old file.
    pub fn replace_by_rename(&self, name: &str, text: &str) {
        let beside = self.path.with_extension("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, self.file_path(name)).unwrap();
    }
}
