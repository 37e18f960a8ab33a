"""The last lines of scripts/test: what failed, what was slow, and how to repeat it."""

import time

from . import test_reports
from .runner import FAILED, NOT_RUN, PASSED, REPEATED_LINES
from .stages import PROFILE_OF_STAGE

SLOWEST_TESTS = 20


def read_runs_of_stage(stage):
    """The tests that ran in a stage."""
    profile = PROFILE_OF_STAGE.get(stage.name)
    return test_reports.read_runs(profile) if profile and stage.outcome not in (None, NOT_RUN) else []


def describe(runner, seed):
    runs = [(stage, run) for stage in runner.stages for run in read_runs_of_stage(stage)]
    lines = []
    slowest = sorted(runs, key=lambda entry: entry[1].seconds, reverse=True)[:SLOWEST_TESTS]
    if slowest:
        lines += ["", "the slowest tests"]
        lines += [f"{run.seconds:>7.1f} s  {run.label}" for _, run in slowest]
    if flaky := [run for _, run in runs if run.is_flaky]:
        lines += ["", "flaky: these tests failed, and passed when they ran again. Mend them."]
        lines += [f"    {run.label}" for run in flaky]
    lines += ["", f"{'stage':<22} {'seconds':>8} {'cpu':>6}  outcome"]
    lines += [f"{stage.name:<22} {stage.seconds:>8.0f} {stage.cpu_seconds:>6.0f}  "
              f"{stage.outcome or 'interrupted'}" for stage in runner.stages]
    if failed := [(stage, run) for stage, run in runs if not run.has_passed]:
        lines += ["", "failed tests"]
        lines += [f"    {stage.name}: {run.label}" for stage, run in failed]
    passed = sum(stage.outcome == PASSED for stage in runner.stages)
    lines += ["", f"{passed} stages passed, {len(runner.stages) - passed} failed; {len(runs)} tests "
              f"ran; {time.monotonic() - runner.begun:.0f} s"]
    lines += [f"random tests began at seed {seed}: RISKGATE_TEST_SEED={seed}"]
    for stage in runner.stages:
        # The tests that failed have been named. Their output can be in the middle of the log.
        if stage.outcome == FAILED and stage.name not in PROFILE_OF_STAGE:
            lines += ["", f"the end of {runner.log_path(stage)}"]
            lines += [f"    {line}" for line in runner.read_log(stage)[-REPEATED_LINES:]]
    if passed < len(runner.stages):
        lines += ["to repeat what failed: scripts/test --failed"]
    return "\n".join(lines)
