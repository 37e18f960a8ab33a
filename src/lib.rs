//! riskgate answers "how risky is this e-mail domain?" and guards a signup backend with API keys,
//! browser origins and monthly quotas. Most people run the binary; the project's README shows how.
//! This library puts riskgate into a [Pingora](https://github.com/cloudflare/pingora) server of
//! your own:
//!
//! - A [`Mount`] reads riskgate's config file and opens its store.
//! - Its [`Gate`] runs the checks in a proxy that you write, with a [`RequestContext`] in the
//!   context of each request.
//! - Its [`Gateway`] is the whole proxy, for a server that has listeners or services of its own.
//!
//! # Example
//!
//! The smallest proxy with a gate, in front of one server. `examples/mount.rs` is a longer one,
//! with a context of its own.
//!
//! ```no_run
//! use async_trait::async_trait;
//! use bytes::Bytes;
//! use riskgate::pingora::prelude::{
//!     Error, HttpPeer, RequestHeader, ResponseHeader, Result, Server,
//! };
//! use riskgate::pingora_proxy::{
//!     FailToProxy, ProxyHttp, ProxyWarnLogContext, Session, http_proxy_service,
//! };
//! use riskgate::{Gate, Mount, RequestContext};
//!
//! const UPSTREAM: &str = "127.0.0.1:9000";
//!
//! struct MyProxy {
//!     gate: Gate,
//! }
//!
//! #[async_trait]
//! impl ProxyHttp for MyProxy {
//!     type CTX = RequestContext;
//!
//!     fn new_ctx(&self) -> RequestContext {
//!         RequestContext::default()
//!     }
//!
//!     async fn request_filter(
//!         &self,
//!         session: &mut Session,
//!         ctx: &mut RequestContext,
//!     ) -> Result<bool> {
//!         // True means that riskgate has answered the request.
//!         self.gate.request_filter(session, ctx).await
//!     }
//!
//!     async fn upstream_peer(
//!         &self,
//!         _session: &mut Session,
//!         _ctx: &mut RequestContext,
//!     ) -> Result<Box<HttpPeer>> {
//!         Ok(Box::new(HttpPeer::new(UPSTREAM, false, String::new())))
//!     }
//!
//!     async fn upstream_request_filter(
//!         &self,
//!         session: &mut Session,
//!         request: &mut RequestHeader,
//!         ctx: &mut RequestContext,
//!     ) -> Result<()> {
//!         self.gate.upstream_request_filter(session, request, ctx, UPSTREAM)
//!     }
//!
//!     async fn request_body_filter(
//!         &self,
//!         _session: &mut Session,
//!         body: &mut Option<Bytes>,
//!         end_of_stream: bool,
//!         ctx: &mut RequestContext,
//!     ) -> Result<()> {
//!         self.gate.request_body_filter(body, end_of_stream, ctx)
//!     }
//!
//!     async fn response_filter(
//!         &self,
//!         session: &mut Session,
//!         response: &mut ResponseHeader,
//!         ctx: &mut RequestContext,
//!     ) -> Result<()> {
//!         self.gate.response_filter(session, response, ctx)
//!     }
//!
//!     async fn fail_to_proxy(
//!         &self,
//!         session: &mut Session,
//!         error: &Error,
//!         ctx: &mut RequestContext,
//!     ) -> FailToProxy {
//!         self.gate.fail_to_proxy(session, error, ctx).await
//!     }
//!
//!     async fn logging(
//!         &self,
//!         session: &mut Session,
//!         error: Option<&Error>,
//!         ctx: &mut RequestContext,
//!     ) {
//!         self.gate.logging(session, error, ctx);
//!     }
//!
//!     // What Pingora logs of a request contains e-mail addresses. The gate logs what failed.
//!     fn suppress_error_log(&self, _: &Session, _: &RequestContext, _: &Error) -> bool {
//!         true
//!     }
//!
//!     fn suppress_proxy_warn_log(
//!         &self,
//!         _: &Session,
//!         _: &RequestContext,
//!         _: &Error,
//!         _: ProxyWarnLogContext,
//!     ) -> bool {
//!         true
//!     }
//!
//!     fn request_summary(&self, _: &Session, ctx: &RequestContext) -> String {
//!         ctx.request_id().to_owned()
//!     }
//! }
//!
//! fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//!     let mount = Mount::from_config_file("riskgate.toml")?;
//!     let gate = mount.gate();
//!     let mut server = Server::new(None)?;
//!     server.bootstrap();
//!     let my_proxy = MyProxy { gate: gate.clone() };
//!     let mut service = http_proxy_service(&server.configuration, my_proxy);
//!     service.add_tcp("127.0.0.1:8080");
//!     server.add_service(service);
//!     // Without this service, riskgate never sees a new key or a changed list.
//!     server.add_service(mount.into_reload_service());
//!     server.run(Default::default());
//!     gate.close();
//!     Ok(())
//! }
//! ```
//!
//! A mounted gate checks keys, origins, rates of clients and quotas, and screens the forms of
//! routes with `[upstream.route.screen]`. It reads these forms, and the bodies of requests to `POST
//! /v1/assess`, to `POST /v1/public/domains` and, if `[authz]` screens fields of the body, to the
//! path of `[authz]`.
//!
//! Only `riskgate run` limits connections, and checks the sizes and the grammar of all requests. A
//! mounted gate only refuses bodies that are too long, bodies of methods that take none, bodies of
//! which two servers could find different ends, and a `Connection` that lists a field on which
//! riskgate relies.
//!
//! # Versions
//!
//! Semantic versioning covers what this page shows. The modules of this crate are public for the
//! binary, the tests and the benches. This page hides these modules, and any release may change
//! them.
//!
//! Import `pingora` and `pingora_proxy` from this crate, so that your proxy and riskgate use one
//! version of both. A release of riskgate with an incompatible version of Pingora is an
//! incompatible release of riskgate.
//!
//! # The source
//!
//! `ARCHITECTURE.md` describes the layers and how a request is served, and says in which order to
//! read the code. `tests/project/layers.rs` checks that a module imports only from the folders
//! that stand above its own in the table of `ARCHITECTURE.md`.
#![deny(unsafe_code)]
#![deny(missing_docs)]
// `println!` panics if it can't write. Commands write through `cli::output`, and a gateway writes
// through its process log and its access log.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

// Hidden only when rustdoc runs, because rustc reports no missing documentation in modules that are
// `doc(hidden)`.
#[cfg_attr(doc, doc(hidden))]
pub mod cli;
#[cfg_attr(doc, doc(hidden))]
pub mod config;
#[cfg_attr(doc, doc(hidden))]
pub mod decide;
#[cfg_attr(doc, doc(hidden))]
pub mod dns;
#[cfg_attr(doc, doc(hidden))]
pub mod downstream;
#[cfg_attr(doc, doc(hidden))]
pub mod exchange;
#[cfg_attr(doc, doc(hidden))]
pub mod feed;
#[cfg_attr(doc, doc(hidden))]
pub mod gate;
#[cfg_attr(doc, doc(hidden))]
pub mod keys;
#[cfg_attr(doc, doc(hidden))]
pub mod management;
#[cfg_attr(doc, doc(hidden))]
pub mod message;
#[cfg_attr(doc, doc(hidden))]
pub mod model;
#[cfg_attr(doc, doc(hidden))]
pub mod observe;
#[cfg_attr(doc, doc(hidden))]
pub mod process;
#[cfg_attr(doc, doc(hidden))]
pub mod proxy;
#[cfg_attr(doc, doc(hidden))]
pub mod quota;
#[cfg_attr(doc, doc(hidden))]
pub mod screening;
#[cfg_attr(doc, doc(hidden))]
pub mod store;
#[cfg_attr(doc, doc(hidden))]
pub mod support;
#[cfg_attr(doc, doc(hidden))]
pub mod table;
#[cfg_attr(doc, doc(hidden))]
pub mod webhook;

#[doc(inline)]
pub use gate::{Gate, RequestContext};
pub use pingora;
pub use pingora_proxy;
#[doc(inline)]
pub use process::Mount;
#[doc(inline)]
pub use process::server::StartError;
#[doc(inline)]
pub use proxy::gateway::{Gateway, ProxyContext};
