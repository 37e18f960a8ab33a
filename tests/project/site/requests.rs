//! The requests in the documents: each goes to a route of docs/openapi.yaml or docs/admin-api.yaml.

use super::markdown::{Document, read_documents};
use super::shell::split_commands;

/// Routes of the configs in the documents: the port, the method, the path.
const CONFIGURED_ROUTES: [(&str, &str, &str); 2] =
    [("8080", "GET", "/signup"), ("8080", "GET", "/authz")];
/// Options of curl whose next word is no address.
const OPTIONS_WITH_DATA: [&str; 6] = ["-d", "--data", "--data-raw", "--json", "-F", "--form"];

/// A route: the port of its listener by default, its method, its path.
type Route = (&'static str, String, String);

/// All routes of both OpenAPI documents.
fn list_routes() -> Vec<Route> {
    let mut routes = list_routes_of(include_str!("../../../docs/openapi.yaml"), "");
    let of_api = list_routes_of(include_str!("../../../docs/admin-api.yaml"), "/api/v1");
    routes.extend(of_api.into_iter().map(|(_, method, path)| ("9090", method, path)));
    let configured = CONFIGURED_ROUTES.iter();
    routes.extend(
        configured.map(|(port, method, path)| (*port, method.to_string(), path.to_string())),
    );
    routes
}

/// The routes of an OpenAPI document, with lines that are indented as in docs/openapi.yaml. Its
/// paths follow this prefix.
fn list_routes_of(document: &str, prefix: &str) -> Vec<Route> {
    let (mut routes, mut path, mut method) = (Vec::new(), String::new(), String::new());
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("  /").and_then(|rest| rest.strip_suffix(':')) {
            path = format!("{prefix}/{name}");
        } else if let Some(name) = line.strip_prefix("    ").and_then(|rest| rest.strip_suffix(':'))
        {
            method = name.to_ascii_uppercase();
        } else if let Some(tag) = line.strip_prefix("      tags: ") {
            let port = if tag == "[admin]" { "9090" } else { "8080" };
            routes.push((port, method.clone(), path.clone()));
        }
    }
    routes
}

/// Whether a path is one of a route, whose segments may be parameters.
fn matches_path(route: &str, path: &str) -> bool {
    let (route, path) = (route.split('/'), path.split('/'));
    route.clone().count() == path.clone().count()
        && route.zip(path).all(|(wanted, found)| match wanted.starts_with('{') {
            true => !found.is_empty(),
            false => wanted == found,
        })
}

/// The port and the path of an address of riskgate. `ADMIN` stands for the admin listener.
fn find_target(word: &str) -> Option<(&str, &str)> {
    let word = word.split(['?', '#']).next()?;
    if let Some(path) = word.strip_prefix("ADMIN/") {
        return Some(("9090", &word[word.len() - path.len() - 1..]));
    }
    let (authority, _) = word.strip_prefix("http://")?.split_once('/')?;
    let (_, port) = authority.split_once(':')?;
    ["8080", "9090"].contains(&port).then_some((port, &word["http://".len() + authority.len()..]))
}

/// The method of a curl command.
fn find_method(words: &[String]) -> &str {
    let named = words.iter().position(|word| word == "-X" || word == "--request");
    let has = |options: &[&str]| words.iter().any(|word| options.contains(&word.as_str()));
    match named {
        Some(at) => &words[at + 1],
        None if has(&OPTIONS_WITH_DATA) => "POST",
        None if has(&["-I", "--head"]) => "HEAD",
        None => "GET",
    }
}

/// The requests of a document: the command and its port, method and path.
fn find_requests(document: &Document) -> Vec<(String, Route)> {
    let mut texts = document.code_spans();
    let blocks = document.blocks().into_iter();
    let shell = blocks.filter(|it| matches!(it.language.as_deref(), None | Some("sh" | "bash")));
    texts.extend(shell.map(|block| block.text));
    let mut found = Vec::new();
    for words in texts.iter().flat_map(|text| split_commands(text)) {
        for word in &words {
            let Some((port, path)) = find_target(word) else { continue };
            let port = if port == "9090" { "9090" } else { "8080" };
            let method = find_method(&words).to_owned();
            found.push((words.join(" "), (port, method, path.to_owned())));
        }
    }
    found
}

fn is_known(routes: &[Route], (port, method, path): &Route) -> bool {
    let same = |route: &&Route| route.0 == *port && route.1 == *method;
    routes.iter().filter(same).any(|route| matches_path(&route.2, path))
}

#[test]
fn every_request_in_the_documents_goes_to_a_route_of_the_openapi_document() {
    let routes = list_routes();
    assert!(routes.len() > 20, "{routes:?}");
    let mut count = 0;
    for document in read_documents() {
        for (command, request) in find_requests(&document) {
            assert!(is_known(&routes, &request), "{}: {command}: {request:?}", document.name);
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn a_request_to_no_route_is_found() {
    let routes = list_routes();
    for (command, expected) in [
        ("curl http://127.0.0.1:8080/v1/public/domain/a.b", true),
        ("curl http://127.0.0.1:8080/v1/public/domain/", false),
        ("curl http://127.0.0.1:8080/v1/public/domains", false),
        ("curl -d '{}' http://127.0.0.1:8080/v1/public/domains", true),
        ("curl -X POST ADMIN/reload", true),
        ("curl ADMIN/reload", false),
        ("curl http://127.0.0.1:9090/api/v1/keys/key_1/rotate --json '{}'", true),
        ("curl http://127.0.0.1:9090/api/v1/keys//rotate --json '{}'", false),
        ("curl http://127.0.0.1:9090/api/v1/keys/key_1/rotate", false),
        ("curl http://127.0.0.1:8080/api/v1/keys", false),
        ("curl http://127.0.0.1:8080/metrics", false),
        ("curl http://127.0.0.1:9090/metrics", true),
    ] {
        let document = Document { name: String::new(), text: format!("`{command}`\n") };
        let requests = find_requests(&document);
        assert_eq!(requests.len(), 1, "{command}");
        assert_eq!(is_known(&routes, &requests[0].1), expected, "{command}");
    }
}
