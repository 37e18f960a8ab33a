//! The links of the documents, as a reader of the repository follows them.

use std::collections::BTreeMap;
use std::path::Path;

use super::markdown::{Document, read_documents};
use super::project_root;
use crate::paths::normalize_path;

/// The sites that a document may link to. A test has no network, so a new one needs a look by hand.
const EXTERNAL_SITES: [&str; 8] = [
    "https://github.com/cloudflare/pingora",
    "https://github.com/riskgate/riskgate",
    "https://keepachangelog.com",
    "https://mozilla.org",
    "https://nexte.st",
    "https://rustup.rs",
    "https://semver.org",
    "https://www.standardwebhooks.com",
];
/// Paths in documents that exist only on the reader's machine.
const PATHS_OF_READERS: [&str; 4] =
    ["conf/overrides.csv", "conf/keys.toml", "conf/redis-ca.pem", "conf/upstream-ca.pem"];

/// Returns what is wrong with the address of another site, if anything is.
pub fn find_url_fault(url: &str) -> Option<String> {
    if url.starts_with("http://127.0.0.1:") {
        return None;
    }
    let is_plain = url
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte));
    if !is_plain || !url.starts_with("https://") {
        return Some(format!("{url} is no valid address with https"));
    }
    // What follows the name of a site must not make it the name of another site.
    let continues = |rest: &str| rest.is_empty() || rest.starts_with(['/', '#', '?']);
    let is_known = EXTERNAL_SITES.iter().any(|site| url.strip_prefix(site).is_some_and(continues));
    (!is_known)
        .then(|| format!("{url} is on no site of EXTERNAL_SITES in tests/project/site/links.rs"))
}

fn find_link_fault(
    document: &Document,
    target: &str,
    documents: &BTreeMap<&str, &Document>,
) -> Option<String> {
    if target.contains(':') {
        return find_url_fault(target);
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(&document.name).parent().unwrap();
    let name = match path {
        "" => document.name.clone(),
        path => normalize_path(&folder.join(path)).display().to_string(),
    };
    if !project_root().join(&name).exists() {
        return Some(format!("{target} does not exist"));
    }
    let has_anchor =
        |anchor| documents.get(name.as_str()).is_some_and(|it| it.anchors().contains(anchor));
    (!anchor.is_empty() && !has_anchor(anchor)).then(|| format!("{target}: no such heading"))
}

#[test]
fn every_link_of_a_document_leads_to_a_file_a_heading_or_a_known_site() {
    let documents = read_documents();
    let by_name = documents.iter().map(|it| (it.name.as_str(), it)).collect();
    let (mut faults, mut count) = (Vec::new(), 0);
    for document in &documents {
        for target in document.links() {
            count += 1;
            let fault = find_link_fault(document, &target, &by_name);
            faults.extend(fault.map(|fault| format!("{}: {fault}", document.name)));
        }
    }
    assert!(count > 80, "{count}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_broken_link_is_found() {
    let text = "# One\n\n[a](#one) [b](#two) [c](none.md) [d](http://x.test)\n\
                [e](https://rustup.rs.x.test)\n";
    let document = Document { name: "docs/x.md".to_owned(), text: text.to_owned() };
    let by_name = BTreeMap::from([("docs/x.md", &document)]);
    let mut faults = Vec::new();
    for target in document.links() {
        faults.extend(find_link_fault(&document, &target, &by_name));
    }
    // docs/x.md itself does not exist, so the first two links have a fault too.
    assert_eq!(faults.len(), 5, "{faults:?}");
    assert_eq!(find_url_fault("https://rustup.rs/"), None);
    assert!(find_url_fault("https://github.com/riskgate/riskgate-x").is_some());
}

#[test]
fn every_path_of_the_repository_that_a_document_names_exists() {
    let folders = [
        "benches", "conf", "contrib", "data", "docs", "examples", "fuzz", "scripts", "src", "tests",
    ];
    let mut count = 0;
    for document in read_documents() {
        for span in document.code_spans() {
            let word = span.split(' ').next().unwrap();
            let is_path = word.split_once('/').is_some_and(|(folder, _)| folders.contains(&folder));
            let is_pattern = word.contains(['*', '<', '…', '{', '$']);
            let path = word.trim_end_matches(['/', ',', '.']);
            if is_path && !is_pattern && !PATHS_OF_READERS.contains(&path) {
                assert!(project_root().join(path).exists(), "{} names {word}", document.name);
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}
