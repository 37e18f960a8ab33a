//! The request fields in which proxies report what they know of the client.
//!
//! A server may believe such a field, and a client can write it. So riskgate forwards these fields
//! only from a trusted proxy. The table has fields for:
//! - the client's address, network or place,
//! - its identity or certificate,
//! - the host, scheme, method or path that it asked for,
//! - `Proxy`, which CGI programs read as the variable `HTTP_PROXY`.
//!
//! The table has no field that browsers or programs send unasked: no credentials (`X-Auth-Token`,
//! `CF-Access-Client-Id`), and no assertion whose signature the server checks
//! (`CF-Access-Jwt-Assertion`).

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
mod tests {
    use super::*;

    #[test]
    fn fields_of_proxies_are_known_in_any_case() {
        for name in [
            "CF-Connecting-IP CF-IPCountry CF-Visitor Cf-Cert-Subject-Dn True-Client-IP Client-IP",
            "X-Client-IP X-Cluster-Client-IP X-Real-Port X-Remote-User Remote-User Remote-Groups",
            "Fly-Client-IP Fly-Forwarded-Proto Do-Connecting-IP X-Original-Forwarded-For",
            "X-Vercel-Forwarded-For X-Vercel-IP-Country X-Nf-Client-Connection-Ip Ali-CDN-Real-IP",
            "Incap-Client-IP X-Sucuri-ClientIP X-True-Client-IP X-Akamai-Client-IP Fastly-SSL",
            "CloudFront-Viewer-Address Cloudfront-Forwarded-Proto X-Amzn-Oidc-Identity",
            "X-Amzn-Mtls-Clientcert-Leaf SSL-Client-Verify SSL_CLIENT_VERIFY X-SSL-Client-Cert",
            "X-Arr-Clientcert X-Azure-FDID X-MS-Client-Principal-Name X-Client-Cert-Present",
            "Client-Cert X-Client-Certificate X-Envoy-External-Address X-Envoy-Original-Path",
            "X-Auth-Request-User X-Authenticated-Userid X-WebAuth-User X-Consumer-Username",
            "X-Goog-Authenticated-User-Email X-AppEngine-User-IP X-Script-Name Proxy Client-IP",
            "Wl-Proxy-Client-Ip Shib-Session-ID OIDC-Claim-Sub SM-User Tailscale-User-Login",
        ]
        .iter()
        .flat_map(|names| names.split(' '))
        {
            // A server that folds `_` and `-` gets no name with `_` at all.
            let name = name.replace('_', "-");
            for name in [name.to_ascii_lowercase(), name.to_ascii_uppercase(), name] {
                assert!(is_field_of_proxies(name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn no_field_of_browsers_and_programs_is_taken_for_one_of_proxies() {
        for name in [
            "Accept Accept-Language Accept-Encoding Cache-Control Content-Type Content-Length",
            "Cookie DNT Sec-GPC Sec-Fetch-Site Sec-CH-UA Sec-CH-UA-Platform Priority Origin Pragma",
            "Referer User-Agent Upgrade-Insecure-Requests If-None-Match If-Modified-Since Range",
            "Authorization X-Requested-With X-CSRF-Token X-XSRF-TOKEN X-API-Key X-Auth-Token",
            "X-Auth-Key X-Auth-Email X-Auth-User X-User-Id X-Client-Id X-Client-Version",
            "X-Client-Name X-Client-Info X-Session-Token X-Device-Id X-Correlation-ID Traceparent",
            "Tracestate Baggage X-B3-TraceId X-Amz-Date X-Amz-Security-Token X-Amzn-Trace-Id",
            "X-Amz-Content-Sha256 X-Goog-Api-Key X-Goog-Api-Client X-Firebase-AppCheck",
            "X-MS-Client-Request-Id X-MS-Version X-ZUMO-AUTH CF-Access-Client-Id",
            "CF-Access-Client-Secret CF-Access-Jwt-Assertion CF-Turnstile-Response CF-Ray",
            "Fastly-Key Fly-Prefer-Region X-Vercel-Protection-Bypass Idempotency-Key",
            "Stripe-Signature X-Hub-Signature-256 X-GitHub-Event Webhook-Signature Apikey",
            "X-Shopify-Access-Token Sentry-Trace X-Datadog-Trace-Id Newrelic Client X S",
            "HX-Request Turbo-Frame Next-Action RSC X-Inertia X-Livewire Save-Data Downlink RTT",
            "Remote X-Access-Token Proxy-Status SSL CDN-Loop Via Early-Data TE Trailer",
        ]
        .iter()
        .flat_map(|names| names.split(' '))
        {
            assert!(!is_field_of_proxies(name.as_bytes()), "{name}");
        }
        assert!(!is_field_of_proxies(b""));
    }

    #[test]
    fn names_stand_once_in_lower_case() {
        let names: Vec<_> = NAMES_BY_PROXY.iter().flat_map(|(_, names)| *names).collect();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(**name, name.to_ascii_lowercase());
            let others = names.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, other) in others {
                let covered = matches_name(other, name.trim_end_matches('*').as_bytes());
                assert!(!covered, "{other} covers {name}");
            }
        }
    }
}
