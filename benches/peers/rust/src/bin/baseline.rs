//! The baseline of the benchmark: hyper on one thread, with a map from the whole path to the body.
//!
//! It sends the same bytes as riskgate without riskgate's work. It checks no key and no origin,
//! counts no call, and looks up no parent domain. All responses have the same request id.
//!
//!     baseline PORT MIX

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const EXPOSED_HEADERS: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, \
                               X-Fail-Open, X-Table-Version, X-Matched-Domain, \
                               X-Verdict-Source, X-Did-You-Mean, X-Evidence-Date";
const CONSTANT_FIELDS: [(&str, &str); 10] = [
    ("content-type", "application/json"),
    ("cache-control", "no-store"),
    ("x-table-version", "35a9cb01dba8"),
    ("x-verdict-source", "list"),
    ("x-evidence-date", "2026-07-31"),
    ("x-request-id", "00112233445566778899aabbccddeeff"),
    ("ratelimit-policy", "\"monthly\";q=100000000"),
    ("ratelimit", "\"monthly\";r=99999999;t=864000"),
    ("vary", "Origin"),
    ("connection", "keep-alive"),
];

fn respond(bodies: &HashMap<String, Bytes>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let Some(body) = bodies.get(request.uri().path()) else {
        let mut missing = Response::new(Full::default());
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    };
    let mut response = Response::new(Full::new(body.clone()));
    let headers = response.headers_mut();
    headers.reserve(13);
    for (name, value) in CONSTANT_FIELDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(origin) = request.headers().get(ORIGIN) {
        let allow = HeaderName::from_static("access-control-allow-origin");
        headers.insert(allow, origin.clone());
        let expose = HeaderName::from_static("access-control-expose-headers");
        headers.insert(expose, HeaderValue::from_static(EXPOSED_HEADERS));
    }
    response
}

async fn serve(port: u16, bodies: Rc<HashMap<String, Bytes>>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port to be free");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // With Nagle's algorithm small responses would wait for acknowledgements.
        let _ = stream.set_nodelay(true);
        let bodies = Rc::clone(&bodies);
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let response = respond(&bodies, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            // An error ends only this connection.
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, mix] = &arguments[..] else { panic!("usage: baseline PORT MIX") };
    let bodies = riskgate_bench::read_workload(Path::new(mix))
        .into_iter()
        .map(|exchange| (exchange.target, Bytes::from(exchange.expected_body)))
        .collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let port = port.parse().expect("a port");
    tokio::task::LocalSet::new().block_on(&runtime, serve(port, Rc::new(bodies)));
}
