use super::*;
use crate::decide::ScorePolicy;
use crate::gate::decisions::SignUpSuccessRule;
use crate::gate::screen_rules::{PostRate, ScreenMode, ScreenPolicy};
use crate::model::verdict::{Reason, Score};
use crate::screening::FieldPath;

fn upstream_route(path: &str) -> UpstreamRoute {
    UpstreamRoute {
        path_prefix: path.to_owned(),
        methods: RouteMethods::Listed(vec!["GET".to_owned()]),
        host: None,
        needs_key: true,
        is_counted: true,
        max_per_client: None,
        has_gateway_statuses: false,
        deadline: None,
        cors: None,
        screen: None,
    }
}

fn matched_prefix(paths: &[&str], path: &str) -> Option<String> {
    let prefixes: Vec<UpstreamRoute> = paths.iter().copied().map(upstream_route).collect();
    find_upstream_route_index(&prefixes, PathPrefix::parse("/authz").as_ref(), path.as_bytes())
        .map(|index| prefixes[index].path_prefix.clone())
}

#[test]
fn the_longest_prefix_wins_whatever_the_order() {
    for paths in [["/open", "/open/admin", "/o"], ["/o", "/open/admin", "/open"]] {
        for (path, expected) in [
            ("/open", Some("/open")),
            ("/open/", Some("/open")),
            ("/open/a", Some("/open")),
            ("/open/administrators", Some("/open")),
            ("/open/a/admin", Some("/open")),
            ("/open/admin", Some("/open/admin")),
            ("/open/admin/", Some("/open/admin")),
            ("/open/admin/users", Some("/open/admin")),
            ("/opening", None),
        ] {
            assert_eq!(matched_prefix(&paths, path).as_deref(), expected, "{path}");
        }
    }
}

#[test]
fn a_path_that_a_server_may_not_decode_opens_no_route() {
    let open = UpstreamRoute { needs_key: false, ..upstream_route("/open") };
    let routes = [open, upstream_route("/")];
    for (path, expected) in [
        ("/open/x", Some(0)),
        ("/open/caf%C3%A9", Some(0)),
        ("/open%2fx", None),
        ("/open%2fphp", None),
        ("/x%2fopen", Some(1)),
    ] {
        let found = find_upstream_route_index(&routes, None, path.as_bytes());
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_host_in_a_path_opens_no_route() {
    let open = UpstreamRoute { needs_key: false, ..upstream_route("/") };
    let routes = [open, upstream_route("/admin")];
    for (path, expected) in [
        ("//x/y", Some(0)),
        ("//x/admin", None),
        ("//admin/x", Some(1)),
        ("//admin/admin", Some(1)),
    ] {
        let found = find_upstream_route_index(&routes, None, path.as_bytes());
        assert_eq!(found, expected, "{path}");
    }
    // A server that merges slashes would read a path that no route names.
    assert_eq!(matched_prefix(&["/x"], "//v/x"), None);
}

#[test]
fn a_hidden_path_takes_no_form_from_the_route_that_screens_it() {
    let rules = Arc::new(ScreenRules {
        policy: ScreenPolicy {
            route: "/".to_owned(),
            mode: ScreenMode::Block,
            scores: ScorePolicy {
                block_score: Score::DEFAULT_BLOCK_SCORE,
                block_reasons: Vec::new(),
            },
            message: String::new(),
            blocks_unscreened: false,
        },
        paths: vec!["/signup".to_owned()],
        fields: Vec::new(),
        max_per_client: Vec::new(),
        redirect: None,
        success: SignUpSuccessRule::default(),
    });
    let site = UpstreamRoute { screen: Some(rules), ..upstream_route("/") };
    let routes = [site, upstream_route("/assets")];
    for (path, is_screened) in [
        ("/signup", true),
        ("//x/signup", true),
        ("/signup.php/assets", true),
        ("//assets/signup", true),
        ("/assets/signup", false),
        ("/assets/app.js", false),
        ("/index.php/assets", false),
        ("/assets/admin.php", false),
        ("/?/signup", true),
        ("/assets/?/signup", false),
        ("/assets/index.php?/signup", true),
        ("/?/assets", false),
    ] {
        let index = find_upstream_route_index(&routes, None, path.as_bytes()).unwrap();
        let found = find_screen_rules(&routes, index, path.as_bytes());
        assert_eq!(found.is_some(), is_screened, "{path}");
    }
    // A route whose forms are all screened, and one that is exempt.
    let mut all = ScreenRules::clone(routes[0].screen.as_ref().unwrap());
    all.paths.clear();
    let site = UpstreamRoute { screen: Some(Arc::new(all)), ..upstream_route("/") };
    let routes = [site, upstream_route("/admin")];
    for (path, is_screened) in [("/x.php", true), ("/admin/x.php", false), ("/x.php/admin", true)] {
        let index = find_upstream_route_index(&routes, None, path.as_bytes()).unwrap();
        let found = find_screen_rules(&routes, index, path.as_bytes());
        assert_eq!(found.is_some(), is_screened, "{path}");
    }
}

#[test]
fn a_hidden_path_is_judged_by_the_fields_and_bounds_of_each_route() {
    let rules = |fields: &[&str], block_score, reasons: &[Reason], blocks_unscreened| {
        let fields = fields.iter().map(|field| FieldPath::parse(field).unwrap()).collect();
        let policy = ScreenPolicy {
            route: "/".to_owned(),
            mode: ScreenMode::Block,
            scores: ScorePolicy {
                block_score: Score::new(block_score).unwrap(),
                block_reasons: reasons.to_vec(),
            },
            message: String::new(),
            blocks_unscreened,
        };
        let rules = ScreenRules {
            policy,
            paths: vec![],
            fields,
            max_per_client: vec![],
            redirect: None,
            success: SignUpSuccessRule::default(),
        };
        Some(Arc::new(rules))
    };
    let signup = rules(&["email"], 80, &[Reason::Disposable], true);
    let api = rules(&["mail", "email"], 65, &[Reason::RoleAccount], false);
    let routes = [
        UpstreamRoute { screen: signup.clone(), ..upstream_route("/signup") },
        UpstreamRoute { screen: api.clone(), ..upstream_route("/api") },
    ];
    let expected = rules(&["email", "mail"], 65, &[Reason::Disposable, Reason::RoleAccount], true);
    for (path, expected) in
        [("/signup", &signup), ("/api", &api), ("/api.php", &api), ("/signup.php/signup", &signup)]
    {
        let index = find_upstream_route_index(&routes, None, path.as_bytes()).unwrap();
        assert_eq!(&find_screen_rules(&routes, index, path.as_bytes()), expected, "{path}");
    }
    for path in ["/api.php/signup", "/signup.php/api", "//api/signup", "//signup/api"] {
        let index = find_upstream_route_index(&routes, None, path.as_bytes()).unwrap();
        let found = find_screen_rules(&routes, index, path.as_bytes()).unwrap();
        let by_name = |rules: &ScreenRules| {
            let mut rules = rules.clone();
            rules.fields.sort_by_key(|field| format!("{field:?}"));
            rules.policy.scores.block_reasons.sort_by_key(|reason| reason.as_str());
            rules
        };
        assert_eq!(by_name(&found), by_name(expected.as_ref().unwrap()), "{path}");
    }
}

#[test]
fn a_hidden_path_has_the_rates_of_its_routes_and_no_others() {
    let rate = |route: &str, burst| PostRate {
        route: route.to_owned(),
        rate: Rate::new(burst, Duration::from_secs(3_600)).unwrap(),
    };
    let routes_with = |mode| {
        [("/signup", mode, 2), ("/api", ScreenMode::Block, 9)].map(|(route, mode, burst)| {
            let policy = ScreenPolicy {
                route: route.to_owned(),
                mode,
                scores: ScorePolicy::default(),
                message: String::new(),
                blocks_unscreened: false,
            };
            let rules = ScreenRules {
                policy,
                paths: vec![],
                fields: vec![],
                max_per_client: vec![rate(route, burst)],
                redirect: None,
                success: SignUpSuccessRule::default(),
            };
            UpstreamRoute { screen: Some(Arc::new(rules)), ..upstream_route(route) }
        })
    };
    for (mode, expected) in [
        // A route in this mode refuses nothing.
        (ScreenMode::Shadow, vec![rate("/api", 9)]),
        (ScreenMode::Annotate, vec![rate("/api", 9), rate("/signup", 2)]),
        (ScreenMode::Block, vec![rate("/api", 9), rate("/signup", 2)]),
    ] {
        let routes = routes_with(mode);
        for path in ["/api.php/signup", "/signup.php/api", "//api/signup", "/a.php/api.php/signup"]
        {
            let index = find_upstream_route_index(&routes, None, path.as_bytes()).unwrap();
            let found = find_screen_rules(&routes, index, path.as_bytes()).unwrap();
            let mut rates = found.max_per_client.clone();
            rates.sort_by(|a, b| a.route.cmp(&b.route));
            assert_eq!(rates, expected, "{path}");
        }
    }
}

#[test]
fn no_hidden_path_leads_from_a_route_without_a_key_to_one_with_a_key() {
    let open = UpstreamRoute { needs_key: false, ..upstream_route("/public-api") };
    let routes = [upstream_route("/admin"), open];
    for (path, expected) in [
        ("/admin.php", Some(0)),
        ("/admin.php/x", Some(0)),
        ("/public-api", Some(1)),
        ("/public-api/x.php", Some(1)),
        ("/index.php/public-api", Some(1)),
        ("/admin.php/public-api", None),
        ("/admin.php/public-api/x", None),
        ("/admin/x.php/public-api", None),
        ("/public-api/x.php/admin", None),
        ("//public-api/admin", None),
        ("//admin/public-api", Some(0)),
        ("/public-api?/x", Some(1)),
        ("/public-api/x.php?/admin", None),
        ("/public-api/x.php?/x?/admin", Some(1)),
        ("/admin?/public-api", Some(0)),
    ] {
        let found = find_upstream_route_index(&routes, None, path.as_bytes());
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_query_opens_no_route() {
    for (target, expected) in [
        ("/?/open", None),
        ("/x?/open", None),
        ("/open?/admin", Some("/open")),
        ("/open?/v1/usage", Some("/open")),
        ("/open/i.php?/v1/usage", None),
        ("/open/i.php?/authz", None),
        ("/open?/../x", Some("/open")),
        ("/open?/../v1/usage", None),
        ("/open?/../authz", None),
        ("/open?/x&q=a%5Cb", Some("/open")),
    ] {
        let found = matched_prefix(&["/open", "/open/admin"], target);
        assert_eq!(found.as_deref(), expected, "{target}");
    }
    let site = UpstreamRoute { needs_key: false, ..upstream_route("/") };
    let routes = [site, upstream_route("/api")];
    for (target, expected) in [
        ("/?/x/../v1/check/a@b.c", None),
        ("/?/v1/x/../check", None),
        ("/?%2fx%2f%2e%2e%2fV1%2fcheck.json", None),
        ("/?/x&/../v1/public", None),
        ("/?/v1%5ccheck/a", None),
        ("/?/v1/ch%0aeck/a", None),
        ("/?/v1/check%00.css", None),
        ("/?/v%0a1/check%00x", None),
        ("/?/v1/a%5cb/%2e%2e/check", None),
        ("/index.php?/a/../v1/check", None),
        ("/a/b?/../..;x/v1/check", None),
        ("//a?/b/../v1/check", None),
        ("/index.php?/api/v1/public/items&q=line1%0D%0Aline2", Some(0)),
        ("/api/v1/public/list?/x&q=C%3A%5Cdir", Some(0)),
        ("/?/a/b/../v1/check", Some(0)),
        ("/combo?/lib/v1/public/a.js&/../b.js", Some(0)),
        ("/combo?/a.js&/../b.js", Some(0)),
        ("/?/../v1/checks", Some(0)),
        ("/?/../check/v1", Some(0)),
    ] {
        let found = find_upstream_route_index(&routes[..1], None, target.as_bytes());
        assert_eq!(found, expected, "{target}");
    }
    for (target, expected) in [
        ("/?/api", None),
        ("/index.php?/api/x", None),
        ("/?%2fapi/x", None),
        ("/?/../api", None),
        ("/?/x&/../api", None),
        ("/?/x&y=%2e%2e%5c%2e%2e%5capi", None),
        ("/?/x&%2f%2e%2e%2fapi", None),
        ("/?next=/api/x", Some(0)),
        ("/?/search/&q=a%0D%0Ab", Some(0)),
        ("/?/x", Some(0)),
    ] {
        let found = find_upstream_route_index(&routes, None, target.as_bytes());
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn a_path_that_respells_a_longer_prefix_gets_its_route() {
    let paths = ["/", "/open", "/open/admin"];
    for path in ["/open/%61dmin", "/open/admin;x=1", "/OPEN/admin.json", "//open//admin"] {
        assert_eq!(matched_prefix(&paths, path).as_deref(), Some("/open/admin"), "{path}");
    }
    assert_eq!(matched_prefix(&paths, "/open/%61dmins").as_deref(), Some("/open"));
    assert_eq!(matched_prefix(&paths, "/else//where%2F100%").as_deref(), Some("/"));
    assert_eq!(matched_prefix(&paths, "/").as_deref(), Some("/"));
}

#[test]
fn a_dot_segment_and_an_own_path_in_any_spelling_match_no_route() {
    for path in [
        "/open/../x",
        "/a/%2e%2e/x",
        "/a\\b",
        "/a%00",
        "/v1/public",
        "/v1/public/other",
        "/V1/Public/domain/x",
        "/v1/%70ublic/domain/x",
        "//v1/check/x",
        "/v1/usage/",
        "/v1/usage.json",
        "/v1/assess",
        "/authz",
        "/Authz/x",
        "/%61uthz",
    ] {
        assert_eq!(matched_prefix(&["/", "/v1"], path), None, "{path}");
    }
    for path in ["/index.php/v1/usage", "//cdn/authz"] {
        assert_eq!(matched_prefix(&["/"], path), None, "{path}");
    }
    assert_eq!(matched_prefix(&["/", "/v1"], "/v1/users").as_deref(), Some("/v1"));
    // A section is no program, whatever its name.
    for path in ["/php/v1/usage", "/py/authz", "/rb/v1/public/domain/x"] {
        assert_eq!(matched_prefix(&["/"], path).as_deref(), Some("/"), "{path}");
    }
}
