"""One round: a store with a replica, nodes and callers, key changes, and one or two failovers.

The seed determines everything: the changes and their times, what the replica misses, how the
primary fails, and in which order nodes and commands reach the promoted server.
"""

import asyncio
import hashlib
import json
import random
import signal
from dataclasses import replace
from pathlib import Path

from . import calls, rules
from .record import Change, Key, Record, PrimaryTerm, has_ended
from .servers import SwitchableProxy, Node, Redis, command, config, now, until, write_table

PLANS = {"free": 100, "big": 1_000_000, "turning": 120}
# "steady" is never changed. The callers use up the limit of "tight" in a round.
ACCOUNTS = {"steady": "big", "tight": "tight", "red": "turning", "green": "turning",
            "blue": "turning"}
CHANGING = ["red", "green", "blue"]
KEYS_EACH = 3
TIGHT_LIMITS = [20, 60, 100, 140]
LIMITS = [0, 7, 20, 45, 80, 150, 300, 1_000]
SETTLE_SECONDS = 0.5
# For a whole round, in seconds.
ROUND_TIMEOUT_SECONDS = 120


class Round:
    def __init__(self, binary, folder, seed):
        self.binary, self.folder, self.seed = binary, Path(folder), seed
        self.draw = random.Random(seed)
        self.wait_replicas = self.draw.choice([0, 0, 1])
        self.on_failure = self.draw.choice(["open", "closed"])
        self.plans = {**PLANS, "tight": self.draw.choice(TIGHT_LIMITS)}
        self.failovers = self.draw.choice([1, 1, 1, 2])
        self.record = Record(on_failure=self.on_failure)
        self.keys = {account: [] for account in ACCOUNTS}
        self.nodes, self.servers, self.links, self.tasks = [], [], [], []
        self.done = asyncio.Event()
        self.event_log, self.started = [], now()

    def note(self, text):
        self.event_log.append(f"{now() - self.started:7.3f} {text}")

    # --- the start ---

    async def start(self):
        write_table(self.folder)
        self.primary, self.replica = await self.redis(), await self.redis()
        await self.replicate(self.primary, self.replica)
        self.commands = await self.link("commands", self.primary.port)
        self.command_config = config(self.folder, "commands", self.commands.port, self)
        await self.fill()
        self.record.terms.append(await self.read_term(self.primary))
        self.note(f"wait_replicas {self.wait_replicas}, on_failure {self.on_failure}")
        await asyncio.gather(
            *(self.add_node(self.primary.port) for _ in range(self.draw.choice([2, 3]))))
        self.begin(self.record.delays.watch(self.done))
        wanted = {(node.number, key.id) for node in self.nodes for of in self.keys.values()
                  for key in of}

        async def is_open():
            return wanted <= {(s.node, s.key) for s in self.record.samples if s.status != 401}

        await until("every key opens on every node", is_open)

    async def redis(self):
        server = Redis(f"s{len(self.servers)}", self.folder)
        self.servers.append(server)
        return await server.start()

    async def link(self, name, target):
        link = SwitchableProxy(name)
        self.links.append(link)
        return await link.open(target)

    async def replicate(self, primary, replica):
        self.replication = await self.link("replication", primary.port)
        await replica.follow(primary, self.replication.port)

    async def fill(self):
        """Imports the first keys."""
        text = ""
        for account, plan in ACCOUNTS.items():
            for _ in range(KEYS_EACH if account in CHANGING else 1):
                text += self.key_to_import(account, plan)
        await self.import_keys(text, "first.toml")

    def key_to_import(self, account, plan=None):
        """Creates a key that callers use from now on. Returns its entry for a key file."""
        number = sum(len(of) for of in self.keys.values())
        token = f"sv_{self.draw.getrandbits(128):032x}"
        key = Key(f"{account}-{number}", account, token)
        self.keys[account].append(key)
        digest = hashlib.sha256(token.encode()).hexdigest()
        plan = f'plan = "{plan}"\n' if plan else ""
        return (f'[[key]]\nid = "{key.id}"\naccount = "{account}"\n{plan}'
                f'hash = "sha256:{digest}"\n')

    async def import_keys(self, text, name):
        path = self.folder / name
        path.write_text(text)
        code, _, stderr = await self.run_command("keys", "import", str(path))
        if code != 0:
            raise RuntimeError(f"keys import: exit {code}: {stderr}")

    async def add_node(self, port):
        number = len(self.nodes)
        link = SwitchableProxy(f"node {number}")
        node = Node(number, self.binary, self.folder, link, self, self.draw.random() < 0.5)
        self.nodes.append(node)
        self.links.append(link)
        await link.open(port)
        await node.start()
        self.record.nodes = len(self.nodes)
        self.mark_contact(number)
        for account in ACCOUNTS:
            draw = random.Random(f"{self.seed}-{number}-{account}")
            self.begin(calls.call_until_done(node, account, self.keys, draw, self.record.samples,
                                  self.record.faults, self.done))
        self.begin(calls.watch_status(node, self.record.status_reports, self.done))

    def begin(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    def mark_contact(self, node):
        """Records that this node's proxy leads to the current primary from now on."""
        self.record.contacts[node, len(self.record.terms) - 1] = [now(), float("inf")]

    def mark_contact_lost(self, node):
        contact = self.record.contacts.get((node, len(self.record.terms) - 1))
        if contact and contact[1] > now():
            contact[1] = now()

    # --- changes ---

    async def run_command(self, *words):
        return await command(self.binary, words, self.command_config)

    async def read_term(self, server):
        """Reads what a server has now, with commands that connect to it directly."""
        path = config(self.folder, f"direct-{server.name}", server.port, self)
        since = now()
        results = await asyncio.gather(*(command(self.binary, (what, "list", "--json"), path)
                                      for what in ("keys", "accounts")))
        if any(code != 0 for code, _, _ in results):
            raise RuntimeError(f"listing what {server.name} has: {results}")
        keys, accounts = (json.loads(out) for _, out, _ in results)
        return PrimaryTerm(server.name, since,
                     {key["id"]: has_ended(key) for key in keys},
                     {account["name"]: account["limit"] for account in accounts})

    async def make_change(self, change, how=None):
        """Makes a change on the server that commands reach now.

        A key is created by `create`, by a rotation, or by an import; after an import callers use
        the key even if the command fails."""
        target, terms = self.commands.target, len(self.record.terms)
        is_current = target == self.current().port
        change.started = now()
        self.record.changes.append(change)
        if change.kind == "limit":
            result = await self.run_command(
                "accounts", "set", change.account, "--limit", str(change.value))
        elif change.kind == "revoke" and how != "rotate":
            result = await self.run_command("keys", "revoke", change.key)
        elif change.kind == "revoke":
            result = await self.run_command(
                "keys", "rotate", change.key, "--overlap", "0", "--json")
        elif how == "import":
            text = self.key_to_import(change.account)
            change.key = self.keys[change.account][-1].id
            path = self.folder / f"import-{change.key}.toml"
            path.write_text(text)
            result = await self.run_command("keys", "import", str(path))
        else:
            result = await self.run_command("keys", "create", "--account", change.account, "--json")
        change.ended, change.done, change.said = now(), result[0] == 0, result[2].strip()
        if self.commands.target == target and len(self.record.terms) == terms:
            change.term = terms - 1 if is_current else -1
        if how in ("rotate", "create"):
            self.take_new_key(change, how, result[1])
        self.note(f"{how or ''} {change}: {'done' if change.done else 'failed'} in term "
                  f"{change.term}, started {change.started - self.started:.3f} {change.said[:120]}")

    def take_new_key(self, change, how, out):
        """Gives the callers the key that a command printed."""
        if not change.done:
            if how == "rotate":
                self.record.keys_in_doubt.add(change.key)
            return
        made = json.loads(out)
        if how == "rotate":
            self.record.changes.append(replace(change, kind="create", key=made["id"]))
        else:
            change.key = made["id"]
        self.keys[change.account].append(Key(made["id"], change.account, made["key"]))

    def current(self):
        """The current primary."""
        return next(s for s in self.servers if s.name == self.record.terms[-1].server)

    async def change_at(self, moment, draw, made):
        """Makes a random change at the given moment."""
        await asyncio.sleep(max(0.0, moment - now()))
        kind = draw.choices(["revoke", "limit", "create"], [5, 4, 3])[0]
        change = Change(kind, draw.choice(CHANGING))
        if kind == "revoke":
            change.key = draw.choice(self.keys[change.account]).id
        elif kind == "limit":
            change.value = draw.choice(LIMITS)
        made.append(change)
        hows = {"revoke": [None, None, "rotate"], "create": ["import", "create"]}
        await self.make_change(change, draw.choice(hows.get(kind, [None])))

    def changes_within(self, count, seconds):
        """Starts random changes. Returns their task, and the list that they are added to."""
        made = []
        work = [self.change_at(now() + self.draw.uniform(0, seconds),
                               random.Random(self.draw.random()), made) for _ in range(count)]
        return asyncio.gather(*work), made

    # --- a failover ---

    async def fail_over(self):
        before, _ = self.changes_within(self.draw.choice([0, 1, 2]), 0.3)
        await before
        await asyncio.sleep(self.draw.uniform(0, 0.4))
        self.break_replication()
        window = self.draw.uniform(0.05, 0.9)
        changes_to_lose, made = self.changes_within(self.draw.choice([1, 2, 2, 3, 4]), window)
        await asyncio.sleep(window * self.draw.uniform(0.7, 1.6))
        how = self.fail_primary()
        await asyncio.sleep(self.draw.choice([0.0, self.draw.uniform(0, 0.6)]))
        self.record.terms[-1].until = now()
        for node in self.nodes:
            self.mark_contact_lost(node.number)
        await self.replica.promote()
        self.record.terms.append(await self.read_term(self.replica))
        self.note(f"{self.replica.name} is promoted with {self.record.terms[-1].keys}, "
                  f"{self.record.terms[-1].limits}")
        late, _ = self.changes_within(self.draw.choice([0, 1, 2, 3]), 1.2)
        again = self.draw.random()
        await asyncio.gather(
            changes_to_lose, late, self.switch_all_to_promoted(), self.rejoin(how),
            self.redo_lost_changes(made, again), self.start_late_node())
        self.note("the failover is over")

    def break_replication(self):
        how = self.draw.choice(["hangs", "hangs", "is cut", "stands"])
        if how == "hangs":
            self.replication.hang()
        elif how == "is cut":
            self.replication.switch_to(None)
        self.note(f"replication {how}")
        if self.draw.random() < 0.4:
            stalled = self.draw.choice(self.nodes)
            stalled.link.hang()
            self.mark_contact_lost(stalled.number)
            self.note(f"{stalled.name} receives nothing from the store")

    def fail_primary(self):
        how = self.draw.choice(["killed", "killed", "stopped", "cut off", "left alone"])
        if how == "killed":
            self.primary.kill()
        elif how == "stopped":
            self.primary.signal(signal.SIGSTOP)
        elif how == "cut off":
            for link in [self.commands, *(node.link for node in self.nodes)]:
                link.switch_to(None)
        self.note(f"the primary {self.primary.name} is {how}")
        return how

    async def switch_all_to_promoted(self):
        """Switches commands and nodes to the promoted server, each after its own delay."""
        promoted = self.replica

        async def switch(link, number, delay):
            await asyncio.sleep(delay)
            link.switch_to(promoted.port)
            if number is not None:
                self.mark_contact(number)
            self.note(f"{link.name} reaches {promoted.name}")

        links = [(self.commands, None)] + [(node.link, node.number) for node in self.nodes]
        delays = [self.draw.choice([0.0, self.draw.uniform(0, 0.9)]) for _ in links]
        await asyncio.gather(*(switch(*link, delay) for link, delay in zip(links, delays)))

    async def rejoin(self, how):
        """The old primary comes back as a replica of the new one."""
        await asyncio.sleep(self.draw.uniform(0.1, 1.2))
        if how == "killed":
            old = await self.redis()
        else:
            old = self.primary
            old.signal(signal.SIGCONT)
        self.primary, self.replica = self.replica, old
        await self.replicate(self.primary, old)
        self.note(f"{old.name} replicates {self.primary.name}")

    async def redo_lost_changes(self, made, share):
        """Makes lost changes again on the promoted server, as an operator would."""
        await asyncio.sleep(self.draw.uniform(0.1, 1.0))
        held, draw = self.record.terms[-1], random.Random(share)
        for old in list(made):
            if draw.random() > share or self.commands.target != self.current().port:
                continue
            if old.kind == "revoke" and not held.keys.get(old.key, True):
                await self.make_change(Change("revoke", old.account, old.key))
            elif old.kind == "limit" and held.limits[old.account] != old.value:
                await self.make_change(Change("limit", old.account, None, old.value))
            elif old.kind == "create" and old.key not in held.keys:
                await self.make_change(Change("create", old.account), "import")

    async def start_late_node(self):
        if self.draw.random() < 0.3:
            port = self.replica.port
            await asyncio.sleep(self.draw.uniform(0, 1.0))
            await self.add_node(port)
            self.note(f"{self.nodes[-1].name} is new")

    # --- the end ---

    async def wait_until_due(self):
        """Waits until every deadline of the rules has passed, and a moment longer."""
        record = self.record
        moments = [change.ended for change in record.changes]
        moments += [since for since, _ in record.contacts.values()]
        due = max(moments) + rules.RELAYED_SECONDS
        while now() < due + record.delays.within(max(moments), now()) + SETTLE_SECONDS:
            await asyncio.sleep(0.05)

    async def run_round(self):
        await self.start()
        for _ in range(self.failovers):
            await self.fail_over()
        await self.wait_until_due()
        self.done.set()
        await asyncio.gather(*self.tasks)
        self.tasks.clear()
        faults = rules.find_violations(self.record)
        faults += await rules.compare_nodes_with_store(self, await self.read_term(self.current()))
        faults += await rules.resolve_lost_limits(self)
        stderr = [node.stderr_text() for node in self.nodes]
        faults += rules.check_losses_reported(self.record, stderr)
        for node in self.nodes:
            if (code := await node.end()) != 0 or "panicked" in node.stderr_text():
                faults.append(f"expected {node.name} to end with 0 and no panic, but found {code}")
        return self.record.faults + faults

    async def close(self):
        self.done.set()
        for task in self.tasks:
            task.cancel()
        for process in [*self.nodes, *self.servers]:
            if hasattr(process, "process"):
                process.kill()
        for link in self.links:
            await link.close()


async def run_round(binary, folder, seed):
    """Plays a round, writes its event log to the folder, and returns its faults."""
    round_ = Round(binary, folder, seed)
    try:
        faults = await asyncio.wait_for(round_.run_round(), ROUND_TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001 - a round that ended early has failed
        faults = [f"expected a whole round, but found {type(error).__name__}: {error}"]
    finally:
        await round_.close()
    event_log = [*round_.event_log, *(f"FAULT {fault}" for fault in faults)]
    (Path(folder) / "event_log.txt").write_text("\n".join(event_log) + "\n")
    for name in ("samples", "status_reports"):
        lines = [json.dumps(noted._asdict()) for noted in getattr(round_.record, name)]
        (Path(folder) / f"{name}.jsonl").write_text("\n".join(lines))
    return faults
