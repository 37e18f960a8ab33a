//! A small disk of its own, which a test fills, or makes read-only, while a gateway writes to it.
//!
//! It lies in memory, or in a file where its errors are to be those of a disk, and in a namespace
//! of mounts that a process of ours holds: with that process it is gone, however the test ends.
//! Who is no root needs leave to make a namespace of users too; a disk in a file takes root.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::run;

const MOUNT_FILE: &str = "mount -o loop,errors=remount-ro \"$2/image\" \"$2/disk\"";

pub struct Disk {
    holder: Child,
    folder: TempDir,
    is_root: bool,
}

impl Disk {
    /// A disk of this size, as `mount` takes it.
    #[track_caller]
    pub fn of(size: &str) -> Disk {
        Disk::mounted(size, "mount -t tmpfs -o size=\"$1\",mode=777 riskgate \"$2/disk\"")
    }

    /// A disk in a file, with a file system that goes read-only at an error.
    #[track_caller]
    pub fn in_a_file(size: &str) -> Disk {
        let make = "truncate -s \"$1\" \"$2/image\" && mkfs.ext4 -q -F \"$2/image\"";
        Disk::mounted(size, &format!("{make} && {MOUNT_FILE}"))
    }

    #[track_caller]
    fn mounted(size: &str, mount: &str) -> Disk {
        let is_root = run(Command::new("id").arg("-u")).expect(0).stdout.trim() == "0";
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("disk")).unwrap();
        let mut holder = Command::new("unshare")
            .arg(if is_root { "-m" } else { "-rm" })
            .args(["sh", "-c", &format!("{mount} && echo there && read -r _"), "sh", size])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(
            said, "there\n",
            "expected leave to mount a disk: be root, or allow namespaces for one in memory"
        );
        Disk { holder, folder, is_root }
    }

    /// Where it lies, for who is [`Disk::inside`].
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
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

    /// Takes no more writes to what is there, nor new files, also from who has them open. Only a
    /// disk in a file can do that.
    pub fn refuse_writes(&self) {
        self.change_attributes("+i");
    }

    /// Takes them again.
    pub fn take_writes(&self) {
        self.change_attributes("-i");
    }

    fn change_attributes(&self, change: &str) {
        let root = self.seen_from_here();
        let files = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
        // A file that maps into memory is changed there, where no refusal is possible.
        let files =
            files.filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"));
        let files: Vec<PathBuf> = files.chain([root.clone()]).collect();
        run(Command::new("chattr").arg(change).args(files)).expect(0);
    }

    /// Has an error, by which a disk in a file becomes read-only for good.
    pub fn fail(&self) {
        let ask = ["-c", "/sys/dev/block/%Hd:%Ld"];
        let device = run(Command::new("stat").args(ask).arg(self.seen_from_here())).expect(0);
        let device = std::fs::canonicalize(device.stdout.trim()).unwrap();
        let errors = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
        std::fs::write(errors.join("trigger_fs_error"), "1").unwrap();
    }

    /// Repairs it after that. Nobody may have a file open on it.
    pub fn repair(&self) {
        let script = format!(
            "umount \"$2/disk\" && {{ e2fsck -fp \"$2/image\" || [ $? = 1 ]; }} && {MOUNT_FILE}"
        );
        let words = self.inside();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", &script, "sh", ""]).arg(self.folder.path());
        run(&mut command).expect(0);
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
