//! What the running gateway says of itself on its admin listener.

use serde_json::Value;
use ureq::Agent;

use super::ages::count_days_since;
use crate::cli::http_client::describe_http_error;
use crate::config::Config;
use crate::model::month::parse_rfc3339;
use crate::model::network::loopback_if_unspecified;
use crate::store::Finding;
use crate::support::counted::CountedNoun;

/// Asks for `/readyz` and, if the gateway answers, for `/status`. `token` is a token of the admin
/// API.
pub(super) fn check_gateway(client: &Agent, config: &Config, token: Option<&str>) -> Vec<Finding> {
    const SUBJECT: &str = "gateway";
    let base = format!("http://{}", loopback_if_unspecified(config.startup.admin));
    let ready = match get_json(client, &format!("{base}/readyz"), token) {
        Ok((200, _)) => Finding::good(SUBJECT, format!("{base} says that it is ready")),
        Ok((status, body)) => {
            let (why, advice) = describe_unready(&body);
            Finding::fault(SUBJECT, format!("not ready: {status} {why}"), advice)
        }
        Err(found) => {
            let advice = "start it with riskgate run, or name the config that it runs with by -c";
            let found = format!("expected an answer of {base}, but found {found}");
            return vec![Finding::fault(SUBJECT, found, advice)];
        }
    };
    let mut findings = vec![ready];
    match get_json(client, &format!("{base}/status"), token) {
        Ok((200, status)) => findings.extend(judge_status(&status)),
        Ok((401, _)) if token.is_some() => findings.push(Finding::fault(
            "status",
            "the gateway refuses the token of --token-file",
            "name a file with a token that the config has as admin.token",
        )),
        Ok((403, _)) if token.is_some() => findings.push(Finding::fault(
            "status",
            "the token of --token-file may read one account only",
            "name a file with a token that has the scope read or write",
        )),
        Ok((401 | 403, _)) => findings.push(Finding::warning(
            "status",
            "hidden, because the config has admin tokens",
            "name a file with one of them by --token-file",
        )),
        Ok((status, _)) => {
            let found = format!("expected /status, but found {status}");
            findings.push(Finding::fault("status", found, "see what listens at listen.admin"));
        }
        Err(found) => findings.push(Finding::fault("status", found, "ask again")),
    }
    findings
}

/// Sends a GET. Returns the status of the answer and its JSON, which is null if the body is no
/// JSON.
fn get_json(client: &Agent, url: &str, token: Option<&str>) -> Result<(u16, Value), String> {
    let request = client.get(url);
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    let mut response = request.call().map_err(describe_http_error)?;
    let body = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
    Ok((response.status().as_u16(), serde_json::from_str(&body).unwrap_or_default()))
}

/// Says in short why a gateway is not ready, by the body of `/readyz`, and what to do about it.
fn describe_unready(body: &Value) -> (String, &'static str) {
    let problems: Vec<String> = iter_texts(&body["degraded"]).collect();
    match body["draining"] == true {
        true => ("it drains".to_owned(), "wait until its drain has ended"),
        false if problems.is_empty() => ("for no reason that it names".to_owned(), "read its log"),
        false => (problems.join(", "), "mend what it names: /status has advice for each"),
    }
}

/// Returns the texts of a JSON array.
fn iter_texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

/// Makes the findings from the JSON of `/status`.
fn judge_status(status: &Value) -> Vec<Finding> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (running, own) = (text(&status["version"]), env!("CARGO_PKG_VERSION"));
    let mut findings = vec![match running == own {
        true => Finding::good("version", running),
        false => {
            let found = format!("{running}, and this command is of {own}");
            Finding::warning("version", found, "upgrade or restart the gateway")
        }
    }];
    let problems = status["problems"].as_array().into_iter().flatten();
    let problems = problems.filter(|problem| !has_own_finding(problem, status));
    findings.extend(problems.map(|it| {
        let advice = begin_in_lower_case(&text(&it["advice"]));
        Finding::fault(text(&it["component"]), text(&it["problem"]), advice)
    }));
    if !has_problem(status, "clock") {
        findings.push(Finding::good("clock", "the gateway believes the clock of its store"));
    }
    findings.extend(iter_texts(&status["needs_restart"]).map(|setting| {
        Finding::warning("restart", format!("{setting} has changed"), "restart the gateway")
    }));
    let warnings = iter_texts(&status["table"]["warnings"]);
    let advice = "renew the lists of table.path, or fetch some by [[table.feed]]";
    findings.extend(warnings.map(|warning| Finding::warning("table", warning, advice)));
    findings.extend(status["feeds"].as_array().into_iter().flatten().map(judge_feed));
    if let Some(problem) = status["dns"]["problem"].as_str() {
        let advice = "see that the resolvers of dns.resolvers answer";
        findings.push(Finding::warning("dns", problem, advice));
    }
    findings
}

/// A finding has its advice behind a semicolon.
fn begin_in_lower_case(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().into_iter().flat_map(char::to_lowercase).chain(rest).collect()
}

/// Returns true if another finding than a fault tells this problem: that of a feed, or that of
/// `dns` in the status.
fn has_own_finding(problem: &Value, status: &Value) -> bool {
    match problem["component"].as_str() {
        Some("feeds") => true,
        Some("dns") => problem["problem"] == status["dns"]["problem"],
        _ => false,
    }
}

fn has_problem(status: &Value, component: &str) -> bool {
    let mut problems = status["problems"].as_array().into_iter().flatten();
    problems.any(|problem| problem["component"] == component)
}

/// Makes the finding of one feed of `/status`. After a failed fetch, the last list of the feed
/// serves on, if there is one. So a failed fetch is a warning and no fault.
fn judge_feed(feed: &Value) -> Finding {
    let subject = format!("feed {}", feed["name"].as_str().unwrap_or_default());
    let rows = feed["rows"].as_u64().unwrap_or_default();
    let fetched_at = feed["fetched_at"].as_str().and_then(parse_rfc3339);
    let fetched = match fetched_at {
        Some(at) => {
            let rows = CountedNoun(usize::try_from(rows).unwrap_or(usize::MAX), "row");
            let days = usize::try_from(count_days_since(at)).unwrap_or_default();
            format!("{rows}, fetched {} ago", CountedNoun(days, "day"))
        }
        None => "never fetched".to_owned(),
    };
    match feed["problem"].as_str() {
        Some(problem) => {
            let advice = match fetched_at {
                Some(_) => "see that this machine reaches its url; the last list serves on",
                None => "see that this machine reaches its url",
            };
            Finding::warning(subject, format!("{fetched}: {problem}"), advice)
        }
        None if fetched_at.is_none() => {
            let advice = "wait for the first fetch, or run riskgate table update";
            Finding::warning(subject, fetched, advice)
        }
        None => Finding::good(subject, fetched),
    }
}

#[cfg(test)]
mod tests;
