"""The processes of a run: redis-server, gateways and tables, and the time windows of their faults.

It starts, ends and measures processes, all by their process ids, and keeps the first violations.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from ports import free_port

from . import client

TIMEOUT_SECONDS = 60.0


def now():
    return time.monotonic()


def until(what, poll, timeout=TIMEOUT_SECONDS):
    started = now()
    while True:
        found = poll()
        if found:
            return found
        if now() - started > timeout:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(0.05)


class FaultWindows:
    """When each kind of fault was active, so that responses are checked against their own time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}

    def begin(self, name):
        with self.lock:
            self.all.setdefault(name, []).append([now(), float("inf")])

    def end(self, name):
        with self.lock:
            self.all[name][-1][1] = now()

    def overlaps(self, name, since, until_, after):
        """Returns True if the fault was active in this window, or up to `after` seconds before."""
        with self.lock:
            spans = list(self.all.get(name, []))
        return any(begin <= until_ and end + after >= since for begin, end in spans)

    def settled(self, name, moment, margin):
        """Returns the time by which a change at `moment` must be in effect. The time of faults does
        not count."""
        with self.lock:
            spans = list(self.all.get(name, []))
        for begin, end in spans:
            if begin <= moment + margin and end >= moment - margin:
                moment = max(moment, end)
        return moment + margin

    def count(self, name):
        with self.lock:
            return len(self.all.get(name, []))


class Violations:
    def __init__(self):
        self.lock = threading.Lock()
        self.all = []
        self.stop = threading.Event()

    def add(self, what):
        with self.lock:
            self.all.append(f"at {now() - BEGUN:.1f} s: {what}")
        if len(self.all) >= 20:
            self.stop.set()


BEGUN = now()


class Redis:
    """A redis-server that writes each change to disk before it replies."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder)]
        with open(self.folder / "output.log", "ab") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("redis-server answers", lambda: self.send_command("PING").startswith(b"+PONG"))

    def send_command(self, line):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as stream:
                stream.sendall(line.encode() + b"\r\n")
                return stream.recv(4096)
        except OSError:
            return b""

    def kill(self):
        self.child.kill()
        self.child.wait()

    def signal(self, number):
        self.child.send_signal(number)


class Gateway:
    """A gateway process that can be restarted on the same ports."""

    def __init__(self, name, binary, folder, settings):
        self.name, self.binary, self.folder = name, binary, Path(folder)
        self.settings = settings
        self.http, self.admin = free_port(), free_port()
        self.config = self.folder / f"{name}.toml"
        self.stderr = self.folder / f"{name}.stderr"
        self.child = None
        # Set while a load balancer would send no requests to this gateway.
        self.away = threading.Event()
        self.away.set()

    def write(self):
        sections = {
            "listen": {"http": f'"127.0.0.1:{self.http}"', "admin": f'"127.0.0.1:{self.admin}"'},
            "log": {"path": f'"{self.folder}/{self.name}.log"'},
            "drain": {"delay": '"2s"', "grace": '"20s"'},
            "process": {"runtime_dir": f'"{self.folder}/run-{self.name}"'},
        }
        for setting, value in self.settings.items():
            section, key = setting.split(".")
            sections.setdefault(section, {})[key] = value
        text = ""
        for section, keys in sections.items():
            text += f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())
        # Without a section for a feed, the gateway warns.
        text += '[[table.feed]]\nname = "castle"\nenabled = false\n'
        self.config.write_text(text)

    def start(self):
        with open(self.stderr, "ab") as log:
            self.child = subprocess.Popen(
                [self.binary, "run", "-c", str(self.config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(f"gateway {self.name} is ready", self.is_ready)
        self.away.clear()

    def is_ready(self):
        if self.child.poll() is not None:
            raise RuntimeError(f"gateway {self.name} ended: {self.stderr.read_text()[-2000:]}")
        try:
            return self.page("/readyz").status == 200
        except (client.ConnectFailed, client.ConnectionClosed):
            return False

    def page(self, path, method="GET"):
        connection = client.Connection(self.admin)
        try:
            connection.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return connection.read()
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a metric's samples."""
        text = self.page("/metrics").body.decode()
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", text, re.M)
        return sum(float(value) for value in found)

    def terminate(self, notice):
        """Sends SIGTERM, and returns the exit code.

        The callers stop using this gateway after `notice` seconds."""
        self.child.send_signal(signal.SIGTERM)
        time.sleep(notice)
        self.away.set()
        return self.child.wait(timeout=TIMEOUT_SECONDS)

    def upgrade(self):
        """Starts a new process that takes the sockets over. Returns the old one's exit code."""
        old, earlier = self.child, self.stderr.read_text().count("ready to take over")
        with open(self.stderr, "ab") as log:
            new = subprocess.Popen(
                [self.binary, "run", "--upgrade", "-c", str(self.config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(f"a successor of {self.name} waits",
              lambda: self.stderr.read_text().count("ready to take over") > earlier)
        old.send_signal(signal.SIGQUIT)
        code = old.wait(timeout=TIMEOUT_SECONDS)
        self.child = new
        return code

    def memory(self):
        """Returns resident KiB and the number of open descriptors."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
        return resident, len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def cli(self, *arguments):
        ran = subprocess.run([self.binary, *arguments, "-c", str(self.config)], capture_output=True,
                             text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {ran.returncode}: {ran.stderr}")
        return ran.stdout.strip()


class Tables:
    """Two tables with known answers, behind a symbolic link that is replaced atomically."""

    def __init__(self, binary, folder, versions):
        self.link = Path(folder) / "table"
        self.sources, self.ids = [], []
        for number, files in enumerate(versions):
            source = Path(folder) / f"table-{number}"
            source.mkdir()
            for name, text in files.items():
                (source / name).write_text(text)
            ran = subprocess.run([binary, "table", "inspect", str(source)], check=True,
                                 capture_output=True, text=True)
            self.sources.append(source)
            self.ids.append(re.search(r"^version\s+(\w+)", ran.stdout, re.M)[1])
        self.broken = Path(folder) / "table-broken"
        shutil.copytree(self.sources[0], self.broken)
        (self.broken / "disposable.txt").write_text("first.test\nno name at all\n")
        self.current = 0
        self.serving = [[[0.0, float("inf")]], []]
        self.link_to(self.sources[0])

    def link_to(self, source):
        beside = self.link.with_name("table-next")
        beside.symlink_to(source.name)
        beside.rename(self.link)

    def swap(self):
        """Switches to the other table."""
        other = 1 - self.current
        self.serving[other].append([now(), float("inf")])
        self.link_to(self.sources[other])
        self.serving[self.current][-1][1] = now()
        self.current = other

    def table_index(self, version, since, until_, margin):
        """Returns the index of the table with this version; None if it may not serve now."""
        if version not in self.ids:
            return None
        at = self.ids.index(version)
        fits = any(begin <= until_ and end + margin >= since for begin, end in self.serving[at])
        return at if fits else None
