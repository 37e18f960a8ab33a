"""The processes of a hunt: one server, and the gateways in front of it. Each ends by its id."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ports import free_port
from soak import load, world

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
AIOHTTP = ROOT / "target" / "tools" / "aiohttp"
SERVERS = ("nginx", "node", "aiohttp", "strict")
# The server's own limit of requests on one connection is out of reach.
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.error crit;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  log_format seen escape=json '{{"method":"$request_method","path":"$request_uri",'
    '"x_id":"$http_x_id","request_id":"$http_x_request_id","status":$status,'
    '"body":"$request_body"}}';
  default_type text/plain; keepalive_requests 1000000; client_max_body_size 100m;
  large_client_header_buffers 8 32k;
  client_body_buffer_size 1m; client_body_in_single_buffer on; underscores_in_headers on;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    access_log {log} seen;
    add_header X-Seen-Id $http_x_id always;
    location / {{ return 200 "$http_x_id\\n"; }}
    location /read/ {{ proxy_pass http://unix:{folder}/inner.sock; }}
  }}
  server {{
    listen unix:{folder}/inner.sock;
    access_log off;
    location / {{ return 200 "$http_x_id\\n"; }}
  }}
}}
"""


def find_missing(names):
    """Returns what the chosen servers need and this machine lacks."""
    needed = {"nginx": shutil.which("nginx", path=server_path()), "node": shutil.which("node"),
              "aiohttp": (AIOHTTP / "aiohttp").is_dir(), "strict": True}
    return [name for name in names if not needed[name]]


def server_path():
    return f"{os.environ.get('PATH', '')}:/usr/sbin"


class Server:
    """The server behind the gateways."""

    def __init__(self, name, folder, fault=""):
        self.name, self.port = name, free_port()
        self.log = Path(folder) / f"{name}.log"
        self.log.touch()
        environment = {**os.environ, "PATH": server_path(),
                       "PYTHONPATH": f"{FOLDER.parent}:{AIOHTTP}", "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = [str(self.port), str(self.log)]
        if name == "nginx":
            config = Path(folder) / "nginx.conf"
            config.write_text(NGINX.format(folder=folder, port=self.port, log=self.log))
            command = ["nginx", "-p", str(folder), "-e", f"{folder}/nginx.error", "-c", str(config)]
        elif name == "node":
            command = ["node", str(FOLDER / "node_server.mjs"), *arguments]
        else:
            command = [sys.executable, "-m", f"desync.{name}_server", *arguments]
            command += ["--fault", fault] if fault else []
        self.output = Path(folder) / f"{name}.output"
        with open(self.output, "ab") as output:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                          stderr=output, env=environment)
        self.read_to = 0
        world.until(f"{name} listens", self.listens)

    def listens(self):
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.name} ended: {self.output.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def read_log(self):
        """Returns the requests that the server has logged since the last call."""
        with open(self.log, "rb") as log:
            log.seek(self.read_to)
            text = log.read()
        # The last line may be incomplete.
        text = text[:text.rfind(b"\n") + 1]
        self.read_to += len(text)
        return [json.loads(line) for line in text.decode("latin-1").split("\n") if line]

    def close(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Gateway(world.Gateway):
    """A gateway on whose site no path needs a key."""

    def __init__(self, binary, folder, server_port, is_fast, is_screened):
        self.path, self.is_screened = "fast" if is_fast else "pingora", is_screened
        name = self.path + ("-screened" if is_screened else "")
        self.https = free_port()
        table = Path(folder) / "table"
        if not table.exists():
            table.mkdir()
            for file, text in load.table_files()[0].items():
                (table / file).write_text(text)
        super().__init__(name, binary, folder, {
            "listen.https": f'"127.0.0.1:{self.https}"',
            "listen.fast_path": str(is_fast).lower(),
            # All connections come from one address.
            "listen.max_connections_per_address": "10000",
            "listen.max_held_bytes": str(16 << 30),
            # Longer than the defaults, because other work on the machine may stop the script.
            "listen.header_timeout": '"60s"', "listen.body_timeout": '"60s"',
            "listen.write_timeout": '"60s"',
            "upstream.max_in_flight_per_address": "1000",
            "table.path": f'"{table}"',
            "store.url": f'"sqlite:{folder}/{name}.db"',
            "upstream.servers": f'["127.0.0.1:{server_port}"]',
            # A check would use a connection; a busy machine may refuse one.
            "upstream.health_interval": '"0"', "upstream.eject_for": '"0"',
            "upstream.connect_timeout": '"10s"', "process.runtime_dir": f'"{folder}/run-{name}"',
        })
        self.write()
        methods = '["GET", "HEAD", "POST", "PUT", "DELETE"]'
        text = f'[[upstream.route]]\nprefix = "/"\nkey = false\nmethods = {methods}\n'
        if is_screened:
            text += '[upstream.route.screen]\nfields = ["email"]\nmode = "annotate"\n'
        text += f'[[listen.certificate]]\nchain = "{folder}/tls.pem"\nkey = "{folder}/tls.key"\n'
        with open(self.config, "a", encoding="utf-8") as config:
            config.write(text)

    def retries(self):
        return int(self.metric("riskgate_upstream_retries_total"))

    def close(self):
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def create_certificate(folder):
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=gate.test", "-addext", "subjectAltName=DNS:gate.test"]
    files = ["-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.pem"]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
