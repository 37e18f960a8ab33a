"""The processes of one round: redis-servers, the proxies to them, riskgate nodes and commands.

Starts and ends processes, all by their process ids. It checks nothing.
"""

import asyncio
import ctypes
import json
import re
import signal
import subprocess
import time

from ports import free_port

TIMEOUT_SECONDS = 30.0
# How many calls one node may admit without a lease while the store is down.
MAX_UNSETTLED = 10
_LIBC = ctypes.CDLL(None)


def now():
    return time.monotonic()


async def until(what, poll, timeout=TIMEOUT_SECONDS):
    started = now()
    while not (found := await poll()):
        if now() - started > timeout:
            raise TimeoutError(f"waited in vain until {what}")
        await asyncio.sleep(0.01)
    return found


def end_with_parent():
    """Makes the kernel kill the process when this script ends (Linux only)."""
    _LIBC.prctl(1, signal.SIGKILL)


def spawn(arguments, log):
    with open(log, "ab") as output:
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                preexec_fn=end_with_parent)


class Redis:
    """A redis-server without persistence."""

    def __init__(self, name, folder):
        self.name, self.log = name, folder / f"redis-{name}.log"
        self.folder = folder

    async def start(self):
        for _ in range(5):
            self.port = free_port()
            self.process = spawn(
                ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                 "--appendonly", "no", "--dir", str(self.folder), "--dbfilename",
                 f"{self.name}.rdb", "--repl-diskless-sync", "no", "--repl-timeout", "60"],
                self.log)
            # Another process may have bound the port since it was chosen.
            if await until(f"redis-server {self.name} answers or ends", self.answers_or_ended):
                if self.process.poll() is None:
                    return self
        raise RuntimeError(f"redis-server {self.name} does not start: {self.log.read_text()}")

    async def answers_or_ended(self):
        return self.process.poll() is not None or b"PONG" in await self.send_command("PING")

    async def send_command(self, line):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(line.encode() + b"\r\nQUIT\r\n")
            said = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return said
        except (OSError, asyncio.TimeoutError):
            return b""

    async def follow(self, primary, port):
        """Makes this server a replica of `primary`, which it reaches through `port`."""
        await self.send_command(f"REPLICAOF 127.0.0.1 {port}")

        async def is_level():
            own = (await self.send_command("INFO replication")).decode()
            of_primary = (await primary.send_command("INFO replication")).decode()
            # Until the replica is online, the primary does not send it changes.
            is_online = f"port={self.port},state=online" in of_primary
            return is_online and "master_link_status:up" in own

        await until(f"redis-server {self.name} has what its primary has", is_level)

    async def promote(self):
        await self.send_command("REPLICAOF NO ONE")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class SwitchableProxy:
    """A TCP proxy to a server that can hang, be cut, or be switched to another server."""

    def __init__(self, name):
        self.name, self.target, self.writers, self.tasks = name, None, set(), set()
        self.is_forwarding = asyncio.Event()
        self.is_forwarding.set()

    async def open(self, target):
        self.target = target
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def accept(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        asyncio.current_task().add_done_callback(self.tasks.discard)
        self.writers.add(writer)
        try:
            await self.is_forwarding.wait()
            if self.target is None or writer.is_closing():
                return
            there, upstream = await asyncio.open_connection("127.0.0.1", self.target)
            self.writers.add(upstream)
            await asyncio.gather(self.copy(reader, upstream), self.copy(there, writer))
            self.writers.discard(upstream)
        except OSError:
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                await self.is_forwarding.wait()
                if writer.is_closing():
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def hang(self):
        """Accepts connections and reads bytes, but forwards nothing."""
        self.is_forwarding.clear()

    def switch_to(self, target):
        """Aborts all connections. New ones lead to `target`, or are closed at once if it is None.
        Bytes that hung are lost."""
        self.target = target
        for writer in list(self.writers):
            writer.transport.abort()
        self.writers.clear()
        self.is_forwarding.set()

    async def close(self):
        self.server.close()
        self.switch_to(None)
        await asyncio.gather(*self.tasks, return_exceptions=True)


def config(folder, name, port, draw, listen=""):
    """Writes the config of a node or of commands, whose store is at `port`."""
    path = folder / f"{name}.toml"
    plans = "".join(f"{plan} = {limit}\n" for plan, limit in draw.plans.items())
    path.write_text(
        f'{listen}[log]\npath = "{folder}/{name}.log"\n[process]\nruntime_dir = ""\n'
        f'[table]\npath = "{folder}/table"\n[drain]\ngrace = "5s"\n'
        f'[store]\nurl = "redis://127.0.0.1:{port}/0"\non_failure = "{draw.on_failure}"\n'
        f'max_unsettled = {MAX_UNSETTLED}\ndeadline = "250ms"\n'
        f'wait_replicas = {draw.wait_replicas}\n[plans]\n{plans}')
    return path


def write_table(folder):
    """Writes a table with one name, so that nodes start quickly."""
    (folder / "table").mkdir()
    (folder / "table" / "manifest.toml").write_text(
        '[[list]]\nfile = "disposable.txt"\nkind = "disposable"\ntier = "a"\n')
    (folder / "table" / "disposable.txt").write_text("first.test\n")


class Node:
    """A riskgate process with its own proxy to the store."""

    def __init__(self, number, binary, folder, link, draw, fast):
        self.number, self.binary, self.folder, self.link = number, binary, folder, link
        self.draw, self.fast = draw, fast
        self.name = f"node {number}"
        self.stderr = folder / f"node-{number}.stderr"

    async def start(self):
        for _ in range(5):
            self.http, self.admin = free_port(), free_port()
            listen = (f'[listen]\nhttp = "127.0.0.1:{self.http}"\n'
                      f'admin = "127.0.0.1:{self.admin}"\nfast_path = {str(self.fast).lower()}\n'
                      'threads = 1\n')
            path = config(self.folder, f"node-{self.number}", self.link.port, self.draw, listen)
            self.process = spawn([self.binary, "run", "-c", str(path)], self.stderr)
            await until(f"{self.name} is ready or ends", self.is_ready_or_ended)
            if self.process.poll() is None:
                return self
            # Another process may have bound a port since it was chosen.
            stderr = self.stderr_text()
            if "ddress already in use" not in stderr and "os error 98" not in stderr:
                break
        raise RuntimeError(f"{self.name} does not start: {self.stderr_text()[-500:]}")

    async def is_ready_or_ended(self):
        if self.process.poll() is not None:
            return True
        # Another gateway may have bound the port since it was chosen, and answer there.
        if f"admin on http://127.0.0.1:{self.admin}," not in self.stderr_text():
            return False
        status, _ = await self.page("/readyz")
        return status == 200

    async def page(self, path):
        """Requests an admin page. Returns status and body; status 0 if the node does not answer."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                         .encode())
            said = (await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS)).decode()
            head, _, body = said.partition("\r\n\r\n")
            return int(head.split(" ")[1]), body
        except (OSError, IndexError, asyncio.TimeoutError):
            return 0, ""
        finally:
            if writer:
                writer.close()

    async def read_status(self):
        """The problems of keys on /readyz, and riskgate_reload_failing; None if a page failed."""
        (ready, page), (found, metrics) = await asyncio.gather(
            self.page("/readyz"), self.page("/metrics"))
        failing = re.search(r'^riskgate_reload_failing\{part="keys"\} (\d)', metrics, re.M)
        if ready != 200 or found != 200:
            return None
        degraded = [line for line in json.loads(page)["degraded"] if line.startswith("keys")]
        # The metric exists only after the first reload of keys.
        return " | ".join(degraded), int(failing[1]) if failing else 0

    def stderr_text(self):
        return self.stderr.read_text()

    async def end(self):
        """Sends SIGTERM. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self.process.wait, TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return "nothing after SIGTERM"

    def kill(self):
        self.process.kill()
        self.process.wait()


async def command(binary, arguments, path):
    """Runs a riskgate command. Returns its exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        binary, *arguments, "-c", str(path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=end_with_parent)
    try:
        out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    except BaseException:
        process.kill()
        raise
    return process.returncode, out.decode(), err.decode()
