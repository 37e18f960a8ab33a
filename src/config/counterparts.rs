//! What people know from other servers, and what riskgate has in its place.
//!
//! `hints` finds the settings of riskgate whose names are near to a name.

/// Names of settings and sections that riskgate does not have.
pub struct Counterpart {
    /// The section in which the names have this meaning, or [`SECTION_NAMES`]; empty: anywhere.
    section: &'static str,
    /// The names. If `section` is empty, a name whose first word is one of them counts too. An
    /// empty list means every name for which nothing else has a hint.
    names: &'static [&'static str],
    /// What to write, or why nothing is to be written.
    pub hint: &'static str,
    /// The setting that a person meant by such a name; empty if none. riskgate then does not report
    /// this setting as missing.
    pub setting: &'static str,
}

/// The `section` of entries whose names are names of sections.
pub const SECTION_NAMES: &str = "[]";

/// Names that people write below `cors` for the origins of a route.
pub const NAMES_OF_CORS_ORIGINS: [&str; 5] =
    ["origins", "origin", "allow_origins", "allow_origin", "allowed_origins"];

const fn counterpart_in(
    section: &'static str,
    names: &'static [&'static str],
    hint: &'static str,
) -> Counterpart {
    Counterpart { section, names, hint, setting: "" }
}

const fn counterpart_anywhere(names: &'static [&'static str], hint: &'static str) -> Counterpart {
    counterpart_in("", names, hint)
}

/// What to write in place of a middleware.
pub const NO_MIDDLEWARE_HINT: &str = "remove this section: riskgate has no middlewares; \
                                  [[upstream.route]] has max_per_client, origins, cors and screen";
const NO_REWRITE_HINT: &str = "riskgate forwards each path as it is; let your service, or a proxy \
                          behind riskgate, rewrite paths, and remove this line";
/// What to write in place of the files of a certificate in another form.
pub const CERTIFICATE_HINT: &str = "write [[listen.certificate]], and below it chain = \"…\" and \
                                 key = \"…\", with the paths of PEM files";

const COUNTERPARTS: [Counterpart; 85] = [
    counterpart_in(
        "upstream.route",
        &["servers", "server", "upstream", "backend", "proxy_pass", "target", "url", "to"],
        "all routes go to upstream.servers; for another service, run another riskgate, or let a \
         proxy behind riskgate divide the paths",
    ),
    Counterpart {
        section: "upstream.route",
        names: &["regex", "regexp", "pattern", "match", "matches", "expression", "rule", "glob"],
        hint: "write prefix = \"/v1/signup\" and no pattern: the route has this path and all below \
               it",
        setting: "prefix",
    },
    counterpart_in("log", &["output", "destination", "target"], LOG_OUTPUT_HINT),
    counterpart_in("log", &["sampling", "sample", "sample_rate"], "riskgate logs each request"),
    counterpart_in(
        "admin",
        &["username", "user", "password", "basic_auth", "htpasswd"],
        "the operator's page asks for a token and no password; write token_file = \"…\", the path \
         of a file with a token of 16 characters or more",
    ),
    counterpart_in(
        "store",
        &["username", "user", "password", "db", "database", "port", "auth", "host", "hostname"],
        "write it into url, as redis://USER:PASSWORD@HOST:PORT/DATABASE; a file with this URL may \
         stand in url_file",
    ),
    counterpart_in(
        "store",
        &["type", "kind", "driver", "engine", "backend"],
        "url says it: write url = \"redis://HOST:6379\" or url = \"sqlite:state/riskgate.db\"",
    ),
    counterpart_in(
        "store",
        &["cluster", "nodes", "hosts", "addresses", "sentinels", "master_name", "master"],
        "write url = \"redis+sentinel://HOST:PORT,HOST:PORT/SERVICE\" for Sentinels, \
         redis+cluster://HOST:PORT,HOST:PORT for a Cluster, or redis://HOST:PORT for one server",
    ),
    counterpart_in(
        "store",
        &["tls", "ssl", "use_tls", "tls_enabled", "enable_tls"],
        "write rediss in place of redis in url, as rediss://HOST:PORT, and remove this line",
    ),
    counterpart_in(
        "upstream",
        &["tls_skip_verify", "insecure_skip_verify", "skip_verify", "insecure"],
        "write tls_verify = false, or better tls_ca = \"…\", the path of a PEM file with the \
         authority of the servers' certificate",
    ),
    counterpart_in(
        "authz",
        &["enabled", "enable", "active"],
        "remove this line: path = \"/authz\" switches it on",
    ),
    counterpart_in(
        "table",
        &["allow", "deny", "block", "allowlist", "denylist", "blocklist", "whitelist", "blacklist"],
        "run `riskgate table allow DOMAIN` or `riskgate table deny DOMAIN`, or write a file of \
         them: overrides = \"overrides.csv\"",
    ),
    counterpart_in(
        "listen",
        &["http3", "quic", "h3", "alt_svc"],
        "riskgate speaks HTTP/2 over TLS by itself, and without TLS with h2c = true; it has no \
         HTTP/3",
    ),
    counterpart_in(
        "upstream",
        &["keepalive", "keepalive_requests", "max_fails", "fail_timeout", "fails", "slow_start"],
        "riskgate keeps connections for idle_timeout, and leaves a server that refuses one out for \
         eject_for; remove this line",
    ),
    counterpart_in(
        "upstream.route",
        &["priority", "order", "weight", "rank"],
        "remove this line: the route with the longest prefix serves a path",
    ),
    counterpart_in(
        "upstream.route",
        &["quota", "monthly_limit", "plan", "cost"],
        "each account has one limit for all routes, by its plan below [plans]; counts = false \
         leaves the calls of this route out",
    ),
    counterpart_in(
        "log",
        &["rotate", "rotation", "max_files", "compress", "max_age", "keep"],
        "write max_bytes = 100000000, at which a new file begins, and kept_files = 7",
    ),
    counterpart_in(
        "table.feed",
        &["format", "parser", "content_type"],
        "riskgate reads a list with a domain in each line; kind and tier say what its domains are; \
         remove this line",
    ),
    counterpart_in(
        "rule",
        &["else", "otherwise", "default", "unless"],
        "write a rule below this one, without if: the first rule that holds decides",
    ),
    counterpart_in(
        "rule",
        &["priority", "order", "weight", "rank"],
        "remove this line and order the rules: the first one that holds decides",
    ),
    counterpart_in(
        "admin",
        &["allow", "deny", "allow_ips", "ip_whitelist", "allowed_ips", "allowlist", "cidr"],
        "a token guards these pages; for fewer addresses, write admin = \"ADDRESS:PORT\" of an \
         inner network below [listen]",
    ),
    Counterpart {
        section: "admin.token",
        names: &["token", "secret", "value", "key", "sha256", "digest"],
        hint: "write hash = \"sha256:…\", which `riskgate admin-token create` prints",
        setting: "hash",
    },
    counterpart_in(
        "upstream.route.cors",
        &["max_age", "access_control_max_age", "ttl"],
        "browsers keep the answer to a preflight for 10 minutes; remove this line",
    ),
    counterpart_in(
        "traces",
        &["headers", "header", "authorization", "token"],
        "riskgate sends no credentials to the collector; let a collector on this machine add them, \
         and remove this line",
    ),
    counterpart_in(
        "webhook",
        &["events", "event", "on", "triggers"],
        "write thresholds = [80, 100]: riskgate sends a message when an account has spent so many \
         percent of its limit",
    ),
    counterpart_in(
        "dns",
        &["ttl", "timeout", "cache", "cache_ttl", "min_ttl", "max_ttl"],
        "remove this line: the TTLs of the DNS say how long a learned fact counts",
    ),
    counterpart_in(
        "drain",
        &["timeout", "time", "wait", "max", "period"],
        "write grace = \"30s\", the time for requests in flight, or delay, the time before it",
    ),
    counterpart_in(
        "upstream",
        &["allow_http", "http", "scheme", "protocol", "plain", "https_only"],
        "riskgate speaks HTTP without TLS to the servers unless tls = true; remove this line",
    ),
    counterpart_in(
        "upstream",
        &["port", "ports", "address", "addr", "hostname", "hosts", "endpoints", "nodes"],
        "write it into servers, as servers = [\"127.0.0.1:9000\"]",
    ),
    counterpart_in(
        "upstream",
        &["path", "base_path", "prefix", "upstream_path", "uri"],
        NO_REWRITE_HINT,
    ),
    counterpart_in(
        "upstream.route",
        &["upstream_path", "to_path", "target_path", "path_to", "base_path"],
        NO_REWRITE_HINT,
    ),
    counterpart_in(
        "upstream.route",
        &["cache", "cache_ttl", "ttl", "proxy_cache", "expires"],
        "riskgate caches no answers; let your service, or a proxy in front, and remove this line",
    ),
    counterpart_in(
        "upstream.route",
        &["enabled", "active", "disabled"],
        "remove the whole [[upstream.route]] to serve it no longer: a path without a route is 404",
    ),
    counterpart_in(
        "upstream.route",
        &["redirect", "return", "respond", "status"],
        "riskgate answers no route itself; screen.redirect is where a refused form leads",
    ),
    counterpart_in(
        "upstream.route.screen",
        &["enabled", "active"],
        "write mode = \"shadow\", \"annotate\" or \"block\"; without [upstream.route.screen] nothing \
         is screened",
    ),
    counterpart_in(
        "upstream.route.screen",
        &["allow", "allowlist", "whitelist", "deny", "denylist", "blocklist", "blacklist"],
        "run `riskgate table allow DOMAIN` or `riskgate table deny DOMAIN`: overrides hold for all \
         routes",
    ),
    counterpart_in(
        "upstream.route.screen",
        &["status", "status_code", "code", "response_code"],
        "a refused form gets 422, or with redirect = \"…\" a redirect; remove this line",
    ),
    counterpart_in(
        "store",
        &["ttl", "expire", "expires", "retention", "max_age"],
        "riskgate deletes what is old by itself, such as sign-ups after 30 days; remove this line",
    ),
    counterpart_in(
        "store",
        &["pool", "pool_size", "max_connections", "connections", "min_idle", "max_idle"],
        "riskgate opens the few connections that it needs; remove this line",
    ),
    counterpart_in(
        "store",
        &["prefix", "key_prefix", "namespace"],
        "all keys on the server begin with riskgate:; for a second deployment, write another \
         database into url, as redis://HOST:PORT/1",
    ),
    counterpart_in(
        "keys",
        &["ttl", "expires", "expiry", "rotate", "rotation"],
        "write it for one key: riskgate keys create --account NAME --expires 90d, or riskgate keys \
         rotate ID",
    ),
    counterpart_in(
        "listen",
        &["workers", "worker_processes", "threads_per_core", "cpus"],
        "write threads = 2, or leave it out: riskgate uses all cores",
    ),
    counterpart_in(
        "listen",
        &["server_name", "server_names", "hosts", "domains", "domain", "hostname"],
        "riskgate answers for every Host; remove this line",
    ),
    counterpart_in(
        "listen",
        &["tls", "ssl", "enable_tls", "tls_enabled"],
        "write https = \"0.0.0.0:443\", and [[listen.certificate]], and below it chain = \"…\" and \
         key = \"…\", with the paths of PEM files",
    ),
    counterpart_in(
        "listen",
        &["ipv6", "ipv6only", "dual_stack"],
        "write http = \"[::]:8080\": this address serves IPv4 too",
    ),
    counterpart_in(
        "listen",
        &["redirect_https", "force_https", "https_redirect", "force_ssl"],
        "write redirect = \"0.0.0.0:80\": riskgate leads requests from there to listen.https",
    ),
    counterpart_in(
        "log",
        &["errors", "error_log", "stderr", "error"],
        "the log of the process goes to standard error; level = \"debug\" says more",
    ),
    counterpart_in(
        "traces",
        &["sample_rate", "sampler", "rate", "probability", "sampling"],
        "write sample_one_in = 10: riskgate sends one trace in so many",
    ),
    counterpart_in(
        "webhook",
        &["retries", "retry", "max_retries", "attempts"],
        "riskgate repeats a message for three days by itself; remove this line",
    ),
    counterpart_in(
        "webhook",
        &["headers", "header", "authorization", "token"],
        "secret = \"whsec_…\" signs each message; riskgate sends no other credentials",
    ),
    Counterpart {
        section: "rule",
        names: &["action", "verdict", "decision", "do", "result"],
        hint: "write then = \"pass\", \"review\" or \"block\"",
        setting: "then",
    },
    counterpart_in(
        "rule",
        &["score", "risk_score", "min_score", "max_score", "domain", "reason", "threshold"],
        "write it as a condition: if = [\"risk_score >= 70\"]",
    ),
    // The names of sections.
    counterpart_in(
        SECTION_NAMES,
        &["frontend", "frontends", "entrypoints", "listeners", "listener", "http"],
        "write [listen], and below it http = \"0.0.0.0:8080\"",
    ),
    counterpart_in(SECTION_NAMES, &["middlewares", "middleware"], NO_MIDDLEWARE_HINT),
    counterpart_in(
        SECTION_NAMES,
        &["providers", "provider"],
        "riskgate finds no servers by itself; write [upstream] and servers = [\"10.0.0.7:9000\"]: \
         a name or an SRV record may stand there",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["api", "dashboard"],
        "the admin API and the operator's page are at listen.admin; write admin = \
         \"127.0.0.1:9090\" below [listen]",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["sentinel", "sentinels"],
        "write [store], and below it url = \"redis+sentinel://HOST:PORT,HOST:PORT/SERVICE\"",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["authz.screen"],
        "write \"screen\" into check below [authz], and email = \"header:X-Email\"",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["upstream.health", "upstream.healthcheck", "upstream.health_check"],
        "write health_path = \"/healthz\" below [upstream]",
    ),
    counterpart_in(SECTION_NAMES, &["log.file"], "write path = \"access.log\" below [log]"),
    counterpart_in(SECTION_NAMES, &["admin.metrics"], "write metrics_public = true below [admin]"),
    counterpart_in(
        SECTION_NAMES,
        &["routes", "route", "locations", "location", "routers", "paths"],
        "write [[upstream.route]]",
    ),
    counterpart_in(
        SECTION_NAMES,
        &[
            "upstreams",
            "servers",
            "services",
            "service",
            "clusters",
            "pools",
            "backends",
            "upstream.server",
            "upstream.backend",
        ],
        "write [upstream] and servers = [\"10.0.0.7:9000\"]: there is one group of servers",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["key", "keys.key"],
        "write [[key]] into a file of its own, and name the file here: [keys] and file = \
         \"keys.toml\"",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["plan"],
        "write a line for each plan below [plans], such as pro = 10000",
    ),
    counterpart_in(
        SECTION_NAMES,
        &["accounts", "account", "users", "consumers", "consumer", "tenants", "customers"],
        "the store has the accounts; `riskgate keys create --account NAME --plan PLAN` makes one",
    ),
    // Names of settings or of sections, anywhere.
    counterpart_anywhere(
        &[
            "acme",
            "certificatesresolvers",
            "certificatesresolver",
            "letsencrypt",
            "autohttps",
            "autocert",
            "autotls",
            "certbot",
            "certresolver",
        ],
        "riskgate fetches no certificates; let certbot write them, and name its files: \
         [[listen.certificate]], and below it chain = \"…\" and key = \"…\"",
    ),
    counterpart_anywhere(
        &[
            "ratelimit",
            "ratelimits",
            "ratelimiting",
            "limits",
            "limit",
            "throttle",
            "throttling",
            "rps",
            "rpm",
            "burst",
            "perip",
            "sticktable",
        ],
        "write max_per_client = \"60/m\" below [[upstream.route]] or [keys]: so many requests of \
         one client; below [plans] are the calls of an account in a month, and below [listen] \
         max_connections and max_body_bytes",
    ),
    counterpart_anywhere(
        &["cors", "origins", "origin", "allowedorigins", "alloworigins", "alloworigin"],
        "origins belong to keys: riskgate keys create --account NAME --origin \
         https://app.example.com; or to a route without a key: origins = \
         [\"https://app.example.com\"] below [[upstream.route]]",
    ),
    counterpart_anywhere(
        &["include", "includes", "import", "imports", "extends"],
        "write all settings into this file: riskgate reads one file, and variables such as \
         RISKGATE__LISTEN__HTTP",
    ),
    counterpart_anywhere(
        &["metrics", "prometheus", "statsd"],
        "the metrics are at /metrics of listen.admin; write admin = \"127.0.0.1:9090\" below \
         [listen]",
    ),
    counterpart_anywhere(
        &[
            "sslcertificate",
            "sslcertificatekey",
            "tlscert",
            "tlskey",
            "sslcert",
            "sslkey",
            "certfile",
            "keyfile",
            "tlscertfile",
            "tlskeyfile",
            "crt",
            "pem",
        ],
        CERTIFICATE_HINT,
    ),
    counterpart_anywhere(
        &[
            "ciphers",
            "ciphersuites",
            "sslciphers",
            "sslprotocols",
            "tlsversion",
            "tlsminversion",
            "mintlsversion",
            "minversion",
            "tlsversions",
            "curves",
        ],
        "riskgate speaks TLS 1.2 and 1.3 with the ciphers of rustls; remove this line",
    ),
    counterpart_anywhere(
        &[
            "lbpolicy",
            "balance",
            "balancing",
            "loadbalancing",
            "loadbalancer",
            "lb",
            "weight",
            "weights",
            "leastconn",
            "roundrobin",
            "sticky",
            "strategy",
            "algorithm",
        ],
        "riskgate uses upstream.servers in turn; for weights, name an SRV record there, such as \
         \"_check._tcp.internal\"; remove this line",
    ),
    counterpart_anywhere(
        &[
            "health",
            "healthcheck",
            "healthchecks",
            "healthuri",
            "checkinterval",
            "probe",
            "livenessprobe",
        ],
        "write health_path = \"/health\", and health_interval if needed, below [upstream]",
    ),
    counterpart_anywhere(
        &[
            "rewrite",
            "stripprefix",
            "strippath",
            "replacepath",
            "addprefix",
            "rewritetarget",
            "prefixrewrite",
            "stripuri",
        ],
        NO_REWRITE_HINT,
    ),
    counterpart_anywhere(
        &["retries", "retry", "maxretries", "numretries", "circuitbreaker", "retrypolicy"],
        "riskgate tries another server once by itself, and eject_for below [upstream] says how \
         long it leaves one out; remove this line",
    ),
    counterpart_anywhere(
        &[
            "headers",
            "addheader",
            "proxysetheader",
            "requestheaders",
            "responseheaders",
            "setheader",
            "customheaders",
            "headerup",
        ],
        "riskgate sets no fields of your own; let a proxy in front of riskgate, or your service, \
         set them, and remove this line",
    ),
    counterpart_anywhere(
        &["tlsskipverify", "insecureskipverify", "skipverify", "insecure"],
        "riskgate verifies each certificate; write tls_ca = \"…\", the path of a PEM file with its \
         authority, if the section has it",
    ),
    counterpart_anywhere(
        &["gzip", "compress", "compression", "brotli", "zstd", "encode"],
        "riskgate compresses nothing; let your service, or a proxy in front, and remove this line",
    ),
    counterpart_anywhere(
        &["websocket", "websockets", "upgrade"],
        "riskgate forwards no WebSockets; let a proxy in front serve their paths, and remove this \
         line",
    ),
    counterpart_anywhere(
        &["cache", "caching"],
        "riskgate caches no answers; let your service, or a proxy in front, and remove this",
    ),
    counterpart_anywhere(
        &["jwt", "oauth", "oauth2", "oidc", "basicauth", "htpasswd"],
        "riskgate knows clients by their API keys alone: riskgate keys create --account NAME; key \
         = false below [[upstream.route]] asks for none",
    ),
    counterpart_anywhere(
        &["pid", "pidfile", "daemon", "daemonize", "uid", "gid", "chroot"],
        "riskgate runs in the foreground as the user that starts it, such as in a service of \
         systemd; remove this line",
    ),
    Counterpart {
        section: "keys",
        names: &[],
        hint: "keys are made with `riskgate keys create --account NAME`, or stand as [[key]] in a \
               file of their own: file = \"keys.toml\"; [keys] itself has file, header, \
               max_per_client and prefix",
        setting: "",
    },
];
const LOG_OUTPUT_HINT: &str = "the access log goes to standard output, or with path = \"…\" to a \
                          file, and the log of the process to standard error";

/// Returns what riskgate has in place of a name in just this section, even if the name is near to
/// that of a setting.
pub fn find_in_section(section: &str, name: &str) -> Option<&'static Counterpart> {
    let name = name.to_ascii_lowercase();
    let is_named = |names: &[&str]| names.contains(&name.as_str());
    COUNTERPARTS
        .iter()
        .find(|it| !it.section.is_empty() && it.section == section && is_named(it.names))
}

/// Returns what riskgate has in place of a name that is near to none of its section.
pub fn find_counterpart(section: &str, name: &str) -> Option<&'static Counterpart> {
    let squashed = without_case_and_separators(name);
    let first = without_case_and_separators(name.split(['_', '-']).next().unwrap_or_default());
    let is_meant = |own: &&str| squashed == *own || first == *own;
    let anywhere = || {
        let mut all = COUNTERPARTS.iter().filter(|it| it.section.is_empty());
        all.find(|it| it.names.iter().any(&is_meant))
    };
    let rest = || COUNTERPARTS.iter().find(|it| it.names.is_empty() && it.section == section);
    find_in_section(section, name).or_else(anywhere).or_else(rest)
}

/// Returns a name in lower case, without `_` and `-`.
fn without_case_and_separators(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], "")
}
