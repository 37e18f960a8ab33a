use super::*;

/// A writer with lines of which the first is written in part, and the text of its file.
fn writer_with_partial_line(folder: &Path) -> Writer {
    let path = folder.join("access.log");
    std::fs::write(&path, "an old line\nhalf of").unwrap();
    let rotation = Some(LogRotation { max_bytes: 12, kept_files: 1 });
    let target = LogTarget { path: Some(path), rotation };
    let mut writer = Writer::open(target, Arc::new(SharedQueue::default())).unwrap();
    writer.lines = b" a line\na new line\n".to_vec();
    writer.has_partial_line = true;
    writer
}

#[test]
fn a_full_file_on_a_full_disk_is_renamed_without_the_rest_of_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
    let mut writer = writer_with_partial_line(folder.path());
    let file = std::mem::replace(
        &mut writer.out,
        Output::File(File::options().write(true).open("/dev/full").unwrap()),
    );
    writer.flush();
    writer.out = file;
    writer.rotate_if_full();
    assert_eq!(read("access.log.1").as_deref(), Some("an old line\nhalf of"));
    writer.flush();
    assert_eq!(read("access.log").as_deref(), Some("a new line\n"));
    assert_eq!(writer.shared.dropped_lines.load(Ordering::Relaxed), 1);
}

#[test]
fn a_full_file_is_not_renamed_before_its_last_line_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer_with_partial_line(folder.path());
    writer.rotate_if_full();
    assert!(!folder.path().join("access.log.1").exists());
    writer.flush();
    writer.rotate_if_full();
    let old = std::fs::read_to_string(folder.path().join("access.log.1")).unwrap();
    assert_eq!(old, "an old line\nhalf of a line\na new line\n");
}

#[test]
fn lines_that_wait_behind_others_are_written_when_the_log_closes() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer_with_partial_line(folder.path());
    let mut queue = lock(&writer.shared.queue);
    queue.lines = b"a last line\n".to_vec();
    queue.is_closed = true;
    drop(queue);
    writer.run();
    let written = std::fs::read_to_string(folder.path().join("access.log.1")).unwrap();
    assert_eq!(written, "an old line\nhalf of a line\na new line\na last line\n");
    assert_eq!(writer.shared.dropped_lines.load(Ordering::Relaxed), 0);
}
