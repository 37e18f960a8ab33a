"""Rounds of windows, and their summary.

A round measures each subject once, and begins with another subject than the round before. If a
section fails, its rounds so far are kept.
"""

import contextlib
import statistics

from . import checks, load


class Section:
    """The outcome of a section: rows by subject, the figures of each round, and notes."""

    def __init__(self, name, title):
        self.name, self.title = name, title
        self.rows, self.rounds, self.notes = {}, {}, []

    def add(self, subject, found):
        self.rounds.setdefault(subject, []).append(found)

    def summarize(self):
        """Takes the better quartile of CPU times and rates: on small virtual machines, the CPU time
        of a request has two levels, and jumps between them from window to window. Takes the median
        of all else."""
        for subject, rounds in self.rounds.items():
            self.rows[subject] = {key: summary(key, [each[key] for each in rounds])
                                  for key in rounds[0]}


def summary(key, values):
    if key in ("cpu_us", "user_us", "system_us"):
        return sorted(values)[(len(values) - 1) // 4]
    if key == "rate":
        return sorted(values, reverse=True)[(len(values) - 1) // 4]
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


def throughput(section, several, asked, world, loads=None):
    """Measures all subjects at full speed. `loads` has what is appended to the name of a subject,
    and a function that makes the load of a subject and a workload."""
    for subject in several:
        checks.check_subject(subject, asked)
    for subject in interleaved(several, world.rounds):
        for suffix, create_load in (loads or {"": load.WrkLoad}).items():
            name = subject.name + suffix
            world.log(f"{section.name}: {name}")
            section.add(name, load.measure(create_load(subject, asked), world.seconds, world.warm))
    for subject in several:
        checks.check_subject(subject, asked, 50)
