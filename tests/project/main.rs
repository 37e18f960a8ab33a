//! Tests of all that the project has besides riskgate's behaviour: its structure, its words, its
//! documents and their site, its workflows, and what it offers to Kubernetes, Prometheus and
//! Grafana.
//!
//! All tests are one binary, so that it is linked once.

#[path = "../support/child_process.rs"]
mod child_process;
#[path = "../support/free_ports.rs"]
mod free_ports;
#[path = "../support/paths.rs"]
mod paths;
#[path = "../support/redis_server.rs"]
mod redis_server;

mod dashboards;
mod documents;
mod kubernetes;
mod layers;
mod site;
mod vocabulary;
mod workflows;
