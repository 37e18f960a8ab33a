"""A Debian system with systemd in namespaces, clients that load it, and the helpers of
scripts/release-tools/check-release."""

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

DOMAIN_PATH = "/v1/public/domain/yopmail.com"


def fail(text: str) -> None:
    sys.exit(f"check-release: {text}")


def expect(condition: object, text: str) -> None:
    if not condition:
        fail(f"expected {text}")


def run(*command: object, **options: object) -> str:
    """Runs a command, and returns its standard output. A failure ends the checks."""
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        printed = f"{done.stdout}\n{done.stderr}"
        fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{printed}")
    return done.stdout


def wait_until(what: str, condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"{what} within {seconds} s")
        time.sleep(0.1)


class DebianSystem:
    """A Debian 12 with systemd as process 1, in namespaces of its own, without network."""

    BOOT = """set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
fi
# Not chroot: systemd gives services namespaces of their own, which need a root that is a mount.
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""

    def __init__(self, root: Path):
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork",
             "--kill-child", "bash", "-c", self.BOOT, "boot", str(root)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        wait_until("a child of unshare", lambda: children.read_text().split())
        self.systemd = children.read_text().split()[0]
        wait_until("systemd to run", lambda: self.try_run("systemctl", "is-system-running")[1]
                   .strip() in ("running", "degraded"))

    def command(self, *command: object) -> list[str]:
        namespaces = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup"]
        return ["nsenter", f"--target={self.systemd}", *namespaces, "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *map(str, command)]

    def try_run(self, *command: object) -> tuple[int, str, str]:
        """Returns the exit code, the standard output and the standard error of a command."""
        done = subprocess.run(self.command(*command), text=True, stdin=subprocess.DEVNULL,
                              capture_output=True)
        return done.returncode, done.stdout, done.stderr

    def run(self, *command: object) -> str:
        code, output, errors = self.try_run(*command)
        if code != 0:
            journal = self.try_run("journalctl", "--no-pager", "-n", "40")[1]
            fail(f"in Debian: {command}: exit code {code}\n{output}\n{errors}\n{journal}")
        return output

    def riskgate(self, *command: object) -> str:
        """Runs a command as the user of the service, in a folder that this user may not search."""
        return self.run("sh", "-c", 'cd /root && exec runuser -u riskgate -- riskgate "$@"', "sh",
                        *command)

    def is_active(self, instance: str) -> bool:
        return self.try_run("systemctl", "is-active", "--quiet", f"riskgate@{instance}")[0] == 0

    def status(self, key: str) -> str:
        """The status of the answer to a request that is sent inside; `000`: no answer."""
        return self.try_run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H",
                            f"Authorization: Bearer {key}",
                            f"http://127.0.0.1:8080{DOMAIN_PATH}")[1]

    def files(self) -> set[str]:
        """All files outside the folders of processes, of the package index, of logs and of data."""
        listed = self.run("find", "/", "-xdev", "-path", "/var/lib/dpkg", "-prune", "-o", "-path",
                          "/var/lib/riskgate", "-prune", "-o", "-path", "/var/log", "-prune", "-o",
                          "-path", "/var/cache", "-prune", "-o", "-print")
        return set(listed.splitlines())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Load:
    """Clients inside a system that send requests until they are told to stop."""

    CLIENTS = 4

    def __init__(self, system: DebianSystem, key: str):
        self.answered, self.failures = 0, []
        self.stopping = threading.Event()
        self.processes = [
            subprocess.Popen(["nsenter", f"--target={system.systemd}", "--net", sys.executable,
                              __file__, key, str(index % 2)],
                             text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for index in range(self.CLIENTS)]

    def stop(self) -> int:
        """Returns the number of answers. A request without a good answer ends the checks."""
        for process in self.processes:
            report = json.loads(process.communicate(input="stop\n")[0])
            expect(report["answered"] > 100, "clients that got answers")
            self.answered += report["answered"]
            self.failures += report["failures"]
        expect(not self.failures, f"no failed request, but found {self.failures[:5]}")
        return self.answered


def send_requests(key: str, keeps_connection: bool) -> None:
    """Sends requests on loopback until standard input has a line. Prints a report."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    connection, answered, failures = None, 0, []
    while not stop.is_set():
        try:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=10)
            connection.request("GET", DOMAIN_PATH, headers={"Authorization": f"Bearer {key}"})
            response = connection.getresponse()
            response.read()
            answered += 1
            if response.status != 200:
                failures.append(response.status)
            if not keeps_connection or response.will_close:
                connection.close()
                connection = None
        except OSError as error:
            failures.append(repr(error))
            connection = None
        time.sleep(0.001)
    print(json.dumps({"answered": answered, "failures": failures}))


if __name__ == "__main__":
    send_requests(sys.argv[1], keeps_connection=sys.argv[2] == "1")
