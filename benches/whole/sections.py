"""The sections of the bench. Each function starts its subjects, measures them in rounds, and ends
them.

A round measures each subject once, and begins with another subject than the round before. The
figure of a subject is the median of its rounds. A section adds rows of figures, and notes on what
it could not measure. If a section fails, its rounds so far are kept.
"""

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import threading
import time

from . import load, machine, mix, subjects


class Section:
    """The outcome of a section: rows by subject, the figures of each round, and notes."""

    def __init__(self, name, title):
        self.name, self.title = name, title
        self.rows, self.rounds, self.notes = {}, {}, []

    def add(self, subject, found):
        self.rounds.setdefault(subject, []).append(found)

    def summarize(self):
        """Takes the lower quartile of CPU times: on small virtual machines, the CPU time of a request
        has two levels, and jumps between them from window to window. Takes the median of all else."""
        for subject, rounds in self.rounds.items():
            self.rows[subject] = {key: summary(key, [each[key] for each in rounds])
                                  for key in rounds[0]}


def summary(key, values):
    if key in ("cpu_us", "user_us", "system_us"):
        return sorted(values)[(len(values) - 1) // 4]
    return statistics.median(values)


@contextlib.contextmanager
def running(several):
    """Starts all subjects, and stops them in any case."""
    started = []
    try:
        for subject in several:
            # Added before the start, so that a subject that fails while starting is stopped too.
            started.append(subject)
            subject.start()
        yield started
    finally:
        for subject in started:
            subject.stop()


def interleaved(several, rounds):
    """Yields the subjects round by round; each round begins with the next subject."""
    for number in range(rounds):
        at = number % len(several)
        for subject in several[at:] + several[:at]:
            yield subject


def throughput(section, several, asked, world, **how):
    for subject in several:
        load.check_subject(subject, asked)
    for subject in interleaved(several, world.rounds):
        world.log(f"{section.name}: {subject.name}")
        section.add(subject.name, load.measure_with_retry(subject, asked, world.seconds, world.warm, **how))
    for subject in several:
        load.check_subject(subject, asked, 50)


def lookup(world):
    """Measures look-ups from memory at full speed."""
    section = world.begin("lookup", "Answered from the table, 64 connections")
    several = subjects.lookup_subjects(world) + subjects.logging_subjects(world)
    with running(several):
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
        throughput(section, several, world.lookup_workload, world, pipelined=load.PIPELINED)


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
        for subject in several:
            load.check_subject(subject, world.lookup_workload)
        for subject in interleaved(several, world.rounds):
            for streams in (1, 10):
                world.log(f"http2: {subject.name}, {streams} streams")
                section.add(f"{subject.name}, {streams} streams", load.measure_http2(
                    subject, world.lookup_workload, world.seconds, world.warm, streams))
    section.notes.append("one account sends all requests, because h2load sends the same key with "
                         "all of them")


def proxied(world):
    """Measures requests that are forwarded to one upstream server."""
    section = world.begin("proxied", "Forwarded upstream, 64 connections")
    behind = subjects.Nginx("upstream", world, "nginx-upstream.conf", "answers", gates=False)
    behind.processes = machine.Processes(behind.command_line(), behind.folder, machine.LOAD_CORES)
    try:
        machine.wait_until("the upstream listens", lambda: behind.processes.is_up(behind.port))
        world.upstream = behind.processes
        several = subjects.proxy_subjects(world, behind.port)
        with running(several):
            throughput(section, several, world.check_workload, world)
    finally:
        world.upstream = None
        behind.stop()


def open_loop(world):
    """Measures latency at a constant rate, below the highest rate of each subject."""
    section = world.begin("open-loop", "Latency at a constant rate (µs, from when each request was due)")
    several = subjects.lookup_subjects(world)
    with running(several):
        most = {}
        for subject in several:
            load.check_subject(subject, world.lookup_workload)
            # Measured like the windows below: one subject at a time, no pipelining.
            most[subject.name] = load.measure_with_retry(
                subject, world.lookup_workload, world.seconds, world.warm)["rate"]
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
            load.wrk(subject, world.lookup_workload, 1)
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


def reload(world):
    """Measures riskgate at half of its highest rate, with and without table reloads."""
    section = world.begin("reload", "The table replaced under load (riskgate at half of its highest rate)")
    versions = [world.folder / f"reload-{number}" for number in (0, 1)]
    for number, version in enumerate(versions):
        source = world.folder / f"source-{number}"
        shutil.copytree(world.root / "data", source)
        with open(source / "disposable-a.txt", "a") as names:
            names.write(f"bench-{number}.com a\n")
        build_table(world, source, version)
    several = [s for s in subjects.lookup_subjects(world) if isinstance(s, subjects.Riskgate)]
    for subject in several:
        text = subject.config.read_text()
        served = subject.folder / "served"
        shutil.copy(versions[0], served)
        subject.config.write_text(text.replace(f'"{world.folder / "table"}"', f'"{served}"'))
    with running(several):
        rates = {s.name: load.measure_with_retry(s, world.lookup_workload, world.seconds, world.warm)["rate"] / 2
                 for s in several}
        for subject in interleaved(several, world.rounds):
            for replaced in (False, True):
                world.log(f"reload: {subject.name}, {'replaced' if replaced else 'not replaced'}")
                before = subject.metric("riskgate_reloads_total")
                # Long enough for at least two reloads.
                seconds = max(world.seconds, 5)
                with replace_table_repeatedly(subject.folder / "served", versions if replaced else []):
                    figures = load.measure_at_rate(subject, world.lookup_workload,
                                                   int(rates[subject.name]), seconds,
                                        2 * world.warm)
                reloads = subject.metric("riskgate_reloads_total") - before
                if replaced and not reloads:
                    raise load.WrongResponse(f"{subject.name}: the table was not reloaded")
                found = {name: figures[name] for name in ("p50", "p99", "p999", "longest_stall", "late")}
                name = f"{subject.name}, {'replaced' if replaced else 'not replaced'}"
                section.add(name, found | {"reloads": reloads, "rate": rates[subject.name]})


@contextlib.contextmanager
def replace_table_repeatedly(served, versions):
    """Replaces the table file by a rename every 1.5 seconds."""
    done = threading.Event()

    def replace():
        number = 0
        while versions and not done.wait(1.5):
            number += 1
            beside = served.with_name("next")
            shutil.copy(versions[number % len(versions)], beside)
            beside.rename(served)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def build_table(world, source, target):
    subprocess.run([world.binary, "table", "build", source, "-o", target], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start_timed(subject):
    """Starts a subject. Returns the seconds until it was ready."""
    started_at = time.monotonic()
    subject.start()
    return time.monotonic() - started_at


def table_size(world):
    """Measures the growth with the table, with random rows of one list."""
    section = world.begin("table-size", "Growth with the table (riskgate)")
    draw = random.Random(mix.SEED)
    grown, loads, found = [], {}, {}
    for rows in ([1_000, 10_000] if world.quick else [10_000, 200_000, 1_000_000]):
        name = f"{rows:,} rows"
        names = [f"d{draw.getrandbits(48):012x}.com" for _ in range(rows)]
        source = world.folder / f"grown-{rows}"
        source.mkdir()
        (source / "names.txt").write_text("".join(f"{each}\n" for each in sorted(names)))
        (source / "manifest.toml").write_text(
            '[[list]]\nfile = "names.txt"\nkind = "disposable"\ntier = "a"\n')
        started_at = time.monotonic()
        build_table(world, source, world.folder / f"table-{rows}")
        built = time.monotonic() - started_at
        lines = []
        callers = mix.assign_keys(world.keys, mix.REQUESTS, draw)
        for key, origin in callers:
            hit = draw.random() < 0.5
            asked = draw.choice(names) if hit else f"u{draw.getrandbits(48):012x}.com"
            facts = mix.UNKNOWN if not hit else mix.UNKNOWN.replace("10", "100", 1).replace(
                "safe", "disposable")
            lines.append((f"/v1/public/domain/{asked}", key, origin,
                          f'{{"domain":"{asked}",{facts}}}'))
        requests = mix.Workload(lines, world.folder / f"grown-{rows}.tsv")
        for subject in riskgate_subjects(world, name, table=f"table-{rows}"):
            grown.append(subject)
            found[subject.name] = requests
            loads[subject.name] = {"build_s": built}
    measure_growth(section, world, grown, found, loads)


def riskgate_subjects(world, name, **how):
    """riskgate with and without the fast path."""
    if world.has_fast_path:
        yield subjects.Riskgate(f"fast path, {name}", world, fast_path=True, **how)
    yield subjects.Riskgate(f"Pingora path, {name}", world, **how)


def measure_growth(section, world, grown, found, loads):
    started = []
    try:
        for subject in grown:
            started.append(subject)
            loads[subject.name]["ready_s"] = start_timed(subject)
            load.check_subject(subject, found[subject.name])
        for subject in interleaved(grown, world.rounds):
            world.log(f"{section.name}: {subject.name}")
            figures = load.measure_with_retry(subject, found[subject.name], world.seconds, world.warm)
            section.add(subject.name, loads[subject.name] | {
                key: figures[key] for key in ("cpu_us", "user_us", "system_us", "rate", "resident",
                                           "others", "stolen")})
    finally:
        for subject in started:
            subject.stop()


def key_count(world):
    """Measures the growth with the number of keys, which are used in turn."""
    section = world.begin("key-count", "Growth with the number of keys (riskgate)")
    grown, loads, found = [], {}, {}
    for number in ([10, 1_000] if world.quick else [10, 10_000, 1_000_000]):
        name = f"{number:,} keys"
        ring = mix.Keys(number)
        world.log(f"key-count: writing {name}")
        ring.file(world.folder / f"keys-{number}.toml")
        requests = mix.lookup_workload(world.rows, ring, world.folder / f"keys-{number}.tsv",
                                max(mix.REQUESTS, min(number, 40_000)))
        # Without a limit, so that no account runs out of calls.
        for subject in riskgate_subjects(world, name, keys=None, plan="unlimited"):
            subject.does = "key, origin, table"
            started_at = time.monotonic()
            subprocess.run([world.binary, "keys", "import", "-c", subject.config,
                            world.folder / f"keys-{number}.toml"], check=True, cwd=subject.folder,
                           stderr=subprocess.DEVNULL)
            grown.append(subject)
            found[subject.name] = requests
            loads[subject.name] = {"import_s": time.monotonic() - started_at}
        os.unlink(world.folder / f"keys-{number}.toml")
    section.notes.append("each key has an account without a limit. Leases are renewed during the "
                         "run, which is part of the cost")
    measure_growth(section, world, grown, found, loads)


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
        for subject in riskgate_subjects(world, f"{number} workers", workers=number):
            several.append(subject)
        several.append(subjects.Nginx(f"nginx map, {number} workers", world, "nginx-map.conf",
                                      "the same bytes", gates=False, workers=number))
    with running(several):
        throughput(section, several, world.lookup_workload, world)


ALL = {"lookup": lookup, "pipelined": pipelined, "tls": tls, "http2": http2, "proxied": proxied, "open-loop": open_loop,
       "idle": idle, "reload": reload, "table-size": table_size, "key-count": key_count, "workers": workers}
