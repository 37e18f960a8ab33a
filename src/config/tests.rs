use super::description::{SettingDescription, SettingKind, toml_text};
use super::settings::Settings;
use super::*;
use crate::decide::{InboxSecret, Pseudonymizer, SignUpScope};
use crate::store::MonthlyLimit;

fn read_config_text(text: &str) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("riskgate.toml");
    std::fs::write(&path, text).unwrap();
    Config::read(&ConfigSources { file: ConfigFile::Path(path), flags: Vec::new() }).map_err(
        |faults| {
            let prefix = format!("{}/", folder.path().display());
            faults.iter().map(|fault| fault.to_text().replace(&prefix, "")).collect()
        },
    )
}

#[test]
fn an_empty_file_is_a_fault_and_a_comment_alone_means_the_defaults() {
    for text in ["", " \n\n", "\u{feff}"] {
        let faults = read_config_text(text).unwrap_err();
        assert_eq!(faults, ["riskgate.toml: expected settings, but found an empty file"]);
    }
    let config = read_config_text("# Nothing yet.\n").unwrap();
    assert_eq!(config.startup.http.to_string(), "127.0.0.1:8080");
    assert_eq!(config.reloadable.plans["free"], MonthlyLimit::Calls(100));
    assert_eq!(config.startup.upstream.exchange_time_limit, Duration::from_millis(2_500));
}

#[test]
fn every_fault_is_reported_with_its_line() {
    let faults = read_config_text(
        "[listen]\nhttp = \"nowhere\"\nport = 3\n\n[store]\nurl = \"localhost:6379\"\n\
         on_failure = \"maybe\"\n[plans]\nfree = -1\n[[upstream.route]]\nprefix = \"/v1/check\"\n",
    )
    .unwrap_err();
    for expected in [
        r#"riskgate.toml:2:8: listen.http: expected an address such as 127.0.0.1:8080, but found "nowhere""#,
        "riskgate.toml:6:7: store.url: expected sqlite:PATH, redis://…, redis+sentinel://… or",
        r#"riskgate.toml:7:14: store.on_failure: expected "open" or "closed", but found "maybe""#,
        "riskgate.toml:9:8: plans.free: expected calls in a month as a whole number",
        "riskgate.toml:11:10: upstream.route \"/v1/check\": prefix: expected a path apart from",
        "riskgate.toml:3:1: listen.port: expected a known setting, but found an unknown one",
    ] {
        assert!(faults.iter().any(|fault| fault.starts_with(expected)), "{expected}\n{faults:#?}");
    }
    let faults =
        read_config_text("[lsiten]\n[[upstream.route]]\n[store]\ndeadline = \"0\"\n").unwrap_err();
    for expected in [
        "riskgate.toml:1:2: lsiten: expected a known section",
        "riskgate.toml:2:1: upstream.route 1: prefix: expected / or a path",
        "riskgate.toml:4:12: store.deadline: expected a duration of 1ms or more",
    ] {
        assert!(faults.iter().any(|fault| fault.starts_with(expected)), "{expected}\n{faults:#?}");
    }
    assert!(
        read_config_text("[listen\n").unwrap_err()[0]
            .starts_with("riskgate.toml:1:8: expected TOML")
    );
}

#[test]
fn neither_faults_nor_debug_output_show_a_secret() {
    let token = "s3cr3t-of-the-operator";
    let url = "redis://me:s3cr3t@cache.internal:6380/2";
    let config =
        read_config_text(&format!("[admin]\ntoken = {token:?}\n[store]\nurl = {url:?}\n")).unwrap();
    assert_eq!(config.reloadable.admin_tokens[0].digest, crate::keys::sha256(token.as_bytes()));
    assert!(!format!("{config:?}").contains("s3cr3t"), "{config:?}");
    for text in [
        format!("[store]\nurl = [{url:?}]\n"),
        "[store]\nurl = \"redis://me:s3cr3t@host:99999\"\n".to_owned(),
        "[admin]\ntoken = \"s3cr3t\"\n".to_owned(),
        format!("[admin]\ntoken = [{token:?}]\n"),
        format!("[admin]\ntokn = {token:?}\n"),
        format!("[admin]\ntoken = {token:?} x\n"),
        format!("[admin]\ntoken = \"{token}\n"),
        format!("[[admin.token]]\nname = \"ops\"\nscope = \"read\"\nhash = {token:?}\n"),
        format!("[admin]\ntoken = [{{ hash = {token:?}, scope = \"write\" }}]\n"),
        format!("webhooks = [{{ url = \"https://a.test\", secret = {token:?} }}]\n"),
        format!("admin = {{ token = {token:?}, colour = 1 }}\n"),
        "[webhook]\nsecret = \"\"\"\ns3cr3tAAAABBBB".to_owned(),
        "[webhook]\nsecret = \"\"\"\ns3cr3tAAAABBBB==".to_owned(),
        "[webhook]\nsecret = \"\"\"\ns3cr3t\\qrest\"\"\"\n".to_owned(),
        "[upstream]\nservers = [\n  http://u:s3cr3t@10.0.0.1:9000,\n]\n".to_owned(),
        "[upstream]\nservers = [\n  \"s3cr3t\n]\n".to_owned(),
        "[[table.feed]]\nname = \"a\"\nurl = \"http://u:s3cr3t@lists.example/x\"\n".to_owned(),
        "[[table.feed]]\nname = \"a\"\nurl = [\"https://u:s3cr3t@h/l\"]\n".to_owned(),
        "[[upstream.route]]\nprefix = \"https://u:s3cr3t@h/signup\"\n".to_owned(),
        format!("[[admin.token]]\nname = \"ops\"\nscope = \"read\"\nhash = [{token:?}]\n"),
        format!("[webhook]\nurl = \"https://a.example\"\nsecret = {token:?}\n"),
        format!("[store]\nurl_file = {url:?}\n"),
        format!("[admin]\ntoken_file = {token:?}\n"),
        format!("[admin]\ntokenfile = {token:?}\n"),
        format!("[admin]\ntoken_file = {token}\n"),
        format!("[webhook]\nsecret_file = {token:?}\n"),
        format!("[inbox]\nsecret_file = {token:?}\n"),
        format!("[inbox]\nsecret = {token:?}\n"),
    ] {
        let faults = read_config_text(&text).unwrap_err();
        assert!(faults.iter().all(|fault| !fault.contains("s3cr3t")), "{faults:?}");
    }
}

#[test]
fn a_secret_that_is_a_number_is_not_shown() {
    let faults = read_config_text("[admin]\ntoken = 2718281828\n").unwrap_err();
    assert!(!faults[0].contains("2718"), "{faults:?}");
}

#[test]
fn environment_variables_are_read_as_numbers_lists_and_booleans() {
    let mut settings = Settings::default();
    let variable = |name: &str, value: &str| (name.into(), value.into());
    settings.read_environment(
        [
            variable("RISKGATE__LISTEN__MAX_CONNECTIONS", "7"),
            variable("RISKGATE__UPSTREAM__SERVERS", "a:1, b:2"),
            variable("RISKGATE__LOG__ACCESS", "false"),
            variable("OTHER", "x"),
        ]
        .into_iter(),
    );
    assert_eq!(settings.read_integer("listen.max_connections", 1..=9, 1), 7);
    let servers = settings.read_upstream_servers();
    assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "b:2"]);
    assert!(!settings.read_boolean("log.access", true));
}

#[test]
fn durations_but_zero_need_a_unit() {
    assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
    assert_eq!(parse_duration("2.5s"), Some(Duration::from_millis(2_500)));
    assert_eq!(parse_duration("90d"), Some(Duration::from_secs(90 * 86_400)));
    assert_eq!(parse_duration("0"), Some(Duration::ZERO));
    for text in ["", "5", "s", "-1s", "1y", "1.2.3s", "1 s", "99999999999d"] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn resolvers_are_addresses_with_or_without_a_port() {
    let config = read_config_text(
        "[dns]\nlearn = true\nresolvers = [\"10.0.0.2\", \"::1\", \"[::1]:5353\"]\n",
    );
    let dns = config.unwrap().reloadable.dns;
    let resolvers: Vec<String> = dns.resolver_addresses.iter().map(ToString::to_string).collect();
    assert_eq!(resolvers, ["10.0.0.2:53", "[::1]:53", "[::1]:5353"]);
    assert!(
        dns.is_learning_enabled
            && dns.max_queries_per_second == 50
            && dns.max_names_in_flight == 16
    );
    assert!(!read_config_text("# Nothing yet.\n").unwrap().reloadable.dns.is_learning_enabled);
    let faults =
        read_config_text("[dns]\nresolvers = [\"dns.example.com\"]\nrate = 0\n").unwrap_err();
    let expected = r#"riskgate.toml:2:13: dns.resolvers: expected a list of addresses such as ["10.0.0.2", "[::1]:5353"], but found ["dns.example.com"]"#;
    assert!(faults[0].starts_with(expected), "{faults:?}");
    assert!(
        faults[1].starts_with("riskgate.toml:3:8: dns.rate: expected a whole number from 1 to")
    );
}

/// A config in which every setting has an effect.
const ALL_SECTIONS: &str = r#"
[upstream]
tls = true
[log]
path = "access.log"
max_bytes = 1000000
[traces]
endpoint = "http://127.0.0.1:4318/v1/traces"
[authz]
path = "/authz"
email = "header:X-Email"
[webhook]
url = "https://example.com/riskgate"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
"#;

/// A value of a setting that is not its default; `None` if its type tells none.
fn other_value(setting: &SettingDescription) -> Option<String> {
    let default = setting.default.as_deref().unwrap_or_default();
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let candidates: Vec<String> = match &setting.kind {
        SettingKind::Integer(range) => {
            vec![range.start().to_string(), (range.start() + 1).to_string()]
        }
        // ALL_SECTIONS turns it on.
        SettingKind::Boolean if setting.key == "upstream.tls" => texts(&["false"]),
        SettingKind::Boolean => texts(&["true", "false"]),
        SettingKind::Duration => texts(&["7s", "8s"]),
        SettingKind::Choice(choices) => texts(choices),
        SettingKind::Text if default.contains("127.0.0.1:") => texts(&["127.0.0.1:4711"]),
        SettingKind::Text if setting.key == "store.url" => texts(&["sqlite:other.db"]),
        SettingKind::Text => texts(&["other"]),
        SettingKind::CallLimit => texts(&["7"]),
        SettingKind::IntegerList => texts(&["[7]"]),
        SettingKind::Secret | SettingKind::List | SettingKind::TextOrList => return None,
    };
    candidates.into_iter().find(|value| value != default && toml_text(value) != default)
}

/// The cell `Reload` of a setting in docs/configuration.md: `restart`, or when a change counts.
fn reload_cell(key: &str) -> Option<&'static str> {
    let document = include_str!("../../docs/configuration.md");
    let row = document.lines().find(|line| line.starts_with(&format!("| `{key}` |")))?;
    row.rsplit(" | ").nth(1).map(str::trim)
}

#[test]
fn each_setting_changes_the_half_of_the_config_that_the_documents_name() {
    let mut settings = Settings::of_each_section();
    Config::from_settings(None, &mut settings);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("riskgate.toml");
    std::fs::write(&path, ALL_SECTIONS).unwrap();
    let read = |flags: Vec<(String, String)>| {
        let file = ConfigFile::Path(path.clone());
        Config::read_collecting_faults(&ConfigSources { file, flags })
    };
    let (before, faults) = read(Vec::new());
    let before = before.unwrap();
    assert!(faults.is_empty(), "{faults:#?}");
    let reloadable = |config: &Config| format!("{:?}", config.reloadable);
    let (mut tried, mut wrong) = (0, Vec::new());
    for setting in &settings.descriptions {
        let key = &setting.key;
        let (Some(value), Some(cell)) = (other_value(setting), reload_cell(key)) else { continue };
        let (after, faults) = read(vec![(key.clone(), value.clone())]);
        let after = after.unwrap();
        if !faults.is_empty() {
            continue;
        }
        let changes = before.startup.list_changes(&after.startup);
        let is_reloadable_changed = reloadable(&before) != reloadable(&after);
        let is_as_documented = match cell {
            "restart" => changes.len() == 1 && !is_reloadable_changed,
            _ => changes.is_empty() && is_reloadable_changed,
        };
        if !is_as_documented {
            wrong
                .push(format!("{key} = {value}: {cell}, but {changes:?}, {is_reloadable_changed}"));
        }
        tried += 1;
    }
    assert!(tried >= 60 && wrong.is_empty(), "{tried} settings; {wrong:#?}");
    for setting in &settings.descriptions {
        let of_array = setting.key.split('.').any(|part| part.parse::<usize>().is_ok());
        let Some(cell) = reload_cell(&setting.key).filter(|_| !of_array) else { continue };
        let is_at_start = read_at_start::is_read_at_start(&setting.key);
        assert_eq!(is_at_start, cell == "restart", "{}: {cell}", setting.key);
    }
}

/// Checks that each of these configs has one fault, which stands in its line and has this hint.
#[track_caller]
fn assert_hints(mistakes: &[(String, &str)]) {
    for (text, hint) in mistakes {
        let faults = read_config_text(text).unwrap_err();
        // One mistake is told once.
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].contains(hint), "{text}: {faults:#?}");
        assert!(faults[0].starts_with("riskgate.toml:") && faults[0].contains('^'), "{faults:#?}");
    }
}

/// Mistakes that people make, each with what riskgate tells them to write.
#[test]
fn typical_mistakes_get_the_right_hint() {
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[listen]\nhttpp = \"127.0.0.1:8080\"\n"), "did you mean `http`?"),
        (plain("[listen]\nport = 8080\n"), "did you mean `http`?"),
        (plain("[listen]\nhttp = \":8080\"\n"), "write \"0.0.0.0:8080\""),
        (plain("[listen]\nhttp = \"localhost:8080\"\n"), "write \"127.0.0.1:8080\""),
        (plain("[listen]\nhttp = 8080\n"), "write \"127.0.0.1:8080\""),
        (plain("[listen]\nhttp = 127.0.0.1:8080\n"), "write \"127.0.0.1:8080\""),
        (plain("[listen]\nmax_body_bytes = \"32MiB\"\n"), "write 33554432"),
        (plain("[listen]\nmax_body_bytes = \"32 MB\"\n"), "write 33554432"),
        (plain("[[table.feed]]\nname = \"castle\"\nmax_bytes = \"20 MB\"\n"), "write 20971520"),
        (plain("[plans]\npro = \"10 k\"\n"), "^ write 10000"),
        (plain("[plans]\npro = \"5 000 calls\"\n"), "^ write 5000"),
        (plain("[keys]\nprefix = \"my key\"\n"), "^ write \"my_key\""),
        (plain("[listen]\ntrusted_proxies = \"10.0.0.0/8\"\n"), "write [\"10.0.0.0/8\"]"),
        (plain("[listen]\nadmin = \"0.0.0.0:9090\"\n"), "write \"127.0.0.1:9090\""),
        (plain("http = \"127.0.0.1:8080\"\n"), "write it below [listen]"),
        (plain("listen = \"127.0.0.1:8080\"\n"), "write a section, [listen]"),
        (plain("[[listen]]\nhttp = \"127.0.0.1:8080\"\n"), "write [listen]"),
        (plain("[lisen]\nhttp = \"127.0.0.1:8080\"\n"), "did you mean [listen]?"),
        (plain("[logging]\naccess = true\n"), "did you mean [log]?"),
        (plain("[redis]\nurl = \"redis://localhost\"\n"), "did you mean [store]?"),
        (plain("[log]\naccess = \"yes\"\n"), "write true"),
        (plain("[dns]\nlearn = \"true\"\n"), "write true"),
        (plain("[plans]\nfree = \"1000\"\n"), "write 1000"),
        (plain("[store]\nurl = \"sqlite://state/x.db\"\n"), "write \"sqlite:state/x.db\""),
        (plain("[store]\nurl = \"sqlite:~/x.db\"\n"), "no shell replaces ~"),
        (plain("[upstream]\nhost = \"x:99999\"\n"), "expected a host such as www.example.com"),
        (plain("[store]\nurl = \"state/x.db\"\n"), "write \"sqlite:state/x.db\""),
        (plain("[store]\non_failure = \"close\"\n"), "did you mean \"closed\"?"),
        (plain("[table]\nfeed = \"https://a.test\"\n"), "write a section, [[table.feed]]"),
        (plain("[[table.feeds]]\nname = \"x\"\n"), "did you mean [[table.feed]]?"),
        (plain("[authz]\npath = \"authz\"\n"), "write \"/authz\""),
        (plain("[listen]\nhttp = \"www.a.test:80\"\n"), "write \"0.0.0.0:80\""),
        (plain("[listen]\nheader_timeout = 5000\n"), "write \"5000ms\""),
        (plain("[listen]\nhttp = \"127.0.0.1:9090\"\n"), "another address than listen.admin"),
        (plain("[listen]\nhttp = \"0.0.0.0:9090\"\n"), "but found 0.0.0.0:9090\n"),
        (
            plain("[[rule]]\nname = \"a\"\nthen = \"review\"\nwhen = [\"is_role\"]\n"),
            "did you mean `if`? There, write == true behind it",
        ),
        (plain("[webhook]\nurl = \"a.test/x\"\n"), "url = …\n"),
        (plain("[listen]\nhttps = \"127.0.0.1:1\"\n"), "write [[listen.certificate]]"),
        (plain("[admin]\nport = 9090\n"), "write admin = \"ADDRESS:PORT\" below [listen]"),
        (plain("[plans.free]\nlimit = 9\n"), "write free = 9 below [plans]"),
        (plain("[plans]\nfree = \"10k\"\n"), "write 10000"),
        (plain("[plans]\nfree = \"unlimted\"\n"), "did you mean \"unlimited\"?"),
        (plain("[store]\npath = \"a.db\"\n"), "did you mean `url`?"),
        (plain("[store]\nurl = \"cache:6379\"\n"), "write \"redis://cache:6379\""),
        (plain("[[table.feed]]\nname = \"castel\"\n"), "did you mean name = \"castle\"?"),
        (plain("[log]\nlevel = \"warning\"\n"), "did you mean \"warn\"?"),
        (plain("[listen]\nbody_timeout = \"10\"\n"), "write \"10s\""),
        (plain("[authz]\npath = \"/a\"\nemail = \"header.X-Email\"\n"), "write \"header:X-Email\""),
        (plain("[authz]\npath = \"/a\"\nemail = \"query.email\"\n"), "write \"query:email\""),
        (plain("[log]\nfields = [\"time\", \"ip\"]\n"), "2:19: log.fields: expected a list"),
        (plain("[log]\nfields = [\n\"time\",\n  \"pat\"]\n"), "4:3: log.fields: expected a list"),
        (plain("[authz]\npath = \"/a\"\ncheck = [\"keys\"]\n"), "did you mean \"key\"?"),
        (plain("[authz]\npath = \"/a\"\nemail = \"X-Mail\"\n"), "write \"header:X-Mail\""),
    ]);
}

/// What other servers have, under their names.
#[test]
fn names_of_other_servers_get_what_riskgate_has_in_their_place() {
    let plain = str::to_owned;
    let route = |rest: &str| format!("[[upstream.route]]\n{rest}\n");
    assert_hints(&[
        (plain("[rate_limit]\nrpm = 60\n"), "write max_per_client = \"60/m\" below [[upstream"),
        (plain("[limits]\nrps = 10\n"), "write max_per_client"),
        (plain("[listen]\nratelimit = \"10/m\"\n"), "write max_per_client"),
        (plain("[cors]\nallowed_origins = []\n"), "origins belong to keys"),
        (plain("[listen]\ncors_origins = [\"a\"]\n"), "origins belong to keys"),
        (plain("[acme]\nemail = \"a\"\n"), "riskgate fetches no certificates"),
        (plain("[listen]\nlets_encrypt = true\n"), "riskgate fetches no certificates"),
        (plain("[listen]\nssl_certificate = \"a\"\n"), "write [[listen.certificate]]"),
        (plain("[metrics]\nport = 9100\n"), "/metrics of listen.admin"),
        (plain("[upstream]\nlb_policy = \"a\"\n"), "uses upstream.servers in turn"),
        (plain("[upstream]\nhealth_check = \"/h\"\n"), "did you mean `health_path`?"),
        (plain("[upstream]\nproxy_read_timeout = \"9s\"\n"), "did you mean `deadline`?"),
        (plain("[listen]\nclient_header_timeout = \"9s\"\n"), "did you mean `header_timeout`?"),
        (plain("[listen]\nclient_max_body_size = 9\n"), "did you mean `max_body_bytes`?"),
        (plain("[frontend]\nbind = \"*:80\"\n"), "write [listen]"),
        (plain("[[routes]]\nuri = \"/a\"\n"), "write [[upstream.route]]"),
        (plain("[upstreams.api]\nservers = []\n"), "there is one group of servers"),
        (plain("[listen]\nhttp3 = true\n"), "it has no HTTP/3"),
        (plain("[listen]\nidle_timeout = \"9s\"\n"), "did you mean `keepalive_timeout`?"),
        (route("prefix = \"/a\"\npriority = 1"), "the route with the longest prefix"),
        (plain("[upstream]\nkeepalive = 32\n"), "keeps connections for idle_timeout"),
        (
            plain("[upstream]\ntls_skip_verify = true\n"),
            "write tls_verify = false, or better tls_ca",
        ),
        (plain("[log]\nrotate = \"daily\"\n"), "write max_bytes = 100000000"),
        (plain("[webhook]\nevents = [\"a\"]\n"), "write thresholds = [80, 100]"),
        (plain("[dns]\nttl = 300\n"), "say how long a learned fact counts"),
        (plain("[drain]\ntimeout = 30\n"), "write grace = \"30s\""),
        (plain("[admin]\nallow = [\"10.0.0.0/8\"]\n"), "a token guards these pages"),
        (plain("[[rule]]\nname = \"a\"\nthen = \"pass\"\nelse = 1\n"), "a rule below this one"),
        (plain("[[rule]]\nname = \"a\"\nthen = \"pass\"\npriority = 1\n"), "order the rules"),
        (route("prefix = \"/a\"\nquota = 100"), "each account has one limit for all routes"),
        (plain("[[plan]]\nname = \"pro\"\n"), "a line for each plan below [plans]"),
        (plain("[store]\npassword = \"s3cr3t\"\n"), "write it into url"),
        (plain("[admin]\npassword = \"s3cr3t\"\n"), "write token_file"),
        (plain("[table]\nallow = [\"a.test\"]\n"), "riskgate table allow DOMAIN"),
        (plain("[keys]\nweb = \"s3cr3t\"\n"), "riskgate keys create --account NAME"),
        (plain("[keys]\nheader = \"authorization\"\n"), "remove this line"),
        (plain("STORE_URL = \"redis://a\"\n"), "write url = … below [store]"),
        (plain("RISKGATE__LOG__LEVEL = \"info\"\n"), "write level = … below [log]"),
        (route("regex = \"^/a$\""), "write prefix = \"/v1/signup\" and no pattern"),
        (route("path_prefix = \"/a\""), "did you mean `prefix`?"),
        (route("prefix = \"/a\"\nmatch = \"prefix\""), "and no pattern"),
        (route("prefix = \"/a\"\nstrip_prefix = true"), "forwards each path as it is"),
        (route("prefix = \"^/a$\""), "without a pattern"),
        (route("prefix = \"/a\"\nmethods = [\"OPTIONS\"]"), "leave OPTIONS"),
    ]);
}

/// URLs and values of other servers.
#[test]
fn values_of_other_servers_get_what_riskgate_has_in_their_place() {
    let plain = str::to_owned;
    let store = |url: &str| format!("[store]\nurl = {url:?}\n");
    assert_hints(&[
        (store("redis://a:6379/?db=2"), "the number of the database behind /"),
        (store("redis://u:s3cr3t/x#@a"), "write %2F for /"),
        (store("redis+cluster://a:1,b:1/0"), "redis+cluster://HOST:PORT,HOST:PORT without a path"),
        (store("rediss-cluster://a:1"), "write rediss+cluster://HOST:PORT,HOST:PORT"),
        (store("redis-sentinel://a:1/m"), "write redis+sentinel://HOST:PORT,HOST:PORT/SERVICE"),
        (store("redis://a:1,b:1"), "write one server, for Sentinels redis+sentinel://"),
        (store("valkeys://a:1"), "write rediss://HOST:PORT"),
        (store("postgres://u:s3cr3t@a/b"), "there are no other stores"),
        (store("sqlite:/var/lib/riskgate/"), "write the path of a file"),
        (store(":memory:"), "write \"sqlite:state/riskgate.db\""),
        (plain("[listen]\nhttp = \"unix:/run/a.sock\"\n"), "riskgate listens at no Unix socket"),
        (plain("[plans]\npro = \"10000 calls per month\"\n"), "write 10000"),
        (plain("[traces]\nendpoint = \"otel:4318\"\n"), "write \"http://otel:4318/v1/traces\""),
        (plain("[traces]\nendpoint = \"otel:4317\"\n"), "and protocol = \"grpc\""),
        (
            plain(
                "[[table.feed]]\nname = \"a\"\nurl = \"https://a.test/l\"\ninterval = \"0 */6 * * *\"\n",
            ),
            "write \"6h\"",
        ),
        (
            plain(
                "[[table.feed]]\nname = \"a\"\nurl = \"https://a.test/l\"\ninterval = \"@daily\"\n",
            ),
            "write \"1d\"",
        ),
        (
            store("redis+sentinel://a:1,b:1?master=main"),
            "redis+sentinel://HOST:PORT,HOST:PORT/main/0",
        ),
        (store("redis://a/main"), "write redis://HOST:PORT/0: behind the / is the number"),
        (plain("[store]\nurl = \"redis://a\"\ntls = true\n"), "write rediss in place of redis"),
        (
            plain("[[upstream.route]]\nprefix = [\"/signup\", \"/join\"]\n"),
            "write one [[upstream.route]] for each prefix",
        ),
        (plain("[webhook]\ninsecure_skip_verify = true\n"), "riskgate verifies each certificate"),
    ]);
}

/// Hints that have the user's own value.
#[test]
fn a_hint_has_the_value_of_the_file() {
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[listen]\nhsts = true\n"), "write \"365d\": for how long browsers"),
        (plain("[listen.hsts]\nmax_age = 31536000\n"), "write hsts = \"365d\" below [listen]"),
        (plain("port = 18080\n"), "write [listen], and below it http = \"127.0.0.1:18080\""),
        (
            plain("[[upstream.servers]]\naddress = \"10.0.0.7:9000\"\n"),
            "write [upstream], and below it servers = [\"10.0.0.7:9000\"]",
        ),
        (
            plain("[store]\nurl = \"redis://127.0.0.1:6379/0?ssl=true\"\n"),
            "write rediss://HOST:PORT/DATABASE: rediss:// means TLS",
        ),
        (
            plain(
                "[[upstream.route]]\nprefix = \"/a\"\nkey = false\n\
                   origins = [\"https://app.example.com/login\"]\n",
            ),
            "write [\"https://app.example.com\"]: an origin has no path",
        ),
        (
            plain(
                "[[upstream.route]]\nprefix = \"/a\"\nkey = false\n\
                   origins = [\"https://a.test\"]\n\
                   [upstream.route.cors]\nallow_origins = [\"https://a.test\"]\n",
            ),
            "remove this line: origins say so",
        ),
        (
            format!(
                "[[admin.token]]\nname = \"a\"\nhash = \"sha256:{}\"\nscope = \"read\"\n\
                 expires = 2027-01-01T00:00:00Z\n",
                "a".repeat(64)
            ),
            "write expires = \"2027-01-01T00:00:00Z\", between quotes",
        ),
        (
            plain(
                "[[upstream.route]]\nprefix = \"/a\"\nkey = false\n\
                 [upstream.route.cors]\nallow_origins = [\"https://a.test\"]\n",
            ),
            "write origins = [\"https://a.test\"] below [[upstream.route]], above its cors",
        ),
    ]);
}

/// Values of another type or unit, and settings in another section.
#[test]
fn misplaced_values_and_settings_get_the_right_hint() {
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[listen]\nhsts = 31536000\n"), "write \"365d\""),
        (
            plain(
                "[listen]\nredirect = true\nhttps = \"1.2.3.4:1\"\n[[listen.certificate]]\nchain = \"a\"\nkey = \"b\"\n",
            ),
            "write \"0.0.0.0:80\": the address at which",
        ),
        (
            plain("[log]\naccess = \"/var/log/a\"\n"),
            "write access = true, and path = \"/var/log/a\"",
        ),
        (
            plain("[dns]\nlearn = [\"1.1.1.1\"]\n"),
            "write learn = true, and resolvers = [\"1.1.1.1\"]",
        ),
        (plain("[upstream]\ntls = \"ca.pem\"\n"), "write tls = true, and tls_ca = \"ca.pem\""),
        (
            plain("[log]\nlevel = \"info,riskgate:dns=debug\"\n"),
            "write \"info,riskgate::dns=debug\"",
        ),
        (plain("[plans]\npro = -1\n"), "write \"unlimited\""),
        (plain("[top]\nhalf_life = \"1w\"\n"), "write \"7d\""),
        (
            plain(
                "[listen]\ntrusted_proxies = [\"10.0.0.0/255.0.0.0\"]\nclient_address = \"forwarded\"\n",
            ),
            "write [\"10.0.0.0/8\"]",
        ),
        (plain("[listen]\ntrusted_proxies = [\"10.1.*\"]\n"), "write [\"10.1.0.0/16\"]"),
        (plain("[listen]\nclient_address = \"forwarded\"\n"), "write trusted_proxies = "),
        (
            plain("[listen]\nclient_address = \"X-Real-IP\"\n"),
            "let the proxy send X-Forwarded-For: riskgate does not read X-Real-IP",
        ),
        (plain("[listen]\nlog.level = \"debug\"\n"), "write level = … below [log]"),
        (plain("[[key]]\nid = \"a\"\n"), "[keys] and file = \"keys.toml\""),
        (plain("mode = \"block\"\n"), "write it below [authz] or [upstream.route.screen]"),
        (plain("[[keys.key]]\nid = \"a\"\n"), "[keys] and file = \"keys.toml\""),
        (plain("[store]\ndeadline = 50\n"), "write \"50ms\""),
        (plain("[upstream]\nconnect_timeout = 500\n"), "write \"500ms\""),
        (plain("[upstream]\nconnect_timeout = 5\n"), "write \"5s\""),
    ]);
}

/// A setting of another section leads there.
#[test]
fn a_setting_below_the_wrong_header_leads_to_the_right_one() {
    let plain = str::to_owned;
    let rule = "[[rule]]\nname = \"a\"\nthen = \"pass\"\n";
    assert_hints(&[
        (plain("[upstream]\ntrusted_proxies = []\n"), "^ write it below [listen]"),
        (plain("[listen]\nservers = [\"a:1\"]\n"), "^ write it below [upstream]"),
        (plain("[listen]\nconnect_timeout = \"1s\"\n"), "^ write it below [upstream]"),
        (plain("[listen]\nlevel = \"info\"\n"), "^ write it below [log]"),
        (plain("[listen]\nfree = 3\n"), "^ write it below [plans]"),
        (plain("[listen]\nlearn = true\n"), "^ write it below [dns]"),
        (plain("[log]\ntoken = \"s3cr3t\"\n"), "^ write it below [admin]"),
        (plain("[authz]\npath = \"/a\"\ncheck = [\"key\"]\nenabled = true\n"), "remove this line"),
        (plain("[check]\nblock_score = 3\n"), "write it below [authz] or [decide] or [upstream"),
        (format!("{rule}mode = \"shadow\"\n"), "write it below [authz] or [upstream.route.screen]"),
        (plain("[plans]\nanswer = \"table\"\n"), "^ write it below [check]: each name below"),
    ]);
}

/// The second of two entries names the line of the first.
#[test]
fn a_name_that_is_taken_names_the_other_line() {
    let entries = |array: &str, name: &str, one: &str, other: &str, more: &str| {
        format!("[[{array}]]\n{name} = {one:?}\n{more}[[{array}]]\n{name} = {other:?}\n{more}")
    };
    let castle = ["castle", "castle"];
    let rule = "if = [\"risk_score > 3\"]\nthen = \"pass\"\n";
    assert_hints(&[
        (
            entries("upstream.route", "prefix", "/signup", "/Signup", ""),
            "prefix: expected a prefix that no other upstream.route has, but found \"/Signup\"\n  |\n4 \
             | prefix = \"/Signup\"\n  |          ^^^^^^^^^ line 2 has \"/signup\", and capital letters",
        ),
        (entries("table.feed", "name", castle[0], castle[1], ""), "^ line 2 has \"castle\""),
        (entries("rule", "name", "a", "a", rule), "^ line 2 has \"a\""),
        (
            "listen.http = \"127.0.0.1:1\"\n[log]\n[listen]\n".to_owned(),
            "^ write http = … below [listen], and remove line 1",
        ),
        (
            "[[upstream]]\nservers = [\"a:1\"]\n[[upstream]]\nservers = [\"b:1\"]\n".to_owned(),
            "write one [upstream], with all its settings in it: servers = [\"a:1\", \"b:1\"]",
        ),
        (
            "[upstream]\nservers = [\"a:1\"]\n[[upstream]]\nservers = [\"b:1\"]\n".to_owned(),
            "write [upstream] in line 1, its settings below it, and remove this line",
        ),
    ]);
}

/// In a list, each text has its own fault.
#[test]
fn a_list_with_several_faults_gets_the_right_list() {
    let server = |texts: &str| format!("[upstream]\nservers = [{texts}]\n");
    let origins = |texts: &str| {
        format!("[[upstream.route]]\nprefix = \"/a\"\nkey = false\norigins = [{texts}]\n")
    };
    assert_hints(&[
        (
            server("\"https://check.internal/v2\", \"10.0.0.8\""),
            "write [\"check.internal:443\", \"10.0.0.8:80\"], and tls = true",
        ),
        (
            server("\"a:1\", \"10.0.0.8\", \"http://b:2\""),
            "write [\"a:1\", \"10.0.0.8:80\", \"b:2\"]",
        ),
        (origins("\"*.example.com\""), "write [\"https://*.example.com\"]"),
        (origins("\"https://a.test\", \"b.test/\""), "^^^^^^^^^ write \"https://b.test\""),
    ]);
    let faults = read_config_text(&origins("\"https://a.test/\", \"b.test\", \"*\"")).unwrap_err();
    let hints = ["^ write \"https://a.test\"", "^ write \"https://b.test\"", "^ name each origin"];
    assert_eq!(faults.len(), hints.len(), "{faults:#?}");
    for (fault, hint) in faults.iter().zip(hints) {
        assert!(fault.contains(hint), "{hint}: {fault}");
    }
}

/// Where a person wrote a value, the hint has this value, and one mistake is told once.
#[test]
fn a_hint_has_the_values_of_the_person_and_no_fault_that_follows() {
    let plain = str::to_owned;
    let https = |rest: &str| format!("[listen]\nhttps = \"0.0.0.0:8443\"\n{rest}");
    let certificate =
        "write [[listen.certificate]], and below it chain = \"tls/a.crt\" and key = \"tls/a.key\"";
    assert_hints(&[
        (https("tls_cert = \"tls/a.crt\"\ntls_key = \"tls/a.key\"\n"), certificate),
        (https("[tls]\ncert = \"tls/a.crt\"\nkey = \"tls/a.key\"\n"), certificate),
        (https("[[certificate]]\nchain = \"tls/a.crt\"\nkey = \"tls/a.key\"\n"), certificate),
        (
            https("[listen.certificate]\nchain = \"tls/a.crt\"\nkey = \"tls/a.key\"\n"),
            "write [[listen.certificate]]",
        ),
        (plain("[listen]\nhttps = \"\"\n"), "https: expected an address"),
        (plain("admin = \"127.0.0.1:9090\"\n"), "^ write it below [listen]"),
        (
            plain("[upstreams]\nservers = [\"10.0.0.9:9000\"]\n"),
            "write [upstream] and servers = [\"10.0.0.9:9000\"]",
        ),
        (
            plain("[[upstream.server]]\naddress = \"10.0.0.9:9000\"\n"),
            "write [upstream] and servers = [\"10.0.0.9:9000\"]",
        ),
        (plain("[plans.pro]\nlimit = 7000\n"), "write pro = 7000 below [plans]"),
        (plain("[plans]\ngold = { limit = 5000 }\n"), "write gold = 5000 below [plans]"),
        (plain("feeds = [\"castle\"]\n"), "[[table.feed]], and below it name = \"castle\""),
        (plain("store = \"redis://a\"\n"), "[store], and below it url = \"redis://a\""),
        (
            plain("[[upstream.route.\"/signup\"]]\nkey = false\n"),
            "write [[upstream.route]], and below it prefix = \"/signup\"",
        ),
        (
            plain("[listen]\nhttp = \"0.0.0.0:1\"\nredirect = \"0.0.0.0:2\"\n"),
            "riskgate.toml:3:12: listen.redirect: expected listen.https too",
        ),
        (
            plain("[listen]\nproxy_protocol = true\n"),
            "write trusted_proxies = [\"10.0.0.0/8\"], or the address of your proxy",
        ),
    ]);
}

/// Each hint is read again as the setting reads it.
#[test]
fn a_hint_for_a_value_needs_no_second_hint() {
    let plain = str::to_owned;
    let rule = |line: &str| format!("[[rule]]\nname = \"a\"\nthen = \"pass\"\n{line}\n");
    let server = |text: &str| format!("[upstream]\nservers = [{text:?}]\n");
    let route = |rest: &str| format!("[[upstream.route]]\nprefix = \"/a\"\n{rest}\n");
    assert_hints(&[
        (server("fd00::7:9000"), "write [\"[fd00::7]:9000\"]"),
        (server("::1:9000"), "write [\"[::1]:9000\"]"),
        (server("[fd00::7]"), "write [\"[fd00::7]:80\"]"),
        (plain("[listen]\nhttp = \"[::1]\"\n"), "write \"[::1]:8080\""),
        (plain("[listen]\nadmin = \"::1\"\n"), "write \"[::1]:9090\""),
        (plain("[listen]\nhttp = \"0.0.0.0\"\n"), "write \"0.0.0.0:8080\""),
        (plain("[listen]\nbind = \"0.0.0.0\"\n"), "Write http = \"0.0.0.0:8080\""),
        (
            plain("[listen]\ntrusted_proxies = [\"10.0.0.0/33\"]\n"),
            "write a number of 0 to 32 behind the /",
        ),
        (rule("if = \"risk_score = 80\""), "write [\"risk_score == 80\"]"),
        (
            rule("if = \"domain = *.example.com\""),
            "in it: write ==, and write each domain, as in domain in",
        ),
        (plain("[[rule]]\nname = \"\"\nthen = \"pass\"\n"), "^^ write one"),
        (rule("message = \"\""), "^^ write a value, or remove this line"),
        (plain("[log]\naccess = \"\"\n"), "^^ write a value, or remove this line"),
        (plain("[upstream]\ntls = \"1.2\"\n"), "write tls = true, or remove this line"),
        (plain("[[table.feed]]\nname = \"castle\"\nkeep = 90\n"), "write \"90d\""),
        (plain("[keys]\nheader = \"X Api Key:\"\n"), "write \"X-Api-Key\""),
        (
            plain("[table]\noverrides = [\"bad.test\", \"good.test\"]\n"),
            "run `riskgate table allow DOMAIN`",
        ),
        (
            plain("[listen]\ntimeout = \"30s\"\n"),
            "write body_timeout or header_timeout or keepalive_timeout or write_timeout",
        ),
        (
            route(
                "key = false\norigins = [\"https://a.test\"]\n[upstream.route.cors]\nmax_age = 600",
            ),
            "for 10 minutes; remove this line",
        ),
        (plain("[traces]\nheaders = { authorization = \"a\" }\n"), "to the collector"),
        (plain("[store]\nhost = \"redis\"\n"), "write it into url"),
        (plain("[store]\ntype = \"redis\"\n"), "url = \"redis://HOST:6379\""),
        (plain("[entryPoints.web]\naddress = \":80\"\n"), "and below it http = \"0.0.0.0:80\""),
        (
            plain("[[listen]]\nthreads = 1\n[[listen]]\nthreads = 2\n"),
            "write one [listen], with all its settings in it",
        ),
        (
            plain("[[admin.token]]\nname = \"ops\"\nscope = \"read\"\ntoken = \"s3cr3t\"\n"),
            "write hash = \"sha256:…\"",
        ),
    ]);
}

/// Mistakes of people who know other servers.
#[test]
fn settings_of_other_servers_get_the_right_hint() {
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[listen]\nhttp2 = true\n"), "did you mean `h2c`?"),
        (
            plain("[listen]\nhttps = \"127.0.0.1:1\"\ncertificate = \"a.pem\"\n"),
            "write a section, ",
        ),
        (plain("[upstream]\nservers = [{ a = 1 }]\n"), "write texts without braces"),
        (plain("[upstream]\ndeadline = 2.5\n"), "write \"2.5s\""),
        (plain("[decide]\nblock_score = 0.8\n"), "write 80"),
        (plain("[store]\nfail_open = true\n"), "did you mean `on_failure`?"),
        (plain("[table]\nfeeds = [\"castle\"]\n"), "write a section, [[table.feed]]"),
        (plain("[admin]\nlisten = \"127.0.0.1:1\"\n"), "below [listen]"),
        (plain("[log]\nmax_size = 1\n"), "did you mean `max_bytes`?"),
        (plain("[inbox]\nsecret = \"a\"\n"), "did you mean `secret_file`?"),
        (plain("[dns]\nenabled = true\n"), "did you mean `learn`?"),
        (plain("[listen]\nmax_body_size = 1\n"), "did you mean `max_body_bytes`?"),
        (plain("[upstream]\nca = \"a.pem\"\n"), "did you mean `tls_ca`?"),
        (plain("[listen]\nhttp = \"::1:80\"\n"), "write \"[::1]:80\""),
        (plain("[listen]\nhttp = \"$ADDRESS\"\n"), "set RISKGATE__LISTEN__HTTP in the"),
        (plain("[store]\nurl = \"${REDIS}\"\n"), "set RISKGATE__STORE__URL in the environment"),
        (plain("[store]\nurl = \"redis:cache:1\"\n"), "write \"redis://cache:1\""),
        (plain("[upstream]\nservers = [\"a.test:1/x\"]\n"), "write [\"a.test:1\"]"),
        (plain("[tracing]\nendpoint = \"http://a.test\"\n"), "did you mean [traces]?"),
        (
            plain("[[table.feed]]\nname = \"castle\"\n[[table.feed]]\nname = \"castle\"\n"),
            "4:8: table.feed \"castle\": name",
        ),
    ]);
    let header = read_config_text("[keys]\nheader = \"Authorization\"\n").unwrap_err();
    assert!(!header[0].contains("write "), "{header:?}");
    // Of an access key, `access` is its scope.
    let token = "[[admin.token]]\nname = \"ops\"\naccess = \"read\"\n";
    let faults = read_config_text(token).unwrap_err().join("\n");
    assert!(faults.contains("did you mean `scope`?"), "{faults}");
    assert!(!faults.contains("scope: expected"), "{faults}");
}

/// A route with `line` in its screening.
fn screened_route(line: &str) -> String {
    format!(
        "[[upstream.route]]\nprefix = \"/\"\nkey = false\n[upstream.route.screen]\n\
         fields = [\"email\"]\n{line}\n"
    )
}

/// Values that look right and break a rule of their setting.
#[test]
fn values_that_break_a_rule_get_one_that_keeps_it() {
    let plain = str::to_owned;
    let route =
        |rest: &str| format!("[[upstream.route]]\nprefix = \"/app\"\nkey = false\n{rest}\n");
    let paths = |path: &str| {
        route(&format!(
            "methods = [\"POST\"]\n[upstream.route.screen]\nfields = [\"email\"]\npaths = [{path:?}]"
        ))
    };
    let token = |line: &str| format!("[[admin.token]]\nname = \"a\"\nscope = \"read\"\n{line}\n");
    let hash = "0123456789abcdef".repeat(4);
    let feed = |url: &str| format!("[[table.feed]]\nname = \"a\"\nurl = {url:?}\n");
    assert_hints(&[
        (plain("[listen]\nhttp = \"127.0.0.1:9090\"\n"), "^ write \"127.0.0.1:8080\""),
        (
            plain(
                "[listen]\nhttp = \"0.0.0.0:8080\"\nhttps = \"0.0.0.0:8080\"\n[[listen.certificate]]\nchain = \"a\"\nkey = \"b\"\n",
            ),
            "^ write \"0.0.0.0:8443\"",
        ),
        (
            plain("[listen]\nhttp = \"127.0.0.1:8080\"\nadmin = \"127.0.0.1:8080\"\n"),
            "^ write \"127.0.0.1:9090\"",
        ),
        (plain("[upstream]\nservers = []\n"), "^ write a value, or remove this line"),
        (plain("[upstream]\nservers = [\"api..a.test:80\"]\n"), "write [\"api.a.test:80\"]"),
        (screened_route("paths = []"), "^ write a value, or remove this line"),
        (
            plain("[upstream]\nresolvers = [\"/etc/resolv.conf\"]\n"),
            "^ remove this line: without it",
        ),
        (
            paths("/signup"),
            "^ if you mean [\"/app/signup\"], write it; for /signup itself, write an \
             [[upstream.route]] of its own",
        ),
        (paths("signup"), "^ if you mean [\"/app/signup\"], write it"),
        (paths("https://a.test/app/signup"), "^ write [\"/app/signup\"]"),
        (paths("POST /app/signup"), "^ write [\"/app/signup\"]"),
        (paths("/app/signup/*"), "^ write [\"/app/signup\"]: paths have no patterns"),
        (paths("/app/users/:id"), "^ write [\"/app/users\"]: paths have no patterns"),
        (route("max_per_client = \"20\""), "^ write \"20/h\""),
        (route("counts = true"), "^ write counts = false, or remove this line"),
        (token(&format!("hash = \"{hash}\"")), "^ write sha256: before it"),
        (
            token(&format!("hash = \"sha256:{hash}\"\nexpires = \"90d\"")),
            "^ write a date: `riskgate admin-token create --expires 90d` prints one",
        ),
        (feed("http://a.test/list.txt"), "^ write https in place of http"),
        (
            plain("[authz]\npath = \"/authz\"\ncheck = [\"quota\"]\n"),
            "^ write [\"key\", \"quota\"]",
        ),
    ]);
    let fields =
        "[[upstream.route]]\nprefix = \"/\"\nkey = false\n[upstream.route.screen]\nfields = []\n";
    assert_hints(&[(plain(fields), "^ write fields = [\"email\"], as the form names it")]);
}

/// A hint has a value that the setting takes, whatever other servers have in its place.
#[test]
fn values_of_other_servers_get_the_right_hint() {
    let plain = str::to_owned;
    let server = |text: &str| format!("[upstream]\nservers = [{text:?}]\n");
    let proxies = |text: &str| format!("[listen]\ntrusted_proxies = [{text}]\n");
    let screen = |line: &str| screened_route(line);
    assert_hints(&[
        (plain("[listen]\nport = 8080\n"), "Write http = \"127.0.0.1:8080\""),
        (plain("[listen]\nlisten = \":80\"\n"), "Write http = \"0.0.0.0:80\""),
        (server("127.0.0.1:9000 weight=3"), "write [\"127.0.0.1:9000\"], without words behind it"),
        (server(":9000"), "^ write [\"127.0.0.1:9000\"]"),
        (server("*:80"), "^ write [\"127.0.0.1:80\"]"),
        (server("unix:/run/app.sock"), "connects to no Unix socket"),
        (
            plain("[upstream]\nservers = [{ host = \"a\", port = 1 }]\n"),
            "write texts without braces: expected a list of servers such as [\"127.0.0.1:9000\"",
        ),
        (proxies("\"private_ranges\""), "[\"10.0.0.0/8\", \"172.16.0.0/12\""),
        (proxies("\"10.0.0.0/8\", \"nginx\""), "riskgate resolves no names here"),
        (proxies("\"10.0.0.0/8, 172.16.0.0/12\""), "write [\"10.0.0.0/8\", \"172.16.0.0/12\"]"),
        (plain("[dns]\nresolvers = [\"dns.google\"]\n"), "riskgate resolves no names here"),
        (plain("[listen]\nhttp = \"0.0.0.0:80 default_server\"\n"), "write \"0.0.0.0:80\""),
        (plain("[listen]\nthreads = \"auto\"\n"), "remove this line"),
        (plain("[listen]\nhttp = \"0.0.0.0:99999\"\n"), "write a port of 1 to 65535"),
        (
            plain("[[upstream.route]]\nprefix = \"/\"\nkey = false\norigins = [\"https://*\"]\n"),
            "name each origin",
        ),
        (plain("[listen]\ntls = true\n"), "write https = \"0.0.0.0:443\", and [[listen."),
        (proxies("\"10.0.0.1:443\""), "write [\"10.0.0.1\"]"),
        (plain("[webhook]\nurl = \"a.test/x\"\n"), "write https:// before it"),
        (
            plain("[upstream]\nservers = \"http://10.0.0.7:1;http://10.0.0.8:1\"\n"),
            "write [\"10.0.0.7:1\", \"10.0.0.8:1\"]",
        ),
        (
            screen("")
                + "[[rule]]\nname = \"a\"\nif = \"risk_score > 80 && !is_role\"\nthen = \"pass\"\n",
            "write [\"risk_score > 80\", \"is_role == false\"]",
        ),
        (plain("[listen]\nkeepalive_timeout = \"0\"\n"), "write a long time, such as \"10m\""),
        (plain("[listen]\nhsts = \"max-age=31536000; preload\"\n"), "write \"365d\""),
        (plain("[upstream]\nhealth_interval = \"off\"\n"), "write \"0s\""),
    ]);
}

#[test]
fn texts_shares_and_entries_in_other_forms_get_the_right_hint() {
    let plain = str::to_owned;
    let screen = |line: &str| screened_route(line);
    let webhook = |line: &str| format!("[webhook]\nurl = \"https://a.test/\"\n{line}");
    assert_hints(&[
        (screen("redirect = \"www.a.test/x\""), "write https:// before it"),
        (screen("redirect = \"http://a.test/x\""), "write https in place of http"),
        (plain("[traces]\nprotocol = \"http\"\n"), "did you mean \"http/protobuf\"?"),
        (webhook(""), "the output of: echo whsec_$(openssl rand -base64 32)"),
        (webhook("secret = \"a\"\n"), "the output of: echo whsec_"),
        (plain("[admin]\ntoken = \"a\"\n"), "the output of: openssl rand -hex 16"),
        (plain("[webhook]\nurl = \"http://localhost/\"\n"), "allow_private = true too"),
        (plain("[webhook]\nthresholds = [0.8, 1.0]\n"), "write [80, 100]"),
        (plain("[traces]\nsample_one_in = 0.01\n"), "write 100"),
        (plain("[[table.feed]]\nname = \"My List\"\n"), "write \"my-list\""),
        (
            plain("[[table.feed]]\nname = \"a\"\nurl = \"/l\"\nkind = \"free\"\ntier = \"a\"\n"),
            "tier: expected a tier only beside kind = \"disposable\"",
        ),
        (plain("[[table.feed]]\nname = \"a\"\n"), "riskgate knows castle and reviewed"),
        (plain("[table.feed.castle]\nenabled = true\n"), "and below it name = \"castle\""),
        (
            plain("[upstream.route.\"/api\"]\nkey = false\n"),
            "write [[upstream.route]], and below it prefix = \"/api\"",
        ),
        (plain("[rule.risky]\nthen = \"block\"\n"), "write [[rule]], and below it name"),
        (plain("[listen]\nhttp = \"127.0.0.1:1\" ; main\n"), "write # in place of ;"),
        (plain("[listen]\ninclude = \"a.toml\"\n"), "riskgate reads one file"),
        (
            plain("[listen]\ncertificate = \"a.pem\"\n"),
            "write a section, [[listen.certificate]], and below it chain = … and key = …",
        ),
        (plain("[[upstream.route]]\nprefix = \"/v1/check\"\n"), "remove this [[upstream.route]]"),
        (
            plain("[[upstream.route]]\nprefix = \"/a\"\nfailure_status = 502\n"),
            "did you mean \"gateway\"?",
        ),
        (
            plain("[authz]\npath = \"/authz\"\ncheck = [\"screen\"]\nemail = \"form:email\"\n"),
            "write \"body:email\"",
        ),
    ]);
    let threads = read_config_text("[listen]\nthreads = 0.5\n").unwrap_err();
    assert!(!threads[0].contains("write "), "{threads:?}");
    let collector = |protocol: &str, port: u16| {
        messages_of(&format!(
            "[traces]\nprotocol = {protocol:?}\nendpoint = \"http://127.0.0.1:{port}/v1/traces\"\n"
        ))
        .contains("collectors take")
    };
    assert!(collector("http/protobuf", 4317) && collector("grpc", 4318));
    assert!(!collector("http/protobuf", 4318) && !collector("grpc", 4317));
}

/// Returns the text of all faults of a config and, if there are none, of all warnings.
fn messages_of(text: &str) -> String {
    let messages = match read_config_text(text) {
        Ok(config) => config.warnings(false),
        Err(faults) => faults,
    };
    messages.join("\n")
}

#[test]
fn a_duration_that_is_too_long_is_told_with_the_longest() {
    let faults = |text: &str| messages_of(&format!("[listen]\nbody_timeout = \"{text}\"\n"));
    assert!(faults("36500d").contains("expected a duration of at most 11574d"));
    assert!(faults("36500x").contains("expected a duration of 1ms or more"));
    assert!(!faults("11574d").contains("body_timeout"));
}

#[test]
fn shared_rates_without_a_rate_are_told() {
    let shared = "[store]\nurl = \"redis://127.0.0.1:1\"\n[rates]\nshared = true\n";
    let told = |text: &str| messages_of(text).contains("rates.shared: expected max_per_client");
    assert!(told(shared));
    assert!(!told(&format!("{shared}[keys]\nmax_per_client = \"5/s\"\n")));
}

#[test]
fn the_name_of_upstream_tls_is_one_that_riskgate_verifies() {
    let name_of = |settings: &str| {
        let config = read_config_text(&format!("[upstream]\ntls = true\n{settings}"));
        config.map(|config| config.startup.upstream.tls.unwrap().server_name)
    };
    for (settings, expected) in [
        ("host = \"[::1]\"\n", "::1"),
        ("host = \"[::1]:9443\"\n", "::1"),
        ("host = \"10.0.0.1\"\n", "10.0.0.1"),
        ("host = \"a.test:9443\"\n", "a.test"),
        ("servers = [\"a.test.:9443\", \"a.test:9444\"]\n", "a.test"),
        ("servers = [\"[::1]:9443\"]\n", "::1"),
        ("servers = [\"a_b.test:9443\"]\n", "a_b.test"),
        ("servers = [\"a.b_c.test:9443\"]\n", "a.b_c.test"),
        ("tls_name = \"a_b.c.test\"\ntls_verify = false\n", "a_b.c.test"),
    ] {
        assert_eq!(name_of(settings).as_deref(), Ok(expected), "{settings}");
    }
    let other = "riskgate would verify a-b.c.test";
    for (settings, expected) in [
        ("tls_name = \"a b\"\n", "3:12: upstream.tls_name: expected a name in a certificate"),
        ("tls_name = \"a.test:443\"\n", "without a port, but found \"a.test:443\""),
        ("tls_name = \"[::1]\"\n", "3:12: upstream.tls_name: expected a name in a certificate"),
        ("tls_name = \"a_b.c.test\"\n", other),
        ("servers = [\"a_b.c.test:9443\"]\n", other),
        ("host = \"a_b.c.test\"\n", other),
        ("host = \"a!b.test\"\n", "since neither upstream.host nor upstream.servers says one"),
    ] {
        let faults = name_of(settings).unwrap_err();
        assert_eq!(faults.len(), 1, "{settings}: {faults:?}");
        assert!(faults[0].contains(expected), "{settings}: {faults:?}");
        assert_eq!(faults[0].contains("write tls_name = \"a-b.c.test\""), expected == other);
    }
}

/// Where another program replaces variables, riskgate would use their names as values.
#[test]
fn a_variable_in_a_text_is_a_fault_of_any_setting() {
    let plain = str::to_owned;
    assert_hints(&[
        (
            plain("[admin]\ntoken = \"${RISKGATE_ADMIN_TOKEN}\"\n"),
            "set RISKGATE__ADMIN__TOKEN in the environment, or name a file in token_file",
        ),
        (plain("[store]\nurl = \"redis://:${PW}@cache:6379\"\n"), "or name a file in url_file"),
        (plain("[webhook]\nurl = \"https://${HOST}/x\"\n"), "set RISKGATE__WEBHOOK__URL"),
        (plain("[log]\npath = \"$HOME\"\n"), "set RISKGATE__LOG__PATH in the environment"),
        (plain("[traces]\nservice_name = \"{{ name }}\"\n"), "riskgate replaces no variables"),
        (plain("[keys]\nfile = \"{env.KEYS}\"\n"), "found the variable {env.KEYS}"),
        (plain("[upstream]\nservers = [\"${A}:1\"]\n"), "set RISKGATE__UPSTREAM__SERVERS"),
        (plain("[[table.feed]]\nname = \"a\"\nurl = \"${LIST}\"\n"), "write the value: riskgate"),
        (plain("[plans]\nfree = \"${N}\"\n"), "set RISKGATE__PLANS__FREE"),
    ]);
    for text in ["cost: 5$", "a$b", "{name}", "100%", "$", "a {b} c"] {
        let config = format!("[admin]\ntoken = \"0123456789abcdef {text}\"\n");
        assert!(read_config_text(&config).is_ok(), "{text}");
    }
}

#[test]
fn a_setting_without_effect_is_told_with_its_line() {
    for (text, expected) in [
        ("[upstream]\ntls_ca = \"a.pem\"\n", "2:1: upstream.tls_ca: expected upstream.tls = true"),
        ("[upstream]\ntls_name = \"a\"\n", "2:1: upstream.tls_name: expected upstream.tls = true"),
        ("[upstream]\ntls_verify = false\n", "2:1: upstream.tls_verify: expected upstream.tls"),
        ("[dns]\nresolvers = [\"1.1.1.1\"]\n", "2:1: dns.resolvers: expected dns.learn = true"),
        ("[webhook]\nthresholds = [80]\n", "2:1: webhook.thresholds: expected webhook.url"),
        ("[webhook]\nallow_private = true\n", "2:1: webhook.allow_private: expected webhook.url"),
        ("[traces]\nsample_one_in = 5\n", "2:1: traces.sample_one_in: expected traces.endpoint"),
        ("[log]\naccess = false\npath = \"a\"\n", "3:1: log.path: expected log.access = true"),
        ("[log]\nmax_bytes = 10000\n", "2:1: log.max_bytes: expected log.path"),
        ("[log]\nkept_files = 3\n", "2:1: log.kept_files: expected log.max_bytes"),
        ("[listen]\nhsts = \"365d\"\n", "2:1: listen.hsts: expected listen.https"),
        ("[upstream]\nhealth_path = \"/\"\nhealth_interval = \"0\"\n", "2:1: upstream.health_path"),
        (
            "[upstream]\nhealth_path = \"/\"\nhealth_interval = \"0s\"\n",
            "2:1: upstream.health_path",
        ),
        ("[log]\npath = \"-\"\n", "2:1: log.path: expected a file, but found \"-\""),
        ("[authz]\nmode = \"block\"\n", "1:2: authz.path: expected a path such as /authz"),
        (
            "[store]\nurl = \"redis://a:1\"\ntls_ca = \"ca.pem\"\n",
            "3:1: store.tls_ca: expected store.url to be rediss://…, rediss+sentinel://… or rediss+cluster://…",
        ),
        (
            "[store]\nwait_replicas = 2\n",
            "2:1: store.wait_replicas: expected store.url to be redis",
        ),
        ("[store]\nsentinel_user = \"a\"\nsentinel_password_file = \"b\"\n", "redis+sentinel://…"),
    ] {
        let found = messages_of(text);
        assert!(found.contains(expected), "{text}: {found}");
        assert!(found.contains('^'), "{text}: {found}");
    }
    let open = "[listen]\ntrusted_proxies = [\"0.0.0.0/0\"]\nclient_address = \"forwarded\"\n";
    assert!(messages_of(open).contains("2:19: listen.trusted_proxies: expected"), "{open}");
    for text in [
        "[upstream]\ntls = true\ntls_ca = \"a.pem\"\nhost = \"a\"\n",
        "[upstream]\ntls_verify = true\n",
        "[dns]\nlearn = true\nresolvers = [\"1.1.1.1\"]\n",
        "[store]\nurl = \"rediss://a:1\"\ntls_ca = \"ca.pem\"\nwait_replicas = 1\n",
        "[listen]\nhsts = \"0\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n",
        "[webhook]\nallow_private = false\n",
        "[log]\naccess = false\n",
    ] {
        let found = messages_of(text);
        assert!(found.lines().all(|line| line.starts_with("table.feed: ")), "{text}: {found}");
    }
}

#[test]
fn a_variable_that_riskgate_does_not_read_is_told() {
    let warnings = |name: &str| {
        let mut settings = Settings::default();
        settings.read_environment([(name.into(), "x".into())].into_iter());
        settings.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (name, meant) in [
        ("RISKGATE_STORE_URL", "RISKGATE__STORE__URL"),
        ("RISKGATE_LISTEN__HTTP", "RISKGATE__LISTEN__HTTP"),
        ("riskgate__listen__http", "RISKGATE__LISTEN__HTTP"),
        ("RISKGATE_UPSTREAM", "RISKGATE__UPSTREAM__SERVERS"),
        ("RISKGATE_LOG_LEVEL", "RISKGATE__LOG__LEVEL"),
        ("RISKGATE_REDIS_URL", "RISKGATE__STORE__URL"),
        ("RISKGATE_CONFIG_FILE", "RISKGATE_CONFIG"),
    ] {
        let found = warnings(name);
        let expected = format!("{name}: riskgate reads no such variable; did you mean {meant}?");
        assert_eq!(found, expected);
    }
    for name in [
        "RISKGATE_CONFIG",
        "RISKGATE_TEST_SEED",
        "RISKGATE_KEY",
        "RISKGATE_URL",
        "RISKGATE_SERVICE_HOST",
        "RISKGATE_SERVICE_PORT_HTTP",
        "RISKGATE_PORT_8080_TCP",
        "RISKGATE_PORT_8080_TCP_ADDR",
        "MY_RISKGATE_STORE_URL",
        "RISKGATE_WEB_1",
    ] {
        assert_eq!(warnings(name), "", "{name}");
    }
    let fault = |name: &str, value: &str| {
        let mut settings = Settings::default();
        settings.read_environment([(name.into(), value.into())].into_iter());
        Config::from_settings(None, &mut settings);
        settings.report_unknown_keys();
        settings.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (name, value, hint) in [
        ("RISKGATE__LISTEN_HTTP", "1", "; did you mean RISKGATE__LISTEN__HTTP?"),
        ("RISKGATE__HTTP", "1", "; did you mean RISKGATE__LISTEN__HTTP?"),
        ("RISKGATE__UPSTREAM__SERVERS", "http://a:1", "; write a:1"),
        ("RISKGATE__LISTEN__HTTP", "", "; unset this variable, or give it a value"),
        ("RISKGATE__LISTEN__HTPP", "1", "; did you mean RISKGATE__LISTEN__HTTP?"),
        ("RISKGATE__UPSTREAM__SERVERS", "[\"a:1\", \"b:2\"]", "; write a:1,b:2: "),
        ("RISKGATE__UPSTREAM__SERVERS", "a:1 b:2", "; write a:1,b:2: "),
        ("RISKGATE__UPSTREAM__SERVERS", "a:1;b:2", "; write a:1,b:2: "),
        ("RISKGATE__WEBHOOK__THRESHOLDS", "50 90", "; write 50,90: "),
        ("RISKGATE__WEBHOOK__THRESHOLDS", "[80%]", "; write 80"),
        ("RISKGATE__LISTEN__HTTP", "\"1.2.3.4:80\"", "; write 1.2.3.4:80"),
        ("RISKGATE__LISTEN__H2C", "yes", "; write true"),
        ("RISKGATE__STORE__DEADLINE", "50", "; write 50ms"),
        ("RISKGATE__ADMIN__TOKEN", "${TOKEN}", "; write the value: riskgate replaces no"),
        ("RISKGATE__RULE", "x", "such as RISKGATE__RULE__0__IF"),
    ] {
        let found = fault(name, value);
        assert!(found.starts_with(name) && found.contains(hint), "{name}={value}: {found}");
    }
}

#[test]
fn a_key_file_knows_the_sections_of_the_config() {
    let known = unknown_keys::known_keys();
    let sections = known.iter().filter_map(|key| Some(key.split_once('.')?.0));
    let sections: std::collections::BTreeSet<&str> = sections.collect();
    assert_eq!(sections, crate::keys::CONFIG_SECTIONS.into_iter().collect());
}

/// One rule for all sections: a section of which there may be several has two brackets.
#[test]
fn each_section_with_the_wrong_brackets_gets_the_right_ones() {
    let known = unknown_keys::known_keys();
    let sections: std::collections::BTreeSet<&str> =
        known.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    assert!(sections.len() > 20, "{sections:?}");
    for section in sections {
        let right = unknown_keys::header_of_known(section).unwrap();
        let wrong = match right.starts_with("[[") {
            true => format!("[{section}]"),
            false => format!("[[{section}]]"),
        };
        let setting = known.iter().find(|key| key.rsplit_once('.').unwrap().0 == section).unwrap();
        let name = setting.rsplit('.').next().unwrap();
        let parent = match section.starts_with("upstream.route.") {
            true => "[[upstream.route]]\nprefix = \"/x\"\n",
            false => "",
        };
        for text in [format!("{parent}{wrong}\n"), format!("{parent}{wrong}\n{name} = 1\n")] {
            let faults = read_config_text(&text).unwrap_err();
            assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
            assert!(faults[0].ends_with(&format!(" write {right}")), "{text}: {faults:#?}");
        }
        // The first has made the name a table, so TOML refuses the second.
        if right.starts_with("[[") && section != "admin.token" {
            let faults = read_config_text(&format!("{wrong}\n{right}\n")).unwrap_err();
            assert!(faults[0].contains(&format!("write {right} here and in line 1")), "{faults:?}");
        }
    }
    assert_hints(&[
        (
            "[upstream.route.screen]\nfields = [\"email\"]\n".to_owned(),
            "write [[upstream.route]] above it",
        ),
        ("[tls]\ncert = \"a.pem\"\n".to_owned(), "write [[listen.certificate]]"),
        ("[[tls]]\ncert = \"a.pem\"\n".to_owned(), "write [[listen.certificate]]"),
        ("[[feeds]]\nname = \"castle\"\n".to_owned(), "write [[table.feed]]"),
        ("[[decide.rule]]\nname = \"a\"\n".to_owned(), "write [[rule]]"),
        ("[[upstream.servers]]\nurl = \"a\"\n".to_owned(), "write servers = … below [upstream]"),
    ]);
}

#[test]
fn words_for_all_methods_are_no_methods() {
    for methods in ["\"any\"", "[\"ANY\"]", "[\"GET\", \"ALL\"]", "[\"*\"]"] {
        let text =
            format!("[[upstream.route]]\nprefix = \"/a\"\nkey = false\nmethods = {methods}\n");
        let faults = read_config_text(&text).unwrap_err().join("\n");
        assert!(faults.contains("methods: expected a list of methods such as"), "{faults}");
        assert!(faults.contains("^ write each method: [\"GET\""), "{faults}");
    }
}

#[test]
fn what_is_no_toml_gets_what_was_meant() {
    for (text, place, hint) in [
        ("[listen]\nhttp: \"127.0.0.1:8080\"\n", "2:7", "write http = …"),
        ("listen:\n", "1:8", "write [listen]"),
        ("{\"listen\": {}}\n", "1:1", "write sections and settings"),
        ("// mine\n", "1:4", "write # before a comment"),
        ("[log]\nlevel == \"info\"\n", "2:8", "write level = …, without the = behind it"),
        ("[log]\nlevel = \"info\",\n", "2:15", "write no , at the end of the line"),
        ("[log]\naccess = True\n", "2:10", "write true"),
        ("[log]\naccess = off\n", "2:10", "write false"),
        ("[log]\nlevel = info\n", "2:9", "write \"info\""),
        ("[log]\nlevel = inof\n", "2:9", "did you mean \"info\"?"),
        (
            "[plans]\npro = 10,000\n",
            "2:9",
            "found 10,000\n  |\n2 | pro = 10,000\n  |         ^ write 10000",
        ),
        ("[plans]\npro = 10k # a\n", "2:7", "write 10000"),
        ("[plans]\npro = unlimited\n", "2:7", "write \"unlimited\""),
        ("[listen]\nmax_body_bytes = 20MB\n", "2:18", "write 20971520"),
        ("[upstream]\ndeadline = 5s\n", "2:12", "write \"5s\""),
        ("[upstream]\nservers = [10.0.0.7:1, a:2]\n", "2:16", "write [\"10.0.0.7:1\", \"a:2\"]"),
        (
            "[listen]\nhttp = “0.0.0.0:80”\n",
            "2:8",
            "http = “0.0.0.0:80”\n  |        ^ write \"0.0.0.0:80\"",
        ),
        ("[listen]\nhttp = `0.0.0.0:80`\n", "2:8", "write \"0.0.0.0:80\""),
        ("[upstream]\nservers = [“a:1”]\n", "2:12", "write [\"a:1\"]"),
        ("[admin]\ntoken = “s3cr3t-s3cr3t-1234”\n", "2:9", "write \" in place of each"),
        ("[listen]\nhttp =\u{a0}\"0.0.0.0:80\"\n", "2:7", "found: U+00A0"),
        ("server {\n  listen 80;\n}\n", "1:8", "server {\n  |        ^ write sections and"),
        ("example.com {\n  reverse_proxy a:1\n}\n", "1:13", "a block in braces"),
        ("listen {\n  http = \"a\"\n}\n", "1:8", "write [listen]"),
        ("[listen]\nhttp 0.0.0.0:80\n", "2:6", "write http = \"0.0.0.0:80\""),
        ("[listen]\nhttp \"0.0.0.0:80\"\n", "2:6", "write http = \"0.0.0.0:80\""),
        ("[upstream]\nservers [\"a:1\"];\n", "2:9", "write servers = [\"a:1\"]"),
        ("[admin]\ntoken \"s3cr3t-s3cr3t-1234\"\n", "2:7", "token …\n  |       ^ write token = …"),
        ("[listen] http = \"0.0.0.0:80\"\n", "1:10", "^ write http = … on a line of its own"),
        (
            "[listen]\nhttp = \"0.0.0.0:80\" threads = 4\n",
            "2:21",
            "^ write threads = … on a line of its own",
        ),
        ("[upstream]\nservers = \"a:1\", \"b:1\"\n", "2:16", "write [\"a:1\", \"b:1\"]"),
        ("[listen]\nhttp = \"0.0.0.0:80\", \"[::]:80\"\n", "2:20", "the setting takes no list"),
        ("[log]\nlevel = \"info\" always\n", "2:16", "remove it, or write # before a comment"),
        ("listen]\nhttp = \"0.0.0.0:80\"\n", "1:7", "write [listen]"),
        ("<<<<<<< HEAD\n[listen]\n=======\n", "1:9", "the marks of a merge conflict"),
    ] {
        let faults = read_config_text(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].starts_with(&format!("riskgate.toml:{place}: ")), "{text}: {faults:#?}");
        assert!(faults[0].contains(hint) && faults[0].contains('^'), "{text}: {faults:#?}");
    }
}

#[test]
fn slips_in_lines_of_toml_get_what_was_meant() {
    let feeds = "[table.feed]\nname = \"a\"\n[table.feed]\nname = \"b\"\n";
    let listen = "[listen]\nhttp = \"127.0.0.1:1\"\n[log]\n[listen]\n";
    for (text, place, hint) in [
        ("[upstream]\n- a:1\n", "2:3", "a list between brackets"),
        ("---\nlisten:\n", "1:4", "remove this line"),
        ("<config>\n", "1:9", "a tag in < and >"),
        ("RISKGATE__LISTEN__HTTP=1.2.3.4:80\n", "1:27", "set it in the environment"),
        ("[upstream]\nservers = [\n  \"a:1\"\n  \"b:2\"\n]\n", "4:3", "write a comma between"),
        ("[[rule]]\nif = [\"domain == \"a.com\"\"]\n", "2:19", "leave the inner quotes out"),
        (
            "[upstream]\n[upstream.route.screen]\nmode = \"block\"\n[[upstream.route]]\n",
            "4:12",
            "write [[upstream.route]] above line 2",
        ),
        ("[log]\nlevel =\n", "2:8", "log.level: expected a level (off, error, warn, info"),
        ("[log]\nlevel =\n", "2:8", "write a value behind level =, or remove this line"),
        ("[admin]\ntoken =\n", "2:8", "16 or more ASCII characters, but found nothing"),
        ("[plans]\nteam plan = 500\n", "2:6", "write \"team plan\" = 500, or team_plan = 500"),
        ("[listen]\nmax streams = 5\n", "2:5", "write max_streams = …"),
        ("[log]\nlevel = \"info\n", "2:14", "end the text with \""),
        (
            "[upstream]\nservers = [\"10.0.0.7:9000]\n",
            "2:12",
            "end the text with \": write [\"10.0.0.7:9000\"]",
        ),
        (
            "[[upstream.route]]\nmethods = [\"GET\", \"POST]\nkey = false\n",
            "2:19",
            "end the text with \": write [\"GET\", \"POST\"]",
        ),
        ("[log]\npath = \"C:\\log\"\n", "2:12", "write \\\\ for each \\"),
        ("[log]\naccess = true\naccess = true\n", "3:1", "^ remove this line or line 2"),
        (
            "[[admin.token]]\nname = \"a\"\n[admin]\ntoken = \"s3cr3t\"\n",
            "4:1",
            "^ write either token = …, or [[admin.token]] as in line 1",
        ),
        (listen, "4:2", "write its settings below line 1, and remove this line"),
        (feeds, "3:8", "write [[table.feed]] here and in line 1"),
    ] {
        let faults = read_config_text(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].starts_with(&format!("riskgate.toml:{place}: ")), "{text}: {faults:#?}");
        assert!(faults[0].contains(hint) && faults[0].contains('^'), "{text}: {faults:#?}");
    }
}

#[test]
fn one_mistake_in_a_name_is_one_fault() {
    for (text, place, hint) in [
        (
            "[admin]\ntokn = \"s3cr3t-s3cr3t-1234\"\n[listen]\nadmin = \"0.0.0.0:9090\"\n",
            "2:1: admin.tokn",
            "did you mean `token`?",
        ),
        (
            "[listen]\nadmin = \"0.0.0.0:9090\"\nadmin_token = \"s3cr3t-s3cr3t-1234\"\n",
            "3:1: listen.admin_token",
            "write token = … below [admin]",
        ),
        (
            "[[rule]]\nname = \"a\"\nif = [\"risk_score > 1\"]\naction = \"block\"\n",
            "4:1: rule \"a\": action",
            "write then = \"block\"",
        ),
    ] {
        let faults = read_config_text(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].starts_with(&format!("riskgate.toml:{place}: ")), "{faults:#?}");
        assert!(faults[0].ends_with(&format!("^ {hint}")), "{faults:#?}");
        assert!(!faults[0].contains("s3cr3t"), "{faults:#?}");
    }
}

#[test]
fn settings_that_say_less_than_their_author_thinks_are_told() {
    for (text, place, hint) in [
        (
            "[upstream]\nservers = [\"a.test:1\", \"b.test:1\", \"a.test:1\"]\n",
            "2:11: upstream.servers: expected each server once, but found a.test:1 twice",
            "remove one of both",
        ),
        (
            "[upstream]\nservers = [\"127.0.0.1:8080\"]\n",
            "2:11: upstream.servers: expected another server than riskgate itself, but found",
            "write the address of your server; if it listens at this port too, give the server or \
             listen.http another one",
        ),
        (
            "[listen]\ntrusted_proxies = [\"10.0.0.1/8\"]\n",
            "2:19: listen.trusted_proxies: expected the first address of a network, but found \
             \"10.0.0.1/8\"",
            "write \"10.0.0.0/8\", or \"10.0.0.1\" for this address alone",
        ),
        (
            "[[table.feed]]\nname = \"a\"\nurl = \"https://github.com/x/y/blob/main/list.txt\"\n",
            "3:7: table.feed \"a\": url: expected the URL of the list itself, but found that of its",
            "write raw.githubusercontent.com in place of github.com, and leave /blob out",
        ),
        (
            "[authz]\npath = \"/authz\"\ncheck = [\"key\"]\nmode = \"block\"\n",
            "4:1: authz.mode: expected \"screen\" in authz.check, because",
            "write \"screen\" into check too, or remove this line",
        ),
        ("[plans]\nPro = 5\n", "2:1: plans.Pro: expected pro, or a name", "write pro = 5"),
        (
            "[plans]\nfree = 9007199254740993\n",
            "2:8: plans.free: expected at most 9007199254740991, because clients see no higher",
            "write \"unlimited\"",
        ),
        (
            "[[rule]]\nname = \"a\"\nif = []\nthen = \"block\"\n",
            "4:1: rule \"a\": then: expected a condition or routes, because otherwise riskgate",
            "write a condition into `if`, or remove this rule",
        ),
        (
            "[dns]\nlearn = true\nresolvers = [\"::1:53\"]\n",
            "3:13: dns.resolvers: expected [ and ] around ::1, but found",
            "write \"[::1]:53\", or \"[::1:53]:53\" for the address ::1:53",
        ),
        (
            "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"PSOT\"]\n",
            "3:11: upstream.route \"/signup\": methods: expected a method that clients send, but found",
            "did you mean \"POST\"?",
        ),
        (
            "[[upstream.route]]\nprefix = \"/\"\n[upstream.route.screen]\nfields = [\"email\"]\n",
            "1:1: upstream.route \"/\": key: expected key = true or key = false, because browsers",
            "write key = false, or key = true if all clients send a key",
        ),
    ] {
        let config = read_config_text(text).unwrap();
        let warnings: Vec<String> =
            config.doubtful_settings.iter().map(ConfigFault::to_text).collect();
        assert_eq!(warnings.len(), 1, "{text}: {warnings:#?}");
        assert!(warnings[0].contains(&format!("/riskgate.toml:{place}")), "{warnings:#?}");
        assert!(warnings[0].ends_with(&format!("^ {hint}")), "{warnings:#?}");
    }
    let text = "[admin]\ntoken = \"Bearer s3cr3t-s3cr3t-1234\"\n";
    let faults = read_config_text(text).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].contains("^ write the token alone, without Bearer before it"), "{faults:#?}");
    assert!(!faults[0].contains("s3cr3t"), "{faults:#?}");
}

#[test]
fn faults_stand_in_the_order_of_their_lines() {
    let text = "[[rules]]\n[listen]\nport = 3\nhttp = \"nowhere\"\n[drain]\ngrace = true\n";
    let faults = read_config_text(text).unwrap_err();
    let lines: Vec<&str> = faults.iter().filter_map(|it| it.split(':').nth(1)).collect();
    assert_eq!(lines, ["1", "3", "4", "6"], "{faults:#?}");
}

#[test]
fn paths_percents_and_rates_of_other_servers_get_what_was_meant() {
    let route = |rest: &str| format!("[[upstream.route]]\nprefix = {rest}\n");
    assert_hints(&[
        (route("\"https://www.example.com/signup\""), "write \"/signup\""),
        (route("\"/signup?x=1\""), "write \"/signup\""),
        (route("\"^/signup/.*$\""), "write \"/signup\""),
        (route("\"/users/:id/mail\""), "write \"/users\""),
        (route("\"/a\"\norigins = [\"https://a.test\"]"), "or write key = false"),
        ("[upstream]\nhealth_path = \"http://a.test/healthz\"\n".to_owned(), "write \"/healthz\""),
        (route("\"/a\"\nmax_per_client = \"100/10min\""), "write \"100/10m\""),
        ("[plans]\nshipped = false\npro = 5\n".to_owned(), "write free = 100 below [plans]"),
        ("[dns]\nlearn = true\nrate = \"50/s\"\n".to_owned(), "write 50"),
        ("[rule]\nname = \"a\"\n".to_owned(), "write [[rule]]"),
    ]);
    let faults = read_config_text("[rule]\nname = \"a\"\n").unwrap_err();
    assert!(faults[0].contains("expected the brackets of [[rule]], but found others"));
}

#[test]
fn an_index_that_makes_a_gap_is_a_fault() {
    let faults = |index: &str| {
        let mut settings = Settings::default();
        settings.read_toml("a.toml", "[[upstream.route]]\nprefix = \"/a\"\n").unwrap();
        let name = format!("RISKGATE__UPSTREAM__ROUTE__{index}__PREFIX");
        settings.read_environment([(name.into(), "/b".into())].into_iter());
        settings.report_gaps_of_indexes();
        settings.faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(faults("0"), [""; 0]);
    assert_eq!(faults("1"), [""; 0]);
    let told = "RISKGATE__UPSTREAM__ROUTE__5__PREFIX: upstream.route: expected an index of 0 to 1, \
                but found 5; write RISKGATE__UPSTREAM__ROUTE__1__PREFIX for one more \
                [[upstream.route]]: the first has the index 0";
    assert_eq!(faults("5"), [told]);
}

#[test]
fn the_address_of_a_store_is_told_by_the_form_of_its_scheme() {
    const SERVER: &str = "expected redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], but";
    for (url, expected, hint) in [
        ("redis://:s3cr3t@h:99999", SERVER, "write a port of 1 to 65535"),
        ("REDIS://:s3cr3t@h:6379", SERVER, "write redis:// in small letters"),
        ("sqlite:", "expected sqlite:PATH, but", "write the path of a file, such as"),
        (
            "redis+sentinel://:s3cr3t@h:26379",
            "SERVICE[/DATABASE], but found \"redis+sentinel://…@h:26379\"",
            "SERVICE is the name that the Sentinels have for the server",
        ),
    ] {
        let faults = read_config_text(&format!("[store]\nurl = \"{url}\"\n")).unwrap_err();
        assert_eq!(faults.len(), 1, "{url}: {faults:#?}");
        assert!(faults[0].contains(expected) && faults[0].contains(hint), "{url}: {faults:#?}");
        assert!(!faults[0].contains("s3cr3t"), "{url}: {faults:#?}");
    }
}

#[test]
fn yaml_lines_of_a_shell_and_open_lists_get_what_was_meant() {
    for (text, place, hint) in [
        ("listen:\n  http: \"127.0.0.1:8080\"\n", "1:8", "write sections and settings"),
        ("# a\n\nlog:\n  access: true\n", "3:5", "found a file of YAML"),
        ("---\nupstream:\n  servers:\n    - 10.0.0.7:9000\n", "1:4", "found a file of YAML"),
        ("include \"conf.d/a.toml\"\n", "1:9", "riskgate reads one file"),
        ("LISTEN_HTTP=0.0.0.0:8080\n", "1:16", "write http = … below [listen]"),
        ("export STORE_URL=redis://a\n", "1:8", "write url = … below [store]"),
        ("[listen]\nexport http=a\n", "2:8", "write http = …, with texts between quotes"),
        ("[upstream]\nservers = [\n  10.0.0.7:9000,\n]\n", "3:3", "write \"10.0.0.7:9000\""),
        (
            "[listen]\ntrusted_proxies = [\n  \"10.0.0.0/8\",\n  ::1/128 # six\n]\n",
            "4:3",
            "write \"::1/128\"",
        ),
        ("[upstream]\nservers = [\n  http://a:1,\n]\n", "3:3", "write [\"a:1\"]"),
        ("[upstream]\nservers = [\"a:1\"\ntls = true\n", "3:1", "last text, in line 2"),
        ("[[rule]]\nif = [\n  \"risk_score >= 3\"\nthen = \"block\"\n", "4:1", "text, in line 3"),
        ("[upstream]\nservers = [\n\"a:1\",\n\n[log]\n", "5:1", "last text, in line 3"),
        ("[upstream]\nservers = [\"a:1\",\n", "2:1", "line 2, but found the end"),
    ] {
        let faults = read_config_text(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].starts_with(&format!("riskgate.toml:{place}: ")), "{text}: {faults:#?}");
        assert!(faults[0].contains(hint) && faults[0].contains('^'), "{text}: {faults:#?}");
    }
}

/// The same for servers and routes.
#[test]
fn typical_mistakes_in_routes_get_the_right_hint() {
    const ROUTE: &str = "[[upstream.route]]\nprefix = \"/x\"\n";
    let route = |rest: &str| format!("{ROUTE}{rest}\n");
    let screened = |rest: &str| {
        route(&format!(
            "methods = [\"POST\"]\n[upstream.route.screen]\nfields = [\"email\"]\n{rest}"
        ))
    };
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[upstream]\nserver = \"a.test:1\"\n"), "did you mean `servers`?"),
        (plain("[upstream]\ntimeout = \"3s\"\n"), "did you mean `deadline`?"),
        (plain("[upstream]\ndeadline = 3\n"), "write \"3s\""),
        (plain("[upstream]\ndeadline = \"3 seconds\"\n"), "write \"3s\""),
        (plain("[upstream]\nservers = \"a.test:1\"\n"), "write [\"a.test:1\"]"),
        (plain("[upstream]\nservers = [\"http://a.test:1\"]\n"), "write [\"a.test:1\"]"),
        (
            plain("[upstream]\nservers = [\"https://a.test\"]\n"),
            "write [\"a.test:443\"], and tls = true",
        ),
        (plain("[upstream.route]\nprefix = \"/x\"\n"), "write [[upstream.route]]"),
        (plain("[[upstream.routes]]\nprefix = \"/x\"\n"), "did you mean [[upstream.route]]?"),
        (plain("[[route]]\nprefix = \"/x\"\n"), "write [[upstream.route]]"),
        (plain("[[upstream.route]]\npath = \"/x\"\n"), "did you mean `prefix`?"),
        (plain("[[upstream.route]]\nprefix = \"x\"\n"), "write \"/x\""),
        (plain("[[upstream.route]]\nprefix = \"/x/*\"\n"), "write \"/x\""),
        (route("servers = [\"b:1\"]"), "all routes go to upstream.servers"),
        (route("mode = \"block\""), "write it below [upstream.route.screen]"),
        (
            screened("failure_status = \"gateway\""),
            "write it below [[upstream.route]], above [upstream.route.screen]",
        ),
        (screened("mode = \"log\""), "did you mean \"shadow\"?"),
        (screened("max_per_client = \"10r/m\""), "write \"10/m\""),
        (plain("[upstream]\nservers = [\"http://a:1/v1\"]\n"), "without the path"),
        (route("methods = [\"post\"]"), "write [\"POST\"]"),
        (route("methods = \"POST\""), "write [\"POST\"]"),
        (route("key = \"no\""), "write false"),
        (route("max_per_client = \"20 per hour\""), "write \"20/h\""),
        (route("host = \"https://a.test\""), "write \"a.test\""),
        (route("key = false\norigins = [\"https://a.test/\"]"), "write [\"https://a.test\"]"),
        (route("key = false\norigins = [\"a.test\"]"), "write [\"https://a.test\"]"),
        (
            route("[upstream.route.screen]\nfields = [\"email\"]"),
            "write methods = [\"GET\", \"POST\"]",
        ),
        (
            route("methods = [\"OPTIONS\"]\n[upstream.route.screen]\nfields = [\"email\"]"),
            "leave OPTIONS",
        ),
        (screened("mode = \"Block\""), "did you mean \"block\"?"),
        (screened("mode = \"blok\""), "did you mean \"block\"?"),
        (screened("threshold = 80"), "did you mean `block_score`?"),
        (screened("mode = \"monitor\""), "did you mean \"shadow\"?"),
        (screened("block_reasons = [\"disposible\"]"), "did you mean \"disposable\"?"),
        (route("key = false\norigins = [\"*\"]"), "name each origin"),
        (plain("[upstream]\nservers = [\"a.test\"]\n"), "write [\"a.test:80\"]"),
    ]);
}

/// Checks that a rule with each of these conditions has one fault, at its place and with this hint.
#[track_caller]
fn assert_faults_of_conditions(mistakes: &[(&str, &str, &str)]) {
    let with_if = |condition: &str| {
        format!(
            "[[rule]]\nname = \"r\"\nif = [\n  \"risk_score > 1\", {condition},\n]\nthen = \"block\"\n"
        )
    };
    for (condition, place, hint) in mistakes {
        let faults = read_config_text(&with_if(condition)).unwrap_err();
        assert_eq!(faults.len(), 1, "{condition}: {faults:#?}");
        assert!(
            faults[0].starts_with(&format!("riskgate.toml:{place}")),
            "{condition}: {faults:#?}"
        );
        assert!(faults[0].contains(hint) && faults[0].contains('^'), "{condition}: {faults:#?}");
    }
}

#[test]
fn rules_of_other_languages_and_those_that_never_hold_get_the_right_hint() {
    assert_faults_of_conditions(&[
        ("\"domain == *.a.com\"", "4:32:", "rules have no patterns"),
        ("'domain == \"@a.com\"'", "4:32:", "write a.com: rules know no addresses"),
        ("\"domain == .ru\"", "4:32:", "write each domain"),
        ("\"email endswith .ru\"", "4:22:", "write domain, as in"),
        ("\"domain contains mail\"", "4:29:", "rules have no patterns"),
        ("\"domain in a.com, b.com\"", "4:32:", "write [a.com, b.com]"),
        ("\"domain in blocklist.txt\"", "4:32:", "rules read no files; [[table.feed]] and"),
        ("\"risk_score >= 0.8\"", "4:36:", "write 80"),
        ("\"risk_score < 1\"", "4:22:", "found \"risk_score < 1\" behind \"risk_score > 1\""),
        ("\"is_role == true\", \"is_role == false\"", "4:41:", "that can hold together"),
        ("\"reason == safe\", \"reason != safe\"", "4:40:", "behind \"reason == safe\""),
        ("\"domain == localhost\"", "4:32:", "write a whole domain: it has a dot"),
        ("\"inbox_accounts_30d >= 3000\"", "4:44:", "write 1000: a count stops at 1000"),
        ("\"inbox_accounts_30d > 3000\"", "4:43:", "write 999: a count stops at 1000"),
        ("\"domain == a.com\", \"domain == b.com\"", "4:41:", "that can hold together"),
    ]);
}

#[test]
fn typical_mistakes_in_rules_get_the_right_hint() {
    let mistakes = [
        ("\"inbox_acounts_30d >= 3\"", "4:22:", "did you mean inbox_accounts_30d?"),
        ("\"risk_score => 3\"", "4:33:", "write >="),
        ("\"risk_score = 3\"", "4:33:", "write =="),
        ("\"risk_score=3\"", "4:32:", "write =="),
        ("\"risk_score <> 3\"", "4:33:", "write !="),
        ("\"risk_score lte 3\"", "4:33:", "write <="),
        ("\"reason includes [safe]\"", "4:29:", "found \"includes\""),
        ("\"reason not in [safe]\"", "4:29:", "write a condition with != for each value"),
        ("'risk_score is 3'", "4:33:", "write =="),
        ("\"reason == disposible\"", "4:32:", "did you mean disposable?"),
        ("\"verdict_source == lists\"", "4:40:", "did you mean list?"),
        ("\"is_role == ture\"", "4:33:", "did you mean true?"),
        ("\"\"\"is_role == yes\"\"\"", "4:35:", "expected true or false"),
        (
            "\"risk_score >= 3 and is_role == true\"",
            "4:38:",
            "write \"risk_score >= 3\", \"is_role == true\"",
        ),
        ("\"inbox_accounts_30d >= 2000\"", "4:44:", "a whole number of 0 to 1000"),
        ("\"inbox_accounts_30d >= 1_000\"", "4:44:", "write only the digits"),
        ("'risk_score >= \"80\"'", "4:36:", "write only the digits"),
        ("\"risk_score >= 80%\"", "4:38:", "write the number without %"),
        ("\"is_role\"", "4:29:", "write == true behind it"),
        ("\"domain ends in .ru\"", "4:29:", "rules have no patterns"),
        ("\"reason == 'safe'\"", "4:32:", "write safe, without quotes"),
        ("\"10 < risk_score < 80\"", "4:22:", "write \"risk_score > 10\", \"risk_score < 80\""),
        ("\"80<=risk_score\"", "4:22:", "write risk_score >= 80"),
        ("\"safe == reason\"", "4:22:", "write reason == safe"),
        ("\"risk_score in 10..80\"", "4:36:", "\"risk_score >= 10\", \"risk_score <= 80\""),
        ("\"risk_score between 1 and 8\"", "4:33:", "\"risk_score >= 1\", \"risk_score <= 8\""),
        ("\"!is_role\"", "4:22:", "write == false behind the fact instead"),
        (
            "'domain in [\"a.com\", \"b_c\"]'",
            "4:42:",
            "'domain in [\"a.com\", \"b_c\"]',\n  |                                          ^^^^^",
        ),
    ];
    assert_faults_of_conditions(&mistakes);
    let rule = |more: &str| format!("[[rule]]\nname = \"a\"\nthen = \"review\"\n{more}\n");
    assert_hints(&[
        (rule("condition = \"risk_score > 3\""), "did you mean `if`?"),
        (rule("if = \"risk_score > 3\""), "write [\"risk_score > 3\"]"),
        (rule("message = \"\""), "a text of 1 to 200 characters, without line breaks"),
        (rule("message = \"a\\nb\""), "without line breaks and other control characters"),
        ("[[rule]]\nname = \"a\"\n".to_owned(), "write then = \"review\""),
        ("[[rule]]\nname = \"a\"\nthen = \"reject\"\n".to_owned(), "did you mean \"block\"?"),
        ("[[rule]]\nname = \"a\"\nthen = \"Block\"\n".to_owned(), "did you mean \"block\"?"),
        ("[[rule]]\nthen = \"block\"\n".to_owned(), "expected a name of 1 to 64"),
        ("[rule]\nname = \"a\"\nthen = \"block\"\n".to_owned(), "write [[rule]]"),
        (
            rule("[[rule]]\nname = \"b\"\nthen = \"pass\""),
            "write this rule before \"a\", or give \"a\" a condition",
        ),
        (
            rule("if = [\"risk_score > 9\"]\n[[rule]]\nname = \"a\"\nthen = \"pass\""),
            "a name that no other rule has",
        ),
        ("[decide]\nscope = \"accounts\"\n".to_owned(), "did you mean \"account\"?"),
        // The faults of a rule say nothing about the rules behind it.
        (
            rule("conditions = [\"risk_score > 3\"]\n[[rule]]\nname = \"b\"\nthen = \"pass\""),
            "did you mean `if`?",
        ),
    ]);
}

#[test]
fn a_hint_at_a_condition_has_whole_conditions() {
    assert_faults_of_conditions(&[
        (
            "\"domain in ['a.com', 'b.com']\"",
            "4:",
            "write domain in [a.com, b.com], without quotes",
        ),
        (
            "\"inbox_accounts_30d > 3 and is_free_provider\"",
            "4:",
            "\"inbox_accounts_30d > 3\", \"is_free_provider == true\"",
        ),
    ]);
}

const SCREEN: &str = "[upstream.route.screen]\nfields = [\"email\"]\n";

fn post_route(prefix: &str, more: &str) -> String {
    format!("[[upstream.route]]\nprefix = \"{prefix}\"\nmethods = [\"POST\"]\nkey = false\n{more}")
}

fn rule_of_routes(routes: &str) -> String {
    format!("[[rule]]\nname = \"a\"\nthen = \"review\"\nroutes = {routes}\n")
}

/// An empty text: without a hint.
fn assert_route_faults<const COUNT: usize>(rows: [(String, &str, &str); COUNT]) {
    for (text, expected, hint) in rows {
        let faults = read_config_text(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].contains(expected) && faults[0].contains(hint), "{text}: {faults:#?}");
        let has_hint = !faults[0].ends_with('^');
        assert_eq!(has_hint, !hint.is_empty(), "{text}: {faults:#?}");
    }
}

#[test]
fn a_rule_may_name_only_routes_that_decide() {
    let rule = |routes: &str| rule_of_routes(&format!("[{routes}]"));
    let routes = [post_route("/signup", SCREEN), post_route("/api", "")].concat();
    let authz = |check: &str| {
        format!("[authz]\npath = \"/authz\"\nemail = \"header:X-Email\"\ncheck = [{check}]\n")
    };
    let screening = authz("\"screen\"");
    assert_route_faults([
        (
            rule("\"/sign-up\""),
            "that decides: assess, but",
            "write an [[upstream.route]] with prefix = \"/sign-up\" and a section [upstream.route.screen]",
        ),
        (
            [&routes, &rule("\"/api\"")[..]].concat(),
            "that decides: /signup, assess, but",
            "give the route /api a section [upstream.route.screen]",
        ),
        (
            [&routes, &rule("\"/signup\", \"authz\"")[..]].concat(),
            "that decides: /signup, assess, but",
            "set authz.path, with \"screen\" in authz.check",
        ),
        (
            [&authz("\"key\""), &rule("\"authz\"")[..]].concat(),
            "that decides: assess, but",
            "set authz.path, with \"screen\" in authz.check",
        ),
        (
            [&screening, &rule("\"/authz\"")[..]].concat(),
            "that decides: authz, assess, but",
            "write \"authz\" in place of \"/authz\"",
        ),
        (
            [&routes, &rule("\"/signup, \"")[..]].concat(),
            "that decide: /signup, assess, but",
            "write [\"/signup\"]",
        ),
        (
            [&routes, &rule("\"signup\"")[..]].concat(),
            "that decides: /signup, assess, but",
            "did you mean \"/signup\"?",
        ),
        (
            [&routes, &rule("\"/singup\"")[..]].concat(),
            "that decides: /signup, assess, but",
            "did you mean \"/signup\"?",
        ),
        (rule(""), "a list of routes that decide: assess, but", "write a value, or remove this"),
    ]);
    let config = read_config_text(
        &[&screening, &routes, &rule("\"/signup\", \"authz\", \"assess\"")[..]].concat(),
    );
    let config = config.unwrap();
    let routes = config.reloadable.decisions.rules()[0].routes.as_deref();
    assert_eq!(routes, Some(&["/signup", "/authz", "assess"].map(str::to_owned)[..]));
}

#[test]
fn several_routes_of_a_rule_in_one_text_are_split() {
    let of_two = "a list of routes that decide: /su, /reg, assess, but";
    let several = |routes: &str| {
        let rules = rule_of_routes(routes) + "[[rule]]\nname = \"b\"\nthen = \"block\"\n";
        [post_route("/su", SCREEN), post_route("/reg", SCREEN), rules].concat()
    };
    assert_route_faults([
        (several("\"/su, /reg\""), of_two, "write [\"/su\", \"/reg\"]"),
        (several("[\"/su /reg\"]"), of_two, "write [\"/su\", \"/reg\"]"),
        (several("[\"/su/ /reg\"]"), of_two, "write [\"/su\", \"/reg\"]"),
        (several("[\"/su | /reg\"]"), of_two, "write [\"/su\", \"/reg\"]"),
        (several("[\"[/su, /reg]\"]"), of_two, "write [\"/su\", \"/reg\"]"),
        (several("[\"/su;/reg\", \"assess\"]"), of_two, "write [\"/su\", \"/reg\", \"assess\"]"),
        (several("[\"assess /su\"]"), of_two, "write [\"assess\", \"/su\"]"),
        (several("[\"/su /su\"]"), of_two, "^ write [\"/su\"]"),
        (several("[\"/su/x /reg\"]"), of_two, ""),
        (several("[\"/su /nope\"]"), of_two, ""),
        (several("[\"POST /su\"]"), "that decides: /su, /reg, assess, but", "write \"/su\""),
    ]);
}

/// The excerpt has the line of the file, with the mark at the place that the fault names.
#[test]
fn a_fault_shows_its_line_as_it_is_written() {
    for (text, excerpt) in [
        (
            "[plans]\nbusiness  = 1e6\n",
            "found 1e6\n  |\n2 | business  = 1e6\n  |             ^^^ write",
        ),
        ("[listen]\nmax_streams = 1_00_000\n", "found 1_00_000\n  |\n2 | max_streams = 1_00_000\n"),
        ("[listen]\nhttp = 'nowhere'\n", "2 | http = 'nowhere'\n  |        ^^^^^^^^^"),
        (
            "[log]\nfields = ['time','pat']\n",
            "2 | fields = ['time','pat']\n  |                  ^^^^^ did you mean",
        ),
        (
            "[[rule]]\nname = \"a\"\nthen = \"pass\"\nif = [\"is_role == ture\"]\n",
            "4 | if = [\"is_role == ture\"]\n  |                   ^^^^ did you mean",
        ),
    ] {
        let faults = read_config_text(text).unwrap_err();
        assert!(faults[0].contains(excerpt), "{text}: {}", faults[0]);
    }
}

#[test]
fn a_faulty_file_of_the_webhook_secret_is_told_at_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "no secret of this form\n").unwrap();
    let found = messages_of(&format!(
        "[webhook]\nurl = \"https://a.test/\"\nsecret_file = \"{}\"\n",
        path.display()
    ));
    let expected = format!(
        "3:1: webhook.secret_file: expected a file {} with whsec_ and the Base64",
        path.display()
    );
    assert!(found.contains(&expected), "{found}");
    assert!(found.contains("openssl rand -base64 32"), "{found}");
}

#[test]
fn an_empty_path_of_a_secret_is_no_path() {
    let secret = "secret = \"whsec_AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH\"\n";
    let url = "[webhook]\nurl = \"https://a.test/\"\n";
    let cases = [
        (format!("{url}secret_file = \"\"\n"), "webhook.secret: expected whsec_ and the Base64"),
        (format!("{url}secret = \"x\"\nsecret_file = \"\"\n"), "3:10: webhook.secret: expected"),
        (
            "[listen]\nadmin = \"0.0.0.0:1\"\n[admin]\ntoken_file = \"\"\n".to_owned(),
            "2:9: listen.admin: expected an address of loopback, or a token",
        ),
        (
            "[store]\nurl = \"localhost:6379\"\nurl_file = \"\"\n".to_owned(),
            "write \"redis://localhost:6379\"",
        ),
        (
            "[store]\nurl = \"redis+sentinel://a:1/b\"\nsentinel_user = \"c\"\n\
             sentinel_password_file = \"\"\n"
                .to_owned(),
            "4:26: store.sentinel_password_file: expected the password of the user",
        ),
        (
            "[store]\nurl = \"rediss://a:1\"\ntls_certificate = \"\"\ntls_key = \"b\"\n".to_owned(),
            "3:19: store.tls_certificate: expected a path, since store.tls_key is set",
        ),
    ];
    for (text, expected) in cases {
        let faults = read_config_text(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        assert!(faults[0].contains(expected), "{text}: {faults:#?}");
    }
    for text in [
        format!("{url}{secret}secret_file = \"\"\nprevious_secret_file = \"\"\n"),
        "[admin]\ntoken_file = \"\"\n[store]\nurl_file = \"\"\ntls_key = \"\"\n".to_owned(),
    ] {
        assert!(read_config_text(&text).is_ok(), "{text}");
    }
}

#[test]
fn the_grace_of_a_drain_is_rounded_up_to_whole_seconds() {
    for (text, seconds) in [("0", 0), ("1ms", 1), ("1s", 1), ("1.2s", 2), ("30s", 30)] {
        let config = read_config_text(&format!("[drain]\ngrace = {text:?}\n")).unwrap();
        assert_eq!(config.startup.drain_grace, Duration::from_secs(seconds), "{text}");
    }
}

#[test]
fn a_file_of_the_inbox_secret_loses_one_line_end_and_no_other_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let config = read_config_text(&format!("[inbox]\nsecret_file = {path:?}\n"));
        config.map(|config| config.startup.inbox_secret.map(|it| Pseudonymizer::new(&it)))
    };
    let id = |key: &Pseudonymizer| key.address_pseudonym("jane@a.test", SignUpScope::Deployment);
    let random = [0x20; 32];
    let expected = Pseudonymizer::new(&InboxSecret::new(&random).unwrap());
    for end in ["", "\n", "\r\n"] {
        let found = read(&[&random, end.as_bytes()].concat()).unwrap().unwrap();
        assert_eq!(id(&found), id(&expected), "{end:?}");
    }
    for end in ["\n\n", " \n", "\t", "\r", "\n\r\n"] {
        let found = read(&[&random, end.as_bytes()].concat()).unwrap().unwrap();
        assert_ne!(id(&found), id(&expected), "{end:?}");
    }
    let mut ends_in_line_end = [0xff; 33];
    ends_in_line_end[31..].copy_from_slice(b"\n\n");
    assert!(read(&ends_in_line_end).is_ok());
    let short = read(&ends_in_line_end[..32]).unwrap_err();
    assert!(short[0].contains("of 32 bytes or more, but found 31\n"), "{short:?}");
    let missing = read_config_text("[inbox]\nsecret_file = \"/none/secret\"\n").unwrap_err();
    assert!(missing[0].contains("expected a readable file /none/secret, but found No such"));
    let secret = read_config_text("[inbox]\nsecret_file = \"0123456789\"\n").unwrap_err();
    assert!(secret[0].contains("names no file and may be the secret itself"), "{secret:?}");
    assert!(secret[0].contains("put it into a file of its own"), "{secret:?}");
}

#[test]
fn no_part_of_a_private_key_in_place_of_its_path_is_shown() {
    let key = "-----BEGIN PRIVATE KEY-----\nMC4/AQ+wBQ/K2V\n-----END PRIVATE KEY-----\n";
    for (start, end) in [
        ("[[listen.certificate]]\nchain = \"/c.pem\"\nkey =", ""),
        ("[store]\nurl = \"rediss://a.test\"\ntls_certificate = \"/c.pem\"\ntls_key =", ""),
        ("[store]\nurl_file =", ""),
        ("[keys]\nfile =", ""),
        ("[log]\npath =", ""),
        ("[table]\noverrides =", ""),
        ("[[table.feed]]\nname = \"a\"\nurl =", ""),
        ("[inbox]\nsecret_file =", ""),
        ("[store]\nurl =", "store.url: expected an address"),
        ("[listen]\nhttp =", "expected an address"),
    ] {
        let faults = read_config_text(&format!("{start} {key:?}\n")).unwrap_err().join("\n");
        let expected = match end {
            "" => "expected the path of a file, but found the text of a private key",
            expected => expected,
        };
        assert!(faults.contains(expected), "{start}: {faults}");
        for part in ["BEGIN", "MC4", "AQ", "K2V"] {
            assert!(!faults.contains(part), "{start}: {faults}");
        }
    }
    let missing = std::path::Path::new("/etc/rg_secret_0123456789abcdefghijklmnopqrstuvwxyz");
    let hint = super::hint_for_unopened(missing);
    assert_eq!(hint.as_deref(), Some("there is no such file in the folder /etc"));
    let url = read_config_text("[table]\npath = \"https://a.test/t.csv\"\n").unwrap_err();
    assert!(url[0].contains("write [[table.feed]]"), "{url:?}");
    let two_lines = read_config_text("[log]\npath = \"/var/log/a\\n\"\n").unwrap_err();
    assert!(two_lines[0].contains("but found a text with a line end"), "{two_lines:?}");
}

/// What begins as a path is a path. The text of any other value is not shown.
#[test]
fn a_missing_file_of_a_secret_is_told_by_its_folder() {
    let read = |section: &str, text: &str| {
        let (section, name) = section.split_once('.').unwrap();
        let rest = if section == "webhook" { "url = \"https://a.test/\"\n" } else { "" };
        let text = format!("[{section}]\n{rest}{name} = {text:?}\n");
        let faults = read_config_text(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        faults[0].clone()
    };
    const MAY_BE: &str = "may be the secret itself";
    for setting in
        ["admin.token_file", "store.url_file", "webhook.secret_file", "inbox.secret_file"]
    {
        let file = setting.split('.').nth(1).unwrap();
        let name = file.strip_suffix("_file").unwrap();
        for start in ["%d", "$CREDENTIALS_DIRECTORY", "${CREDENTIALS_DIRECTORY}"] {
            let found = read(setting, &format!("{start}/x"));
            let variable = setting.to_ascii_uppercase().replace('.', "__");
            let unit = format!(
                "write LoadCredential={name}:/etc/riskgate/{name} and \
                 Environment=RISKGATE__{variable}=%d/{name} into the unit of systemd"
            );
            assert!(found.contains(&unit) && !found.contains(MAY_BE), "{found}");
        }
        for (text, hint) in [
            ("/none@b.service/token", "of the folders in this path, / is the last that exists"),
            ("/etc/no+such=file", "there is no such file in the folder /etc"),
            ("/none/token", "there is no folder /none"),
            ("~/riskgate@a/token", "write the path from / on: riskgate replaces no ~"),
            ("~/riskgate/token", "write the path from / on: riskgate replaces no ~"),
            ("secrets/token", "is the last that exists"),
            ("token.txt", "there is no such file in the folder /"),
        ] {
            let found = read(setting, text);
            assert!(found.contains(hint) && !found.contains(MAY_BE), "{text}: {found}");
        }
        let found = read(setting, name);
        assert!(
            found.contains("no such file in the folder /") && !found.contains(MAY_BE),
            "{found}"
        );
        for text in ["hunter2", "redis://:hunter2@a.test/0", "aB3hunter2/xY9"] {
            let found = read(setting, text);
            assert!(found.contains("there is no such file in the folder /"), "{found}");
            assert!(found.contains(MAY_BE) && !found.contains("hunter2"), "{found}");
            assert_eq!(
                found.contains(&format!("or write {name} = …")),
                setting != "inbox.secret_file",
                "{found}"
            );
        }
    }
}

#[test]
fn a_reload_says_what_has_changed_and_shows_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        let path = folder.path().join("riskgate.toml");
        std::fs::write(&path, text).unwrap();
        let sources = ConfigSources { file: ConfigFile::Path(path), flags: Vec::new() };
        Config::read_effective_settings(&sources).unwrap()
    };
    let route = |prefix: &str, mode: &str| {
        format!(
            "[[upstream.route]]\nprefix = {prefix:?}\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\"]\nmode = {mode:?}\n"
        )
    };
    let secret = |text: &str| format!("[admin]\ntoken = \"s3cr3t-of-the-operator-{text}\"\n");
    let url = |password: &str| format!("[store]\nurl = \"redis://me:{password}@cache:6379\"\n");
    let before = [secret("a"), url("s3cr3t"), route("/signup", "shadow"), route("/gone", "shadow")];
    let after = [
        secret("b"),
        url("s3cr3t2"),
        route("/new", "shadow"),
        route("/signup", "block"),
        "[plans]\nfree = 7\n".to_owned(),
    ];
    let (before, after) = (read(&before.concat()), read(&after.concat()));
    assert_eq!(before.describe_changes(&before, &before), [""; 0]);
    let changes = before.describe_changes(&after, &before);
    let expected = [
        "upstream.route \"/new\" added",
        "upstream.route \"/gone\" removed",
        "admin.token changed",
        "plans.free 100 → 7",
        "store.url changed at the next restart",
        "upstream.route \"/signup\": screen.mode \"shadow\" → \"block\"",
    ];
    assert_eq!(changes, expected);
    let rule = |name: &str, score: u8| {
        format!("[[rule]]\nname = {name:?}\nif = [\"risk_score >= {score}\"]\nthen = \"review\"\n")
    };
    let (a, b, c) = (rule("a", 70), rule("b", 60), rule("c", 50));
    let describe = |old: &str, new: &str| read(old).describe_changes(&read(new), &read(old));
    let changes = describe(&[&*a, &b].concat(), &[&*b, &a].concat());
    assert_eq!(changes, ["the order of the rules is now \"b\", \"a\""]);
    let changes = describe(&[&*a, &b].concat(), &[&*a, &c, &b].concat());
    assert_eq!(changes, ["rule \"c\" added"]);
}

#[test]
fn an_entry_without_a_name_has_the_same_number_in_a_change_as_in_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("riskgate.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::read_settings_of_file(&path).unwrap()
    };
    let before = read("[[listen.certificate]]\nchain = \"c.pem\"\nkey = \"k.pem\"\n");
    let changes = before.describe_changes(&read("# None.\n"), &before);
    assert_eq!(changes, ["listen.certificate 1 removed"]);
}

#[test]
fn a_setting_that_is_put_back_is_in_force_since_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        let path = folder.path().join("riskgate.toml");
        std::fs::write(&path, text).unwrap();
        let sources = ConfigSources { file: ConfigFile::Path(path), flags: Vec::new() };
        Config::read_effective_settings(&sources).unwrap()
    };
    let (at_start, without) = (read("[listen]\nthreads = 3\n"), read("[listen]\nthreads = 2\n"));
    let changes = at_start.describe_changes(&without, &at_start);
    assert_eq!(changes, ["listen.threads 3 → 2 at the next restart"]);
    let changes = without.describe_changes(&at_start, &at_start);
    assert_eq!(changes, ["listen.threads 2 → 3, in force since the start"]);
}

/// Sections of other programs with a dot in their names, each with what riskgate has.
#[test]
fn dotted_sections_of_other_programs_lead_to_what_riskgate_has() {
    let server = "[upstream]\nservers = [\"10.0.0.7:9000\"]\n";
    let listen = |rest: &str| format!("[listen]\nthreads = 1\n{rest}\n");
    let route = "write [[upstream.route]], and below it prefix = \"/signup\"";
    assert_hints(&[
        (listen("[http.routers.signup]\nrule = \"PathPrefix(`/signup`)\""), route),
        (listen("[tcp.routers.a]\nrule = \"HostSNI(`*`)\""), route),
        (listen("[location]\npath = \"/signup\""), route),
        (
            listen("[[http.services.a.loadBalancer.servers]]\nurl = \"10.0.0.7:9000\""),
            "write [upstream] and servers = [\"10.0.0.7:9000\"]",
        ),
        (listen("[http.middlewares.a.rateLimit]\naverage = 10"), "write max_per_client = "),
        (listen("[http.middlewares.a.redirectScheme]\nscheme = \"https\""), "has no middlewares"),
        (listen("[certificatesResolvers.le.acme]\nemail = \"a\""), "fetches no certificates"),
        (listen("[providers.docker]\nendpoint = \"a\""), "riskgate finds no servers by itself"),
        (listen("[api.dashboard]\nenabled = true"), "write admin = \"127.0.0.1:9090\" below [lis"),
        (
            listen("[servers.web1]\naddress = \"10.0.0.7:9000\""),
            "write [upstream] and servers = [\"10.0.0.7:9000\"]",
        ),
        (
            listen("[entryPoints.web]\naddress = \":80\""),
            "write http = \"0.0.0.0:80\" below [listen], in line 1",
        ),
        (listen("[http]\nport = 8081"), "write http = \"0.0.0.0:8081\" below [listen], in line 1"),
        (
            "[listen]\nhttp = \"127.0.0.1:1\"\n[http]\nport = 8081\n".to_owned(),
            "^ remove this section: http stands in line 2, below [listen]; change it there",
        ),
        (
            format!("{server}[services.a]\nurl = \"10.0.0.8:9000\"\n"),
            "^ remove this section: servers stands in line 2, below [upstream]",
        ),
        (
            "[listen]\nhttp = \"127.0.0.1:1\"\nport = 8081\n".to_owned(),
            "^ remove this line: http stands in line 2; change it there",
        ),
        (listen("[server]\nport = 8081"), "^ write its settings below [listen], in line 1"),
        (listen("[metrics]\nport = 9100"), "write admin = \"127.0.0.1:9100\" below [listen]"),
        (
            listen("[route.screen]\nfields = [\"email\"]"),
            "methods = [\"GET\", \"POST\"], and below them [upstream.route.screen]",
        ),
        (
            listen("[upstream.screen]\nfields = [\"email\"]"),
            "methods = [\"GET\", \"POST\"], and below them [upstream.route.screen]",
        ),
        (
            listen("[upstream.route.screen]\nfields = [\"email\"]"),
            "expected [[upstream.route]] above its inner sections, but found none",
        ),
    ]);
}

/// A section is meant by its settings as much as by its name.
#[test]
fn sections_lead_to_the_place_of_their_settings() {
    let plain = str::to_owned;
    assert_hints(&[
        (plain("[auth]\ntoken = \"abcdefghijklmnop\"\n"), "^ write [admin]"),
        (plain("[cache]\nttl = \"1m\"\n"), "riskgate caches no answers"),
        (plain("[cache]\nurl = \"redis://h\"\n"), "^ did you mean [store]?"),
        (
            plain("[authz.screen]\nfields = [\"email\"]\n"),
            "write \"screen\" into check below [authz]",
        ),
        (
            plain("[upstream.health]\npath = \"/hz\"\n"),
            "^ write health_path = \"/hz\" below [upstream]",
        ),
        (plain("[health]\npath = \"/hz\"\n"), "write health_path = \"/hz\", and"),
        (plain("[log.file]\npath = \"a.log\"\n"), "^ write path = \"a.log\" below [log]"),
        (
            plain("[table.castle]\nenabled = true\n"),
            "write [[table.feed]], and below it name = \"castle\"",
        ),
        (
            plain("[sentinel]\nmaster = \"main\"\n"),
            "write [store], and below it url = \"redis+sentinel://",
        ),
        (plain("[telemetry]\nendpoint = \"http://127.0.0.1:4317\"\n"), "did you mean [traces]?"),
        (plain("[[keys]]\nid = \"a\"\naccount = \"b\"\n"), "write [[key]] into a file of its own"),
        (
            plain("[[plans]]\nname = \"gold\"\nlimit = 5\n[[plans]]\nname = \"pro\"\nlimit = 7\n"),
            "^ write gold = 5 and pro = 7 below [plans]",
        ),
        (plain("[admin.metrics]\npublic = true\n"), "^ write metrics_public = true below [admin]"),
    ]);
}

/// Values of the admin listener, times in days, words behind servers, and what was found.
#[test]
fn a_hint_is_in_the_unit_of_the_default_and_on_loopback_where_it_has_to_be() {
    let admin = |value: &str| format!("[listen]\nadmin = {value}\n");
    let feed = |line: &str| format!("[[table.feed]]\nname = \"castle\"\n{line}\n");
    let plain = str::to_owned;
    assert_hints(&[
        (admin("\":9090\""), "such as 127.0.0.1:9090, but found \":9090\""),
        (admin("\"*:9100\""), "^ write \"127.0.0.1:9100\""),
        (admin("\"0.0.0.0\""), "^ write \"127.0.0.1:9090\""),
        (admin("\"[::]\""), "^ write \"[::1]:9090\""),
        (admin("\"ops.test:9100\""), "^ write \"127.0.0.1:9100\": riskgate listens at an"),
        (admin("\"unix:/run/a\""), "^ write \"127.0.0.1:9090\": riskgate listens at no Unix"),
        (admin("\"off\""), "^ remove this line: riskgate then listens at 127.0.0.1:9090"),
        (admin("false"), "^ remove this line: riskgate then listens at 127.0.0.1:9090"),
        (admin("\"0.0.0.0:9100\""), "riskgate admin-token create --name NAME --scope write"),
        (plain("[top]\nhalf_life = 7\n"), "^ write \"7d\""),
        (feed("max_age = \"30\""), "^ write \"30d\""),
        (feed("interval = 6"), "^ write \"6h\""),
        (feed("interval = \"1ms\""), "interval: expected a duration of 1s or more"),
        (feed("max_age = \"0\""), "max_age: expected a duration of 1s or more"),
        (feed("interval = \"500ms\""), "^ write \"1s\""),
        (feed("max_age = \"0\""), "^ write a long time, such as \"300d\": this time can't be"),
        (feed("max_age = \"never\""), "^ write a long time, such as \"300d\": this time can't be"),
        (
            format!(
                "[[admin.token]]\nname = \"..\"\nscope = \"read\"\nhash = \"sha256:{}\"\n",
                "0".repeat(64)
            ),
            "backslashes, and not . or .., but found \"..\"",
        ),
        (feed("interval = 3600"), "^ write \"1h\""),
        (
            plain(
                "[upstream]\nservers = [\"10.0.0.7:9000 check weight 5\", \"a:1 check backup\"]\n",
            ),
            "write [\"10.0.0.7:9000\", \"a:1\"], without words behind it: riskgate has no weights",
        ),
        (plain("[store]\nurl = \"redis://u:s3cr3t#x@h:1/0\"\n"), "found \"redis://…@h:1/0\""),
        (
            plain("[store]\nurl = \"redis://h:1\"\nsentinel_user = \"a\"\n"),
            "^ remove this line, or",
        ),
        (
            plain(
                "[webhook]\nurl = \"https://a.test\"\nsecret = \"whsec_AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH\"\n\
                   thresholds = [0.8, 1.0]\n",
            ),
            "but found [0.8, 1.0]\n",
        ),
    ]);
}

#[test]
fn a_variable_of_an_array_leads_to_the_whole_name() {
    for (key, meant) in [
        ("route.0.prefix", "upstream.route.0.prefix"),
        ("routes.1.prefix", "upstream.route.1.prefix"),
        ("upstream.routes.0.prefix", "upstream.route.0.prefix"),
        ("feed.0.name", "table.feed.0.name"),
        ("table.feed.name", "table.feed.0.name"),
        ("rule.name", "rule.0.name"),
        ("store_url", "store.url"),
    ] {
        assert_eq!(unknown_keys::find_meant_setting(key).as_deref(), Some(meant), "{key}");
    }
}

/// A server of another protocol, or one that is no Sentinel.
#[test]
fn a_wrong_server_at_the_address_of_a_store_is_told() {
    let settings = file_setting_places::FileSettingPlaces::default();
    let place = |found: &str| {
        let (location, found) = ("redis://h:1".to_owned(), found.to_owned());
        let error =
            crate::store::StoreError::Unavailable { location, operation: "connecting", found };
        settings.place_store_error(&error)
    };
    let found = place("what answers there speaks no Redis");
    assert!(found.ends_with("; write the address of the Redis or Valkey server"), "{found}");
    let found = place("the server refuses the user or the password");
    assert!(found.ends_with("; write the user and the password that the server knows"), "{found}");
    let found = place("no Sentinel names a primary: h:1: ERR unknown command 'SENTINEL', with");
    assert!(found.contains("; a server answers there: write redis:// for it"), "{found}");
}

/// Each text of a list has its own hint or warning, and no hint names what the config refuses.
#[test]
fn each_text_has_its_own_hint_and_no_hint_is_refused() {
    let faults = read_config_text(
        &screened_route("").replace("[\"email\"]", "[\"email\", \"*email*\", \"user[email]\"]"),
    )
    .unwrap_err();
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(faults[0].contains("write the name of the field, as the form has it"), "{faults:#?}");
    assert!(faults[1].contains("write \"user.email\""), "{faults:#?}");
    for (line, joined) in [("paths = [\"/a b\"]", "a-b"), ("paths = [\"/a b\", \"/c\"]", "a-b")] {
        let faults = read_config_text(&screened_route(line)).unwrap_err();
        assert!(faults.iter().all(|it| !it.contains(joined)), "{faults:#?}");
    }
    let fields = screened_route("").replace("[\"email\"]", "[\"a b\", \"c\"]");
    let faults = read_config_text(&fields).unwrap_err();
    assert!(faults.iter().all(|it| !it.contains("a-b") && !it.contains("a_b")), "{faults:#?}");
    let route_of = |name: &str| {
        let rule = format!("[[rule]]\nname = \"a\"\nthen = \"review\"\nroutes = [\"{name}\"]\n");
        read_config_text(&rule).unwrap_err().join("\n")
    };
    assert!(!route_of("/v1/check").contains("[[upstream.route]]"), "{}", route_of("/v1/check"));
    for (name, prefix) in [("//x", "/x"), ("/a/*", "/a"), ("/sign-up", "/sign-up")] {
        let hint = format!("write an [[upstream.route]] with prefix = \"{prefix}\" and");
        assert!(route_of(name).contains(&hint), "{}", route_of(name));
    }
    let listen = "[listen]\nhttp = \"127.0.0.1:8080\"\nadmin = \"0.0.0.0:8080\"\n";
    let faults = read_config_text(listen).unwrap_err();
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(faults.iter().all(|it| it.contains("write \"127.0.0.1:9090\"")), "{faults:#?}");
    let proxies =
        "[listen]\ntrusted_proxies = [\"10.0.0.1/8\", \"10.9.0.0/16\", \"192.168.1.1/24\"]\n";
    let warnings = read_config_text(proxies).unwrap().doubtful_settings;
    let warnings: Vec<String> = warnings.iter().map(ConfigFault::to_text).collect();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(warnings[1].contains("found \"192.168.1.1/24\""), "{warnings:#?}");
    for (email, meant) in [
        ("header:X Email", "header:X-Email"),
        ("body:user[email]", "body:user.email"),
        ("$.user.email", "body:user.email"),
        ("data.email", "body:data.email"),
        ("form:email", "body:email"),
        ("body.email", "body:email"),
    ] {
        let text = format!("[authz]\npath = \"/authz\"\nemail = \"{email}\"\n");
        let told = read_config_text(&text).unwrap_err().join("\n");
        assert!(told.contains(&format!("write \"{meant}\"")), "{told}");
    }
}

/// A text with blanks, or one of another kind, is neither split nor made an address, a time or a
/// path that nobody meant. `None`: without a hint that says what to write.
#[test]
fn a_text_is_guessed_by_the_kind_of_its_setting() {
    let fields = |texts: &str| {
        screened_route("").replace("fields = [\"email\"]", &format!("fields = [{texts}]"))
    };
    let email = |text: &str| format!("[authz]\npath = \"/authz\"\nemail = {text:?}\n");
    let route = |prefix: &str| format!("[[upstream.route]]\nprefix = {prefix:?}\n");
    let upstream = |line: &str| format!("[upstream]\n{line}\n");
    let keyless =
        |lines: &str| format!("[[upstream.route]]\nprefix = \"/a\"\nkey = false\n{lines}");
    let headers = |name: &str| {
        let origins = "origins = [\"https://a.test\"]";
        format!("{origins}\n[upstream.route.cors]\nallow_headers = [\"{name}\"]\n")
    };
    assert_advice([
        (fields("\"$.user.email\""), Some("write [\"user.email\"]")),
        (fields("\"$.email\""), Some("write [\"email\"]")),
        (fields("\".email\""), Some("write [\"email\"]")),
        (fields("\"email.\""), Some("write [\"email\"]")),
        (fields("\"user[email]\""), Some("write [\"user.email\"]")),
        (fields("\"email, name\""), Some("write [\"email\", \"name\"]")),
        (fields("\"e-mail address\""), None),
        (fields("\"Email Address:\""), None),
        (fields("\"your email\", \"name\""), None),
        (fields("\"Ihre E-Mail\""), None),
        (email("cookie:email"), None),
        (email("form:a b"), None),
        (route("/sign up"), None),
        (upstream("health_path = \"/health check\""), None),
        (upstream("host = \"a b\""), None),
        (upstream("tls = true\ntls_name = \"a.test:443\""), Some("write \"a.test\"")),
        ("[listen]\nmax_body_bytes = \"7 rabbits\"\n".to_owned(), None),
        ("[plans]\npro = \"1 million\"\n".to_owned(), None),
        (keyless("origins = [\"null\"]\n"), None),
        (keyless("origins = [\"NULL\"]\n"), None),
        (keyless("origins = [\"null\", \"https://a.test\"]\n"), None),
        (keyless(&headers("X-A X-B")), Some("write [\"X-A\", \"X-B\"]")),
        (keyless(&headers("X Api Key")), Some("write [\"X-Api-Key\"]")),
        (
            keyless(&headers("Authorization Content-Type")),
            Some("write [\"Authorization\", \"Content-Type\"]"),
        ),
        (
            keyless(&headers("Content-Type authorization, cookie")),
            Some("write [\"Content-Type\", \"authorization\", \"cookie\"]"),
        ),
        (keyless(&headers("X_A X_B")), Some("write [\"X_A\", \"X_B\"]")),
        (keyless(&headers("X-Api Key")), None),
        (keyless(&headers("Total Count")), None),
        (
            keyless(&headers("ETag Link").replace("allow_headers", "expose_headers")),
            Some("write [\"ETag\", \"Link\"]"),
        ),
        ("[keys]\nheader = \"X-Api-Key X-Other\"\n".to_owned(), None),
        ("[keys]\nheader = \"X Api Key:\"\n".to_owned(), Some("write \"X-Api-Key\"")),
    ]);
}

/// `None`: without a hint that says what to write.
fn assert_advice<const COUNT: usize>(rows: [(String, Option<&str>); COUNT]) {
    for (text, hint) in rows {
        let faults = read_config_text(&text).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:#?}");
        let told = faults[0].rsplit_once("^ ").map(|(_, told)| told);
        assert_eq!(told, hint, "{text}: {faults:#?}");
    }
}

#[test]
fn levels_and_thresholds_in_one_text_are_told_apart() {
    let levels = |value: &str| format!("[log]\nlevel = {value}\n");
    let thresholds = |value: &str| {
        let secret = "whsec_AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH";
        format!(
            "[webhook]\nurl = \"https://a.test\"\nsecret = \"{secret}\"\nthresholds = {value}\n"
        )
    };
    assert_advice([
        (levels("\"info riskgate=debug\""), Some("write \"info,riskgate=debug\"")),
        (levels("\"info:riskgate=debug\""), Some("write \"info,riskgate=debug\"")),
        (levels("\"info, riskgate = debug\""), Some("write \"info,riskgate=debug\"")),
        (levels("\"info riskgate:dns=debug\""), Some("write \"info,riskgate::dns=debug\"")),
        (levels("\"info riskgate.dns=debug\""), Some("write \"info,riskgate::dns=debug\"")),
        (levels("\"warn|riskgate=debug\""), Some("write \"warn,riskgate=debug\"")),
        (levels("\"warning riskgate=debug\""), Some("write \"warn,riskgate=debug\"")),
        (levels("\"riskgate=warning\""), Some("write \"riskgate=warn\"")),
        (levels("[\"info\", \"riskgate=debug\"]"), Some("write \"info,riskgate=debug\"")),
        (levels("\"info, riskgate-gate=debug\""), None),
        (levels("\"notice riskgate=debug\""), None),
        (levels("\"debug,info\""), None),
        (thresholds("\"80\""), Some("write [80]")),
        (thresholds("\"50 90\""), Some("write [50, 90]")),
        (thresholds("\"80%, 90%\""), Some("write [80, 90]")),
        (thresholds("\"0.8\""), Some("write [80]")),
        (thresholds("0.8"), Some("write [80]")),
        (thresholds("[\"0.8\", \"0.9\"]"), Some("write [80, 90]")),
        (thresholds("[0, 50]"), None),
    ]);
}

#[test]
fn only_files_that_no_running_process_reads_again_need_a_restart() {
    let names = |url: &str, more: &str| -> Vec<&'static str> {
        let tls = "tls_ca = \"a\"\ntls_certificate = \"b\"\ntls_key = \"c\"\n";
        let text = format!("[store]\nurl = \"{url}\"\n{tls}{more}");
        let config = read_config_text(&text).unwrap();
        config.startup.files_read_at_start().into_iter().map(|(setting, _)| setting).collect()
    };
    let of_sentinels = [
        "store.tls_ca",
        "store.tls_certificate",
        "store.tls_key",
        "store.sentinel_password_file",
        "upstream.tls_ca",
    ];
    for url in ["rediss://a.test:1", "rediss+cluster://a.test:1"] {
        assert_eq!(names(url, ""), [""; 0], "{url}");
    }
    let more = "sentinel_user = \"d\"\nsentinel_password_file = \"e\"\n\
                [upstream]\ntls = true\ntls_name = \"b.test\"\ntls_ca = \"f\"\n";
    assert_eq!(names("rediss+sentinel://a.test:1/main", more), of_sentinels);
}

#[test]
fn a_command_passes_over_faulty_files_of_secrets_that_it_does_not_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("field"), "Bearer 0123456789abcdef").unwrap();
    let config = path("riskgate.toml");
    let read = |token: &str, needed: &[&str]| -> Vec<String> {
        let [token, empty] = [token, "empty"].map(|name| path(name).display().to_string());
        let text = format!(
            "[admin]\ntoken_file = \"{token}\"\n[inbox]\nsecret_file = \"{empty}\"\n\
             [webhook]\nurl = \"https://a.test/\"\nsecret_file = \"{empty}\"\n\
             previous_secret_file = \"{empty}\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let file = ConfigFile::Path(config.clone());
        let sources = ConfigSources { file, flags: Vec::new() };
        let faults = Config::read_with_secrets(&sources, needed).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    };
    for token in ["empty", "field", "missing"] {
        assert_eq!(read(token, &["store.url_file"]), [""; 0], "{token}");
        let of_inbox = read(token, &["store.url_file", "inbox.secret_file"]);
        assert!(of_inbox.len() == 1 && of_inbox[0].contains("inbox.secret_file"), "{of_inbox:?}");
        assert!(read(token, &["admin.token_file"])[0].contains("admin.token"), "{token}");
    }
}
