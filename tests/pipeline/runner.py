"""Runs stages. A stage has a name, and commands or a function. Two queues run one stage at a time
each, so that compilers work while tests wait."""

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Cargo's folder for what it builds, and in it the logs and reports of the stages.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
REPORTS = TARGET / "test"
# What a failed stage printed last.
LAST_LINES = 60
# What the last lines of the run repeat of the log of a failed stage.
REPEATED_LINES = 25
# A file system in memory, and the bytes that must be free on it before stages keep files there.
MEMORY = Path("/dev/shm")
FREE_MEMORY = 4 << 30
# How long processes of a stage may take to end after it.
END_SECONDS = 5.0
# Each process of a stage has this variable. It names the stage's run, so that what is left is found.
RUN_VARIABLE = "RISKGATE_TEST_RUN"

PASSED, FAILED, NOT_RUN = "ok", "FAILED", "not run"


@dataclass
class Stage:
    name: str
    # Commands that run one after the other, or a function that gets a StageRun and returns True if
    # all is well.
    action: list | object
    queue: str = "run"
    # The stages that must pass before this one begins.
    after: tuple = ()
    environment: dict = field(default_factory=dict)
    # Whether a process or a temporary file that the stage leaves behind is a fault.
    leaves_nothing: bool = False
    # Whether its temporary files are in memory if possible. A machine whose disk stands still for a
    # minute then fails no stage that waits for answers.
    is_in_memory: bool = False
    # Whether the stage may ask for a password on the terminal.
    uses_terminal: bool = False
    # A stage that takes longer has failed.
    minutes: int = 45
    seconds: float = 0.0
    # The processor time of its commands, and of what they waited for.
    cpu_seconds: float = 0.0
    outcome: str | None = None


def add_needed_stages(all_stages, names):
    """The named stages and all that they need, in their order."""
    wanted, known = set(names), {stage.name: stage for stage in all_stages}
    if unknown := wanted - set(known):
        sys.exit(f"expected stages of {', '.join(known)}, but found {', '.join(sorted(unknown))}")
    unvisited = list(wanted)
    while unvisited:
        needed = set(known[unvisited.pop()].after) - wanted
        wanted |= needed
        unvisited.extend(needed)
    return [stage for stage in all_stages if stage.name in wanted]


class StageRun:
    """One run of a stage: writes its log, and starts its commands."""

    def __init__(self, runner, stage, log):
        self.runner, self.stage, self.log = runner, stage, log
        self.deadline = time.monotonic() + 60 * stage.minutes

    @property
    def is_stopped(self):
        return self.runner.is_stopped

    def write(self, line):
        self.log.write(line + "\n")
        self.log.flush()
        self.runner.print_line(f"{self.stage.name}: {line}")

    def run(self, command, environment=None):
        """Runs a command in a temporary folder of its own. Returns True if it succeeds."""
        folder = MEMORY if self.stage.is_in_memory and has_memory_for_files() else None
        scratch = Path(tempfile.mkdtemp(prefix="rg-", dir=folder))
        # Tests run commands as other users, who must reach their files.
        scratch.chmod(0o755)
        process = self.runner.start_process(
            [str(word) for word in command], self.stage,
            (environment or {}) | {"TMPDIR": str(scratch), RUN_VARIABLE: scratch.name})
        if process is None:
            return False
        reader = threading.Thread(target=self.copy_lines, args=(process,), daemon=True)
        reader.start()
        code = self.wait_for(process)
        if code is None:
            self.write(f"expected this stage to end within {self.stage.minutes} minutes")
            end_group(process)
            code = 1
        is_good = code == 0
        if self.stage.leaves_nothing:
            left = [f"process {name}" for name in end_processes(scratch.name)]
            if is_good:
                left += sorted(f"temporary file {path.name}" for path in scratch.iterdir())
            for name in left:
                self.write(f"expected this stage to leave nothing behind, but found: {name}")
            is_good = is_good and not left
        reader.join(END_SECONDS)
        self.runner.forget_process(process)
        if code != 0:
            self.write(f"exit code {code}")
        self.remove_or_keep(scratch, is_good)
        return is_good

    def wait_for(self, process):
        """Waits until a process ends, and adds its processor time. None: the stage's time is over."""
        handle = os.pidfd_open(process.pid)
        try:
            if not select.select([handle], [], [], max(1.0, self.deadline - time.monotonic()))[0]:
                return None
        finally:
            os.close(handle)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except ChildProcessError:
            # The run was interrupted, and Runner.stop waited for it.
            return process.wait()
        process.returncode = os.waitstatus_to_exitcode(status)
        self.stage.cpu_seconds += usage.ru_utime + usage.ru_stime
        return process.returncode

    def copy_lines(self, process):
        for line in process.stdout:
            self.write(line.rstrip("\n"))

    def remove_or_keep(self, scratch, is_good):
        """Keeps the temporary files of a command that failed, because its output may name them."""
        if not is_good and any(scratch.iterdir()):
            kept = REPORTS / "left" / self.stage.name
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(scratch, kept)
            self.write(f"the temporary files are in {kept}")
        shutil.rmtree(scratch, ignore_errors=True)


class Runner:
    """Runs stages, and remembers their outcomes. `on_end` is called after each stage."""

    def __init__(self, stages, on_end=lambda _: None):
        self.stages, self.on_end = stages, on_end
        self.changed = threading.Condition()
        self.printing = threading.Lock()
        self.begun = time.monotonic()
        self.starting, self.running = threading.Lock(), []
        self.is_stopped = False

    def run(self):
        """Runs all stages. Returns True if all passed."""
        REPORTS.mkdir(parents=True, exist_ok=True)
        lock = open(REPORTS / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("expected no other run in this folder, but found one: wait until it ends")
        for name in ("logs", "left"):
            shutil.rmtree(REPORTS / name, ignore_errors=True)
        (REPORTS / "logs").mkdir()
        queues = [threading.Thread(target=self.run_queue, args=(queue,))
                  for queue in dict.fromkeys(stage.queue for stage in self.stages)]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            for queue in queues:
                queue.start()
            for queue in queues:
                queue.join()
        finally:
            self.stop()
            lock.close()
        return all(stage.outcome == PASSED for stage in self.stages)

    def run_queue(self, queue):
        while stage := self.take_stage(queue):
            begun, outcome = time.monotonic(), FAILED
            try:
                self.print_line(f"== {stage.name} begins")
                needed = [other for other in self.stages if other.name in stage.after]
                if self.is_stopped or any(other.outcome != PASSED for other in needed):
                    outcome = NOT_RUN
                elif self.run_stage(stage):
                    outcome = PASSED
            finally:
                with self.changed:
                    stage.seconds, stage.outcome = time.monotonic() - begun, outcome
                    self.changed.notify_all()
            if outcome == FAILED:
                self.print_last_lines(stage)
            self.print_line(f"== {stage.name}: {outcome}, {stage.seconds:.0f} s")
            self.on_end(self)

    def take_stage(self, queue):
        """Waits for the next stage of a queue whose needed stages have ended; None after the last."""
        with self.changed:
            while left := [stage for stage in self.stages
                           if stage.queue == queue and stage.outcome is None]:
                pending = {stage.name for stage in self.stages if stage.outcome is None}
                for stage in left:
                    if not pending.intersection(stage.after):
                        return stage
                self.changed.wait()
        return None

    def run_stage(self, stage):
        with open(self.log_path(stage), "w", encoding="utf-8", errors="replace") as log:
            run = StageRun(self, stage, log)
            try:
                if callable(stage.action):
                    return stage.action(run)
                # Each command runs, also after one that failed.
                return all([run.run(command) for command in stage.action])
            except Exception as error:  # noqa: BLE001 A fault of the stage, not of this program.
                run.write(f"{type(error).__name__}: {error}")
                return False

    def start_process(self, command, stage, environment):
        """Starts a process in a group of its own, or returns None if the run was stopped."""
        with self.starting:
            if self.is_stopped:
                return None
            process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | stage.environment | environment, text=True,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=not stage.uses_terminal)
            self.running.append(process)
            return process

    def forget_process(self, process):
        with self.starting:
            self.running.remove(process)

    def stop(self):
        """Ends what still runs, if the run was interrupted."""
        with self.starting:
            self.is_stopped = True
            for process in self.running:
                end_group(process)

    def log_path(self, stage):
        return REPORTS / "logs" / f"{stage.name}.log"

    def print_line(self, line):
        seconds = int(time.monotonic() - self.begun)
        with self.printing:
            try:
                print(f"{seconds // 60:02}:{seconds % 60:02} {line}", flush=True)
            except BrokenPipeError:
                # Nobody reads any more; the logs have it.
                pass

    def print_last_lines(self, stage):
        self.print_line(f"== {stage.name} failed; the end of {self.log_path(stage)}:")
        for line in self.read_log(stage)[-LAST_LINES:]:
            self.print_line(f"    {line}")

    def read_log(self, stage):
        log = self.log_path(stage)
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def has_memory_for_files():
    """Whether temporary files, of which some are programs, may be in memory."""
    try:
        system = os.statvfs(MEMORY)
    except OSError:
        return False
    return (os.access(MEMORY, os.W_OK) and not system.f_flag & os.ST_NOEXEC
            and system.f_bavail * system.f_frsize >= FREE_MEMORY)


def end_group(process):
    """Ends a process and its group: first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            process.wait(END_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def end_processes(token):
    """Waits until the processes of a run have ended. Kills those that have not, and names them."""
    deadline = time.monotonic() + END_SECONDS
    while (found := find_processes(token)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return list(found.values())


def find_processes(token):
    """The processes whose environment has the token: id and command line of each."""
    wanted, found = f"{RUN_VARIABLE}={token}".encode(), {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        # A process that has ended and that its parent has not waited for has no command line.
        if command:
            found[int(folder.name)] = f"{folder.name} {command[:200]}"
    return found
