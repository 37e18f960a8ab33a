"""The subjects: riskgate with and without the fast path, and its peers.

A subject has a port, processes, and a description of the work that it does. The configs are in
benches/peers/; this module fills in ports, folders and numbers.
"""

import http.client
import itertools
import re
import subprocess

from ports import free_port

from . import machine, mix

ALL_GATES = "key, origin, quota, table"
# One thread for Go code, and fewer garbage collections than by default.
GO_ENVIRONMENT = {"GOMAXPROCS": "1", "GOGC": "400"}
SUBJECT_NUMBERS = itertools.count(1)


class Subject:
    """A server with its own port and its own folder."""

    # What its processes find in their environment, besides that of the bench.
    environment = {}

    def __init__(self, name, does, world, gates=True, tls=False):
        self.name, self.does, self.world, self.gates, self.tls = name, does, world, gates, tls
        self.port = free_port()
        # The number distinguishes subjects of one name in different sections. A port does not: the
        # kernel may give a later section the same one.
        self.folder = world.folder / re.sub(
            r"[^a-z0-9]+", "-", f"{name.lower()} {next(SUBJECT_NUMBERS)}")
        self.folder.mkdir()
        (self.folder / "temp").mkdir()
        self.processes = None
        self.log = None
        self.workers = 1

    def fill_template(self, template, **more):
        text = (self.world.peers / template).read_text()
        known = {"PORT": self.port, "FOLDER": self.folder, "WORKERS": self.workers,
                 "VERSION": self.world.version, "RESET": mix.month_ends(),
                 "LOG": f"{self.log} line buffer=64k flush=1s" if self.log else "off",
                 "TLS": "ssl http2" if self.tls else "",
                 "CERTIFICATE": self.certificate_lines() if self.tls else "", **more}
        return re.sub(r"@([A-Z]+)@", lambda found: str(known[found[1]]), text)

    def certificate_lines(self):
        """The lines of an nginx config that choose the certificate. With tickets, TLS 1.3 needs no
        session cache, which would add a tenth to the CPU time of a new handshake."""
        certificate, key = self.world.certificate
        return (f"ssl_certificate {certificate}; ssl_certificate_key {key}; "
                "ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on;")

    def link_files(self, **names):
        """Links shared files under the names that the config uses."""
        for name, target in names.items():
            (self.folder / name.replace("__", ".")).symlink_to(self.world.folder / target)

    def start(self):
        self.processes = machine.Processes(
            self.command_line(), self.folder, machine.SERVER_CORES[:self.workers],
            self.environment)
        try:
            machine.wait_until(f"{self.name} listens", lambda: self.processes.is_up(self.port))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        if self.processes:
            self.processes.stop()
            self.processes = None

    def truncate_log(self):
        """Empties the log, so that it does not fill the memory file system."""
        if self.log and self.log.exists():
            with open(self.log, "r+b") as log:
                log.truncate(0)


class Riskgate(Subject):
    def __init__(self, name, world, *, fast_path=True, log=False, keys="keys.toml", table="table",
                 plan=mix.LIMIT, upstream=9, workers=1, store="riskgate.db", tls=False, route=""):
        super().__init__(name, ALL_GATES + (", log" if log else ""), world, tls=tls)
        self.workers, self.admin = workers, free_port()
        self.log = self.folder / "access.log" if log else None
        self.config = self.folder / "riskgate.toml"
        # On a memory file system, so that the disk does not affect the comparison.
        self.config.write_text(f"""
[listen]
http = "127.0.0.1:{free_port() if tls else self.port}"
{f'https = "127.0.0.1:{self.port}"' if tls else ""}
admin = "127.0.0.1:{self.admin}"
threads = {workers}
fast_path = {str(fast_path).lower()}
max_connections = 14000
max_connections_per_address = 14000
keepalive_timeout = "600s"
{self.certificate_section() if tls else ""}
[log]
access = {str(log).lower()}
path = "{self.folder}/access.log"
[upstream]
servers = ["127.0.0.1:{upstream}"]
health_interval = "0"
[table]
path = "{world.folder / table}"
[store]
url = "sqlite:{self.folder}/{store}"
[process]
runtime_dir = ""
[keys]
{f'file = "{world.folder / keys}"' if keys else ""}
[plans]
free = 100
bench = {plan if isinstance(plan, int) else f'"{plan}"'}
{route}
""")

    def certificate_section(self):
        certificate, key = self.world.certificate
        return f'[[listen.certificate]]\nchain = "{certificate}"\nkey = "{key}"'

    def command_line(self):
        return [self.world.binary, "run", "-c", self.config]

    def start(self):
        super().start()
        try:
            machine.wait_until(f"{self.name} is ready", lambda: self.ask("/readyz"))
        except BaseException:
            self.stop()
            raise
        return self

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
            return body if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a metric's samples."""
        body = self.ask("/metrics") or ""
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", body, re.MULTILINE)
        return int(sum(float(value) for value in found))


class Nginx(Subject):
    def __init__(self, name, world, template, does, *, gates=True, log=False, workers=1, tls=False,
                 **more):
        super().__init__(name, does + (", log" if log else ""), world, gates, tls)
        self.workers = workers
        self.log = self.folder / "access.log" if log else None
        (self.folder / "common.conf").write_text(self.fill_template("nginx-common.conf"))
        (self.folder / "nginx.conf").write_text(self.fill_template(template, **more))
        self.link_files(table__map="table.map", table__tsv="table.tsv", keys__tsv="keys.tsv",
                   keys__map="nginx-keys.map", origins__map="nginx-origins.map",
                   bodies__map="bodies.map")
        (self.folder / "gate.lua").symlink_to(world.peers / "gate.lua")

    def command_line(self):
        return ["nginx", "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", "stderr"]


class Haproxy(Subject):
    def __init__(self, name, world, template, does, *, gates=True, workers=1, **more):
        super().__init__(name, does, world, gates)
        self.workers = workers
        (self.folder / "haproxy.cfg").write_text(self.fill_template(template, **more))
        self.link_files(covers__map="covers.map", alone__map="alone.map",
                   keys__map="haproxy-keys.map", origins__map="haproxy-origins.map")

    def command_line(self):
        return ["haproxy", "-f", self.folder / "haproxy.cfg", "-db"]


class Envoy(Subject):
    def __init__(self, name, world, template, does, **more):
        super().__init__(name, does, world, gates=False)
        (self.folder / "envoy.yaml").write_text(self.fill_template(template, **more))

    def command_line(self):
        return ["envoy", "-c", self.folder / "envoy.yaml", "--concurrency", self.workers,
                "--disable-hot-restart", "-l", "error"]


class Caddy(Subject):
    environment = GO_ENVIRONMENT

    def __init__(self, name, world, template, does, **more):
        super().__init__(name, does, world, gates=False)
        (self.folder / "Caddyfile").write_text(self.fill_template(template, **more))

    def command_line(self):
        return ["caddy", "run", "--config", self.folder / "Caddyfile", "--adapter", "caddyfile"]


class Traefik(Subject):
    environment = GO_ENVIRONMENT

    def __init__(self, name, world, templates, does, **more):
        super().__init__(name, does, world, gates=False)
        for template in templates:
            (self.folder / template).write_text(self.fill_template(template, **more))
        self.config = self.folder / templates[0]

    def command_line(self):
        return ["traefik", f"--configFile={self.config}"]

    def start(self):
        super().start()
        # It listens before it has read its routes, and answers 404 until then.
        try:
            machine.wait_until(f"{self.name} has routes", self.has_routes)
        except BaseException:
            self.stop()
            raise
        return self

    def has_routes(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/v1/check/start")
            return connection.getresponse().status == 200
        finally:
            connection.close()


class Baseline(Subject):
    def __init__(self, name, world):
        super().__init__(name, "the same bytes", world, gates=False)

    def command_line(self):
        return [self.world.rust / "baseline", self.port, self.world.folder / "lookup.tsv"]


def riskgate_subjects(world, name="", **how):
    """riskgate as it is shipped, and with every request on the Pingora path."""
    suffix = f", {name}" if name else ""
    return [Riskgate(f"riskgate{suffix}", world, **how),
            Riskgate(f"riskgate Pingora path{suffix}", world, fast_path=False, **how)]


def lookup_subjects(world):
    """All subjects that answer look-ups themselves."""
    return riskgate_subjects(world) + [
        Nginx("nginx map", world, "nginx-map.conf", "the same bytes", gates=False),
        Nginx("nginx map, gates", world, "nginx-gates.conf", "key, origin, table"),
        Nginx("nginx + Lua", world, "nginx-lua.conf", ALL_GATES),
        Haproxy("HAProxy", world, "haproxy-answer.cfg", ALL_GATES),
        Baseline("hyper", world),
    ]


def tls_subjects(world):
    """The subjects that are also measured with TLS. They offer HTTP/1.1 and HTTP/2."""
    return riskgate_subjects(world, "TLS", tls=True) + [
        Nginx("nginx map, TLS", world, "nginx-map.conf", "the same bytes", gates=False, tls=True),
        Nginx("nginx map, gates, TLS", world, "nginx-gates.conf", "key, origin, table", tls=True),
    ]


def logging_subjects(world):
    """The subjects that are also measured with an access log."""
    return riskgate_subjects(world, "log", log=True) + [
        Nginx("nginx map, log", world, "nginx-map.conf", "the same bytes", gates=False, log=True),
    ]


FORM_ROUTE = """[[upstream.route]]
prefix = "/signup"
methods = ["GET", "POST"]
key = false
"""
SCREENED_ROUTE = FORM_ROUTE + """[upstream.route.screen]
fields = ["email"]
mode = "annotate"
"""


# No form of the workload meets a condition, so each is compared with all of them.
RULES = """[inbox]
[[rule]]
name = "many accounts of one inbox"
if = ["inbox_accounts_30d >= 3"]
then = "block"
[[rule]]
name = "many inboxes of a domain that no list has"
if = ["domain_accounts_1h >= 1000", "verdict_source == none"]
then = "review"
[[rule]]
name = "many inboxes of a network"
if = ["client_accounts_1h > 999", "is_corporate_email == true"]
then = "review"
"""


def form_subjects(world, upstream):
    several = [
        Riskgate("riskgate, screened", world, upstream=upstream, route=SCREENED_ROUTE),
        Riskgate("riskgate, screened, rules", world, upstream=upstream,
                 route=SCREENED_ROUTE + RULES),
        Riskgate("riskgate, not screened", world, upstream=upstream, route=FORM_ROUTE),
        Nginx("nginx, forms", world, "nginx-proxy.conf", "forwards", gates=False,
              UPSTREAM=upstream),
    ]
    for subject in several:
        # The route needs no key, so there is no gate to check.
        subject.gates, subject.does = False, "forwards"
    return several


def http2_proxy_subjects(world, upstream):
    several = [
        Riskgate("riskgate, HTTP/2", world, upstream=upstream, tls=True, route=FORM_ROUTE),
        Riskgate("riskgate, HTTP/2, screened", world, upstream=upstream, tls=True,
                 route=SCREENED_ROUTE),
        Nginx("nginx, HTTP/2", world, "nginx-proxy.conf", "forwards", gates=False, tls=True,
              UPSTREAM=upstream),
    ]
    for subject in several:
        subject.gates, subject.does = False, "forwards"
    return several


class Mounting(Subject):
    """A program of examples/: it listens and forwards; `mount` has riskgate's gates."""

    def __init__(self, name, world, example, upstream, route=""):
        super().__init__(name, "forwards", world, gates=False)
        self.program = world.binary.parent / "examples" / example
        self.arguments = [f"127.0.0.1:{self.port}", f"127.0.0.1:{upstream}"]
        if example == "mount":
            config = self.folder / "riskgate.toml"
            config.write_text(f"""
[log]
access = false
[table]
path = "{world.folder / 'table'}"
[store]
url = "sqlite:{self.folder}/riskgate.db"
[keys]
file = "{world.folder / 'keys.toml'}"
[plans]
free = 100
bench = {mix.LIMIT}
{route}
""")
            self.arguments.append(config)

    def command_line(self):
        return [self.program, *self.arguments]


def mounting_subjects(world, upstream):
    return [
        Mounting("bare Pingora", world, "bare_pingora", upstream),
        Mounting("mounted gate", world, "mount", upstream, FORM_ROUTE),
        Mounting("mounted gate, screened", world, "mount", upstream, SCREENED_ROUTE),
    ]


def proxy_subjects(world, upstream):
    return riskgate_subjects(world, "proxy", upstream=upstream) + [
        Nginx("nginx, proxy", world, "nginx-proxy.conf", "forwards", gates=False,
              UPSTREAM=upstream),
        Haproxy("HAProxy, proxy", world, "haproxy-proxy.cfg", "forwards", gates=False,
                UPSTREAM=upstream),
        Envoy("Envoy, proxy", world, "envoy-proxy.yaml", "forwards", UPSTREAM=upstream),
        Caddy("Caddy, proxy", world, "Caddyfile", "forwards", UPSTREAM=upstream),
        Traefik("Traefik, proxy", world, ("traefik.yaml", "traefik-proxy.yaml"), "forwards",
                UPSTREAM=upstream),
    ]
