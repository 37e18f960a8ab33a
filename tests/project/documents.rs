//! Compares the documents with the code. Each metric, setting and log line in a document must exist
//! in the code. docs/openapi.yaml and docs/admin-api.yaml must list the routes, and the fields and
//! texts of the responses.
//!
//! These tests read files only. `scripts/conformance` checks the responses of a running gateway
//! against the OpenAPI documents.

mod admin_api;

use std::collections::BTreeSet;
use std::path::Path;

use riskgate::decide::Action;
use riskgate::model::domain::DomainError;
use riskgate::model::email::EmailError;
use riskgate::model::refusal::{MANY_INBOXES, Refusal};
use riskgate::model::route_label::RouteLabel;
use riskgate::model::verdict::{Reason, Score, VerdictSource};
use riskgate::observe::metrics::{Metrics, OUTCOMES};
use riskgate::process::admin::PROBLEM_COMPONENTS;

use admin_api::ADMIN_API;

const OPENAPI: &str = include_str!("../../docs/openapi.yaml");
const SHIPPED_CONFIG: &str = include_str!("../../conf/riskgate.toml");

/// The documents for operators and callers, with their paths.
fn read_documents() -> Vec<(&'static str, String)> {
    [
        "README.md",
        "SECURITY.md",
        "docs/admin-api.yaml",
        "docs/assess.md",
        "docs/auth-hooks.md",
        "docs/commands.md",
        "docs/configuration.md",
        "docs/decisions.md",
        "docs/guarantees.md",
        "docs/openapi.yaml",
        "docs/operations.md",
        "docs/privacy.md",
        "docs/proxies.md",
        "docs/redis.md",
        "docs/signup-form.md",
        "docs/table.md",
        "docs/webhooks.md",
    ]
    .map(|name| (name, read_project_file(name)))
    .to_vec()
}

fn read_project_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn all_refusals() -> [Refusal; 23] {
    [
        Refusal::BadRequest,
        Refusal::Unauthorized,
        Refusal::Forbidden { origin: String::new() },
        Refusal::NotFound,
        Refusal::MethodNotAllowed { allow: "".into() },
        Refusal::RequestTimeout,
        Refusal::ContentTooLarge,
        Refusal::UriTooLong,
        Refusal::ExpectationFailed,
        Refusal::EmailRefused {
            message: "Please use another e-mail address.".into(),
            reason: "disposable",
            suggestion: None,
        },
        Refusal::FormUnreadable { why: "encoded", suggestion: None },
        Refusal::FormUnreadable { why: MANY_INBOXES, suggestion: None },
        Refusal::InvalidDomain(DomainError::InvalidLabel),
        Refusal::InvalidEmail(EmailError::NoAt),
        Refusal::InvalidTarget(""),
        Refusal::InvalidBatch(String::new()),
        Refusal::InvalidAssessment(String::new()),
        Refusal::TooManyRequests { retry_after_seconds: 1 },
        Refusal::QuotaExceeded { reset_at: String::new(), retry_after_seconds: 1 },
        Refusal::HeadersTooLarge,
        Refusal::Internal,
        Refusal::UpstreamUnavailable,
        Refusal::UpstreamTimeout,
    ]
}

/// The texts between backticks.
fn texts_in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The texts between `before` and the next `after`.
fn find_texts_between<'t>(text: &'t str, before: &str, after: &str) -> BTreeSet<&'t str> {
    let parts = text.split(before).skip(1);
    parts.filter_map(|part| part.split_once(after)).map(|(found, _)| found).collect()
}

#[test]
fn the_openapi_document_lists_exactly_the_error_codes_and_messages() {
    let refusals = all_refusals();
    let in_docs = find_texts_between(OPENAPI, "error: {const: ", "}");
    assert_eq!(in_docs, refusals.iter().map(Refusal::code).collect());
    let in_docs = find_texts_between(OPENAPI, "message: {const: ", "}");
    assert_eq!(in_docs, refusals.iter().map(Refusal::message).collect());
    for refusal in &refusals {
        let status = format!("        \"{}\":", refusal.status());
        assert!(OPENAPI.contains(&status), "{status}");
    }
    // OUTCOMES also lists all refusals, so this comparison shows that `all_refusals` lacks none.
    let codes: BTreeSet<&str> = refusals.iter().map(Refusal::code).collect();
    let no_refusals =
        ["ok", "redirected", "fallback", "upstream_4xx", "upstream_5xx", "aborted", "other"];
    assert_eq!(codes, OUTCOMES.into_iter().filter(|it| !no_refusals.contains(it)).collect());
}

#[test]
fn the_openapi_document_lists_exactly_the_routes() {
    let in_docs: BTreeSet<String> = OPENAPI
        .lines()
        .filter_map(|line| line.strip_prefix("  /")?.strip_suffix(':'))
        .map(|path| format!("/{}", path.split('{').next().unwrap()))
        .collect();
    let routes = read_project_file("src/gate/route.rs");
    let mut in_code: BTreeSet<String> = find_texts_between(&routes, " = b\"/", "\";")
        .into_iter()
        .map(|path| format!("/{path}"))
        .collect();
    in_code.extend(
        find_texts_between(&routes, ": &str = \"/", "\";").into_iter().map(|it| format!("/{it}")),
    );
    assert_eq!(in_code.len(), 6, "{in_code:?}");
    let pages = read_project_file("src/process/admin.rs");
    let pages = pages
        .split_once("let needs_token = match path")
        .unwrap()
        .1
        .split_once("\n    }")
        .unwrap()
        .0;
    in_code
        .extend(find_texts_between(pages, "\"/", "\"").into_iter().map(|page| format!("/{page}")));
    // The page and its files, whose names are a parameter.
    let page = read_project_file("src/process/admin/page.rs");
    let folder = |path: &str| format!("/{}", &path[..path.rfind('/').map_or(0, |at| at + 1)]);
    in_code.extend(find_texts_between(&page, "(\"/", "\",").into_iter().map(folder));
    assert_eq!(in_docs, in_code);
}

#[test]
fn the_openapi_document_lists_every_response_header() {
    let fields = read_project_file("src/message/response/header_field.rs");
    let of_http = ["content-length", "content-type", "transfer-encoding", "date", "connection"];
    let quoted = fields.split("mod tests").next().unwrap().split('"');
    let field_names =
        quoted.filter_map(|text| text.strip_suffix(": ")).map(str::to_ascii_lowercase);
    let names: Vec<String> = field_names.filter(|it| !of_http.contains(&it.as_str())).collect();
    assert!(names.len() >= 16, "{names:?}");
    let document = OPENAPI.to_ascii_lowercase();
    for name in names {
        assert!(document.contains(&format!("        {name}:")), "{name}");
    }
    let reply = ["response.rs", "response/cors.rs"]
        .map(|file| read_project_file(&format!("src/message/{file}")))
        .concat();
    // A backslash at the end of a line continues the string in the next line.
    let reply = reply.split("\\\n").map(str::trim_start).collect::<String>();
    let exposed = find_texts_between(&reply, "EXPOSED_HEADERS: &str = \"", "\"");
    let allowed = find_texts_between(&reply, "ALLOWED_REQUEST_HEADERS: &str = \"", "\"");
    assert_eq!((exposed.len(), allowed.len()), (1, 1));
    let document: String = OPENAPI.split_whitespace().collect::<Vec<_>>().join(" ");
    for value in exposed.into_iter().chain(allowed) {
        assert!(document.contains(value), "{value}");
    }
}

/// The components that riskgate reports in `/readyz`: the first word of each reason.
fn components_reported_in_code() -> BTreeSet<String> {
    let mut reload = read_project_file("src/process/reload.rs");
    append_rust_sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/process/reload"),
        &mut reload,
    );
    let noted = find_texts_between(&reload, "record_part(\"", "\"").into_iter().map(str::to_owned);
    noted.chain(PROBLEM_COMPONENTS.map(str::to_owned)).collect()
}

#[test]
fn the_openapi_document_lists_exactly_the_components_that_readyz_reports() {
    let pattern = find_texts_between(OPENAPI, "pattern: \"^(?:", ")(?:: |$)\"");
    let [allowed] = pattern.into_iter().collect::<Vec<_>>()[..] else { panic!("one pattern") };
    let allowed: BTreeSet<String> = allowed.split('|').map(str::to_owned).collect();
    assert_eq!(allowed, components_reported_in_code());
}

#[test]
fn the_enumerations_of_the_openapi_document_equal_those_of_the_code() {
    let list = |words: Vec<String>| words.join(", ");
    let reasons = |all: &mut dyn Iterator<Item = Reason>| {
        list(all.map(|reason| reason.as_str().to_owned()).collect())
    };
    let admin = read_project_file("src/process/admin.rs");
    let methods = find_texts_between(&admin, "method_not_allowed_response(\"", "\", \"");
    let only = find_texts_between(&admin, "method_not_allowed_response(\"", ")").into_iter();
    let texts: BTreeSet<&str> = only.filter_map(|call| call.split('"').nth(2)).collect();
    let quoted = |text: &str| match text.contains([',', '\\']) {
        true => format!("{text:?}").replace("\\\\", "\\"),
        false => text.to_owned(),
    };
    // The values of `X-Riskgate-Source`.
    let response = read_project_file("src/message/response.rs");
    let forwarding = read_project_file("src/exchange/forwarding.rs");
    let sources = [forwarding, response].map(|text| {
        let found = find_texts_between(&text, "X_RISKGATE_SOURCE_FIELD, b\"", "\"");
        found.into_iter().map(str::to_owned).collect::<Vec<_>>()
    });
    let in_code: BTreeSet<String> = [
        list(sources.concat()),
        reasons(&mut Reason::ALL.into_iter()),
        // The `detail` of a refused address.
        format!("{}, rule", reasons(&mut Reason::ALL.into_iter())),
        list(Action::ALL.map(|action| action.as_str().to_owned()).to_vec()),
        reasons(&mut Reason::ALL.into_iter().filter(|reason| !reason.is_safe())),
        list(VerdictSource::ALL.map(|source| source.as_str().to_owned()).to_vec()),
        list(methods.into_iter().map(quoted).collect()),
        list(texts.into_iter().map(quoted).collect()),
    ]
    .into();
    let in_docs: BTreeSet<String> =
        find_texts_between(OPENAPI, "enum: [", "]").into_iter().map(str::to_owned).collect();
    assert_eq!(in_docs, in_code);
}

#[test]
fn the_openapi_documents_list_the_fixed_texts_of_the_admin_listener() {
    let admin = ["admin.rs", "admin/connection.rs"]
        .map(|file| read_project_file(&format!("src/process/{file}")))
        .concat();
    // rustfmt wraps some of the calls.
    let admin = admin.split_whitespace().collect::<Vec<_>>().join(" ");
    let admin = admin.replace("( ", "(").replace(", )", ")");
    let fixed_texts = find_texts_between(&admin, "text_response(StatusCode::", "\")");
    let fixed_texts: BTreeSet<&str> =
        fixed_texts.iter().filter_map(|call| call.split('"').nth(1)).collect();
    let in_docs: BTreeSet<&str> = [OPENAPI, ADMIN_API]
        .into_iter()
        .flat_map(|document| find_texts_between(document, "const: \"", "\"}"))
        .filter(|text| text.ends_with("\\n"))
        .collect();
    let in_code: BTreeSet<&str> =
        fixed_texts.into_iter().filter(|text| text.ends_with("\\n")).collect();
    assert_eq!(in_docs, in_code);
}

#[test]
fn table_md_and_the_api_documents_have_the_named_scores() {
    let table_md = read_project_file("docs/table.md");
    let named = [
        ("flagged", Score::MIN_FLAGGED),
        ("risky", Score::MIN_RISKY),
        ("refused", Score::DEFAULT_BLOCK_SCORE),
    ];
    for (word, score) in named {
        let row = format!("| {word} | {} or more |", score.value());
        assert!(table_md.contains(&row), "docs/table.md: expected {row}");
    }
    for (member, score) in [("is_flagged", Score::MIN_FLAGGED), ("is_risky", Score::MIN_RISKY)] {
        let text = format!("{member}: {{description: Whether the score is {}", score.value());
        assert!(ADMIN_API.contains(&text), "docs/admin-api.yaml: expected {text}");
    }
    let of_check =
        format!("Whether the address is risky: its score is {}", Score::MIN_RISKY.value());
    assert!(OPENAPI.contains(&of_check), "docs/openapi.yaml: expected {of_check}");
}

#[test]
fn the_openapi_document_has_the_version_of_the_crate() {
    assert!(OPENAPI.contains(&format!("  version: {}\n", env!("CARGO_PKG_VERSION"))));
}

/// The pipeline compares these versions with what the servers say of themselves.
#[test]
fn redis_md_has_the_versions_of_the_tested_servers() {
    let stages = read_project_file("tests/pipeline/stages.py");
    let (_, list) = stages.split_once("\nSTORE_SERVERS = {\n").unwrap();
    let (list, _) = list.split_once("\n}\n").unwrap();
    let in_code = find_texts_between(list, "    \"", "\": TOOLS");
    assert_eq!(in_code.len(), list.lines().count());
    let document = read_project_file("docs/redis.md");
    let (_, table) = document.split_once("\n| Server | Tests |\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.split_once(" | "));
    let in_docs: BTreeSet<&str> = rows.map(|(server, _)| server).collect();
    let of_debian = in_docs.iter().filter(|server| server.contains("Debian"));
    assert_eq!(of_debian.count(), 1);
    let others = in_docs.into_iter().filter(|server| !server.contains("Debian"));
    assert_eq!(others.collect::<BTreeSet<&str>>(), in_code);
}

#[test]
fn metrics_in_documents_exist_and_every_metric_is_in_a_document() {
    let metrics = String::from_utf8(Metrics::new().unwrap().render()).unwrap();
    // A family without series is not rendered, and the names of the process metrics are not in the
    // source text.
    let groups = [
        "connections",
        "dns",
        "reloads",
        "requests",
        "store",
        "table",
        "traces",
        "upstream",
        "webhook",
    ];
    let source =
        groups.map(|group| read_project_file(&format!("src/observe/metrics/{group}.rs"))).concat();
    let word = |text: &str| -> BTreeSet<String> {
        let parts = text.split("riskgate_").skip(1);
        let end = |part: &str| part.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        let names = parts.map(|part| &part[..end(part).unwrap_or(part.len())]);
        names.filter(|name| !name.is_empty()).map(|name| format!("riskgate_{name}")).collect()
    };
    let types = metrics.lines().filter(|line| line.starts_with("# TYPE "));
    let in_code = word(&[source, types.collect::<Vec<_>>().join("\n")].concat());
    assert!(in_code.len() > 40 && metrics.contains("# TYPE riskgate_keys gauge"), "{in_code:?}");
    let mut in_docs = BTreeSet::new();
    for (document, text) in read_documents() {
        for name in word(&text) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let known = in_code.contains(&name) || base.is_some_and(|base| in_code.contains(base));
            assert!(known, "{document} names {name}");
            in_docs.insert(name);
        }
    }
    let silent: Vec<_> = in_code.difference(&in_docs).collect();
    assert!(silent.is_empty(), "docs/operations.md does not say what {silent:?} mean");
}

/// Every `section.key` of the config, including keys without a default. A paragraph before a
/// section may list keys, each with its meaning behind two blanks.
pub(crate) fn setting_names_in_shipped_config() -> BTreeSet<String> {
    let is_key = |key: &str| {
        let is_good = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        !key.is_empty() && key.bytes().all(is_good)
    };
    let (mut section, mut listed) = (String::new(), Vec::new());
    let mut settings = BTreeSet::new();
    for line in SHIPPED_CONFIG.lines() {
        let comment = line.strip_prefix("# ");
        let text = comment.unwrap_or(line);
        let item = comment.and_then(|it| it.strip_prefix("  ")?.split_once("  "));
        if line.is_empty() {
            listed.clear();
        } else if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim_matches(['[', ']']).to_owned();
            settings.extend(listed.drain(..).map(|key| format!("{section}.{key}")));
        } else if let Some((key, _)) = text.split_once(" = ")
            && is_key(key.trim())
        {
            settings.insert(format!("{section}.{}", key.trim()));
        } else if let Some((key, _)) = item.filter(|(key, _)| is_key(key)) {
            listed.push(key);
        }
    }
    settings
}

/// The settings that take effect without a restart, as the head of the shipped config lists them:
/// each section or setting, and what it lacks.
pub(crate) fn reloaded_in_shipped_config() -> Vec<(String, Vec<String>)> {
    let text = SHIPPED_CONFIG.replace("\n# ", " ");
    let (_, list) = text.split_once("without a restart: ").unwrap();
    let (list, _) = list.split_once(". All others take effect at a restart").unwrap();
    let words = |text: &str| -> Vec<String> {
        text.replace(" and ", ", ").split(", ").map(str::to_owned).collect()
    };
    let mut reloaded = Vec::new();
    for part in list.split_inclusive(')') {
        let (names, lacking) = part.split_once(" (but ").unwrap_or((part, ""));
        let names = words(names.trim_start_matches([',', ' ']));
        reloaded.extend(names.into_iter().map(|name| (name, Vec::new())));
        reloaded.last_mut().unwrap().1 = words(lacking.trim_end_matches(')'));
    }
    reloaded
}

#[test]
fn every_setting_that_a_document_names_exists() {
    let settings = setting_names_in_shipped_config();
    assert!(settings.contains("store.url") && settings.contains("admin.token"), "{settings:?}");
    let sections: BTreeSet<&str> =
        settings.iter().filter_map(|it| it.split_once('.')).map(|(section, _)| section).collect();
    let mut named = 0;
    for (document, text) in read_documents() {
        for word in texts_in_backticks(&text) {
            let setting = word.split([' ', '=']).next().unwrap();
            let Some((section, key)) = setting.split_once('.') else { continue };
            let is_key = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if sections.contains(section) && is_key && !["db", "toml"].contains(&key) {
                let known = settings.contains(setting) || setting == "upstream.route";
                assert!(known, "{document} names {setting}");
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn the_alerts_name_each_outcome_that_refunds_and_each_route_that_riskgate_serves() {
    let alerts = read_project_file("contrib/prometheus/alerts.yml");
    let names_of_alert = |alert: &str, label: &str| -> BTreeSet<String> {
        let (_, rule) = alerts.split_once(&format!("- alert: {alert}\n")).unwrap();
        let (_, names) = rule.split_once(&format!("{label}=~\"")).unwrap();
        names.split('"').next().unwrap().split('|').map(str::to_owned).collect()
    };
    let refusals = all_refusals();
    let refunding = refusals.iter().filter(|it| it.refunds_call()).map(Refusal::code);
    // A client may leave before it gets the answer of such a refusal.
    let refunding = refunding.chain(["aborted"]).map(str::to_owned).collect();
    assert_eq!(names_of_alert("RiskgateRefundsExceedFailures", "outcome"), refunding);
    let mut routes = names_of_alert("RiskgateLookupsSlow", "route");
    routes.append(&mut names_of_alert("RiskgateForwardedRequestsSlow", "route"));
    // Neither a preflight nor a refusal without a route is worth an alert.
    let labels = RouteLabel::ALL.map(RouteLabel::as_str).into_iter();
    let labels = labels.filter(|it| !["options", "none"].contains(it));
    assert_eq!(routes, labels.map(str::to_owned).collect());
}

#[test]
fn every_log_line_quoted_in_operations_md_is_in_the_code() {
    let mut sources = String::new();
    append_rust_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let operations = read_project_file("docs/operations.md");
    let lines: BTreeSet<&str> = texts_in_backticks(&operations)
        .filter(|text| ["info: ", "warn: ", "error: "].iter().any(|level| text.starts_with(level)))
        .collect();
    assert!(lines.len() >= 8, "{lines:?}");
    for line in lines {
        let words = line.split_once(": ").unwrap().1;
        // A reload prints lines that begin with the name of the component.
        let part = ["config ", "table ", "keys ", "store ", "certificates "]
            .iter()
            .find_map(|it| words.strip_prefix(it));
        let words = part.unwrap_or(words).split('…').map(|it| it.trim_matches([' ', ':']));
        for part in words.filter(|part| part.len() > 3) {
            assert!(sources.contains(part), "no code writes {part:?} of {line:?}");
        }
    }
}

fn append_rust_sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            append_rust_sources(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") {
            into.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// What only a published release has.
const OF_A_RELEASE: [&str; 4] =
    ["ghcr.io/riskgate", "/riskgate/releases", "gh attestation", "crates.io/crates/riskgate"];

/// The addresses of a release in a text outside the section for them, with their lines.
fn find_addresses_of_a_release(text: &str) -> Vec<String> {
    let is_named = |line: &&str| OF_A_RELEASE.iter().any(|address| line.contains(address));
    let mut is_in_section = false;
    let outside = text.lines().filter(|line| {
        if line.starts_with("## ") {
            is_in_section = *line == "## Once a release is published";
        }
        !is_in_section
    });
    outside.filter(is_named).map(str::to_owned).collect()
}

#[test]
fn documents_name_what_a_published_release_has_in_one_place_only() {
    let mut documents = read_documents();
    for name in ["docs/install.md", "docs/admin.md", "contrib/compose/README.md", "CONTRIBUTING.md"]
    {
        documents.push((name, read_project_file(name)));
    }
    documents.push(("helm", read_project_file("contrib/helm/riskgate/README.md")));
    for (name, text) in &documents {
        assert_eq!(find_addresses_of_a_release(text), [""; 0], "{name}");
    }
    let install = read_project_file("docs/install.md");
    assert!(install.contains("ghcr.io/riskgate"), "the section has the addresses");
    let other = install.replace("## Once a release is published", "## Image");
    assert!(find_addresses_of_a_release(&other).len() > 1);
}
