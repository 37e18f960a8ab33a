//! Compares docs/admin-api.yaml with the code of the admin API.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use riskgate::gate::screen_rules::ScreenMode;
use riskgate::management::KeyState;
use riskgate::model::verdict::{Reason, Rule, VerdictSource};
use riskgate::observe::metrics::OUTCOMES;

use super::{OPENAPI, append_rust_sources, find_texts_between, read_project_file};

pub const ADMIN_API: &str = include_str!("../../../docs/admin-api.yaml");

/// An operation of the document.
struct Operation<'d> {
    path: &'d str,
    method: &'d str,
    /// The names of its parameters below `components/parameters`.
    parameters: Vec<&'d str>,
    /// The scopes of which a token needs one; empty if no token is needed.
    scopes: Vec<&'d str>,
}

fn operations_in_document() -> Vec<Operation<'static>> {
    let paths = ADMIN_API.split_once("\npaths:\n").unwrap().1;
    let paths = paths.split_once("\ncomponents:\n").unwrap().0;
    let (mut operations, mut path) = (Vec::<Operation<'static>>::new(), "");
    for line in paths.lines() {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        match (indent, text.strip_suffix(':')) {
            (2, Some(text)) => path = text,
            (4, Some(method)) => {
                let (parameters, scopes) = (Vec::new(), Vec::new());
                operations.push(Operation { path, method, parameters, scopes });
            }
            _ => {
                let Some(operation) = operations.last_mut() else { continue };
                operation.parameters.extend(find_texts_between(text, "/parameters/", "\""));
                let scopes = find_texts_between(text, "- token: [", "]");
                operation.scopes.extend(scopes.iter().filter(|scope| !scope.is_empty()));
            }
        }
    }
    operations
}

/// The sources of the admin API.
fn read_api_sources() -> String {
    let mut sources = read_project_file("src/process/admin/api.rs");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/process/admin/api");
    append_rust_sources(&folder, &mut sources);
    sources
}

/// The texts of a list, which stand between quotes.
fn texts_of_list(list: &str) -> Vec<&str> {
    list.split('"').skip(1).step_by(2).collect()
}

/// The reads that concern all accounts, each with its parameters: the rows of `REPORTS`.
fn reports_in_code(source: &str) -> Vec<(&str, Vec<&str>)> {
    let rows = source.split_once("const REPORTS").unwrap().1.split_once("\n];").unwrap().0;
    let rows = rows.split("\n    (\"").skip(1);
    let row = |row| {
        let (name, rest): (&str, &str) = str::split_once(row, "\", &[").unwrap();
        (name, texts_of_list(rest.split_once(']').unwrap().0))
    };
    rows.map(row).collect()
}

/// The routes of the code, and the methods of each. The router matches the segments of a path and
/// the method with patterns such as `(["keys", id], "GET")`.
fn routes_in_code() -> BTreeMap<String, Vec<String>> {
    let source = read_project_file("src/process/admin/api.rs");
    let mut routes = BTreeMap::<String, Vec<String>>::new();
    for (list, rest) in source.split("([").filter_map(|part| part.split_once("], \"")) {
        let segment = |item: &str| match item.trim().strip_prefix('"') {
            Some(text) => format!("/{}", text.trim_end_matches('"')),
            None => "/{}".to_owned(),
        };
        let path: String = list.split(',').map(segment).collect();
        let method = rest.split('"').next().unwrap().to_owned();
        routes.entry(path).or_default().push(method);
    }
    let of_session = find_texts_between(&source, "segments == [\"", "\"]");
    let of_reports = reports_in_code(&source).into_iter().map(|(name, _)| name);
    for name in of_reports.chain(of_session) {
        routes.insert(format!("/{name}"), vec!["GET".to_owned()]);
    }
    // A GET may be a HEAD too.
    for methods in routes.values_mut().filter(|methods| methods[0] == "GET") {
        methods.insert(1, "HEAD".to_owned());
    }
    routes
}

#[test]
fn the_document_lists_exactly_the_routes_and_their_methods() {
    let mut in_docs = BTreeMap::<String, BTreeSet<String>>::new();
    for Operation { path, method, .. } in operations_in_document() {
        let names = find_texts_between(path, "{", "}");
        let path = names.iter().fold(path.to_owned(), |path, name| path.replace(name, ""));
        assert!(in_docs.entry(path).or_default().insert(method.to_ascii_uppercase()));
    }
    let in_code: BTreeMap<String, BTreeSet<String>> = routes_in_code()
        .into_iter()
        .map(|(path, methods)| (path, methods.into_iter().collect()))
        .collect();
    assert!(in_code.len() > 20, "{in_code:?}");
    assert_eq!(in_docs, in_code);
}

#[test]
fn changes_need_the_scope_write_and_reads_allow_it() {
    for Operation { path, method, scopes, .. } in operations_in_document() {
        let is_read = ["get", "head"].contains(&method);
        let expected: &[&[&str]] = match (path, is_read) {
            ("/session", _) => &[&[]],
            (_, true) => &[&["read", "write"], &["read", "write", "account"]],
            (_, false) => &[&["write"]],
        };
        assert!(expected.contains(&&scopes[..]), "{method} {path}: {scopes:?}");
    }
}

#[test]
fn the_document_lists_exactly_the_query_parameters() {
    // The name of each query parameter by the name of its component.
    let parameters = ADMIN_API.split_once("\n  parameters:\n").unwrap().1;
    let parameters = parameters.split_once("\n  headers:\n").unwrap().0;
    let mut names = BTreeMap::new();
    let mut component = "";
    for line in parameters.lines() {
        if let Some(text) = line.strip_prefix("    ").and_then(|line| line.strip_suffix(':'))
            && !text.starts_with(' ')
        {
            component = text;
        } else if let Some(name) = line.strip_prefix("      name: ") {
            names.insert(component, name);
        } else if line.starts_with("      in: ") && line != "      in: query" {
            names.remove(component);
        }
    }
    let in_docs: BTreeSet<Vec<&str>> = operations_in_document()
        .iter()
        .map(|it| it.parameters.iter().filter_map(|it| names.get(it).copied()).collect())
        .collect();
    let source = read_project_file("src/process/admin/api.rs");
    let of_others = find_texts_between(&source, "let parameters = [", "]");
    let of_others = of_others.into_iter().map(texts_of_list);
    let in_code: BTreeSet<Vec<&str>> =
        reports_in_code(&source).into_iter().map(|(_, list)| list).chain(of_others).collect();
    assert!(in_code.len() > 6, "{in_code:?}");
    assert_eq!(in_docs, in_code);
}

#[test]
fn the_document_lists_exactly_the_error_codes() {
    let sources = read_api_sources().split_whitespace().collect::<Vec<_>>().join(" ");
    let errors = sources.split("ApiError::new(").skip(1);
    let in_code: BTreeSet<&str> = errors.filter_map(|call| call.split('"').nth(1)).collect();
    let in_docs = find_texts_between(ADMIN_API, "error: {const: ", "}");
    assert!(in_code.len() >= 10, "{in_code:?}");
    assert_eq!(in_docs, in_code);
}

#[test]
fn the_enumerations_of_the_document_equal_those_of_the_code() {
    let document = ADMIN_API.split_whitespace().collect::<Vec<_>>().join(" ");
    let in_docs: BTreeSet<String> =
        find_texts_between(&document, "enum: [", "]").into_iter().map(str::to_owned).collect();
    let states =
        [KeyState::Active, KeyState::Expired, KeyState::Revoked].map(KeyState::as_str).join(", ");
    let quoted = |text: &String| match text.contains(',') {
        true => format!("{text:?}"),
        false => text.clone(),
    };
    let allow: BTreeSet<String> =
        routes_in_code().into_values().map(|methods| methods.join(", ")).collect();
    // In the order of the source.
    let texts_in_order = |text: &str, before: &str| {
        let texts = text.split(before).skip(1).filter_map(|part| part.split('"').next());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    let audit = read_project_file("src/store/audit.rs");
    let (operations, surfaces): (Vec<String>, Vec<String>) =
        texts_in_order(&audit, " => \"").into_iter().partition(|text| text.contains('.'));
    let access = read_project_file("src/process/admin/access.rs");
    let (session_states, scopes): (Vec<String>, Vec<String>) = texts_in_order(&access, "=> (\"")
        .into_iter()
        .partition(|text| !["read", "write", "account"].contains(&text.as_str()));
    let accounts = read_project_file("src/process/admin/api/accounts.rs");
    let sorts: BTreeSet<&str> = find_texts_between(&accounts, "Some(\"", "\")");
    let overrides = read_project_file("src/management/overrides.rs");
    let modes = [ScreenMode::Shadow, ScreenMode::Annotate, ScreenMode::Block];
    let modes = modes.map(ScreenMode::as_str);
    let made = ["allowed", "denied", "cleared"];
    assert!(made.iter().all(|action| overrides.contains(&format!("{action:?}"))));
    let in_code: BTreeSet<String> = [
        OUTCOMES.join(", "),
        Reason::ALL.map(Reason::as_str).join(", "),
        VerdictSource::ALL.map(VerdictSource::as_str).join(", "),
        Rule::ALL.map(Rule::as_str).join(", "),
        states.clone(),
        format!("{states}, \"\""),
        allow.iter().map(quoted).collect::<Vec<_>>().join(", "),
        operations.join(", "),
        surfaces.join(", "),
        session_states.join(", "),
        format!("{}, null", scopes.join(", ")),
        format!("{}, \"\"", sorts.into_iter().collect::<Vec<_>>().join(", ")),
        "unlimited, plan, null".to_owned(),
        "allow, deny".to_owned(),
        "allow, deny, set".to_owned(),
        "up, down".to_owned(),
        modes.join(", "),
        made.join(", "),
    ]
    .into();
    assert_eq!(in_docs, in_code);
}

#[test]
fn both_documents_describe_the_status_alike() {
    for schema in ["Degraded", "Screening", "Reloaded", "Status"] {
        let of_document = |document: &'static str| {
            let start = format!("\n    {schema}:\n");
            let schemas = document.split_once("\n  schemas:\n").unwrap().1;
            let (_, schema) = schemas.split_once(&start).unwrap();
            let lines = schema.lines().take_while(|line| line.starts_with("      "));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(of_document(ADMIN_API), of_document(OPENAPI), "{schema}");
    }
}

#[test]
fn each_component_of_the_document_is_used_and_exists() {
    let mut kind = "";
    let mut defined = BTreeSet::new();
    for line in ADMIN_API.split_once("\ncomponents:\n").unwrap().1.lines() {
        let name = line.trim_start();
        match line.len() - name.len() {
            2 => kind = name.trim_end_matches(':'),
            4 if kind != "securitySchemes" => {
                _ = defined.insert(format!("{kind}/{}", name.split(':').next().unwrap()));
            }
            _ => {}
        }
    }
    let used = find_texts_between(ADMIN_API, "\"#/components/", "\"");
    assert_eq!(defined.iter().map(String::as_str).collect::<BTreeSet<_>>(), used);
}

#[test]
fn the_document_has_the_version_of_the_crate() {
    assert!(ADMIN_API.contains(&format!("  version: {}\n", env!("CARGO_PKG_VERSION"))));
}
