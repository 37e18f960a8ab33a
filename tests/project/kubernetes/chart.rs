//! Renders the chart with the libraries of Helm, by `chart.py`. Reads the objects that Kubernetes
//! would get.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// The versions of Kubernetes whose schemas the objects must fit. The first is the oldest that
/// Chart.yaml allows; the last is the newest of the package.
pub const KUBERNETES_VERSIONS: [&str; 3] = ["1.27", "1.32", "1.37"];

/// The namespace of all objects, as `chart.py` names it.
pub const NAMESPACE: &str = "gates";

pub fn project_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[track_caller]
pub fn read_project_file(name: &str) -> String {
    std::fs::read_to_string(project_path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The examples of values in the folder `ci` of the chart.
pub fn value_files() -> Vec<String> {
    let folder = std::fs::read_dir(project_path("contrib/helm/riskgate/ci")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = names.map(|name| format!("ci/{name}")).collect();
    files.sort();
    files
}

/// What the chart gives for some values.
#[derive(Debug)]
pub struct Rendered {
    pub objects: Vec<Value>,
    pub notes: String,
}

impl Rendered {
    /// The object of a kind. The name is the part behind the name of the release.
    #[track_caller]
    pub fn object(&self, kind: &str, name_end: &str) -> &Value {
        let name = format!("riskgate{name_end}");
        let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == *name;
        self.objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |it| it["kind"] == kind)
    }

    /// The Deployment, or the StatefulSet.
    #[track_caller]
    pub fn workload(&self) -> &Value {
        let is_it = |it: &&Value| it["kind"] == "Deployment" || it["kind"] == "StatefulSet";
        let [workload] = self.objects.iter().filter(is_it).collect::<Vec<_>>()[..] else {
            panic!("expected one workload: {:?}", self.objects)
        };
        workload
    }
}

/// Renders the chart once for each request; `chart.py` says what a request is. An answer is an
/// error if Helm refuses the values, or if an object does not fit its schema.
#[track_caller]
pub fn render_all(requests: &[Value]) -> Vec<Result<Rendered, String>> {
    let mut python = Command::new("python3")
        .arg(project_path("tests/project/kubernetes/chart.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(json!(requests).to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "scripts/setup --tests installs what chart.py needs: {stderr}"
    );
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), requests.len());
    answers.into_iter().map(read_answer).collect()
}

fn read_answer(mut answer: Value) -> Result<Rendered, String> {
    if let Some(error) = answer["error"].as_str() {
        return Err(error.to_owned());
    }
    let Value::Array(objects) = answer["objects"].take() else { panic!("{answer}") };
    Ok(Rendered { objects, notes: answer["notes"].as_str().unwrap().to_owned() })
}

#[track_caller]
pub fn render(request: Value) -> Rendered {
    render_all(&[request]).remove(0).unwrap_or_else(|error| panic!("{error}"))
}

/// True if the object has all these labels.
pub fn has_labels(labels: &Value, selector: &Value) -> bool {
    let selector = selector.as_object().unwrap();
    assert!(!selector.is_empty());
    selector.iter().all(|(name, value)| labels[name] == *value)
}
