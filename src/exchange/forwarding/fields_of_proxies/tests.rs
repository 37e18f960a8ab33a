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
