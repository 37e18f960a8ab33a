//! The built site: the links and headings of its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::links::find_url_fault;
use super::{BINARY, project_root, stderr_text};
use crate::paths::normalize_path;

/// The values of an attribute in a page.
fn find_attributes<'t>(page: &'t str, name: &str) -> impl Iterator<Item = String> + use<'t> {
    let parts = page.split(&format!(" {name}=\"")).skip(1).map(str::to_owned).collect::<Vec<_>>();
    parts.into_iter().filter_map(|part| Some(part.split_once('"')?.0.replace("&amp;", "&")))
}

/// Builds the site into a directory, with the mdBook that scripts/setup --tests installs.
fn build_site(into: &Path) {
    let mdbook = project_root().join("target/tools/site/bin/mdbook");
    assert!(mdbook.exists(), "expected mdBook: scripts/setup --tests installs it");
    let mut command = Command::new(project_root().join("scripts/site"));
    let built = command.arg(BINARY).arg("--into").arg(into).output().unwrap();
    assert!(built.status.success(), "{}", stderr_text(&built));
}

/// The pages of a site, by name. The page for a missing address has links from the root instead.
fn read_pages(book: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(book).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|it| it == "html"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    pages.map(read).filter(|(name, _)| name != "404.html").collect()
}

/// Returns what is wrong with a link of a page, if anything is.
fn find_link_fault(
    book: &Path,
    page: &str,
    link: &str,
    ids: &BTreeMap<String, BTreeSet<String>>,
) -> Option<String> {
    let in_repository = ["/blob/main/", "/tree/main/", "/edit/main/"];
    let path = in_repository.iter().find_map(|it| Some(link.split_once(it)?.1));
    if let Some(path) = path.filter(|_| link.starts_with("https://github.com/riskgate/riskgate/")) {
        let path = path.split('#').next().unwrap();
        return (!project_root().join(path).exists()).then(|| format!("{link} does not exist"));
    }
    // The licences of the lists name authors with their addresses.
    if link.starts_with("mailto:") {
        return None;
    }
    if link.contains(':') {
        return find_url_fault(link);
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() { page } else { path };
    if !normalize_path(&book.join(path)).is_file() {
        return Some(format!("{link} does not exist"));
    }
    let has_id = |anchor| ids.get(path).is_some_and(|ids| ids.contains(anchor));
    (!anchor.is_empty() && !has_id(anchor)).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_link_of_the_site_leads_to_a_page_a_heading_or_a_known_site() {
    let folder = tempfile::tempdir().unwrap();
    build_site(folder.path());
    let book = folder.path().join("book");
    let pages = read_pages(&book);
    let listed = fs::read_to_string(project_root().join("site/pages.toml")).unwrap();
    let count = listed.matches("page = \"").count();
    assert!(count >= 25 && pages.len() > count, "{count} listed, {} built", pages.len());
    let ids: BTreeMap<String, BTreeSet<String>> = pages
        .iter()
        .map(|(name, text)| (name.clone(), find_attributes(text, "id").collect()))
        .collect();
    let (mut faults, mut checked) = (Vec::new(), 0);
    for (name, text) in &pages {
        for link in find_attributes(text, "href").chain(find_attributes(text, "src")) {
            checked += 1;
            let fault = find_link_fault(&book, name, &link, &ids);
            faults.extend(fault.map(|fault| format!("{name}: {fault}")));
        }
    }
    assert!(checked > 500, "{checked}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for (page, anchor) in
        [("http-api.html", "get-v1publicdomaindomain"), ("options.html", "riskgate-keys-create")]
    {
        assert!(ids[page].contains(anchor), "{page}: {:?}", ids[page]);
    }
    let schema = fs::read_to_string(book.join("riskgate.schema.json")).unwrap();
    assert!(schema.contains("json-schema.org"), "{schema}");
    for (page, wrong) in [("index.html", "none.html"), ("index.html", "#no-heading")] {
        assert!(find_link_fault(&book, page, wrong, &ids).is_some(), "{wrong}");
    }
}
