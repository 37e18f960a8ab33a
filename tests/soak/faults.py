"""What befalls the gateways during a run: four threads, each drawing its troubles from the seed.

Store troubles, broken tables and restarts take turns; reloads, the upstream's moods and changes of
keys run beside them. Each marks when it was on, so that answers are judged by their own time.
"""

import hashlib
import json
import random
import signal
import threading

from .load import KEY_MARGIN
from .world import now, until


class Key:
    """A key that was created, and perhaps ended, during the run."""

    def __init__(self, text, id_, run, store):
        self.text, self.id, self.run, self.store = text, id_, run, store
        self.made = now()
        self.ends = self.ended = float("inf")

    def end(self, begin, end):
        self.ends, self.ended = begin, end

    def allowed(self, since, until_):
        """The statuses that a call at this time may get."""
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
    """Creates, rotates and revokes keys by the command line."""

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
            # Commands need the store; they don't begin while it is in trouble.
            with self.run_.store_lock:
                try:
                    self.change(store, gateway)
                except RuntimeError as error:
                    self.run_.violations.add(f"keys: {error}")
            self.run_.done.wait(self.random.uniform(1.5, 4.0))

    def change(self, store, gateway):
        keys = self.keys[store]
        live = [key for key in keys if key.ends == float("inf")]
        what = self.random.choice(["created", "rotated", "revoked"]) if live else "created"
        self.counts[what] += 1
        if what == "created":
            made = json.loads(gateway.cli("keys", "create", "--account", "keyed", "--json"))
            keys.append(Key(made["key"], made["id"], self.run_, store))
        elif what == "rotated":
            key, begun = self.random.choice(live), now()
            words = ("keys", "rotate", key.id, "--overlap", "3s", "--json")
            made = json.loads(gateway.cli(*words))
            # It expires by the clock, whatever becomes of the store.
            key.end(begun + 2.0, now() + 3.0)
            keys.append(Key(made["key"], made["id"], self.run_, store))
        else:
            key, begun = self.random.choice(live), now()
            gateway.cli("keys", "revoke", key.id)
            key.end(begun, now())
        # What ended long ago is asked for now and then, the rest is forgotten.
        del keys[:-12]


class FaultInjector(threading.Thread):
    """One after another, with a rest between them."""

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
            # Each once before any comes again.
            least = min(self.counts.values())
            fault = self.random.choice(
                [t for t in self.faults if self.counts[t.__name__] == least])
            self.counts[fault.__name__] += 1
            try:
                fault(self.run_, self.random)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                self.run_.violations.add(f"{fault.__name__}: {type(error).__name__}: {error}")


def store_fault(begin, end):
    """A trouble of the store that lasts for a while; commands wait meanwhile."""
    def inject(run, random_):
        with run.store_lock:
            run.fault_windows.begin("store")
            begin(run)
            run.done.wait(random_.uniform(0.3, 5.0))
            end(run)
            run.fault_windows.end("store")
        until("the store is well again", lambda: all(
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
    """SIGTERM to one of the two that share a server, and a new process in its place."""
    gateway = run.restarted
    code = gateway.terminate(notice=0.8)
    if code != 0:
        run.violations.add(f"gateway {gateway.name} ended with {code} on SIGTERM")
    gateway.start()


def upgrade(run, _random):
    """A new binary takes over from one of the two that share a server; nobody is sent away."""
    gateway = run.restarted
    code = gateway.upgrade()
    if code != 0:
        run.violations.add(f"gateway {gateway.name} ended with {code} after a hand-over")


def broken_table(run, random_):
    """A table with a fault in it: the last good one serves, and /readyz says why."""
    with run.table_lock:
        run.tables.link_to(run.tables.broken)
        for gateway in run.gateways:
            until("a broken table is told", lambda g=gateway: b"table: " in g.page("/readyz").body)
        run.done.wait(random_.uniform(0.0, 2.0))
        run.tables.link_to(run.tables.sources[run.tables.current])
        for gateway in run.gateways:
            until("a mended one too", lambda g=gateway: b"table: " not in g.page("/readyz").body)


def swap_table(run, _random):
    with run.table_lock:
        run.tables.swap()
        # Before the next: an answer names its table, and each must be seen to come.
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
    # A broken table, or a store in trouble, is told with 422.
    if status not in (200, 422):
        run.violations.add(f"POST /reload on {gateway.name}: {status}")


def quit_alone(run, random_):
    """SIGQUIT without a successor in place is refused, and the process serves on."""
    gateway = random_.choice([g for g in run.gateways if g is not run.restarted])
    gateway.child.send_signal(signal.SIGQUIT)


def upstream_fault(mode):
    def inject(run, random_):
        run.fault_windows.begin("upstream")
        run.upstream.set_mode(mode)
        run.done.wait(random_.uniform(0.5, 4.0))
        run.upstream.set_mode("healthy")
        # What was taken while it was silent stays silent, until the gateway gives up.
        run.done.wait(2.5)
        run.fault_windows.end("upstream")
    inject.__name__ = f"upstream {mode}"
    return inject


def upstream_dropped(run, _random):
    """All kept connections end at once, some of them under a request."""
    run.fault_windows.begin("upstream")
    run.upstream.drop()
    run.fault_windows.end("upstream")


def fault_injectors(run):
    """The threads of trouble."""
    return [
        FaultInjector("store and process", run,
                 [store_stopped, store_killed, store_cut, restart_gateway, upgrade, broken_table], (3, 9)),
        FaultInjector("reloads", run, [swap_table, send_sighup, reload_page, quit_alone], (1, 4)),
        FaultInjector("upstream", run, [
            *(upstream_fault(mode) for mode in ("refuse", "silent", "cut", "garbage")),
            upstream_dropped], (2, 6)),
    ]


def key_file(keys):
    """A key file with these: `(id, account, plan, text, origins)`."""
    out = ""
    for id_, account, plan, text, origins in keys:
        digest = hashlib.sha256(text.encode()).hexdigest()
        out += f'[[key]]\nid = "{id_}"\naccount = "{account}"\nplan = "{plan}"\n'
        out += f'hash = "sha256:{digest}"\norigins = {json.dumps(origins)}\n'
    return out
