//! Serves the files of the operator's page, which are in the binary and contain no data.

use http::{HeaderValue, Response, StatusCode};

use super::responses::{HTML_TYPE, build_response};

const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";
const STYLE_TYPE: &str = "text/css; charset=utf-8";
const IMAGE_TYPE: &str = "image/svg+xml";

/// The path, the content type and the content of each file.
const FILES: [(&str, &str, &str); 27] = [
    ("/", HTML_TYPE, include_str!("page/index.html")),
    ("/page/account.js", SCRIPT_TYPE, include_str!("page/account.js")),
    ("/page/accounts.js", SCRIPT_TYPE, include_str!("page/accounts.js")),
    ("/page/api.js", SCRIPT_TYPE, include_str!("page/api.js")),
    ("/page/audit.js", SCRIPT_TYPE, include_str!("page/audit.js")),
    ("/page/cells.js", SCRIPT_TYPE, include_str!("page/cells.js")),
    ("/page/charts.js", SCRIPT_TYPE, include_str!("page/charts.js")),
    ("/page/csv.js", SCRIPT_TYPE, include_str!("page/csv.js")),
    ("/page/dom.js", SCRIPT_TYPE, include_str!("page/dom.js")),
    ("/page/domains.js", SCRIPT_TYPE, include_str!("page/domains.js")),
    ("/page/format.js", SCRIPT_TYPE, include_str!("page/format.js")),
    ("/page/forms.js", SCRIPT_TYPE, include_str!("page/forms.js")),
    ("/page/health.js", SCRIPT_TYPE, include_str!("page/health.js")),
    ("/page/icon.svg", IMAGE_TYPE, include_str!("page/icon.svg")),
    ("/page/key_dialogs.js", SCRIPT_TYPE, include_str!("page/key_dialogs.js")),
    ("/page/keys.js", SCRIPT_TYPE, include_str!("page/keys.js")),
    ("/page/list.js", SCRIPT_TYPE, include_str!("page/list.js")),
    ("/page/lists.js", SCRIPT_TYPE, include_str!("page/lists.js")),
    ("/page/main.js", SCRIPT_TYPE, include_str!("page/main.js")),
    ("/page/page.css", STYLE_TYPE, include_str!("page/page.css")),
    ("/page/plans.js", SCRIPT_TYPE, include_str!("page/plans.js")),
    ("/page/screening.js", SCRIPT_TYPE, include_str!("page/screening.js")),
    ("/page/servers.js", SCRIPT_TYPE, include_str!("page/servers.js")),
    ("/page/session.js", SCRIPT_TYPE, include_str!("page/session.js")),
    ("/page/traffic.js", SCRIPT_TYPE, include_str!("page/traffic.js")),
    ("/page/usage.js", SCRIPT_TYPE, include_str!("page/usage.js")),
    ("/page/verdicts.js", SCRIPT_TYPE, include_str!("page/verdicts.js")),
];

/// Lets the page load only its own files, and keeps it from running inline scripts and from making
/// HTML of text.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Returns true if the path is that of the page or of one of its files.
pub(super) fn is_page_file(path: &str) -> bool {
    find_file(path).is_some()
}

fn find_file(path: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    FILES.iter().find(|(known, _, _)| *known == path)
}

/// Answers with the file at this path.
pub(super) fn serve_file(path: &str) -> Response<Vec<u8>> {
    let Some((_, content_type, content)) = find_file(path) else {
        return build_response(StatusCode::NOT_FOUND, "text/plain", Vec::new());
    };
    let mut response = build_response(StatusCode::OK, content_type, (*content).into());
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/process/admin/page");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if name == "index.html" { "/".to_owned() } else { format!("/page/{name}") };
            assert!(is_page_file(&path), "{name} is missing in FILES");
        }
    }
}
