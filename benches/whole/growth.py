"""The sections about riskgate alone: table reloads, and the growth with table and keys."""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time

from . import checks, load, mix, subjects
from .rounds import interleaved, running


def reload(world):
    """Measures riskgate at half of its highest rate, with and without table reloads."""
    section = world.begin(
        "reload", "The table replaced under load (riskgate at half of its highest rate)")
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
        rates = {}
        for subject in several:
            wrk = load.WrkLoad(subject, world.lookup_workload)
            rates[subject.name] = load.measure(wrk, world.seconds, world.warm)["rate"] / 2
        for subject in interleaved(several, world.rounds):
            for replaced in (False, True):
                world.log(f"reload: {subject.name}, {'replaced' if replaced else 'not replaced'}")
                before = subject.metric("riskgate_reloads_total")
                # Long enough for at least two reloads.
                seconds = max(world.seconds, 5)
                served = subject.folder / "served"
                with replace_table_repeatedly(served, versions if replaced else []):
                    figures = load.measure_at_rate(subject, world.lookup_workload,
                                                   int(rates[subject.name]), seconds,
                                        2 * world.warm)
                reloads = subject.metric("riskgate_reloads_total") - before
                if replaced and not reloads:
                    raise checks.WrongResponse(f"{subject.name}: the table was not reloaded")
                found = {name: figures[name]
                         for name in ("p50", "p99", "p999", "longest_stall", "late")}
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
        for subject in subjects.riskgate_subjects(world, name, table=f"table-{rows}"):
            grown.append(subject)
            found[subject.name] = requests
            loads[subject.name] = {"build_s": built}
    measure_growth(section, world, grown, found, loads)


def measure_growth(section, world, grown, found, loads):
    started = []
    try:
        for subject in grown:
            started.append(subject)
            loads[subject.name]["ready_s"] = start_timed(subject)
            checks.check_subject(subject, found[subject.name])
        for subject in interleaved(grown, world.rounds):
            world.log(f"{section.name}: {subject.name}")
            wrk = load.WrkLoad(subject, found[subject.name])
            figures = load.measure(wrk, world.seconds, world.warm)
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
        for subject in subjects.riskgate_subjects(world, name, keys=None, plan="unlimited"):
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
