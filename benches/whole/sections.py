"""The sections that compare subjects. Each function starts its subjects, measures them in rounds,
and ends them. A section adds rows of figures, and notes on what it could not measure.
"""

import contextlib

from . import checks, growth, load, machine, mix, subjects
from .rounds import interleaved, running, throughput


def lookup(world):
    """Measures look-ups from memory at full speed."""
    section = world.begin("lookup", "Answered from the table, 64 connections")
    several = subjects.lookup_subjects(world) + subjects.logging_subjects(world)
    with running(several):
        checks.check_fields(several, world.lookup_workload)
        throughput(section, several, world.lookup_workload, world)
    for subject in several:
        if "log_dropped" in section.rounds[subject.name][0]:
            lost = max(each["log_dropped"] for each in section.rounds[subject.name])
            if lost:
                section.notes.append(f"{subject.name}: up to {lost:.1%} of its lines were dropped")


def pipelined(world):
    """Measures sixteen pipelined requests at a time on each connection."""
    section = world.begin("pipelined", "Pipelined by 16, 64 connections")
    several = subjects.lookup_subjects(world)
    with running(several):
        throughput(section, several, world.lookup_workload, world, {
            "": lambda subject, asked: load.WrkLoad(subject, asked, load.PIPELINED)})


def tls(world):
    """Measures look-ups over HTTP/1.1 and TLS, on kept connections."""
    section = world.begin("tls", "HTTP/1.1 over TLS, 64 connections")
    several = subjects.tls_subjects(world)
    with running(several):
        throughput(section, several, world.lookup_workload, world)


def http2(world):
    """Measures look-ups over HTTP/2 and TLS, on kept connections."""
    section = world.begin("http2", "HTTP/2 over TLS, 64 connections, 1 and 10 streams")
    several = subjects.tls_subjects(world)
    with running(several):
        throughput(section, several, world.lookup_workload, world, {
            ", 1 stream": lambda subject, asked: load.Http2Load(subject, asked, 1),
            ", 10 streams": lambda subject, asked: load.Http2Load(subject, asked, 10)})
    section.notes.append("one account sends all requests, because h2load sends the same key with "
                         "all of them")


def handshakes(world):
    """Measures TLS 1.3 handshakes, each with one request."""
    section = world.begin("handshakes", f"TLS 1.3 handshakes with one request each, "
                                        f"{load.HANDSHAKE_THREADS} connections at a time")
    several = subjects.tls_subjects(world)
    with running(several):
        throughput(section, several, world.lookup_workload, world, {
            ", new": lambda subject, asked: load.HandshakeLoad(subject, asked, resumes=False),
            ", resumed": lambda subject, asked: load.HandshakeLoad(subject, asked, resumes=True)})


def one_account(world):
    """Compares one account that sends all requests with a thousand that share them."""
    section = world.begin("one-account", f"One account alone beside {mix.ACCOUNTS:,}, each with "
                                         f"{mix.BIG_LIMIT:,} calls a month, 64 connections")
    alone = mix.one_account_workload(world.lookup_workload, world.keys,
                                     world.folder / "one-account.tsv")
    several, workloads = [], {}
    for name, workload in (("one account", alone),
                           (f"{mix.ACCOUNTS:,} accounts", world.lookup_workload)):
        for subject in subjects.riskgate_subjects(world, name, plan=mix.BIG_LIMIT):
            several.append(subject)
            workloads[subject.name] = workload
    with running(several):
        throughput(section, several, world.lookup_workload, world, {
            "": lambda subject, _: load.WrkLoad(subject, workloads[subject.name])})


@contextlib.contextmanager
def running_upstream(world):
    """Runs the upstream server of the proxies. Yields its port."""
    behind = subjects.Nginx("upstream", world, "nginx-upstream.conf", "answers", gates=False)
    behind.processes = machine.Processes(behind.command_line(), behind.folder, machine.LOAD_CORES)
    try:
        machine.wait_until("the upstream listens", lambda: behind.processes.is_up(behind.port))
        world.upstream = behind.processes
        yield behind.port
    finally:
        world.upstream = None
        behind.stop()


def proxied(world):
    """Measures requests that are forwarded to one upstream server."""
    section = world.begin("proxied", "Forwarded upstream, 64 connections")
    with running_upstream(world) as port:
        several = subjects.proxy_subjects(world, port)
        with running(several):
            checks.check_fields(several, world.check_workload)
            throughput(section, several, world.check_workload, world)


def screened(world):
    """Measures posted forms that are forwarded to one upstream server."""
    section = world.begin("screened", "Posted forms forwarded upstream, 64 connections")
    with running_upstream(world) as port:
        several = subjects.form_subjects(world, port)
        with running(several):
            throughput(section, several, world.form_workload, world)


def http2_proxied(world):
    """Measures requests and posted forms over HTTP/2 and TLS that are forwarded."""
    section = world.begin("http2-proxied",
                          "Forwarded upstream, over HTTP/2 and TLS, 64 connections, 1 stream")
    with running_upstream(world) as port:
        several = subjects.http2_proxy_subjects(world, port)
        with running(several):
            throughput(section, several, world.check_workload, world, {
                ", GET": lambda subject, asked: load.Http2Load(subject, asked, 1),
                ", form": lambda subject, _: load.Http2Load(subject, world.form_workload, 1)})


def mounted(world):
    """Measures what a mounted gate adds to a proxy of bare Pingora."""
    section = world.begin("mounted", "Mounted in another Pingora proxy, 64 connections")
    with running_upstream(world) as port:
        several = subjects.mounting_subjects(world, port)
        missing = {str(each.program) for each in several if not each.program.is_file()}
        if missing:
            section.notes.append("not measured: it needs cargo build --release --examples")
            return
        with running(several):
            throughput(section, several, world.check_workload, world, {
                ", GET": load.WrkLoad,
                ", form": lambda subject, _: load.WrkLoad(subject, world.form_workload)})


def open_loop(world):
    """Measures latency at a constant rate, below the highest rate of each subject."""
    section = world.begin(
        "open-loop", "Latency at a constant rate (µs, from when each request was due)")
    several = subjects.lookup_subjects(world)
    with running(several):
        most = {}
        for subject in several:
            checks.check_subject(subject, world.lookup_workload)
            # Measured like the windows below: one subject at a time, no pipelining.
            wrk = load.WrkLoad(subject, world.lookup_workload)
            most[subject.name] = load.measure(wrk, world.seconds, world.warm)["rate"]
        for subject in interleaved(several, world.rounds):
            found = {"most": most[subject.name]}
            for share in (50, 80):
                rate = int(most[subject.name] * share / 100)
                world.log(f"open-loop: {subject.name} at {rate}/s")
                figures = load.measure_at_rate(subject, world.lookup_workload, rate, world.seconds,
                                    2 * world.warm)
                found |= {f"{share} {name}": figures[name] for name in ("p50", "p99", "p999")}
                found |= {f"{share} {name}": figures[name] for name in ("longest_stall", "late")}
            section.add(subject.name, found)
    held = max(found[f"{share} longest_stall"] for rounds in section.rounds.values()
               for found in rounds for share in (50, 80))
    section.notes.append(f"the generator itself was delayed by {held / 1000:.1f} ms at most")
    late = sum(found[f"{share} late"] for rounds in section.rounds.values()
               for found in rounds for share in (50, 80))
    if late:
        section.notes.append(f"{late} responses had not arrived after 5 s and count as 5 s")


def idle(world):
    """Measures the memory of an idle connection."""
    number = 500 if world.quick else 10_000
    section = world.begin("idle", f"{number:,} idle connections, each after one answer")
    for subject in subjects.lookup_subjects(world):
        with running([subject]):
            load.WrkLoad(subject, world.lookup_workload).run(1)
            before = subject.processes.resident()
            world.log(f"idle: {subject.name}")
            held = load.open_idle_connections(subject, world.lookup_workload, number)
            with_them = subject.processes.resident()
            for link in held:
                link.close()
        section.add(subject.name, {"each": (with_them - before) / number, "before": before,
                                   "resident": with_them})
    section.notes.append("`before` includes the memory that nginx and HAProxy allocate for "
                         "connections at their start")


def workers(world):
    """Compares two threads with one."""
    section = world.begin("workers", "Two workers compared with one")
    if len(machine.SERVER_CORES) < 2 or len(machine.LOAD_CORES) < 2:
        section.notes.append(
            f"not measured: it needs two cores for the server and two for load, and this machine "
            f"has {len(machine.SERVER_CORES) + len(machine.LOAD_CORES)} in all")
        return
    several = []
    for number in (1, 2):
        several += subjects.riskgate_subjects(world, f"{number} workers", workers=number)
        several.append(subjects.Nginx(f"nginx map, {number} workers", world, "nginx-map.conf",
                                      "the same bytes", gates=False, workers=number))
    with running(several):
        throughput(section, several, world.lookup_workload, world)


ALL = {
    "lookup": lookup, "pipelined": pipelined, "tls": tls, "http2": http2, "handshakes": handshakes,
    "one-account": one_account, "proxied": proxied, "screened": screened,
    "http2-proxied": http2_proxied, "mounted": mounted, "open-loop": open_loop, "idle": idle,
    "reload": growth.reload, "table-size": growth.table_size, "key-count": growth.key_count,
    "workers": workers,
}
