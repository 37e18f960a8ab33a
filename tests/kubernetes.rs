//! Tests the Kubernetes chart and the Compose file of `contrib/` with the real tools: the libraries of
//! Helm, the schemas of the Kubernetes API and of the Prometheus Operator, Docker Compose, promtool,
//! and the riskgate binary with the config, the environment and the files that a container gets.
//!
//! These tests need no cluster and start no container.

#[path = "kubernetes/chart.rs"]
mod chart;
#[path = "support/child_process.rs"]
mod child_process;
#[path = "kubernetes/compose.rs"]
mod compose;
#[path = "kubernetes/objects.rs"]
mod objects;
#[path = "kubernetes/pod.rs"]
mod pod;
#[path = "kubernetes/pods.rs"]
mod pods;
#[path = "kubernetes/process.rs"]
mod process;
#[path = "support/redis_server.rs"]
mod redis_server;
#[path = "kubernetes/values.rs"]
mod values;
