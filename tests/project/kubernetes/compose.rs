//! The Compose file: Docker Compose accepts it, and its services accept their configs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::chart::project_path;
use super::process::{
    BINARY, Process, free_address, get, run_to_success, run_without_warning, wait_until,
};

/// A copy of the folders that the Compose file mounts, with fresh secrets.
struct Project {
    folder: tempfile::TempDir,
    /// The Compose file as Docker Compose reads it: with absolute paths, and in its long forms.
    file: Value,
}

impl Project {
    #[track_caller]
    fn new() -> Project {
        let folder = tempfile::tempdir().unwrap();
        for name in ["compose", "prometheus", "grafana"] {
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(project_path(&format!("contrib/{name}"))).arg(folder.path());
            run_to_success(&mut copy);
        }
        let compose = folder.path().join("compose");
        // Secrets of somebody who tried the Compose file in this checkout.
        let _ = std::fs::remove_dir_all(compose.join("secrets"));
        run_to_success(&mut Command::new(compose.join("make-secrets")));
        let program = project_path("target/tools/kubernetes/compose/docker-compose");
        assert!(program.exists(), "scripts/setup --tests installs {}", program.display());
        let mut command = Command::new(program);
        command.args(["config", "--format", "json"]).current_dir(&compose);
        let file = serde_json::from_str(&run_to_success(&mut command)).unwrap();
        Project { folder, file }
    }

    fn services(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.file["services"].as_object().unwrap().iter()
    }

    /// Each path in the container of a service, and the file or folder that stands for it.
    #[track_caller]
    fn mounts(&self, service: &str) -> Vec<(String, PathBuf)> {
        let service = &self.file["services"][service];
        let list = |name: &str| service[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let volumes = list("volumes").into_iter().filter(|it| it["type"] == "bind");
        let mut mounts: Vec<(String, PathBuf)> =
            volumes.map(|it| (text(&it["target"]), text(&it["source"]).into())).collect();
        for secret in list("secrets") {
            let name = text(&secret["source"]);
            let file = text(&self.file["secrets"][&name]["file"]);
            mounts.push((format!("/run/secrets/{name}"), file.into()));
        }
        for tmpfs in list("tmpfs") {
            let path = text(&tmpfs).split(':').next().unwrap().to_owned();
            let folder = self.folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(&folder).unwrap();
            mounts.push((path, folder));
        }
        for (path, source) in &mounts {
            assert!(source.exists(), "{path}: {} does not exist", source.display());
        }
        mounts
    }

    /// Replaces texts in a file that a service mounts, and the paths of the container by those of
    /// this machine. Returns the path of the file.
    #[track_caller]
    fn localize(&self, service: &str, path: &str, replaced: &[(&str, String)]) -> PathBuf {
        let mounts = self.mounts(service);
        let (_, source) = mounts
            .iter()
            .find(|(it, _)| path.starts_with(it.as_str()))
            .unwrap_or_else(|| panic!("{service} does not mount {path}"));
        let file = match source.is_dir() {
            true => source.join(Path::new(path).file_name().unwrap()),
            false => source.clone(),
        };
        let mut text = std::fs::read_to_string(&file).unwrap();
        for (path, source) in &mounts {
            text = text.replace(path, &source.display().to_string());
        }
        for (from, to) in replaced {
            assert!(text.contains(from), "{path} lacks {from}: {text}");
            text = text.replace(from, to);
        }
        std::fs::write(&file, text).unwrap();
        file
    }
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[test]
fn docker_compose_accepts_the_file_and_its_services_have_few_rights() {
    let project = Project::new();
    let names: Vec<&String> = project.services().map(|(name, _)| name).collect();
    assert_eq!(names, ["grafana", "prometheus", "riskgate", "valkey"]);
    for (name, service) in project.services() {
        project.mounts(name);
        assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(words(&service["security_opt"]), ["no-new-privileges:true"], "{name}");
        assert!(service["read_only"] == true || name == "grafana", "{name}");
        let (_, tag) =
            service["image"].as_str().unwrap().split_once(':').expect("a pinned version");
        assert!(tag.matches('.').count() == 2, "{name}: {tag}");
        for port in service["ports"].as_array().into_iter().flatten() {
            assert_eq!(port["host_ip"], "127.0.0.1", "{name}");
        }
    }
    let riskgate = &project.file["services"]["riskgate"];
    let image = concat!("ghcr.io/riskgate/riskgate:", env!("CARGO_PKG_VERSION"));
    assert_eq!(riskgate["image"], image);
    assert_eq!(riskgate["user"], "65532:65532");
    // The store has no way to other networks, and nobody but riskgate shares its network.
    assert_eq!(project.file["networks"]["store"]["internal"], true);
    let is_in_store = |service: &Value| service["networks"].get("store").is_some();
    let near_store: Vec<&String> =
        project.services().filter(|(_, it)| is_in_store(it)).map(|(name, _)| name).collect();
    assert_eq!(near_store, ["riskgate", "valkey"]);
}

#[test]
fn other_users_of_the_machine_cannot_read_the_secrets_but_containers_can() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = Project::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = project.folder.path().join("compose/secrets");
    assert_eq!(mode(&folder), 0o700);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let before = ["admin-token", "store-url", "valkey.conf", "grafana-password"].map(read);
    for file in project.file["secrets"].as_object().unwrap().values() {
        assert_eq!(mode(Path::new(file["file"].as_str().unwrap())), 0o644);
    }
    run_to_success(&mut Command::new(project.folder.path().join("compose/make-secrets")));
    assert_eq!(["admin-token", "store-url", "valkey.conf", "grafana-password"].map(read), before);
}

/// Runs the server with the config of the service `valkey`. Redis reads the same settings.
fn start_server(project: &Project, port: u16) -> Process {
    let data = project.folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let command = words(&project.file["services"]["valkey"]["command"]);
    assert_eq!(command[0], "valkey-server");
    let data = format!("dir {}", data.display());
    let config = project.localize("valkey", &command[1], &[("dir /data", data)]);
    let mut server = Command::new("redis-server");
    server.arg(config).args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    let server = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    Process(server.expect("scripts/setup --tests installs redis-server"))
}

#[test]
fn riskgate_is_healthy_and_answers_once_it_has_a_key() {
    let project = Project::new();
    let [server_address, http, admin] = [(); 3].map(|()| free_address());
    let _server = start_server(&project, server_address.port());
    let health = words(&project.file["services"]["valkey"]["healthcheck"]["test"]);
    let ping = health[1].replace("valkey-cli", &format!("redis-cli -p {}", server_address.port()));
    wait_until("the server is healthy", || {
        Command::new("sh").args(["-c", &ping]).output().unwrap().status.success()
    });

    let url = [("valkey:6379", server_address.to_string())];
    project.localize("riskgate", "/run/secrets/store-url", &url);
    let addresses = [("0.0.0.0:8080", http.to_string()), ("0.0.0.0:9090", admin.to_string())];
    let config = project.localize("riskgate", "/etc/riskgate/riskgate.toml", &addresses);
    let service = &project.file["services"]["riskgate"];
    let state = project.folder.path().join("var/lib/riskgate");
    std::fs::create_dir_all(&state).unwrap();
    let riskgate = |arguments: &[String]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(&state).env_clear().env("RISKGATE_CONFIG", &config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let gateway = riskgate(&words(&service["command"])).spawn().unwrap();
    let mut gateway = Process(gateway);
    let health = words(&service["healthcheck"]["test"]);
    assert_eq!(health[..2], ["CMD", "riskgate"]);
    let health: Vec<String> =
        health[2..].iter().map(|word| word.replace("127.0.0.1:9090", &admin.to_string())).collect();
    let is_healthy = || riskgate(&health).status().unwrap().success();
    wait_until("riskgate listens", || get(admin, "/healthz", None).is_some());
    assert!(!is_healthy(), "expected riskgate not to be ready without a store");

    let create = ["keys", "create", "--account", "acme", "--plan", "pro"].map(str::to_owned);
    let key = run_to_success(riskgate(&create).stdout(Stdio::piped()).stderr(Stdio::piped()));
    wait_until("riskgate is healthy", is_healthy);
    let (status, body) = get(http, "/v1/public/domain/yopmail.com", Some(&key)).unwrap();
    assert!(status == 200 && body.contains("\"reason\":\"disposable\""), "{status} {body}");
    run_without_warning(
        riskgate(&["check".to_owned()]).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );

    let token = project.folder.path().join("compose/secrets/admin-token");
    let token = std::fs::read_to_string(token).unwrap();
    assert_eq!(get(admin, "/metrics", None).unwrap().0, 401);
    assert_eq!(get(admin, "/metrics", Some(&token)).unwrap().0, 200);
    let begun = std::time::Instant::now();
    gateway.send_sigterm();
    let grace = service["stop_grace_period"].as_str().unwrap().trim_end_matches('s');
    assert!(gateway.wait_for_end(begun).as_secs() < grace.parse().unwrap());
}

#[test]
fn prometheus_accepts_its_config_and_finds_the_alerts_and_the_token() {
    let project = Project::new();
    project.localize("prometheus", "/etc/prometheus/alerts.yml", &[]);
    let command = words(&project.file["services"]["prometheus"]["command"]);
    let config = command.iter().find_map(|it| it.strip_prefix("--config.file=")).unwrap();
    let config = project.localize("prometheus", config, &[]);
    let mut promtool = Command::new("promtool");
    let said = run_to_success(promtool.args(["check", "config"]).arg(&config));
    assert!(said.contains("SUCCESS: 1 rule files found"), "{said}");
    let text = std::fs::read_to_string(config).unwrap();
    let jobs: Vec<&str> =
        text.lines().filter_map(|it| it.trim().strip_prefix("- job_name: ")).collect();
    // The alerts select by this name.
    assert_eq!(jobs, ["riskgate"]);
}

#[test]
fn grafana_finds_the_dashboard_and_its_data_source() {
    let project = Project::new();
    let read = |name: &str| {
        let file = project.folder.path().join("compose/grafana").join(name);
        std::fs::read_to_string(file).unwrap()
    };
    let mounts = project.mounts("grafana");
    let (path, source) = mounts.iter().find(|(path, _)| path.ends_with(".json")).unwrap();
    let provider = read("dashboards.yaml");
    let folder = provider.lines().find_map(|it| it.trim().strip_prefix("path: ")).unwrap();
    assert_eq!(Path::new(path).parent().unwrap(), Path::new(folder));
    let text = std::fs::read_to_string(source).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().cloned().unwrap_or_default();
    let chooses_source =
        variables.iter().any(|it| it["type"] == "datasource" && it["query"] == "prometheus");
    let uid = read("datasources.yaml")
        .lines()
        .find_map(|it| it.trim().strip_prefix("uid: ").map(|uid| format!("\"uid\": \"{uid}\"")));
    assert!(
        chooses_source || text.contains(&uid.unwrap()),
        "the dashboard has another data source"
    );
}
