//! A small disk that a test fills or makes read-only while a gateway writes to it.
//!
//! The disk is a tmpfs, or an ext4 image for tests that need the errors of a real disk. A child
//! process holds the mount namespace of the disk. When that process ends, the kernel unmounts the
//! disk, however the test ends. A tmpfs needs root, or permission to create a user namespace. An
//! ext4 image needs root.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::run_command;

const MOUNT_COMMAND: &str = "mount -o loop,errors=remount-ro \"$2/image\" \"$2/disk\"";

pub struct TestDisk {
    namespace_process: Child,
    folder: TempDir,
    is_root: bool,
}

impl TestDisk {
    /// Mounts a tmpfs of this size, in the syntax of `mount`.
    #[track_caller]
    pub fn in_memory(size: &str) -> TestDisk {
        TestDisk::mount_disk(size, "mount -t tmpfs -o size=\"$1\",mode=777 riskgate \"$2/disk\"")
    }

    /// Mounts an ext4 image that becomes read-only after an error.
    #[track_caller]
    pub fn file_backed(size: &str) -> TestDisk {
        let make = "truncate -s \"$1\" \"$2/image\" && mkfs.ext4 -q -F \"$2/image\"";
        TestDisk::mount_disk(size, &format!("{make} && {MOUNT_COMMAND}"))
    }

    #[track_caller]
    fn mount_disk(size: &str, mount: &str) -> TestDisk {
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
        let mut line = String::new();
        BufReader::new(namespace_process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(
            line, "there\n",
            "expected permission to mount a disk: run as root, or allow user namespaces (tmpfs)"
        );
        TestDisk { namespace_process, folder, is_root }
    }

    /// The path of the disk for a process inside the namespace.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The command prefix that runs a command inside the namespace.
    pub fn namespace_command_prefix(&self) -> Vec<String> {
        let target = self.namespace_process.id().to_string();
        let words: &[&str] = match self.is_root {
            true => &["nsenter", "-m", "-t", &target],
            false => &["nsenter", "-U", "--preserve-credentials", "-m", "-t", &target],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Fills all free space.
    pub fn fill_up(&self) {
        let mut file = std::fs::File::create(self.path_outside_namespace().join("filler")).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Frees the space that [`TestDisk::fill_up`] filled.
    pub fn remove_filler(&self) {
        std::fs::remove_file(self.path_outside_namespace().join("filler")).unwrap();
    }

    /// Refuses writes to existing files and new files, also for processes that have the files open.
    /// Only a disk in an image supports this.
    pub fn refuse_writes(&self) {
        self.change_attributes("+i");
    }

    /// Allows writes again after [`TestDisk::refuse_writes`].
    pub fn allow_writes(&self) {
        self.change_attributes("-i");
    }

    fn change_attributes(&self, change: &str) {
        let root = self.path_outside_namespace();
        let files = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
        // SQLite writes to its `-shm` file through a memory map, where the kernel can't refuse a
        // write.
        let files =
            files.filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"));
        let files: Vec<PathBuf> = files.chain([root.clone()]).collect();
        run_command(Command::new("chattr").arg(change).args(files)).expect(0);
    }

    /// Triggers a file system error, after which a disk in an image stays read-only.
    pub fn trigger_file_system_error(&self) {
        let ask = ["-c", "/sys/dev/block/%Hd:%Ld"];
        let device = run_command(Command::new("stat").args(ask).arg(self.path_outside_namespace()))
            .expect(0);
        let device = std::fs::canonicalize(device.stdout.trim()).unwrap();
        let errors = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
        std::fs::write(errors.join("trigger_fs_error"), "1").unwrap();
    }

    /// Repairs the file system after [`TestDisk::trigger_file_system_error`]. Meanwhile no process
    /// may have a file open on the disk.
    pub fn repair(&self) {
        let script = format!(
            "umount \"$2/disk\" && {{ e2fsck -fp \"$2/image\" || [ $? = 1 ]; }} && {MOUNT_COMMAND}"
        );
        let words = self.namespace_command_prefix();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", &script, "sh", ""]).arg(self.folder.path());
        run_command(&mut command).expect(0);
    }

    /// The content of a file on the disk.
    pub fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path_outside_namespace().join(name)).unwrap()
    }

    pub fn path_outside_namespace(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.namespace_process.id()));
        root.join(self.path().strip_prefix("/").unwrap())
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.namespace_process.kill();
        let _ = self.namespace_process.wait();
    }
}
