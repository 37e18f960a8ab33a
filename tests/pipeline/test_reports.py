"""Reads what cargo-nextest reports about tests: which ran, how long, and which failed."""

import json
import subprocess
from dataclasses import dataclass
from xml.etree import ElementTree

from .runner import REPORTS, ROOT

BINARIES, METADATA = REPORTS / "binaries.json", REPORTS / "cargo-metadata.json"


@dataclass(frozen=True)
class TestRun:
    """One test in one stage."""

    binary: str
    name: str
    seconds: float
    has_passed: bool
    # It failed first, and passed when it ran again.
    is_flaky: bool

    @property
    def label(self):
        return f"{self.binary} {self.name}"


def report_path(profile):
    """Where cargo-nextest writes the report of a profile, wherever cargo builds."""
    return ROOT / "target" / "nextest" / profile / "junit.xml"


def read_runs(profile):
    """The tests that ran in the last run of a profile; none if it did not run."""
    path = report_path(profile)
    if not path.exists():
        return []
    return [read_run(suite.get("name"), case)
            for suite in ElementTree.parse(path).getroot().iter("testsuite")
            for case in suite.iter("testcase")]


def read_run(binary, case):
    has_passed = case.find("failure") is None and case.find("error") is None
    is_flaky = case.find("flakyFailure") is not None or case.find("flakyError") is not None
    return TestRun(binary, case.get("name"), float(case.get("time", 0)), has_passed, is_flaky)


def forget_runs():
    for path in (ROOT / "target" / "nextest").glob("*/junit.xml"):
        path.unlink()


def save_build():
    """Writes what cargo built, so that tests run while cargo builds something else."""
    for path, command in (
        (BINARIES, ["cargo", "nextest", "list", "--locked", "--list-type", "binaries-only",
                    "--message-format", "json"]),
        (METADATA, ["cargo", "metadata", "--locked", "--format-version", "1"]),
    ):
        output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        path.write_bytes(output)


def build_options():
    return ["--binaries-metadata", BINARIES, "--cargo-metadata", METADATA]


def list_tests():
    """All tests that are not ignored, and those that are: pairs of binary and name."""
    output = subprocess.run(
        ["cargo", "nextest", "list", *build_options(), "--message-format", "json",
         "--run-ignored", "all", "--ignore-default-filter"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout
    tests, ignored = set(), set()
    for binary, suite in json.loads(output)["rust-suites"].items():
        for name, case in suite["testcases"].items():
            (ignored if case["ignored"] else tests).add((binary, name))
    return tests, ignored
