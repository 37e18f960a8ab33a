use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_command_of_another_user_finds_the_process_that_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
    let mut serving = RuntimeDir::open(&path).unwrap();
    assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
    assert!(serving.claim().unwrap());
    // A directory that this user would not serve from.
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    assert!(RuntimeDir::open(&path).is_err());
    assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_some());
    serving.release();
    assert!(RuntimeDir::open_if_claimed(&path).unwrap().is_none());
}

#[test]
fn a_command_that_looks_for_a_process_keeps_none_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = RuntimeDir::open(folder.path()).unwrap();
    let pid_file = File::create(serving.pid_file_path()).unwrap();
    pid_file.try_lock_shared().unwrap();
    let looks = std::thread::spawn(move || {
        std::thread::sleep(MAX_CLAIM_WAIT / 20);
        drop(pid_file);
    });
    assert!(serving.claim().unwrap());
    looks.join().unwrap();
}

#[test]
fn a_directory_that_others_may_write_to_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(RuntimeDir::open(folder.path()).is_err());
}
