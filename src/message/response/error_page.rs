//! The page that a person sees in place of a JSON error.

use http::StatusCode;

/// The policy that allows the page only its own style (Content Security Policy Level 3).
pub const PAGE_CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Renders the page of an error with this status. `suggestion` is the provider that the person
/// probably meant.
pub fn render_error_page(status: u16, message: &str, suggestion: Option<&str>) -> String {
    let status = StatusCode::from_u16(status).unwrap_or_default();
    let title = status.canonical_reason().unwrap_or("Error");
    let message = escape_html(message);
    let suggestion = suggestion.map_or(String::new(), |provider| {
        format!("<p>Did you mean <strong>{}</strong>?</p>\n", escape_html(provider))
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>body{{font:1.1em/1.5 system-ui,sans-serif;max-width:32em;margin:15vh auto;\
         padding:0 1em;color-scheme:light dark}}h1{{font-size:1.3em}}</style>\n\
         <h1>{message}</h1>\n{suggestion}</html>\n"
    )
}

/// Escapes the characters that have a meaning in HTML.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
