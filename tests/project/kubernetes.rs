//! Tests the Kubernetes chart and the Compose file of `contrib/` with the real tools: the libraries
//! of Helm, the schemas of the Kubernetes API and of the Prometheus Operator, Docker Compose,
//! promtool, and the riskgate binary with the config, the environment and the files that a
//! container gets.
//!
//! These tests need no cluster and start no container.

mod chart;
mod compose;
mod objects;
mod pod;
mod pods;
mod process;
mod values;
