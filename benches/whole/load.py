"""Generates load: wrk, h2load and handshakes at full speed, open_loop at a constant rate.

A window is one subject under load for some seconds. It returns a dictionary of figures.
"""

import json
import re
import socket
import subprocess
import time

from . import checks, machine
from .mix import FormWorkload

CONNECTIONS = 64
PIPELINED = 16
# Connections that shake hands at the same time.
HANDSHAKE_THREADS = 16
# How far the mean response length of a window may differ from that of the checked responses.
LENGTH_SLACK = 0.03


class LoadTimeout(Exception):
    """A load generator did not end in time. wrk derives the interval at which it checks the clock
    from the latency of its first responses. If those were slow, wrk may run for very long."""


def run_generator(subject, words, seconds):
    """Runs a load generator on the cores for load. Returns what it has printed."""
    words = ["taskset", "-c", ",".join(map(str, machine.LOAD_CORES)), *words]
    try:
        ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=2 * seconds + 15)
    except subprocess.TimeoutExpired as late:
        raise LoadTimeout(f"{subject.name}: {words[3]} did not end") from late
    if ran.returncode != 0:
        raise checks.WrongResponse(f"{subject.name}: {words[3]}: {ran.stdout[-1000:]}")
    return ran.stdout


def check_length(subject, found, wanted):
    if abs(found / wanted - 1) > LENGTH_SLACK:
        raise checks.WrongResponse(
            f"{subject.name}: answers of {found:.1f} bytes, but {wanted:.1f} are right")


class WrkLoad:
    """HTTP/1.1 on kept connections."""

    def __init__(self, subject, mix, pipelined=1, connections=CONNECTIONS):
        self.subject, self.mix = subject, mix
        self.pipelined, self.connections = pipelined, connections
        # The requests for which the generator may not wait at its end.
        self.in_flight = 2 * connections * pipelined

    def run(self, seconds):
        subject = self.subject
        output = run_generator(subject, [
            "wrk", "-t", len(machine.LOAD_CORES), "-c", self.connections, "-d", f"{seconds}s",
            "--timeout", "10s", "--latency", "-s", subject.world.peers / "wrk.lua",
            f"http{'s' if subject.tls else ''}://127.0.0.1:{subject.port}", "--", self.mix.path,
            self.pipelined], seconds)
        found = re.search(r"^OUTCOME (.*)$", output, re.MULTILINE)
        if not found:
            raise checks.WrongResponse(f"{subject.name}: wrk: {output[-1000:]}")
        outcome = json.loads(found[1])
        return outcome | {"failed": outcome["bad_status"] + outcome["broken"]}

    def figures(self, outcome):
        """Checks what an outcome says of the responses. Returns the figures that only wrk knows."""
        length = outcome["bytes"] / outcome["answers"]
        check_length(self.subject, length, checks.mean_length(self.subject, self.mix.sample(400)))
        return {"p50_us": outcome["p50"], "p99_us": outcome["p99"], "p999_us": outcome["p999"],
                "answer_bytes": length}


class Http2Load:
    """HTTP/2 on kept connections, with one key: h2load sends the same fields with all requests."""

    def __init__(self, subject, mix, streams):
        self.subject, self.streams = subject, streams
        self.lines = [line for line in mix.lines if not line[2]]
        self.in_flight = 2 * CONNECTIONS * streams
        self.requests = subject.folder / "requests"
        base = f"https://127.0.0.1:{subject.port}"
        self.requests.write_text("".join(f"{base}{path}\n" for path, _, _, _ in self.lines))
        self.fields = ["-H", f"authorization: Bearer {self.lines[0][1]}"]
        if isinstance(mix, FormWorkload):
            # h2load posts the same form with all requests.
            form = subject.folder / "form"
            form.write_text(mix.forms[0])
            self.fields += ["-d", form, "-H", "content-type: application/x-www-form-urlencoded"]

    def run(self, seconds):
        output = run_generator(self.subject, [
            "h2load", "-c", CONNECTIONS, "-m", self.streams, "-D", seconds, "-i", self.requests,
            *self.fields], seconds)
        answers = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
        broken = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", output)
        sent = re.search(r"\((\d+)\) data", output)
        if not (answers and broken and sent):
            raise checks.WrongResponse(f"{self.subject.name}: h2load: {output[-1000:]}")
        good, *bad = map(int, answers.groups())
        return {"answers": good, "failed": sum(bad) + sum(map(int, broken.groups())),
                "body_bytes": int(sent[1]), "seconds": seconds}

    def figures(self, outcome):
        wanted = sum(len(body.encode()) for _, _, _, body in self.lines) / len(self.lines)
        check_length(self.subject, outcome["body_bytes"] / outcome["answers"], wanted)
        return {}


class HandshakeLoad:
    """TLS 1.3 connections with one request each. The generator compares the bodies itself."""

    # It waits for every response.
    in_flight = 0

    def __init__(self, subject, mix, resumes):
        self.subject, self.mix, self.resumes = subject, mix, resumes

    def run(self, seconds):
        output = run_generator(self.subject, [
            self.subject.world.rust / "handshakes", self.subject.port, self.mix.path, seconds,
            "resumed" if self.resumes else "new", HANDSHAKE_THREADS], seconds)
        outcome = json.loads(output.splitlines()[0])
        return outcome | {"failed": outcome["wrong"], "output": output[:2000]}

    def figures(self, outcome):
        """Checks that exactly the wanted connections resumed: all but the first of each thread."""
        wanted = max(0, outcome["answers"] - HANDSHAKE_THREADS) if self.resumes else 0
        if (outcome["resumed"] < wanted) if self.resumes else outcome["resumed"]:
            raise checks.WrongResponse(
                f"{self.subject.name}: of {outcome['answers']} connections {outcome['resumed']} "
                f"resumed, but {wanted} are right")
        return {"resumed": outcome["resumed"] / outcome["answers"]}


def measure(load, seconds, warm):
    """Measures one window. If the load generator does not end in time, it tries up to three
    times."""
    for last in (False, False, True):
        try:
            return measure_once(load, seconds, warm)
        except LoadTimeout:
            if last:
                raise


class CpuTimes:
    """The CPU seconds that were used up to now."""

    def __init__(self, subject):
        behind = subject.world.upstream
        self.total, self.user, self.system = subject.processes.cpu_seconds()
        self.load = machine.children_cpu_seconds() + (behind.cpu_seconds()[0] if behind else 0)
        self.worked, self.stolen, self.machine = machine.machine_cpu_seconds()

    def figures(self, before, answers):
        """The figures of the time since `before`."""
        total = self.total - before.total
        user, system = self.user - before.user, self.system - before.system
        cpu, ticked = total / answers * 1e6, user + system or 1
        every = self.machine - before.machine
        others = self.worked - before.worked - total - (self.load - before.load)
        return {"cpu_us": cpu, "user_us": cpu * user / ticked, "system_us": cpu * system / ticked,
                "others": max(0, others) / every, "stolen": (self.stolen - before.stolen) / every}


def measure_once(load, seconds, warm):
    """Measures the throughput of a subject, and the CPU time of its processes."""
    subject = load.subject
    if warm:
        load.run(warm)
    subject.truncate_log()
    counted, dropped = count_responses(subject), count_dropped_lines(subject)
    before = CpuTimes(subject)
    outcome = load.run(seconds)
    after = CpuTimes(subject)
    answers = outcome["answers"]
    if outcome["failed"] or not answers:
        raise checks.WrongResponse(f"{subject.name}: {outcome}")
    if counted is not None:
        # riskgate also counts requests in flight at the end, for which the generator does not wait.
        beyond = count_responses(subject) - counted - answers
        if not 0 <= beyond <= load.in_flight:
            raise checks.WrongResponse(
                f"{subject.name}: {answers} answers, {beyond} more were counted")
    found = {"answers": answers, "rate": answers / outcome["seconds"]}
    found |= after.figures(before, answers) | load.figures(outcome)
    found["resident"] = subject.processes.resident()
    if dropped is not None:
        found["log_dropped"] = (count_dropped_lines(subject) - dropped) / answers
    return found


def count_responses(subject):
    """The number of requests that riskgate counted; None for other subjects."""
    return subject.metric("riskgate_requests_total") if hasattr(subject, "metric") else None


def count_dropped_lines(subject):
    """The number of lines that riskgate's access log dropped; None without such a log."""
    if not (hasattr(subject, "metric") and subject.log):
        return None
    return subject.metric("riskgate_access_log_lines_dropped_total")


def measure_at_rate(subject, mix, rate, seconds, warm, connections=CONNECTIONS):
    """Measures latency at a constant rate, from the time at which each request was due."""
    words = ["taskset", "-c", str(machine.LOAD_CORES[-1]), subject.world.rust / "open_loop",
             subject.port, mix.path, rate, warm, seconds, connections]
    ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise checks.WrongResponse(f"{subject.name}: open_loop: {ran.stderr[-1000:]}")
    output = json.loads(ran.stdout)
    if output["wrong"]:
        raise checks.WrongResponse(f"{subject.name}: at {rate:.0f}/s: {output} {ran.stderr[-500:]}")
    return output


def open_idle_connections(subject, mix, number):
    """Opens connections that stay idle after one response each."""
    held = []
    for at in range(number):
        path, key, origin, body = mix.lines[at % len(mix.lines)]
        link = socket.create_connection(("127.0.0.1", subject.port), timeout=30)
        browser = f"Origin: {origin}\r\n" if origin else ""
        link.sendall((f"GET {path} HTTP/1.1\r\nHost: gate.test\r\n"
                      f"Authorization: Bearer {key}\r\n{browser}\r\n").encode())
        received = b""
        while not received.endswith(body.encode()):
            part = link.recv(65536)
            if not part:
                raise checks.WrongResponse(
                    f"{subject.name}: closed idle connection {at}: {received[:200]}")
            received += part
        held.append(link)
    time.sleep(1)
    return held
