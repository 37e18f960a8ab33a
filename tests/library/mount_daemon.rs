//! A mounted riskgate ends a process that Pingora has put into the background, because the threads
//! of riskgate have stayed behind.

use std::process::Command;
use std::time::{Duration, Instant};

use riskgate::Mount;
use riskgate::pingora::server::configuration::ServerConf;
use riskgate::pingora::server::{RunArgs, Server};

/// Names the folder of the process that becomes a daemon.
const FOLDER_VARIABLE: &str = "RISKGATE_TEST_DAEMON_FOLDER";

struct StandardErrorLog;

impl log::Log for StandardErrorLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}", record.args());
        }
    }

    fn flush(&self) {}
}

fn become_daemon(folder: &str) {
    log::set_logger(&StandardErrorLog).unwrap();
    log::set_max_level(log::LevelFilter::Error);
    let mount = Mount::from_config_file(format!("{folder}/riskgate.toml")).unwrap();
    let conf = ServerConf {
        daemon: true,
        pid_file: format!("{folder}/pid"),
        error_log: Some(format!("{folder}/log")),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    server.add_service(mount.into_reload_service());
    server.run(RunArgs::default());
}

#[test]
fn a_mount_ends_a_process_that_has_become_a_daemon_after_the_config_was_read() {
    if let Ok(folder) = std::env::var(FOLDER_VARIABLE) {
        return become_daemon(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let text = format!("[store]\nurl = \"sqlite:{path}/riskgate.db\"\n[log]\naccess = false\n");
    std::fs::write(folder.path().join("riskgate.toml"), text).unwrap();
    let test = std::thread::current().name().unwrap().to_owned();
    let status = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(FOLDER_VARIABLE, folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let started = Instant::now();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let process = loop {
        match read("pid").trim().parse::<u32>() {
            Ok(process) => break process,
            Err(_) => assert!(started.elapsed() < Duration::from_secs(20), "no pid file"),
        }
        std::thread::yield_now();
    };
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    while !has_ended() {
        if started.elapsed() > Duration::from_secs(20) {
            // No other process has this number: the daemon is still running.
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
            panic!("the daemon {process} still runs: {}", read("log"));
        }
        std::thread::yield_now();
    }
    let told = read("log");
    assert!(told.contains("daemon: false"), "{told}");
}
