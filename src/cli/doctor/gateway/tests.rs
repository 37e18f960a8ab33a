use serde_json::json;

use super::*;
use crate::store::FindingLevel;

#[test]
fn a_gateway_that_is_not_ready_gets_advice_about_the_reason() {
    let advice = |body: Value| describe_unready(&body).1;
    assert_eq!(advice(json!({ "draining": true })), "wait until its drain has ended");
    let problem = "keys: expected a store, but found an empty server";
    let unready = json!({ "draining": false, "degraded": [problem] });
    assert!(describe_unready(&unready).0.contains(problem));
    assert!(advice(unready).starts_with("mend what it names"));
    assert_eq!(advice(json!({ "draining": false, "degraded": [] })), "read its log");
}

#[test]
fn problems_are_faults_and_a_feed_that_serves_its_last_list_is_a_warning() {
    let findings = judge_status(&json!({
        "version": "0.0.1",
        "problems": [
            { "component": "clock", "problem": "it jumps", "advice": "Set it." },
            { "component": "dns", "problem": "no answer", "advice": "See to it." },
            { "component": "feeds", "problem": "feed b: 404", "advice": "See to it." },
        ],
        "needs_restart": ["listen.http"],
        "table": { "warnings": ["it is old"] },
        "feeds": [
            { "name": "a", "rows": 3, "fetched_at": "2026-11-01T00:00:00Z", "problem": null },
            { "name": "b", "rows": 3, "fetched_at": "2026-11-01T00:00:00Z", "problem": "404" },
            { "name": "c", "rows": 0, "fetched_at": null, "problem": null },
            { "name": "d", "rows": 0, "fetched_at": null, "problem": "404" },
        ],
        "dns": { "problem": "no answer" },
    }));
    let found: Vec<_> = findings.iter().map(|it| (&*it.subject, it.level)).collect();
    let expected = [
        ("version", FindingLevel::Warning),
        ("clock", FindingLevel::Fault),
        ("restart", FindingLevel::Warning),
        ("table", FindingLevel::Warning),
        ("feed a", FindingLevel::Good),
        ("feed b", FindingLevel::Warning),
        ("feed c", FindingLevel::Warning),
        ("feed d", FindingLevel::Warning),
        ("dns", FindingLevel::Warning),
    ];
    assert_eq!(found, expected);
    let advice = |subject: &str| {
        let finding = findings.iter().find(|it| it.subject == subject).unwrap();
        (finding.found.as_str(), finding.advice.as_deref().unwrap())
    };
    assert_eq!(advice("clock"), ("it jumps", "set it."));
    assert!(advice("feed b").1.ends_with("the last list serves on"));
    let never = ("never fetched: 404", "see that this machine reaches its url");
    assert_eq!(advice("feed d"), never);
    // The status of the DNS does not tell that a thread could not be started.
    let problem = json!({ "component": "dns", "problem": "no thread", "advice": "Wait." });
    let findings = judge_status(&json!({ "problems": [problem], "dns": { "problem": null } }));
    let dns = findings.iter().find(|it| it.subject == "dns").unwrap();
    assert_eq!(dns.level, FindingLevel::Fault);
}
