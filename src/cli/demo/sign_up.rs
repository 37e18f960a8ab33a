//! The sign-up page of `riskgate demo`: a backend that knows nothing of e-mail domains, behind a
//! screened route.
//!
//! - riskgate refuses throw-away addresses and common typing errors. The script of the page shows
//!   the message of the refusal. Without a script, riskgate sends the browser back to the page.
//! - riskgate forwards a form with a rare typing error, and suggests a provider to this backend.
//!   The backend then asks the user.

use crate::screening::{FieldPath, read_query_values};

/// The path of the page.
pub const PATH: &str = "/signup";
/// Where riskgate sends a browser whose form it refuses.
pub const REFUSED_TARGET: &str = "/signup?email=refused";

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:30rem;margin:2rem auto;\
                     padding:0 1rem;color-scheme:light dark}\
                     input,button{font:inherit;padding:.4rem .8rem;margin:.3rem .3rem .3rem 0}\
                     .refused{color:#b00020}small{opacity:.7}";

/// What riskgate told this backend about a posted form, in its `X-Riskgate-` fields.
#[derive(Debug, Default)]
pub struct RiskgateFields {
    pub action: String,
    pub reason: String,
    pub score: String,
    pub suggestion: String,
}

/// The script of the page. It shows the message of a refusal on the page that has the typed
/// address, so that the user need not type the address again.
const SCRIPT: &str = r#"
const form = document.getElementById("sign-up"), answer = document.getElementById("answer");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  document.getElementById("use-suggestion")?.remove();
  let posted = null;
  try {
    posted = await fetch(form.action, {method: "POST", body: fields});
  } catch {
    // The user may be offline: the browser says so.
  }
  if (posted?.status !== 422) {
    // Only a 422 is about the address. Everything else is shown as without a script.
    if (posted?.ok) {
      const page = await posted.text();
      document.open(); document.write(page); document.close();
    } else {
      form.submit();
    }
    return;
  }
  const refusal = await posted.json(), provider = posted.headers.get("X-Did-You-Mean");
  answer.textContent = refusal.message;
  if (provider) {
    const corrected = form.email.value.replace(/@.*$/, "@" + provider);
    const button = document.createElement("button");
    button.id = "use-suggestion";
    button.type = "button";
    button.textContent = "Yes, use it";
    button.onclick = () => { form.email.value = corrected; form.requestSubmit(); };
    answer.textContent = `Did you mean ${corrected}?`;
    answer.after(button);
  }
});
"#;

/// Renders the page for a GET.
pub fn render_form_page(query: &str) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = |name: &str| pairs.clone().find(|(key, _)| *key == name).map(|(_, value)| value);
    let mut alert = String::new();
    if value("email") == Some("refused") {
        alert.push_str("Please use another e-mail address.");
        if let Some(provider) = value("did_you_mean") {
            alert.push_str(&format!(" Did you mean one of {}?", escape_html(provider)));
        }
    }
    render_page(&format!(
        r#"<form id="sign-up" method="post" action="{PATH}"><label for="email">E-mail address</label><br><input id="email" name="email" type="text" inputmode="email" autocomplete="email" required autofocus> <button>Sign up</button></form><p id="answer" class="refused" role="alert">{alert}</p><p><small>Try <b>you@yopmail.com</b>, <b>you@gmial.com</b>, <b>you@gmaul.com</b> and your own address.</small></p><script>{SCRIPT}</script>"#
    ))
}

/// Renders the page for a posted form: a question about a typing error, or a welcome.
pub fn render_answer_page(body: &[u8], told: &RiskgateFields) -> String {
    let read = |name: &str| {
        let field: Vec<FieldPath> = FieldPath::parse(name).into_iter().collect();
        read_query_values(body, &field).values.into_iter().next().unwrap_or_default()
    };
    let email = read("email");
    let is_confirmed = read("confirmed") == "yes";
    if let Some((local_part, _)) = email.rsplit_once('@')
        && !told.suggestion.is_empty()
        && !is_confirmed
    {
        let corrected = format!("{local_part}@{}", told.suggestion);
        return render_page(&format!(
            r#"<p role="alert">Did you mean <b>{}</b>?</p>{}{}"#,
            escape_html(&corrected),
            render_hidden_form(&corrected, "Yes, use it"),
            render_hidden_form(&email, "No, keep mine"),
        ));
    }
    let told = [
        ("X-Riskgate-Action", &told.action),
        ("X-Riskgate-Reason", &told.reason),
        ("X-Riskgate-Score", &told.score),
    ];
    let told = told.map(|(name, value)| format!("{name}: {}", escape_html(value))).join("<br>");
    render_page(&format!(
        "<p role=\"status\">Welcome, <b>{}</b>.</p><p><small>riskgate told this backend:<br>{told}\
         </small></p><p><a href=\"{PATH}\">Again</a></p>",
        escape_html(&email)
    ))
}

/// Renders a form that shows only its button.
fn render_hidden_form(email: &str, button: &str) -> String {
    format!(
        r#"<form method="post" action="{PATH}"><input type="hidden" name="email" value="{}"><input type="hidden" name="confirmed" value="yes"><button>{button}</button></form>"#,
        escape_html(email)
    )
}

fn render_page(content: &str) -> String {
    format!(
        r#"<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign up</title><style>{STYLE}</style></head><body><h1>Sign up</h1>{content}</body></html>"#
    )
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests;
