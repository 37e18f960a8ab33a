//! A small disk of its own, which a test fills and frees while a gateway writes to it.
//!
//! It lies in memory and in a namespace of mounts that a process of ours holds: with that process
//! it is gone, however the test ends. Who is no root needs leave to make a namespace of users too.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::run;

pub struct Disk {
    holder: Child,
    folder: TempDir,
    is_root: bool,
}

impl Disk {
    /// A disk of this size, as `mount` takes it.
    #[track_caller]
    pub fn of(size: &str) -> Disk {
        let is_root = run(Command::new("id").arg("-u")).expect(0).stdout.trim() == "0";
        let folder = tempfile::tempdir().unwrap();
        let script =
            "mount -t tmpfs -o size=\"$1\",mode=777 riskgate \"$2\" && echo there && read -r _";
        let mut holder = Command::new("unshare")
            .arg(if is_root { "-m" } else { "-rm" })
            .args(["sh", "-c", script, "sh", size])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(
            said, "there\n",
            "expected leave to mount a tmpfs: be root, or allow namespaces"
        );
        Disk { holder, folder, is_root }
    }

    /// Where it lies, for who is [`Disk::inside`].
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Words that run a command where the disk is seen.
    pub fn inside(&self) -> Vec<String> {
        let target = self.holder.id().to_string();
        let words: &[&str] = match self.is_root {
            true => &["nsenter", "-m", "-t", &target],
            false => &["nsenter", "-U", "--preserve-credentials", "-m", "-t", &target],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.seen_from_here().join("filler")).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives the space back.
    pub fn free(&self) {
        std::fs::remove_file(self.seen_from_here().join("filler")).unwrap();
    }

    /// A file on it, as the test reads it.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.seen_from_here().join(name)).unwrap()
    }

    fn seen_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.path().strip_prefix("/").unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
