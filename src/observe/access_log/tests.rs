use std::path::Path;

use super::*;

/// Longer than a disk takes on a loaded machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

fn start(path: &Path, rotation: Option<LogRotation>, form: LineForm) -> AccessLog {
    let target = LogTarget { path: Some(path.to_owned()), rotation };
    AccessLog::start(target, AccessLogOptions { is_enabled: true, form }).unwrap()
}

fn entry() -> LogEntry<'static> {
    LogEntry {
        at_ms: 1_795_000_000_123,
        path_parts: ["/v1/", "\"\n\u{1}"],
        status: 200,
        user_agent: Some("a b=\"c\""),
        ..LogEntry::default()
    }
}

#[test]
fn a_log_line_is_valid_json_even_with_quotes_and_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = start(&path, None, LineForm::default());
    log.queue_entry(&entry());
    assert!(log.close(CLOSE_TIMEOUT));
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 1);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["time"], "2026-11-18T11:06:40.123Z");
    assert_eq!(line["path"], "/v1/\"\n\u{1}");
    assert_eq!(line["key_id"], serde_json::Value::Null);
    assert_eq!(line.get("user_agent"), None);
}

#[test]
fn each_line_has_the_chosen_fields_in_their_order() {
    let screening =
        ScreeningEntry { action: "pass", score: Some(0), domain: Some("gmail.com"), rule: None };
    let screened = LogEntry { screening: Some(screening), ..entry() };
    let line = |format, fields: &[LogField]| {
        let mut out = Vec::new();
        let form = LineForm { format, fields: fields.to_vec() };
        LineTemplate::new(&form).append_line(&mut out, &screened);
        String::from_utf8(out).unwrap()
    };
    use LogField::{Path, Reason, Screening, Status, UserAgent};
    let fields = [Status, UserAgent, Reason, Screening, Path];
    assert_eq!(
        line(LogFormat::Logfmt, &fields),
        "status=200 user_agent=\"a b=\\\"c\\\"\" screening_action=pass screening_score=0 \
         screening_domain=gmail.com path=\"/v1/\\\"\\n\\u0001\"\n"
    );
    assert_eq!(
        line(LogFormat::Json, &fields),
        "{\"status\":200,\"user_agent\":\"a b=\\\"c\\\"\",\"reason\":null,\"screening\":\
         {\"action\":\"pass\",\"score\":0,\"domain\":\"gmail.com\"},\"path\":\"/v1/\\\"\\n\\u0001\"}\n"
    );
    let mut without_path = Vec::new();
    let form = LineForm { format: LogFormat::Logfmt, fields: vec![Path] };
    let unread = LogEntry { path_parts: ["", ""], ..entry() };
    LineTemplate::new(&form).append_line(&mut without_path, &unread);
    assert_eq!(without_path, b"path=\"\"\n", "as any empty value");
    for format in [LogFormat::Json, LogFormat::Logfmt] {
        for field in LogField::ALL {
            assert_eq!(LogField::parse(field.as_str()), Some(field));
            assert!(line(format, &[field]).ends_with('\n'));
        }
    }
}

#[test]
fn a_full_file_is_renamed_and_no_line_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let rotation = LogRotation { max_bytes: 500, kept_files: 40 };
    let log = start(&path, Some(rotation), LineForm::default());
    let count_lines = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().count()
    };
    let numbered = |number: u32| match number {
        0 => "access.log".to_owned(),
        _ => format!("access.log.{number}"),
    };
    let names: Vec<String> = (0..40).map(numbered).collect();
    let all_lines = || names.iter().map(|name| count_lines(name)).sum::<usize>();
    // How many lines the writer takes at once is up to its thread.
    for round in 1..=3 {
        (0..7).for_each(|_| log.queue_entry(&entry()));
        let started = std::time::Instant::now();
        while all_lines() < 7 * round {
            assert!(started.elapsed().as_secs() < 20);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    log.queue_entry(&entry());
    assert!(log.close(CLOSE_TIMEOUT));
    assert_eq!(all_lines(), 22);
    let is_full = |name: &String| std::fs::metadata(folder.path().join(name)).unwrap().len() >= 500;
    let old: Vec<&String> = names[1..].iter().filter(|name| count_lines(name) > 0).collect();
    assert!(old.len() >= 3 && old.into_iter().all(is_full));
    assert_eq!(log.dropped_lines(), 0);
}

#[test]
fn only_the_newest_old_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let rotation = LogRotation { max_bytes: 500, kept_files: 2 };
    for number in 0..5 {
        let log = start(&path, Some(rotation), LineForm::default());
        let id = format!("{number}{}", "x".repeat(500));
        log.queue_entry(&LogEntry { request_id: &id, ..entry() });
        assert!(log.close(CLOSE_TIMEOUT));
    }
    let first_digit = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).ok()?;
        text.split("\"request_id\":\"").nth(1)?.chars().next()
    };
    let found = ["access.log", "access.log.1", "access.log.2", "access.log.3"].map(first_digit);
    assert_eq!(found, [None, Some('4'), Some('3'), None]);
}

#[test]
fn an_idle_log_is_reopened_after_another_program_has_renamed_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = start(&path, None, LineForm::default());
    std::fs::rename(&path, folder.path().join("access.log.1")).unwrap();
    log.request_reopen();
    let begun = std::time::Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no new file");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(log.close(CLOSE_TIMEOUT));
}

#[test]
fn a_link_stays_and_the_file_to_which_it_leads_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (link, disk) = (folder.path().join("access.log"), folder.path().join("disk"));
    std::fs::create_dir(&disk).unwrap();
    std::os::unix::fs::symlink(disk.join("real.log"), &link).unwrap();
    std::fs::write(disk.join("real.log"), "an old line\n").unwrap();
    let log = start(&link, Some(LogRotation { max_bytes: 5, kept_files: 1 }), LineForm::default());
    log.queue_entry(&entry());
    let begun = std::time::Instant::now();
    while !disk.join("real.log.1").exists() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no rotation");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(log.close(CLOSE_TIMEOUT));
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(disk.join("real.log").exists());
    assert!(!folder.path().join("access.log.1").exists());
}
