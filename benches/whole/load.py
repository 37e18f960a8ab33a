"""Generates load: wrk at full speed, open_loop at a constant rate, and single requests whose
responses are checked completely.

A window is one subject under load for some seconds. It returns a dictionary of figures.
"""

import http.client
import json
import re
import socket
import ssl
import subprocess
import time

from . import machine

CONNECTIONS = 64
PIPELINED = 16
# How far the mean response length of a window may differ from that of the checked responses.
LENGTH_SLACK = 0.03


class WrongResponse(Exception):
    """A subject sent a wrong response."""


class LoadTimeout(Exception):
    """wrk did not end in time. wrk derives the interval at which it checks the clock from the
    latency of its first responses. If those were slow, wrk may run for very long."""


# The certificates of the subjects are made for the run, and nobody signed them.
TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


def connect(subject):
    """A connection for single requests, over HTTP/1.1."""
    if subject.tls:
        return http.client.HTTPSConnection("127.0.0.1", subject.port, timeout=30, context=TLS)
    return http.client.HTTPConnection("127.0.0.1", subject.port, timeout=30)


def connect_socket(subject):
    link = socket.create_connection(("127.0.0.1", subject.port), timeout=30)
    return TLS.wrap_socket(link) if subject.tls else link


def send_request(subject, path, key, origin="", connection=None):
    link = connection or connect(subject)
    try:
        headers = {"Host": "gate.test", "Authorization": f"Bearer {key}"}
        if origin:
            headers["Origin"] = origin
        link.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            link.putheader(name, value)
        link.endheaders()
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        if connection is None:
            link.close()


def mean_length(subject, lines):
    """The mean length of complete responses, headers included."""
    total = 0
    with connect_socket(subject) as link:
        for path, key, origin, _ in lines:
            browser = f"Origin: {origin}\r\n" if origin else ""
            link.sendall((f"GET {path} HTTP/1.1\r\nHost: gate.test\r\n"
                          f"Authorization: Bearer {key}\r\n{browser}\r\n").encode())
            received = b""
            while not (head := received.find(b"\r\n\r\n") + 4) > 3:
                received += link.recv(65536)
            length = int(re.search(rb"content-length: *(\d+)", received[:head], re.IGNORECASE)[1])
            while len(received) < head + length:
                received += link.recv(65536)
            total += len(received)
    return total / len(lines)


def check_subject(subject, mix, count=200):
    """Checks responses to some requests of the workload, and then what the gates must refuse."""
    connection = connect(subject)
    left = []
    lines = mix.sample(count)
    for path, key, origin, body in lines:
        status, headers, output = send_request(subject, path, key, origin, connection)
        if (status, output) != (200, body):
            raise WrongResponse(f"{subject.name}: {path}: expected 200 {body}, but found {status} {output}")
        name = path.rpartition("/")[2]
        row = subject.world.rows.row_of(name)
        if "quota" in subject.does and headers["X-Matched-Domain"] != (row if row != name else None):
            raise WrongResponse(f"{subject.name}: {path}: expected {row} to match, but found {headers}")
    connection.close()
    if not subject.gates:
        return
    path, key, _, _ = next(line for line in lines if line[2])
    refused = [(401, key[:-1] + "!", ""), (403, key, "https://elsewhere.example.com")]
    for wanted, with_key, origin in refused:
        status, _, output = send_request(subject, path, with_key, origin)
        if status != wanted:
            raise WrongResponse(f"{subject.name}: expected {wanted}, but found {status} {output}")
    if "quota" in subject.does:
        for _ in range(3):
            _, headers, _ = send_request(subject, path, key)
            left.append(int(re.search(r"r=(\d+)", headers["RateLimit"])[1]))
        if left[0] - left[2] != 2:
            raise WrongResponse(f"{subject.name}: expected each call to be counted, but found {left}")


def wrk(subject, mix, seconds, pipelined=1, connections=CONNECTIONS):
    threads = len(machine.LOAD_CORES)
    words = ["taskset", "-c", ",".join(map(str, machine.LOAD_CORES)), "wrk", "-t", threads,
             "-c", connections, "-d", f"{seconds}s", "--timeout", "10s", "--latency",
             "-s", subject.world.peers / "wrk.lua",
             f"http{'s' if subject.tls else ''}://127.0.0.1:{subject.port}", "--", mix.path, pipelined]
    try:
        ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=2 * seconds + 10)
    except subprocess.TimeoutExpired as late:
        raise LoadTimeout(f"{subject.name}: wrk did not end") from late
    found = re.search(r"^OUTCOME (.*)$", ran.stdout, re.MULTILINE)
    if ran.returncode != 0 or not found:
        raise WrongResponse(f"{subject.name}: wrk: {ran.stdout[-1000:]}")
    return json.loads(found[1])


def h2load(subject, mix, seconds, streams):
    """Loads a subject over HTTP/2, with one key: h2load sends the same fields with all requests."""
    lines = [line for line in mix.lines if not line[2]]
    requests = subject.folder / "requests"
    if not requests.exists():
        base = f"https://127.0.0.1:{subject.port}"
        requests.write_text("".join(f"{base}{path}\n" for path, _, _, _ in lines))
    words = ["taskset", "-c", ",".join(map(str, machine.LOAD_CORES)), "h2load", "-c", CONNECTIONS,
             "-m", streams, "-D", seconds, "-i", requests,
             "-H", f"authorization: Bearer {lines[0][1]}"]
    ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=2 * seconds + 20)
    answers = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", ran.stdout)
    broken = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", ran.stdout)
    sent = re.search(r"\((\d+)\) data", ran.stdout)
    if ran.returncode != 0 or not (answers and broken and sent):
        raise WrongResponse(f"{subject.name}: h2load: {ran.stdout[-1000:]}")
    good, *bad = map(int, answers.groups())
    return {"answers": good, "bad_status": sum(bad), "broken": sum(map(int, broken.groups())),
            "body_bytes": int(sent[1]), "seconds": seconds}


def measure_http2(subject, mix, seconds, warm, streams):
    """Measures the CPU time of a subject over HTTP/2."""
    if warm:
        h2load(subject, mix, warm, streams)
    counted = count_responses(subject)
    total, user, system = subject.processes.cpu_seconds()
    output = h2load(subject, mix, seconds, streams)
    now_total, now_user, now_system = subject.processes.cpu_seconds()
    answers = output["answers"]
    if output["bad_status"] or output["broken"] or not answers:
        raise WrongResponse(f"{subject.name}: {output}")
    if counted is not None:
        beyond = count_responses(subject) - counted - answers
        if not 0 <= beyond <= 2 * CONNECTIONS * streams:
            raise WrongResponse(f"{subject.name}: {answers} answers, {beyond} more were counted")
    lines = [line for line in mix.lines if not line[2]]
    wanted = sum(len(body.encode()) for _, _, _, body in lines) / len(lines)
    if abs(output["body_bytes"] / answers / wanted - 1) > LENGTH_SLACK:
        raise WrongResponse(f"{subject.name}: bodies of {output['body_bytes'] / answers:.1f} bytes, "
                            f"but {wanted:.1f} are right")
    cpu = (now_total - total) / answers * 1e6
    ticked = (now_user - user) + (now_system - system) or 1
    return {"answers": answers, "rate": answers / output["seconds"], "cpu_us": cpu,
            "user_us": cpu * (now_user - user) / ticked,
            "system_us": cpu * (now_system - system) / ticked,
            "resident": subject.processes.resident()}


def measure_with_retry(subject, mix, seconds, warm=1, **how):
    """Measures one subject with wrk. If wrk does not end in time, it tries up to three times."""
    for last in (False, False, True):
        try:
            return measure(subject, mix, seconds, warm, **how)
        except LoadTimeout:
            if last:
                raise


def measure(subject, mix, seconds, warm, pipelined=1, connections=CONNECTIONS):
    """Measures the throughput of a subject, and the CPU time of its processes."""
    if warm:
        wrk(subject, mix, warm, pipelined, connections)
    subject.truncate_log()
    counted = count_responses(subject)
    dropped = subject.metric("riskgate_access_log_lines_dropped_total") if counted is not None else 0
    behind = subject.world.upstream
    before = machine.machine_cpu_seconds(), machine.children_cpu_seconds(), behind.cpu_seconds()[0] if behind else 0
    total, user, system = subject.processes.cpu_seconds()
    output = wrk(subject, mix, seconds, pipelined, connections)
    now_total, now_user, now_system = subject.processes.cpu_seconds()
    after = machine.machine_cpu_seconds(), machine.children_cpu_seconds(), behind.cpu_seconds()[0] if behind else 0
    answers = output["answers"]
    if output["bad_status"] or output["broken"] or not answers:
        raise WrongResponse(f"{subject.name}: {output}")
    if counted is not None:
        # riskgate also counts requests in flight at the end of wrk, for which wrk does not wait.
        beyond = count_responses(subject) - counted - answers
        if not 0 <= beyond <= 2 * connections * pipelined:
            raise WrongResponse(f"{subject.name}: {answers} answers, {beyond} more were counted")
    length = output["bytes"] / answers
    wanted = mean_length(subject, mix.sample(400))
    if abs(length / wanted - 1) > LENGTH_SLACK:
        raise WrongResponse(f"{subject.name}: answers of {length:.1f} bytes, but {wanted:.1f} are right")
    worked, stolen, every = (b - a for a, b in zip(before[0], after[0]))
    ours = now_total - total + after[1] - before[1] + after[2] - before[2]
    cpu = (now_total - total) / answers * 1e6
    ticked = (now_user - user) + (now_system - system) or 1
    found = {
        "answers": answers, "rate": answers / output["seconds"], "cpu_us": cpu,
        "user_us": cpu * (now_user - user) / ticked,
        "system_us": cpu * (now_system - system) / ticked,
        "busy": (now_total - total) / output["seconds"],
        "p50_us": output["p50"], "p99_us": output["p99"], "p999_us": output["p999"],
        "resident": subject.processes.resident(), "answer_bytes": length,
        "others": max(0, worked - ours) / every, "stolen": stolen / every,
    }
    if counted is not None and subject.log:
        found["log_dropped"] = (subject.metric("riskgate_access_log_lines_dropped_total") - dropped) / answers
    return found


def count_responses(subject):
    """The number of requests that riskgate counted; None for other subjects."""
    return subject.metric("riskgate_requests_total") if hasattr(subject, "metric") else None


def measure_at_rate(subject, mix, rate, seconds, warm, connections=CONNECTIONS):
    """Measures latency at a constant rate, from the time at which each request was due."""
    words = ["taskset", "-c", str(machine.LOAD_CORES[-1]), subject.world.rust / "open_loop",
             subject.port, mix.path, rate, warm, seconds, connections]
    ran = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise WrongResponse(f"{subject.name}: open_loop: {ran.stderr[-1000:]}")
    output = json.loads(ran.stdout)
    if output["wrong"]:
        raise WrongResponse(f"{subject.name}: at {rate:.0f}/s: {output} {ran.stderr[-500:]}")
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
                raise WrongResponse(f"{subject.name}: closed idle connection {at}: {received[:200]}")
            received += part
        held.append(link)
    time.sleep(1)
    return held
