"""The callers of one round, and the watchers of the admin pages. They record responses and reports,
but check nothing.

Every account has a connection of its own to every node, and sends requests with its keys in turn.
"""

import asyncio
import json
import re
from typing import NamedTuple, Optional

from .servers import TIMEOUT_SECONDS, now

USAGE, DOMAIN = "/v1/usage", "/v1/public/domain/first.test"
PERIOD = 0.06
WATCH_PERIOD = 0.15


class Sample(NamedTuple):
    """One response, with its times and the account's limit if it names one."""

    node: int
    account: str
    key: str
    sent: float
    received: float
    status: int
    limit: Optional[int]
    admitted: bool


class StatusReport(NamedTuple):
    """What a node reported about its keys at one moment."""

    node: int
    at: float
    degraded: str
    failing: int


class Caller:
    """A persistent connection of one account to one node."""

    def __init__(self, node, account):
        self.node, self.account = node, account
        self.reader = self.writer = None

    async def ask(self, key, target):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.node.http)
        sent = now()
        self.writer.write(f"GET {target} HTTP/1.1\r\nHost: gate.test\r\n"
                          f"Authorization: Bearer {key.token}\r\n\r\n".encode())
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
        head = head.decode()
        length = re.search(r"^content-length: *(\d+)", head, re.M | re.I)
        body = await self.reader.readexactly(int(length[1]))
        status = int(head.split(" ", 2)[1])
        limit = None
        if status == 200 and target == USAGE:
            limit = json.loads(body)["monthly_limit"]
        elif found := re.search(r"^ratelimit-policy: .*;q=(\d+)", head, re.M | re.I):
            limit = int(found[1])
        return Sample(self.node.number, self.account, key.id, sent, now(), status, limit,
                      status == 200 and target == DOMAIN)

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def call_until_done(node, account, keys, draw, samples, faults, done):
    """Sends requests until the round is done. `keys` may grow meanwhile."""
    caller, turn = Caller(node, account), draw.randrange(100)
    try:
        while not done.is_set():
            known = keys[account]
            target = USAGE if draw.random() < 0.3 else DOMAIN
            try:
                samples.append(await caller.ask(known[turn % len(known)], target))
            except (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
                faults.append(f"expected an answer of {node.name}, but found {error!r}")
                return
            turn += 1
            await asyncio.sleep(PERIOD * draw.uniform(0.5, 1.5))
    finally:
        caller.close()


async def watch_status(node, status_reports, done):
    while not done.is_set():
        requested_at = now()
        if status := await node.read_status():
            status_reports.append(StatusReport(node.number, requested_at, *status))
        await asyncio.sleep(WATCH_PERIOD)


class SchedulingDelays:
    """How long this script was delayed. Other processes of the machine were delayed as well."""

    STEP = 0.02

    def __init__(self):
        self.all = []

    async def watch(self, done):
        while not done.is_set():
            slept_at = now()
            await asyncio.sleep(self.STEP)
            late = now() - slept_at - self.STEP
            if late > self.STEP:
                self.all.append((slept_at, late))

    def within(self, since, until):
        return sum(late for at, late in self.all if at + late >= since and at <= until)
