//! Runs the container of a pod as a process: with its arguments, its environment, and its volumes
//! as folders. The folders are as the kubelet makes them: the files of ConfigMaps and Secrets are
//! symbolic links that change all at once, and everybody may write to an emptyDir. Where no volume
//! is mounted at /etc/riskgate, the process finds the config of the image.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::chart::{Rendered, read_project_file};
use super::process::{BINARY, Process, free_address, get, run_without_warning, wait_until};

/// Where the image has its config.
const CONFIG_FOLDER: &str = "/etc/riskgate";

/// The keys of Secrets with their texts, by the name of the Secret.
pub type Secrets = BTreeMap<&'static str, Vec<(&'static str, String)>>;

/// The first container of a pod, with its volumes.
pub struct Pod {
    pub spec: Value,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: tempfile::TempDir,
    /// Each path in the container, and the folder that stands for it; longer paths first.
    mounts: Vec<(String, PathBuf)>,
    /// Each port in the container, and the address that stands for it.
    addresses: BTreeMap<u64, SocketAddr>,
}

impl Pod {
    /// Prepares the pod of a workload or Job. Panics if a mount has no volume, or if a Secret
    /// lacks a key.
    #[track_caller]
    pub fn new(rendered: &Rendered, owner: &Value, secrets: &Secrets) -> Pod {
        let spec = owner["spec"]["template"]["spec"].clone();
        let [container] = &spec["containers"].as_array().unwrap()[..] else { panic!("{spec}") };
        let folder = tempfile::tempdir().unwrap();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut mounts: Vec<(String, PathBuf)> = list(&container["volumeMounts"])
            .iter()
            .map(|mount| {
                let path = mount["mountPath"].as_str().unwrap().to_owned();
                (path, folder.path().join(mount["name"].as_str().unwrap()))
            })
            .collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let ports = list(&container["ports"]);
        let ports = ports.iter().map(|port| port["containerPort"].as_u64().unwrap());
        let addresses = ports.map(|port| (port, free_address())).collect();
        let strings = |value: &Value| -> Vec<String> {
            list(value).iter().map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        let variables = list(&container["env"]);
        let arguments = strings(&container["args"]);
        let mut pod = Pod {
            spec: spec.clone(),
            arguments,
            environment: Vec::new(),
            folder,
            mounts,
            addresses,
        };
        pod.environment = variables.iter().map(|it| pod.read_variable(it)).collect();
        pod.fill_volumes(rendered, owner, secrets);
        pod.name_found_config();
        pod
    }

    /// Names the config that riskgate finds in the container, unless the pod names one: the process
    /// would look for it on this machine.
    fn name_found_config(&mut self) {
        if self.environment.iter().any(|(name, _)| name == "RISKGATE_CONFIG") {
            return;
        }
        let folder = self.mounts.iter().find(|(path, _)| path == CONFIG_FOLDER);
        let folder = folder.map_or_else(|| self.write_image_config(), |(_, it)| it.clone());
        let config = folder.join("riskgate.toml");
        if config.exists() {
            self.environment.push(("RISKGATE_CONFIG".to_owned(), config.display().to_string()));
        }
    }

    /// Writes the config of the image, and returns its folder.
    fn write_image_config(&self) -> PathBuf {
        let folder = self.folder.path().join("config-of-the-image");
        let text = self.localize(&read_project_file("packaging/riskgate.toml"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("riskgate.toml"), text).unwrap();
        folder
    }

    fn read_variable(&self, variable: &Value) -> (String, String) {
        let text = |name: &str| variable[name].as_str().unwrap();
        (text("name").to_owned(), self.localize(text("value")))
    }

    /// Puts the paths and addresses of this machine in place of those of the container.
    pub fn localize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, folder) in &self.mounts {
            text = text.replace(path, &folder.display().to_string());
        }
        for (port, address) in &self.addresses {
            for host in ["0.0.0.0", "[::]"] {
                text = text.replace(&format!("{host}:{port}"), &address.to_string());
            }
        }
        text
    }

    fn fill_volumes(&self, rendered: &Rendered, owner: &Value, secrets: &Secrets) {
        let claims = owner["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
        let claimed = claims.iter().map(|claim| claim["metadata"]["name"].as_str().unwrap());
        let volumes = self.spec["volumes"].as_array().unwrap();
        let mut names: Vec<&str> = volumes.iter().map(|it| it["name"].as_str().unwrap()).collect();
        names.extend(claimed);
        for name in &names {
            let folder = self.folder.path().join(name);
            assert!(self.mounts.iter().any(|(_, it)| *it == folder), "{name} is not mounted");
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(0o2777)).unwrap();
        }
        for (path, folder) in &self.mounts {
            assert!(folder.is_dir(), "{path} has no volume");
        }
        for volume in volumes {
            let folder = self.folder.path().join(volume["name"].as_str().unwrap());
            if let Some(name) = volume["configMap"]["name"].as_str() {
                assert!(name.starts_with("riskgate"), "{name}");
                let data = &rendered.object("ConfigMap", &name["riskgate".len()..])["data"];
                let data = data.as_object().unwrap().iter();
                let files =
                    data.map(|(key, text)| (key.clone(), text.as_str().unwrap().to_owned()));
                self.write_files(&folder, files.collect());
            } else if let Some(name) = volume["secret"]["secretName"].as_str() {
                let secret = secrets.get(name).unwrap_or_else(|| panic!("no Secret {name}"));
                self.write_files(&folder, select_items(secret, &volume["secret"]["items"]));
            }
        }
    }

    /// Writes the files of a volume as the kubelet does: into a new folder, to which it then moves
    /// the link `..data`.
    fn write_files(&self, folder: &Path, files: Vec<(String, String)>) {
        let version = tempfile::Builder::new().prefix("..").tempdir_in(folder).unwrap().keep();
        for (name, text) in &files {
            fs::write(version.join(name), self.localize(text)).unwrap();
            let link = folder.join(name);
            if fs::symlink_metadata(&link).is_err() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        symlink(version.file_name().unwrap(), folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    /// Updates the files of the ConfigMap.
    pub fn update_config(&self, rendered: &Rendered) {
        let data = rendered.object("ConfigMap", "")["data"].as_object().unwrap().iter();
        let files = data.map(|(key, text)| (key.clone(), text.as_str().unwrap().to_owned()));
        self.write_files(&self.folder.path().join("config"), files.collect());
    }

    /// Updates the file of the Secret with the admin token.
    pub fn update_admin_token(&self, token: &str) {
        let files = vec![("token".to_owned(), token.to_owned())];
        self.write_files(&self.folder.path().join("admin"), files);
    }

    /// The address that stands for a port of the container.
    pub fn address(&self, port: u64) -> SocketAddr {
        self.addresses[&port]
    }

    /// A command in the container, as `kubectl exec` runs it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        let folder = self.mounts.iter().find(|(path, _)| path == "/var/lib/riskgate");
        let folder = folder.map_or(self.folder.path(), |(_, folder)| folder);
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command in the container that must succeed and warn of nothing. Returns its standard
    /// output.
    #[track_caller]
    pub fn exec(&self, arguments: &[&str]) -> String {
        run_without_warning(&mut self.command(arguments))
    }

    /// Runs the container to its end, which must be a success.
    #[track_caller]
    pub fn run_to_end(&self) -> String {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.exec(&arguments)
    }

    /// Starts the container.
    pub fn start(&self) -> RunningPod<'_> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let log = fs::File::create(self.folder.path().join("stderr.log")).unwrap();
        let mut command = self.command(&arguments);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        RunningPod { pod: self, process: Process(child) }
    }
}

/// The files of a Secret as a volume has them: those of `items`, or all keys.
#[track_caller]
fn select_items(secret: &[(&str, String)], items: &Value) -> Vec<(String, String)> {
    let Some(items) = items.as_array() else {
        return secret.iter().map(|(key, text)| ((*key).to_owned(), text.clone())).collect();
    };
    let files = items.iter().map(|item| {
        let found = secret.iter().find(|(key, _)| item["key"] == *key);
        let (_, text) = found.unwrap_or_else(|| panic!("no key for {item}"));
        (item["path"].as_str().unwrap().to_owned(), text.clone())
    });
    files.collect()
}

/// A pod whose container runs. Dropping this value kills it.
pub struct RunningPod<'p> {
    pod: &'p Pod,
    pub process: Process,
}

impl RunningPod<'_> {
    /// The status of a probe of the container; 0 without an answer.
    pub fn probe(&self, name: &str) -> u16 {
        let probe = &self.pod.spec["containers"][0][name]["httpGet"];
        let ports = self.pod.spec["containers"][0]["ports"].as_array().unwrap();
        let port = ports.iter().find(|it| it["name"] == probe["port"]).expect("a named port");
        let address = self.pod.address(port["containerPort"].as_u64().unwrap());
        get(address, probe["path"].as_str().unwrap(), None).map_or(0, |(status, _)| status)
    }

    #[track_caller]
    pub fn wait_for_probe(&self, name: &str, status: u16) {
        wait_until(&format!("{name} is {status}: {}", self.log()), || self.probe(name) == status);
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.pod.folder.path().join("stderr.log")).unwrap()
    }
}
