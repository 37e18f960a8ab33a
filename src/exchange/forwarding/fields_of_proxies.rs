//! The request fields in which proxies report what they know of the client.
//!
//! A server may believe such a field, and a client can write it. So riskgate forwards these fields
//! only from a trusted proxy. They tell, for example, the client's address, its place, its identity
//! or certificate, or the host, scheme, method or path that it asked for. The table also has
//! `Proxy`, which CGI programs read as the variable `HTTP_PROXY`.
//!
//! The table lacks fields in which programs send their own credentials, such as `X-Auth-Token` and
//! `CF-Access-Client-Id`.

use crate::message::field_names::has_prefix_ignore_case;

/// The names of the fields, grouped by the proxies that write them. `NAME*` stands for all names
/// that begin with `NAME`. Fields that begin with `X-Forwarded-` have a rule of their own.
static NAMES_BY_PROXY: &[(&str, &[&str])] = &[
    (
        "many proxies: the address",
        &[
            "client-ip",
            "x-client-ip",
            "x-client-port",
            "x-cluster-client-ip",
            "true-client-ip",
            "x-true-client-ip",
            "x-real-*",
            "x-remote-*",
            "remote-addr",
            "remote-host",
            "x-originating-ip",
            "x-proxyuser-ip",
            "proxy-client-ip",
            "forwarded-for",
            "x-forwarded",
            "z-forwarded-for",
        ],
    ),
    (
        "many proxies: the target",
        &[
            "x-host",
            "x-original-forwarded-*",
            "x-originally-forwarded-*",
            "x-original-host",
            "x-original-uri",
            "x-original-method",
            "x-replaced-path",
            "x-script-name",
            "x-scheme",
            "x-url-scheme",
            "front-end-https",
            "disguised-host",
            "proxy",
        ],
    ),
    (
        "RFC 9440, nginx, HAProxy, Apache, Google Cloud: the certificate",
        &[
            "client-cert",
            "client-cert-chain",
            "x-client-cert*",
            "x-client-verify",
            "x-client-dn",
            "ssl-client-*",
            "x-ssl",
            "x-ssl-*",
            "tls-client-*",
            "x-tls-client-*",
        ],
    ),
    (
        "Cloudflare",
        &[
            "cf-connecting-ip",
            "cf-connecting-ipv6",
            "cf-pseudo-ipv4",
            "cf-ip*",
            "cf-region",
            "cf-region-code",
            "cf-metro-code",
            "cf-postal-code",
            "cf-timezone",
            "cf-visitor",
            "cf-worker",
            "cf-cert-*",
            "cf-client-cert-*",
            "cf-bot-score",
            "cf-verified-bot",
            "cf-threat-score",
            "cf-access-authenticated-user-email",
        ],
    ),
    ("AWS", &["cloudfront-*", "x-amzn-oidc-*", "x-amzn-mtls-*", "x-amzn-request-context"]),
    (
        "Azure and IIS",
        &[
            "x-azure-*",
            "x-arr-*",
            "x-ms-client-principal*",
            "x-ms-token-*",
            "x-appservice-proto",
            "x-waws-unencoded-url",
            "ms-aspnetcore-*",
            "x-iisnode-*",
        ],
    ),
    ("Google Cloud", &["x-appengine-*", "x-goog-authenticated-user-*"]),
    (
        "Fastly",
        &["fastly-client", "fastly-client-ip", "fastly-ssl", "fastly-ff", "fastly-temp-xff"],
    ),
    ("Akamai", &["x-akamai-client-ip", "x-akamai-edgescape"]),
    (
        "Fly.io, DigitalOcean, Vercel, Netlify",
        &[
            "fly-client-ip",
            "fly-forwarded-*",
            "fly-region",
            "do-connecting-ip",
            "x-vercel-forwarded-*",
            "x-vercel-proxied-*",
            "x-vercel-ip-*",
            "x-nf-client-connection-ip",
            "x-nf-geo",
        ],
    ),
    (
        "Imperva, Sucuri, Alibaba, Tencent, Wangsu",
        &[
            "incap-client-ip",
            "x-sucuri-clientip",
            "x-sucuri-country",
            "ali-cdn-real-*",
            "eo-connecting-ip",
            "eo-client-*",
            "cdn-src-ip",
            "cdn-real-ip",
        ],
    ),
    ("Envoy", &["x-envoy-*"]),
    ("Kong", &["x-consumer-*", "x-credential-*", "x-anonymous-consumer", "x-userinfo"]),
    (
        "oauth2-proxy, Authelia, authentik, Pomerium, Vouch, Tailscale, Keycloak",
        &[
            "x-auth-request-*",
            "x-auth-userid",
            "x-auth-username",
            "x-auth-subject",
            "x-auth-roles",
            "x-auth-groups",
            "x-authenticated-*",
            "x-webauth-*",
            "remote-user",
            "remote-name",
            "remote-email",
            "remote-groups",
            "x-authentik-*",
            "x-pomerium-claim-*",
            "x-vouch-*",
            "tailscale-*",
        ],
    ),
    (
        "modules of Apache, WebLogic, SiteMinder, WebSEAL, Oracle Access Manager",
        &[
            "oidc-claim-*",
            "mellon-*",
            "shib-*",
            "wl-proxy-*",
            "sm-user",
            "sm-userdn",
            "sm-universalid",
            "iv-user",
            "iv-user-l",
            "iv-groups",
            "iv-creds",
            "iv-remote-address",
            "oam-*",
        ],
    ),
];

/// For each first character of a name, a bit for each second character. Most fields of browsers
/// begin with other characters, so riskgate need not compare them with every name.
static SECOND_CHARACTERS: [u32; 32] = second_characters_of_names();

/// Returns true if proxies report something about the client in this field.
pub(super) fn is_field_of_proxies(name: &[u8]) -> bool {
    let [first, second, ..] = name else { return false };
    if SECOND_CHARACTERS[usize::from(first & 31)] & (1 << (second & 31)) == 0 {
        return false;
    }
    NAMES_BY_PROXY.iter().flat_map(|(_, names)| *names).any(|known| matches_name(known, name))
}

fn matches_name(known: &str, name: &[u8]) -> bool {
    match known.strip_suffix('*') {
        Some(prefix) => has_prefix_ignore_case(name, prefix),
        None => name.eq_ignore_ascii_case(known.as_bytes()),
    }
}

/// Makes the table from the lower five bits of the characters, which don't depend on the case of a
/// letter.
const fn second_characters_of_names() -> [u32; 32] {
    let mut starts = [0; 32];
    let mut group = 0;
    while group < NAMES_BY_PROXY.len() {
        let names = NAMES_BY_PROXY[group].1;
        let mut index = 0;
        while index < names.len() {
            let name = names[index].as_bytes();
            starts[(name[0] & 31) as usize] |= 1 << (name[1] & 31);
            index += 1;
        }
        group += 1;
    }
    starts
}

#[cfg(test)]
mod tests;
