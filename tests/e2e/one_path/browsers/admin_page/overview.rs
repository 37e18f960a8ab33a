//! The sections that show what goes on: health, traffic, verdicts, screening and lists.

use crate::harness::{CertificateAuthority, MockUpstream, free_address, get, request, wait_until};

use super::operator::{hook, setup, start_signed_in};

#[test]
fn a_broken_config_is_shown_with_what_to_do_until_it_is_mended() {
    let (gateway, page) = start_signed_in(setup());
    page.wait_for_text("ready", "It accepts requests, and no part reports a problem.");
    assert_eq!(page.count(&hook("problem")), 0);
    let sound = std::fs::read_to_string(&gateway.config).unwrap();
    gateway.edit_config(|text| text.replace("free = 1000", "free = \"many\""));
    // The page asks again by itself.
    page.wait_for_text("problem", "plans.free");
    let problem = page.text("problem");
    assert!(problem.contains("What to do: Correct the line that the text names."), "{problem}");
    page.wait_for_text("ready", "Ready, 1 problem");
    page.wait_for_text_in("#top-state", "Ready, 1 problem");
    page.expect_console_fault(
        "/api/v1/reload - Failed to load resource: the server responded with a status of 422",
    );
    page.click("reload");
    page.wait_for_text("error", "plans.free");
    std::fs::write(&gateway.config, sound.replace("[log]", "[log]\nmax_bytes = 9000000")).unwrap();
    page.click("reload");
    page.wait_for_text("reloaded", "Reloaded. ");
    page.wait_for_absence(&hook("problem"));
    page.wait_for_text("needs-restart", "log.max_bytes");
    assert_eq!(page.count(&hook("error")), 0);
}

#[test]
fn a_reload_of_the_page_reads_the_lists_again() {
    let (gateway, page) = start_signed_in(setup());
    let key = gateway.create_active_key("acme", &[]);
    let before = gateway.sum_of_samples("riskgate_reloads_total", &[]);
    gateway.lists().replace_by_rename("role.txt", "lists.test\nmore.test\n");
    page.click("reload");
    page.wait_for_text("reloaded", "table: ok");
    let verdict = gateway.get_domain("more.test", &key).expect(200).json();
    assert_eq!(verdict["reason"], "role_account");
    assert!(gateway.sum_of_samples("riskgate_reloads_total", &[]) > before);
    page.go_to("lists", "Lists and feeds");
    let row = page.browser.text(&format!("{}[data-name=\"role.txt\"]", hook("list-row")));
    assert!(row.contains("role") && row.contains('2'), "{row}");
}

#[test]
fn traffic_is_shown_as_charts_with_a_table_and_a_summary() {
    let (gateway, page) = start_signed_in(setup());
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..30 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    for _ in 0..10 {
        gateway.get_domain("first.test", "rg_unknown").expect(401);
    }
    page.go_to("traffic", "Traffic");
    let minute_charts = "#section .plot svg circle.point";
    wait_until("points are drawn at once", || page.count(minute_charts) >= 3);
    page.click("minutes-60");
    wait_until("the address names the time", || page.browser.url().ends_with("?minutes=60"));
    let chart = |name: &str, part: &str| format!("{} {part}", hook(&format!("chart-{name}")));
    for (name, series) in [
        ("requests", "ok"),
        ("refused", "unauthorized"),
        ("latency", "p99"),
        ("verdicts", "disposable"),
    ] {
        page.wait_for_text_in(&chart(name, "table.legend"), series);
        assert!(page.count(&chart(name, ".plot svg path.line")) >= 1, "{name}");
        assert_eq!(page.count(&chart(name, ".plot svg[role=img][aria-label]")), 1, "{name}");
    }
    // The harness has sent requests too.
    let count = |outcome: &str| gateway.sum_of_samples("riskgate_requests_total", &[outcome]);
    let (all, ok) = (count(""), count("outcome=\"ok\""));
    assert!(ok >= 30.0 && all - ok >= 10.0, "{ok} of {all}");
    let share = ((all - ok) * 100.0 / all).floor();
    let summary = page.browser.text(&chart("refused", "> .quiet"));
    assert_eq!(summary, format!("{share} % of all requests in 1 hour."));
    page.click_on(&chart("requests", "summary"));
    page.wait_for_text_in(&chart("requests", ".scroll table"), "/");
    page.go_to("verdicts", "Verdicts");
    let row = page.text("verdict-row");
    assert!(row.starts_with("disposable") && row.contains("30"), "{row}");
    let seed = page.browser.text(&format!("{}:last-child", hook("top-domain-row")));
    assert!(seed.ends_with('–'), "nobody has asked about it: {seed}");
    page.click_on(&format!("{}:first-child a", hook("top-domain-row")));
    page.wait_for_text("lookup-result", "first.test");
}

#[test]
fn servers_routes_and_certificates_are_shown_with_their_state() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), MockUpstream::start());
    let authority = CertificateAuthority::new(folder.path());
    let certificate = authority.issue_certificate("site", "DNS:site.test,DNS:*.site.test");
    let dead = free_address();
    let routes = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                  max_per_client = \"100/10m\"\n[upstream.route.screen]\n\
                  fields = [\"email\", \"user.mail\"]\nmode = \"annotate\"\n\
                  [[upstream.route]]\nprefix = \"/\"\nkey = false\n";
    let setup = setup().with_upstreams(&[upstream.address, dead]).append_toml(routes);
    let setup = setup.set_text("upstream.health_interval", "50ms");
    let (_gateway, page) = start_signed_in(setup.with_certificates(&[certificate]));
    page.go_to("servers", "Servers and routes");
    let row = |hook_name: &str, name: &str| {
        page.browser.text(&format!("{}[data-name=\"{name}\"]", hook(hook_name)))
    };
    for (address, state, failure) in
        [(upstream.address, "up", "none since the start"), (dead, "down", "just now: ")]
    {
        let of_server = format!("{}[data-name=\"{address}\"]", hook("server-row"));
        page.wait_for_text_in(&format!("{of_server}[data-state={state}]"), failure);
    }
    let signup = row("route-row", "/signup");
    let settings = ["POST", "no", "annotate", "email, user.mail", "score 80", "100/10m"];
    assert!(settings.iter().all(|setting| signup.contains(setting)), "{signup}");
    let others = row("route-row", "/");
    assert!(others.contains("all") && others.contains("not screened"), "{others}");
    let certificate = page.text("certificate-row");
    for part in ["site.pem", "site.test, *.site.test", "in "] {
        assert!(certificate.contains(part), "{certificate}");
    }
}

#[test]
fn screened_forms_are_counted_by_route_action_and_domain() {
    let upstream = MockUpstream::start();
    let route = |prefix: &str, mode: &str| {
        format!(
            "[[upstream.route]]\nprefix = \"{prefix}\"\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\"]\nmode = \"{mode}\"\n"
        )
    };
    let routes = route("/signup", "block") + &route("/contact", "shadow");
    let setup = setup().with_upstreams(&[upstream.address]).append_toml(&routes);
    let (gateway, page) = start_signed_in(setup);
    for (path, domain, count) in
        [("/signup", "first.test", 3), ("/contact", "second.test", 2), ("/signup", "gmail.com", 1)]
    {
        let form = request("POST", path)
            .with_header("Content-Type", "application/x-www-form-urlencoded")
            .body(&format!("email=jane%40{domain}"));
        for _ in 0..count {
            gateway.send_request(&form);
        }
    }
    page.go_to("screening", "Screening");
    let rows = || {
        let script = "return [...document.querySelectorAll(arguments[0])]
            .map((row) => row.innerText.replace(/\\s+/g, ' ').trim()).join('; ')";
        let rows = page.browser.run_script(script, &[hook("screening-row").into()]);
        rows.as_str().unwrap().to_owned()
    };
    let blocked = "first.test /signup ✕ block disposable 3; \
                   second.test /contact ▲ would block disposable 2";
    assert_eq!(rows(), blocked);
    assert_eq!(page.count(&hook("refused-form-row")), 3, "nothing is refused in shadow");
    let refused = page.text("refused-form-row");
    let cells = ["just now", "/signup", "disposable", "100", "first.test"];
    assert!(cells.iter().all(|cell| refused.contains(cell)), "{refused}");
    page.choose("screening-action", "pass");
    wait_until("only forms that passed are shown", || rows() == "gmail.com /signup ✓ pass safe 1");
    let host = gateway.http.to_string();
    let page_text = page.browser.text("main");
    assert!(!page_text.contains("jane"), "{host}: {page_text}");
    let forms = get("/screening").with_header("Host", "localhost").send(gateway.admin);
    assert_eq!(forms.status, 401, "the counts need a token");
}
