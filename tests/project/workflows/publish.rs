//! Tests publish-image of scripts/release-tools with skopeo and a registry on loopback, and
//! publish-release with a stand-in for gh that writes its arguments to a file.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::tools::{Ran, find_tool, project_root, run, run_well};
use super::version::{VERSIONED_FILES, copy_files};
use crate::free_ports::free_address;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A registry for images on a free port of loopback.
struct Registry {
    process: Child,
    address: String,
    _folder: TempDir,
}

impl Registry {
    fn start() -> Registry {
        let folder = tempfile::tempdir().unwrap();
        let address = free_address().to_string();
        let config = folder.path().join("config.yml");
        let storage = folder.path().display();
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {storage}}}}}\n\
             http: {{addr: {address}}}\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(find_tool("docker-registry"));
        command.arg("serve").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap_or_else(|e| panic!("docker-registry: {e}"));
        let registry = Registry { process, address, _folder: folder };
        let limit = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(&registry.address).is_err() {
            assert!(Instant::now() < limit, "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }

    /// The manifest of an image, by `:TAG` or by `@DIGEST`.
    fn read_manifest(&self, reference: &str) -> Ran {
        let image = format!("docker://{}/riskgate/riskgate{reference}", self.address);
        run(Command::new("skopeo").args(["inspect", "--raw", "--tls-verify=false", &image]))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Copies of a script and of the files with the version, and a folder for files to publish.
fn copy_with_script(script: &str) -> TempDir {
    let copy = copy_files();
    let script = format!("scripts/release-tools/{script}");
    fs::copy(project_root().join(&script), copy.path().join(&script)).unwrap();
    fs::create_dir_all(copy.path().join("target/release-files")).unwrap();
    copy
}

fn replace_version(copy: &Path, version: &str) {
    for name in VERSIONED_FILES {
        let file = copy.join(name);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace(VERSION, version)).unwrap();
    }
}

/// Writes an image for two architectures to the files to publish.
fn build_image(copy: &Path) {
    fs::create_dir_all(copy.join("root/etc")).unwrap();
    fs::write(copy.join("root/etc/group"), "root:x:0:\n").unwrap();
    fs::write(copy.join("binary"), "not a real one").unwrap();
    let mut command = Command::new(project_root().join("packaging/oci-image"));
    command.args(["--output", "target/release-files/image.tar", "--root", "root"]);
    command.args(["--version", VERSION, "--epoch", "1700000000"]);
    command.args(["--binary", "amd64=binary", "--binary", "arm64=binary"]);
    run_well(command.current_dir(copy));
}

fn publish_image(copy: &Path, registry: &Registry) -> Ran {
    let image = format!("{}/riskgate/riskgate", registry.address);
    let mut command = Command::new(copy.join("scripts/release-tools/publish-image"));
    run(command.args([&image, "--dest-tls-verify=false"]))
}

#[test]
fn the_image_is_pushed_for_both_architectures_under_all_tags_of_the_version() {
    let (registry, copy) = (Registry::start(), copy_with_script("publish-image"));
    build_image(copy.path());
    let ran = publish_image(copy.path(), &registry);
    assert!(ran.is_success, "{}", ran.errors);
    let pushed = registry.read_manifest(&format!("@{}", ran.output.trim()));
    for architecture in ["amd64", "arm64"] {
        let expected = format!("\"architecture\":\"{architecture}\"");
        assert!(pushed.output.contains(&expected), "{}{}", pushed.output, pushed.errors);
    }
    for tag in [VERSION, VERSION.rsplit_once('.').unwrap().0, "latest"] {
        assert_eq!(registry.read_manifest(&format!(":{tag}")).output, pushed.output, "{tag}");
    }
}

/// `docker load` reads the same file of the archive as the transport docker-archive, unless Docker
/// has the containerd image store.
#[test]
fn an_older_docker_can_load_the_image_of_each_architecture() {
    let copy = copy_with_script("publish-image");
    build_image(copy.path());
    for (suffix, architecture) in [("", "amd64"), ("-arm64", "arm64")] {
        let archive = "docker-archive:target/release-files/image.tar";
        let image = format!("{archive}:riskgate:{VERSION}{suffix}");
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["inspect", "--config", "--raw", &image]).current_dir(copy.path());
        let config: serde_json::Value = serde_json::from_str(&run_well(&mut skopeo)).unwrap();
        assert_eq!(config["architecture"], architecture);
    }
}

#[test]
fn a_pre_release_of_the_image_has_no_tag_but_its_version() {
    let (registry, copy) = (Registry::start(), copy_with_script("publish-image"));
    build_image(copy.path());
    replace_version(copy.path(), "9.8.7-rc.1");
    let ran = publish_image(copy.path(), &registry);
    assert!(ran.is_success, "{}", ran.errors);
    assert!(registry.read_manifest(":9.8.7-rc.1").is_success);
    for tag in ["9.8", "9.8.7-rc", "latest"] {
        assert!(!registry.read_manifest(&format!(":{tag}")).is_success, "{tag}");
    }
}

#[test]
fn without_an_image_nothing_is_pushed() {
    let (registry, copy) = (Registry::start(), copy_with_script("publish-image"));
    fs::write(copy.path().join("target/release-files/other.tar"), "no archive").unwrap();
    let ran = publish_image(copy.path(), &registry);
    assert!(!ran.is_success && ran.errors.contains("expected one OCI archive, but found 0"));
}

/// Runs publish-release with a stand-in for gh. Returns the arguments of gh too.
fn publish_release(copy: &Path, tag: &str) -> (Ran, String) {
    let gh = copy.join("bin/gh");
    fs::create_dir_all(copy.join("bin")).unwrap();
    fs::write(&gh, "#!/bin/sh\necho \"$*\" >>\"$(dirname \"$0\")/asked\"\n").unwrap();
    fs::set_permissions(&gh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", copy.join("bin").display(), std::env::var("PATH").unwrap());
    let script = copy.join("scripts/release-tools/publish-release");
    let ran = run(Command::new(script).arg(tag).env("PATH", path));
    (ran, fs::read_to_string(copy.join("bin/asked")).unwrap_or_default())
}

fn write_release_files(copy: &Path) {
    let files = copy.join("target/release-files");
    fs::write(files.join("riskgate.tar.gz"), "binary").unwrap();
    let sums = run_well(Command::new("sha256sum").arg("riskgate.tar.gz").current_dir(&files));
    fs::write(files.join("SHA256SUMS"), sums + "\n").unwrap();
}

#[test]
fn a_release_has_the_notes_of_the_changelog_and_all_files() {
    let copy = copy_with_script("publish-release");
    write_release_files(copy.path());
    let (ran, asked) = publish_release(copy.path(), &format!("v{VERSION}"));
    assert!(ran.is_success, "{}", ran.errors);
    let begin =
        format!("release create v{VERSION} --verify-tag --title riskgate {VERSION} --notes-file /");
    assert!(asked.starts_with(&begin), "{asked}");
    let end = " target/release-files/SHA256SUMS target/release-files/riskgate.tar.gz\n";
    assert!(asked.ends_with(end) && !asked.contains("--prerelease"), "{asked}");
}

#[test]
fn a_pre_release_is_marked_as_such() {
    let copy = copy_with_script("publish-release");
    write_release_files(copy.path());
    replace_version(copy.path(), "9.8.7-rc.1");
    let (ran, asked) = publish_release(copy.path(), "v9.8.7-rc.1");
    assert!(ran.is_success && asked.contains(" --prerelease "), "{}{asked}", ran.errors);
}

#[test]
fn a_wrong_tag_or_a_wrong_checksum_creates_no_release() {
    let copy = copy_with_script("publish-release");
    write_release_files(copy.path());
    let (ran, asked) = publish_release(copy.path(), "v9.8.7");
    assert!(!ran.is_success && asked.is_empty(), "{asked}");
    fs::write(copy.path().join("target/release-files/riskgate.tar.gz"), "other").unwrap();
    let (ran, asked) = publish_release(copy.path(), &format!("v{VERSION}"));
    assert!(!ran.is_success && asked.is_empty(), "{asked}");
}
