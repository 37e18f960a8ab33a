"""The cores of the machine, and processes that end with the run.

Starts, pins, measures and ends processes, all by their process ids. It knows nothing of HTTP.
"""

import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

from ports import free_port

TIMEOUT_SECONDS = 120.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def cores():
    """Returns the cores for servers and those for load. The first core handles most interrupts, so
    it is one of those for load."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise SystemExit("bench: expected two cores, one for the server, but found one")
    half = len(usable) // 2
    return usable[half:], usable[:half]


SERVER_CORES, LOAD_CORES = cores()


def wait_until(what, poll, timeout=TIMEOUT_SECONDS):
    started_at = time.monotonic()
    while not (found := poll()):
        if time.monotonic() - started_at > timeout:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(0.01)
    return found


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Processes:
    """A process and its children. stop() ends them; if the bench dies first, the kernel sends the
    process a signal."""

    def __init__(self, words, folder, pinned_to, more_environment=None):
        self.words, self.stderr = words, Path(folder) / "stderr"
        mine = os.getpid()

        def prepare():
            os.sched_setaffinity(0, pinned_to)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != mine:
                os._exit(1)

        # Settings in the caller's environment must not affect the bench.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RISKGATE__")}
        environment |= more_environment or {}
        with open(self.stderr, "ab") as stderr:
            # Its own session, by which its children are found.
            self.child = subprocess.Popen(
                [str(word) for word in words], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, start_new_session=True,
                preexec_fn=prepare)

    def is_up(self, port):
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.words[0]} ended with {self.child.returncode}: "
                               f"{self.stderr.read_text(errors='replace')[-2000:]}")
        return is_listening(port)

    def process_ids(self):
        """The ids of all processes of its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                fields = process_stat(entry)
                if fields and int(fields[3]) == self.child.pid:
                    found.append(int(entry.name))
        return found

    def cpu_seconds(self):
        """CPU seconds so far: in total, and in user and system mode by ticks."""
        total = user = system = 0
        for pid in self.process_ids():
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    total += int(task.read_text().split()[0])
                except OSError:
                    pass
            if fields := process_stat(Path(f"/proc/{pid}")):
                user, system = user + int(fields[11]), system + int(fields[12])
        return total / 1e9, user / TICKS_PER_SECOND, system / TICKS_PER_SECOND

    def resident(self):
        """Bytes of memory; shared memory counts once."""
        total = 0
        for pid in self.process_ids():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) * 1024
            except (OSError, TypeError):
                pass
        return total

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                pass
        for pid in self.process_ids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait()


def process_stat(folder):
    """The fields of /proc/PID/stat after the name; None if the process is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def machine_cpu_seconds():
    """Seconds of all cores so far: busy, stolen by the host, and total."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, idle, waiting, irq, softirq, stolen = map(int, line.split()[1:9])
    worked = user + nice + system + irq + softirq
    every = worked + idle + waiting + stolen
    return worked / TICKS_PER_SECOND, stolen / TICKS_PER_SECOND, every / TICKS_PER_SECOND


def children_cpu_seconds():
    """CPU seconds of ended child processes: the load generators."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe():
    """The properties of the machine that affect its figures."""
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.MULTILINE)
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model[1] if model else os.uname().machine,
        "cores": os.cpu_count(),
        "server_cores": SERVER_CORES[:1],
        "load_cores": LOAD_CORES,
        "memory_gb": round(int(memory[1]) / 1e6, 1),
        "kernel": os.uname().release,
        "virtual": "hypervisor" in cpu,
        "load_before": os.getloadavg()[0],
    }
