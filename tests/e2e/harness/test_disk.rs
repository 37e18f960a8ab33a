//! A small disk of its own, which a test fills, or makes read-only, while a gateway writes to it.
//!
//! It lies in memory, or in a file where its errors are to be those of a disk, and in a namespace
//! of mounts that a process of ours holds: with that process it is gone, however the test ends.
//! Who is no root needs leave to make a namespace of users too; a disk in a file takes root.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::run_command;

const MOUNT_FILE: &str = "mount -o loop,errors=remount-ro \"$2/image\" \"$2/disk\"";

pub struct TestDisk {
    namespace_process: Child,
    folder: TempDir,
    is_root: bool,
}

impl TestDisk {
    /// A disk of this size, as `mount` takes it.
    #[track_caller]
    pub fn in_memory(size: &str) -> TestDisk {
        TestDisk::mount(size, "mount -t tmpfs -o size=\"$1\",mode=777 riskgate \"$2/disk\"")
    }

    /// A disk in a file, with a file system that goes read-only at an error.
    #[track_caller]
    pub fn file_backed(size: &str) -> TestDisk {
        let make = "truncate -s \"$1\" \"$2/image\" && mkfs.ext4 -q -F \"$2/image\"";
        TestDisk::mount(size, &format!("{make} && {MOUNT_FILE}"))
    }

    #[track_caller]
    fn mount(size: &str, mount: &str) -> TestDisk {
        let is_root = run_command(Command::new("id").arg("-u")).expect(0).stdout.trim() == "0";
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("disk")).unwrap();
        let mut namespace_process = Command::new("unshare")
            .arg(if is_root { "-m" } else { "-rm" })
            .args(["sh", "-c", &format!("{mount} && echo there && read -r _"), "sh", size])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(namespace_process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(
            said, "there\n",
            "expected leave to mount a disk: be root, or allow namespaces for one in memory"
        );
        TestDisk { namespace_process, folder, is_root }
    }

    /// Where it lies, for who is [`TestDisk::inside`].
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Words that run a command where the disk is seen.
    pub fn nsenter_prefix(&self) -> Vec<String> {
        let target = self.namespace_process.id().to_string();
        let words: &[&str] = match self.is_root {
            true => &["nsenter", "-m", "-t", &target],
            false => &["nsenter", "-U", "--preserve-credentials", "-m", "-t", &target],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Takes all the space that is left.
    pub fn fill_up(&self) {
        let mut file = std::fs::File::create(self.path_from_test().join("filler")).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives the space back.
    pub fn remove_filler(&self) {
        std::fs::remove_file(self.path_from_test().join("filler")).unwrap();
    }

    /// Takes no more writes to what is there, nor new files, also from who has them open. Only a
    /// disk in a file can do that.
    pub fn refuse_writes(&self) {
        self.change_attributes("+i");
    }

    /// Takes them again.
    pub fn allow_writes(&self) {
        self.change_attributes("-i");
    }

    fn change_attributes(&self, change: &str) {
        let root = self.path_from_test();
        let files = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
        // A file that maps into memory is changed there, where no refusal is possible.
        let files =
            files.filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"));
        let files: Vec<PathBuf> = files.chain([root.clone()]).collect();
        run_command(Command::new("chattr").arg(change).args(files)).expect(0);
    }

    /// Has an error, by which a disk in a file becomes read-only for good.
    pub fn trigger_error(&self) {
        let ask = ["-c", "/sys/dev/block/%Hd:%Ld"];
        let device =
            run_command(Command::new("stat").args(ask).arg(self.path_from_test())).expect(0);
        let device = std::fs::canonicalize(device.stdout.trim()).unwrap();
        let errors = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
        std::fs::write(errors.join("trigger_fs_error"), "1").unwrap();
    }

    /// Repairs it after that. Nobody may have a file open on it.
    pub fn repair(&self) {
        let script = format!(
            "umount \"$2/disk\" && {{ e2fsck -fp \"$2/image\" || [ $? = 1 ]; }} && {MOUNT_FILE}"
        );
        let words = self.nsenter_prefix();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", &script, "sh", ""]).arg(self.folder.path());
        run_command(&mut command).expect(0);
    }

    /// A file on it, as the test reads it.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path_from_test().join(name)).unwrap()
    }

    fn path_from_test(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.namespace_process.id()));
        root.join(self.path().strip_prefix("/").unwrap())
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.namespace_process.kill();
        let _ = self.namespace_process.wait();
    }
}
