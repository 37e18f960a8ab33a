use super::*;

#[test]
fn chunks_end_with_a_line_and_a_longer_line_is_one_chunk() {
    let long = "x".repeat(MAX_ATOMIC_WRITE_BYTES);
    let lines = format!("one\ntwo\n{long}\n{}\nlast\n", &long[..MAX_ATOMIC_WRITE_BYTES - 2]);
    let found: Vec<&[u8]> = split_into_chunks(lines.as_bytes()).collect();
    let lengths: Vec<usize> = found.iter().map(|piece| piece.len()).collect();
    assert_eq!(lengths, [8, MAX_ATOMIC_WRITE_BYTES + 1, MAX_ATOMIC_WRITE_BYTES - 1, 5]);
    assert_eq!(found.concat(), lines.as_bytes());
    assert_eq!(split_into_chunks(b"").count(), 0);
}

/// Fails the first writes with WouldBlock, like a full non-blocking pipe.
struct BlockedWriter(u32, Arc<Mutex<Vec<u8>>>);

impl Write for BlockedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_sub(1);
        match self.0 {
            0 => self.1.lock().unwrap().write(bytes),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_that_standard_error_does_not_take_are_counted_and_logged() {
    let written = Arc::default();
    let log = ProcessLog::start_writer_thread(BlockedWriter(3, Arc::clone(&written))).unwrap();
    for lines in ["one\ntwo\n", "three\n", "four\n"] {
        log.0.queue_or_drop_line(lines);
        log.flush();
    }
    // The first three lines, and the line that reported the first two as dropped.
    assert_eq!(log.dropped_lines(), 4);
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(text.starts_with("four\n"), "{text}");
    assert!(text.contains("Z warn: 2 lines were dropped"), "{text}");
}

#[test]
fn logging_does_not_wait_for_a_reader_that_does_not_read() {
    let (reader, writer) = io::pipe().unwrap();
    let log =
        ProcessLog::start_writer_thread(File::from(std::os::fd::OwnedFd::from(writer))).unwrap();
    let line = format!("{}\n", "x".repeat(1_000));
    let started = Instant::now();
    let mut added = 0;
    while log.dropped_lines() == 0 {
        log.0.queue_or_drop_line(&line);
        added += 1;
        assert!(added * line.len() < 2 * MAX_QUEUED_LOG_BYTES + (1 << 20), "no bound");
    }
    log.flush();
    assert!(started.elapsed() < FLUSH_TIMEOUT * 10, "{:?}", started.elapsed());
    // A reader that resumes gets all lines but the dropped ones, and the number of those.
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        let mut reader = io::BufReader::new(reader);
        while !text.contains("dropped") {
            assert!(io::BufRead::read_line(&mut reader, &mut text).unwrap() > 0);
        }
        text
    });
    log.0.queue_or_drop_line("the next\n");
    let text = reading.join().unwrap();
    assert_eq!(text.lines().filter(|it| it.starts_with("xxx")).count(), added - 1);
    assert!(text.ends_with("warn: 1 lines were dropped because standard error was not read\n"));
}

#[test]
fn lines_tell_time_level_and_module_and_hide_secrets_of_other_crates() {
    let written: Arc<Mutex<Vec<u8>>> = Arc::default();
    let log = ProcessLog::start_writer_thread(BlockedWriter(0, Arc::clone(&written))).unwrap();
    let logger = Logger(Arc::clone(&log.0));
    let message = |level, module: &str, text: &str| {
        let mut record = log::Record::builder();
        record.level(level).target(module);
        // The arguments can't outlive their statement.
        log::Log::log(&logger, &record.args(format_args!("{text}")).build());
    };
    message(log::Level::Info, "riskgate::a", "one");
    message(log::Level::Debug, "riskgate::a", "no");
    message(log::Level::Info, "h2::client", "no");
    message(log::Level::Warn, "h2::client", "two a@b.com");
    log.set_options(ProcessLogOptions {
        levels: LogLevels::parse("debug").unwrap(),
        is_json: true,
    });
    message(log::Level::Debug, "riskgate::a", "three");
    for _ in 0..100 {
        message(log::Level::Error, "h2::client", "flood");
    }
    log.flush();
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("Z info: one"), "{text}");
    assert!(lines[1].ends_with("Z warn: h2::client: two …"), "{text}");
    let json: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!((&json["level"], &json["message"]), (&json!("debug"), &json!("three")));
    assert_eq!(json["module"], "riskgate::a");
    let floods = lines.iter().filter(|line| line.contains("flood")).count();
    assert!((19..=40).contains(&floods), "{floods}");
}
