"""Injects faults during a run: four threads, each drawing its faults from the seed.

Faults of the store, faulty tables and restarts take turns. Reloads, faults of the upstream server
and key changes run beside them. Each fault records its time window, so that every response is
checked against the faults of its own time.
"""

import hashlib
import json
import random
import signal
import threading

from .load import KEY_MARGIN
from .world import now, until


class Key:
    """A key that was created during the run, and perhaps revoked or rotated."""

    def __init__(self, text, id_, run, store):
        self.text, self.id, self.run, self.store = text, id_, run, store
        self.made = now()
        self.ends = self.ended = float("inf")

    def end(self, begin, end):
        self.ends, self.ended = begin, end

    def allowed(self, since, until_):
        """The statuses that a call in this time window may get."""
        def settled(moment):
            if self.store != "redis":
                return moment + KEY_MARGIN
            return self.run.fault_windows.settled("store", moment, KEY_MARGIN)

        allowed = set()
        if since < settled(self.made) or until_ >= self.ends:
            allowed.add(401)
        if self.ended == float("inf") or since < settled(self.ended):
            allowed.add(200)
        return allowed

    def __str__(self):
        return f"{self.id} made {now() - self.made:.1f} s ago, ended {now() - self.ended:.1f} s ago"


class KeyChanger(threading.Thread):
    """Creates, rotates and revokes keys with riskgate commands."""

    def __init__(self, run):
        super().__init__(name="keys", daemon=True)
        self.run_, self.random = run, random.Random(f"{run.seed}-keys")
        self.keys = {"redis": [], "sqlite": []}
        self.counts = {"created": 0, "rotated": 0, "revoked": 0}

    def draw(self, random_, store):
        keys = self.keys[store]
        return random_.choice(keys) if keys else None

    def run(self):
        while not self.run_.done.is_set():
            store = self.random.choice(["redis", "sqlite"])
            gateway = next(g for g in self.run_.gateways if g.store == store)
            # Commands need the store, so they wait until its fault is over.
            with self.run_.store_lock:
                try:
                    self.change(store, gateway)
                except RuntimeError as error:
                    self.run_.violations.add(f"keys: {error}")
            self.run_.done.wait(self.random.uniform(1.5, 4.0))

    def change(self, store, gateway):
        keys = self.keys[store]
        live = [key for key in keys if key.ends == float("inf")]
        action = self.random.choice(["created", "rotated", "revoked"]) if live else "created"
        self.counts[action] += 1
        if action == "created":
            made = json.loads(gateway.cli("keys", "create", "--account", "keyed", "--json"))
            keys.append(Key(made["key"], made["id"], self.run_, store))
        elif action == "rotated":
            key, started = self.random.choice(live), now()
            arguments = ("keys", "rotate", key.id, "--overlap", "3s", "--json")
            made = json.loads(gateway.cli(*arguments))
            # The old key expires by the clock, even if the store is down.
            key.end(started + 2.0, now() + 3.0)
            keys.append(Key(made["key"], made["id"], self.run_, store))
        else:
            key, started = self.random.choice(live), now()
            gateway.cli("keys", "revoke", key.id)
            key.end(started, now())
        # The callers use only the latest keys, some of them ended.
        del keys[:-12]


class FaultInjector(threading.Thread):
    """Injects one fault after another, with a random pause between them."""

    def __init__(self, name, run, faults, rest):
        super().__init__(name=name, daemon=True)
        self.run_, self.random = run, random.Random(f"{run.seed}-{name}")
        self.faults, self.rest = faults, rest
        self.counts = {fault.__name__: 0 for fault in faults}

    def run(self):
        while True:
            self.run_.done.wait(self.random.uniform(*self.rest))
            if self.run_.done.is_set():
                return
            # Every fault is injected once before any is repeated.
            least = min(self.counts.values())
            fault = self.random.choice(
                [t for t in self.faults if self.counts[t.__name__] == least])
            self.counts[fault.__name__] += 1
            try:
                fault(self.run_, self.random)
            except Exception as error:  # noqa: BLE001 - every exception is a violation
                self.run_.violations.add(f"{fault.__name__}: {type(error).__name__}: {error}")


def store_fault(begin, end):
    """Creates a fault of the store with a random duration. Commands wait until it is over."""
    def inject(run, random_):
        with run.store_lock:
            run.fault_windows.begin("store")
            begin(run)
            run.done.wait(random_.uniform(0.3, 5.0))
            end(run)
            run.fault_windows.end("store")
        until("the store has recovered", lambda: all(
            g.metric("riskgate_store_down") == 0 and g.metric("riskgate_store_recovering") == 0
            for g in run.gateways if g.store == "redis"))
    return inject


store_stopped = store_fault(
    lambda run: run.redis.signal(signal.SIGSTOP), lambda run: run.redis.signal(signal.SIGCONT))
store_stopped.__name__ = "store stopped"
store_killed = store_fault(lambda run: run.redis.kill(), lambda run: run.redis.start())
store_killed.__name__ = "store killed"
store_cut = store_fault(
    lambda run: run.redis.send_command("CLIENT KILL TYPE normal SKIPME yes"), lambda run: None)
store_cut.__name__ = "store connections cut"


def restart_gateway(run, _random):
    """Sends SIGTERM to one of the gateways that share Redis, and starts a new process."""
    gateway = run.restarted
    code = gateway.terminate(notice=0.8)
    if code != 0:
        run.violations.add(f"gateway {gateway.name} ended with {code} on SIGTERM")
    gateway.start()


def upgrade(run, _random):
    """Upgrades one of the gateways that share Redis. No client may notice."""
    gateway = run.restarted
    code = gateway.upgrade()
    if code != 0:
        run.violations.add(f"gateway {gateway.name} ended with {code} after an upgrade")


def broken_table(run, random_):
    """Links a faulty table: gateways must keep the last good one and report it on /readyz."""
    with run.table_lock:
        run.tables.link_to(run.tables.broken)
        for gateway in run.gateways:
            until("a faulty table is reported",
                  lambda g=gateway: b"table: " in g.page("/readyz").body)
        run.done.wait(random_.uniform(0.0, 2.0))
        run.tables.link_to(run.tables.sources[run.tables.current])
        for gateway in run.gateways:
            until("a repaired table is reported",
                  lambda g=gateway: b"table: " not in g.page("/readyz").body)


def swap_table(run, _random):
    with run.table_lock:
        run.tables.swap()
        # Waits, so that every gateway serves this table before the next swap.
        for gateway in run.gateways:
            if not gateway.away.is_set():
                wanted = run.tables.ids[run.tables.current].encode()
                until("the new table serves",
                      lambda g=gateway: g.away.is_set() or wanted in g.page("/status").body)


def send_sighup(run, random_):
    gateway = random_.choice([g for g in run.gateways if not g.away.is_set()])
    gateway.child.send_signal(signal.SIGHUP)


def reload_page(run, random_):
    gateway = random_.choice([g for g in run.gateways if g is not run.restarted])
    status = gateway.page("/reload", method="POST").status
    # A faulty table or an unreachable store makes it a 422.
    if status not in (200, 422):
        run.violations.add(f"POST /reload on {gateway.name}: {status}")


def quit_alone(run, random_):
    """Sends SIGQUIT without a waiting successor: the process must keep serving."""
    gateway = random_.choice([g for g in run.gateways if g is not run.restarted])
    gateway.child.send_signal(signal.SIGQUIT)


def upstream_fault(mode):
    def inject(run, random_):
        run.fault_windows.begin("upstream")
        run.upstream.set_mode(mode)
        run.done.wait(random_.uniform(0.5, 4.0))
        run.upstream.set_mode("healthy")
        # Requests that arrived while it was silent get no response; the gateway times out.
        run.done.wait(2.5)
        run.fault_windows.end("upstream")
    inject.__name__ = f"upstream {mode}"
    return inject


def upstream_dropped(run, _random):
    """Closes all connections of the upstream server, some of them during a request."""
    run.fault_windows.begin("upstream")
    run.upstream.drop()
    run.fault_windows.end("upstream")


def fault_injectors(run):
    """Creates the threads that inject faults."""
    return [
        FaultInjector("store and process", run, [
            store_stopped, store_killed, store_cut, restart_gateway, upgrade, broken_table], (3, 9)),
        FaultInjector("reloads", run, [swap_table, send_sighup, reload_page, quit_alone], (1, 4)),
        FaultInjector("upstream", run, [
            *(upstream_fault(mode) for mode in ("refuse", "silent", "cut", "garbage")),
            upstream_dropped], (2, 6)),
    ]


def key_file(keys):
    """Formats a key file. Each key is `(id, account, plan, text, origins)`."""
    out = ""
    for id_, account, plan, text, origins in keys:
        digest = hashlib.sha256(text.encode()).hexdigest()
        out += f'[[key]]\nid = "{id_}"\naccount = "{account}"\nplan = "{plan}"\n'
        out += f'hash = "sha256:{digest}"\norigins = {json.dumps(origins)}\n'
    return out
