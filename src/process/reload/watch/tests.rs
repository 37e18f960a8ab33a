use super::*;

/// A watch as it is half a second later.
fn let_time_pass(watch: &mut FileWatch) {
    watch.unchanged_since -= SETTLE_TIME;
    if let Some(retry) = &mut watch.retry {
        retry.due_at -= retry.pause;
    }
}

#[test]
fn new_paths_are_read_once_nobody_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "a").unwrap();
    let mut watch = FileWatch::for_unread_paths(vec![path.clone()]);
    assert!(!watch.is_settled());
    let_time_pass(&mut watch);
    std::fs::write(&path, "longer").unwrap();
    assert!(!watch.is_settled(), "it is still being written");
    let_time_pass(&mut watch);
    assert!(watch.is_settled() && watch.is_read_due());
    watch.mark_read();
    assert!(!watch.is_read_due());
    assert!(FileWatch::for_unread_paths(Vec::new()).is_settled());
}

#[test]
fn files_may_have_any_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let long = Duration::from_secs(1 << 34);
    for time in [std::time::UNIX_EPOCH + long, std::time::UNIX_EPOCH - long] {
        let mut watch = FileWatch::for_paths(vec![file.path().to_owned()]);
        // Not every file system has such a time; it then sets the nearest that it has.
        file.as_file().set_modified(time).unwrap();
        let_time_pass(&mut watch);
        assert!(!watch.is_settled() && watch.has_changed_since_read());
    }
}

#[test]
fn a_refused_read_is_repeated_until_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "a").unwrap();
    let mut watch = FileWatch::for_paths(vec![path]);
    let_time_pass(&mut watch);
    assert!(!watch.is_read_due());
    for pause in [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
        watch.mark_read();
        watch.schedule_retry_if(true);
        assert_eq!(watch.retry.as_ref().unwrap().pause, Duration::from_millis(pause));
        assert!(!watch.is_read_due());
        let_time_pass(&mut watch);
        assert!(watch.is_read_due());
    }
    watch.mark_read();
    watch.schedule_retry_if(false);
    let_time_pass(&mut watch);
    assert!(!watch.is_read_due());
}

#[test]
fn a_changed_file_is_settled_after_half_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "a").unwrap();
    let mut watch = FileWatch::for_paths(vec![path.clone()]);
    assert!(watch.is_settled());
    std::fs::write(&path, "half of it").unwrap();
    assert!(!watch.is_settled() && !watch.is_read_due());
    let_time_pass(&mut watch);
    assert!(watch.is_settled() && watch.is_read_due());
    watch.mark_read();
    assert!(watch.is_settled() && !watch.is_read_due());
}

#[test]
fn other_paths_keep_the_changes_of_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("known"), "a").unwrap();
    std::fs::write(at("new"), "a").unwrap();
    let mut watch = FileWatch::for_paths(vec![at("known")]);
    std::fs::write(at("known"), "changed").unwrap();
    watch.set_paths(vec![at("known"), at("new")]);
    let_time_pass(&mut watch);
    assert!(watch.is_read_due());
    watch.mark_read();
    std::fs::write(at("new"), "changed").unwrap();
    assert!(!watch.is_settled());
    let_time_pass(&mut watch);
    assert!(watch.is_read_due());
}
