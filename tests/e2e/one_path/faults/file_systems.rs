//! File systems that lack what others have. A library that is loaded before the C library answers
//! as such a file system does: gVisor, old kernels, disks without hard links or shared memory.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Setup, TestDisk, run_command, wait_until};

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refusal(const char *name) {
    const char *code = getenv(name);
    return code ? atoi(code) : 0;
}

static int open_unless_refused(const char *path, int flags, mode_t mode) {
    int code = refusal("REFUSE_TMPFILE");
    if (code && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = code;
        return -1;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define OPEN(name)                                       \
    int name(const char *path, int flags, ...) {         \
        va_list rest;                                    \
        va_start(rest, flags);                           \
        mode_t mode = va_arg(rest, mode_t);              \
        va_end(rest);                                    \
        return open_unless_refused(path, flags, mode);   \
    }
OPEN(open)
OPEN(open64)

int linkat(int from, const char *path, int to, const char *link, int flags) {
    int code = refusal("REFUSE_LINK");
    if (code) {
        errno = code;
        return -1;
    }
    return syscall(SYS_linkat, from, path, to, link, flags);
}

int link(const char *path, const char *name) {
    return linkat(AT_FDCWD, path, AT_FDCWD, name, 0);
}

int flock(int fd, int operation) {
    int code = refusal("REFUSE_LOCK");
    if (code) {
        errno = code;
        return -1;
    }
    return syscall(SYS_flock, fd, operation);
}

static void *map_unless_refused(void *at, size_t size, int rights, int flags, int fd, off_t from) {
    int code = fd < 0 ? 0 : refusal("REFUSE_SHARED_MEMORY");
    if (code) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path);
        if (length > 4 && memcmp(path + length - 4, "-shm", 4) == 0) {
            errno = code;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, at, size, rights, flags, fd, from);
}

void *mmap(void *at, size_t size, int rights, int flags, int fd, off_t from) {
    return map_unless_refused(at, size, rights, flags, fd, from);
}

void *mmap64(void *at, size_t size, int rights, int flags, int fd, off_t from) {
    return map_unless_refused(at, size, rights, flags, fd, from);
}
"#;

/// Compiles the library.
fn build_shim(setup: &Setup) -> PathBuf {
    let (source, library) = (setup.path("shim.c"), setup.path("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    run_command(&mut compiler).expect(0);
    library
}

/// A gateway on a file system that answers these numbers.
fn setup_with_refusals(refusals: &[(&str, i32)]) -> Setup {
    let setup = Setup::new();
    let shim = build_shim(&setup).display().to_string();
    let setup = setup.env("LD_PRELOAD", &shim);
    refusals.iter().fold(setup, |setup, (name, code)| setup.env(name, &code.to_string()))
}

fn files_beside_the_store(setup: &Setup) -> Vec<String> {
    let entries = std::fs::read_dir(setup.path("")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".riskgate")).collect()
}

#[test]
fn a_directory_is_writable_although_it_can_hold_no_unnamed_file() {
    // What gVisor, Linux before 3.11, overlays and network file systems answer.
    for code in [libc::EISDIR, libc::EOPNOTSUPP, libc::ENOENT, libc::EINVAL, libc::ENOSYS] {
        let setup = setup_with_refusals(&[("REFUSE_TMPFILE", code)]);
        setup.cli(&["check"]).expect(0);
        assert!(files_beside_the_store(&setup).is_empty());
    }
    let unwritable = setup_with_refusals(&[("REFUSE_TMPFILE", libc::EISDIR)]);
    let unwritable = unwritable.set_text("store.url", "sqlite:/proc/riskgate.db");
    let ran = unwritable.cli(&["check"]).expect(78);
    assert!(
        ran.stderr.contains("expected a directory that we may create and write"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_store_is_created_although_the_file_system_has_no_hard_links() {
    for code in [libc::EPERM, libc::EMLINK, libc::EOPNOTSUPP, libc::ENOSYS] {
        let refusals = [("REFUSE_LINK", code), ("REFUSE_TMPFILE", libc::EISDIR)];
        let gateway = setup_with_refusals(&refusals).start();
        let key = gateway.create_active_key("acme", &[]);
        gateway.get_domain("first.test", &key).expect(200);
        assert!(files_beside_the_store(gateway.setup()).is_empty());
    }
}

#[test]
fn a_file_system_without_shared_memory_is_named() {
    for code in [libc::ENODEV, libc::EACCES, libc::ENOSYS] {
        let setup = setup_with_refusals(&[("REFUSE_SHARED_MEMORY", code)]);
        let ran = setup.cli(&["keys", "create", "--account", "acme", "--plan", "free"]);
        assert_ne!(ran.exit_code, 0);
        let expected = "riskgate.db: expected a file system on which processes can share memory";
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
        assert!(files_beside_the_store(&setup).is_empty());
    }
}

#[test]
fn a_file_system_without_locks_is_named_and_is_no_process_that_serves() {
    let gateway = setup_with_refusals(&[("REFUSE_LOCK", libc::ENOLCK)]).start();
    let expected = "process.runtime_dir: this process cannot be upgraded: expected a file system on \
                    which files can be locked";
    wait_until("the log has it", || gateway.stderr().contains(expected));
    assert!(!gateway.stderr().contains("another process"), "{}", gateway.stderr());
}

/// systemd's `ProcSubset=pid` mounts such a `/proc`.
#[test]
fn a_hidden_boot_id_is_told_because_a_restart_then_trusts_the_clock() {
    let namespace = TestDisk::in_memory("64k");
    let prefix = namespace.namespace_command_prefix();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let mount = [&prefix[1..], &["mount", "-t", "proc", "-o", "subset=pid", "proc", "/proc"]];
    run_command(Command::new(prefix[0]).args(mount.concat())).expect(0);
    let gateway = Setup::new().run_under(&prefix).start();
    let created = gateway.setup().cli(&["keys", "create", "--account", "acme"]).expect(0);
    let told = "expected the boot id in /proc/sys/kernel/random/boot_id, but found No such file";
    assert!(created.stderr.contains(told), "{}", created.stderr);
    let ready = gateway.readyz();
    assert_eq!(ready.status, 200);
    assert!(ready.json()["degraded"].to_string().contains(told), "{}", ready.text());
}
