use super::*;

#[test]
fn a_lock_is_awaited_for_some_time_only() {
    let folder = tempfile::tempdir().unwrap();
    let [holder, waiter] = [(); 2].map(|()| File::open(folder.path()).unwrap());
    holder.lock().unwrap();
    let refused = lock_within(&waiter, Duration::from_millis(30)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    drop(holder);
    lock_within(&waiter, Duration::ZERO).unwrap();
}

#[test]
fn a_link_stays_a_link_when_its_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, link) = (folder.path().join("shared/list"), folder.path().join("link"));
    std::fs::create_dir(folder.path().join("shared")).unwrap();
    std::os::unix::fs::symlink("shared/list", &link).unwrap();
    for text in ["new", "replaced"] {
        write_atomically(&link, text.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(&shared).unwrap(), text);
        assert!(link.is_symlink());
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (bytes, expected) in
        [("\u{feff}word\n", "word\n"), ("\u{feff}", ""), ("a\u{feff}", "a\u{feff}")]
    {
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!(read_regular_text(file.path(), 100).unwrap(), expected);
    }
}

#[test]
fn unreadable_files_are_errors_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let read = |name: &str| read_regular_text(&at(name), 10).map_err(|e| e.to_string());
    std::fs::write(at("good"), "0123456789").unwrap();
    assert_eq!(read("good").as_deref(), Ok("0123456789"));
    std::fs::write(at("large"), "0123456789a").unwrap();
    assert_eq!(read("large").unwrap_err(), "11 bytes, more than 10");
    std::fs::write(at("bytes"), b"a\nb\xff").unwrap();
    assert_eq!(read("bytes").unwrap_err(), "no UTF-8 in line 2");
    std::fs::write(at("wide"), b"\xff\xfea\0").unwrap();
    assert_eq!(read("wide").unwrap_err(), "UTF-16; save it as UTF-8");
    std::fs::create_dir(at("directory")).unwrap();
    assert_eq!(read("directory").unwrap_err(), "a directory");
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    assert_eq!(read("pipe").unwrap_err(), "a FIFO");
    assert!(read("none").unwrap_err().contains("No such file"));
    let is_transient = |name: &str| read_regular_text(&at(name), 10).unwrap_err().is_transient();
    assert!(is_transient("none"));
    for lasting in ["large", "bytes", "directory", "pipe"] {
        assert!(!is_transient(lasting), "{lasting}");
    }
}

#[test]
fn paths_lead_to_one_file_even_if_it_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("file"), "").unwrap();
    std::fs::hard_link(path("file"), path("second")).unwrap();
    for (target, link) in [("file", "link"), ("missing", "broken"), (".", "folder")] {
        std::os::unix::fs::symlink(target, path(link)).unwrap();
    }
    for (one, other, expected) in [
        ("file", "link", true),
        ("file", "second", true),
        ("file", "folder/file", true),
        ("missing", "broken", true),
        ("missing", "folder/missing", true),
        ("missing", "file", false),
        ("missing", "other", false),
        ("none/a", "none/a", false),
    ] {
        assert_eq!(is_same_file(&path(one), &path(other)), expected, "{one} {other}");
    }
}
