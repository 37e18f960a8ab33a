"""Plays the connections of a hunt against one server, and checks them in batches."""

import asyncio
import ssl
import time

from . import client, servers
from .checks import Checks
from .plan import draw_plan

# How many connections are open at a time, and how many are checked together.
CONCURRENCY, BATCH = 60, 1_500
# No more violations are collected.
MAX_VIOLATIONS = 5
# How long the server may take to log the last requests.
LOG_SECONDS = 1.0


class Hunt:
    def __init__(self, binary, folder, seed, server, path, request_count, make_gateway=None,
                 fault="", with_tls=True):
        self.seed, self.path, self.request_count = seed, path, request_count
        self.with_tls = with_tls
        self.server_name = server
        servers.create_certificate(folder)
        self.server = servers.Server(server, folder, fault)
        make_gateway = make_gateway or (lambda port, is_fast, is_screened: servers.Gateway(
            binary, folder, port, is_fast, is_screened))
        # Each path with screening and without.
        self.gateways = {(is_fast, is_screened): make_gateway(
            self.server.port, is_fast, is_screened)
                         for is_fast in (True, False) for is_screened in (True, False)
                         if path in ("both", "fast" if is_fast else "pingora")}
        # Every connection has at least one request.
        self.checks = Checks(seed, server, path, request_count + BATCH, with_tls)
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.retries, self.seconds = {}, 0.0

    def run(self):
        begun = time.monotonic()
        try:
            for gateway in self.gateways.values():
                gateway.start()
            asyncio.run(self.play_all())
            for gateway in self.gateways.values():
                self.retries[gateway.path] = self.retries.get(gateway.path, 0) + gateway.retries()
        finally:
            self.close()
        self.checks.check_log(self.server.read_log())
        self.checks.end_batch(is_last=True)
        self.seconds = time.monotonic() - begun

    async def play_all(self):
        for gateway in self.gateways.values():
            if gateway.child is None:
                await gateway.listen()
        first = 0
        while sum(self.checks.requests.values()) < self.request_count:
            count = min(BATCH, max(CONCURRENCY, self.request_count // 12))
            await self.play_batch(first, count)
            first += count
            if len(self.checks.violations) >= MAX_VIOLATIONS:
                return
        await asyncio.sleep(LOG_SECONDS)
        for gateway in self.gateways.values():
            if gateway.child is None:
                await gateway.stop()

    async def play_batch(self, first, count):
        numbers = iter(range(first, first + count))

        async def play_some():
            for number in numbers:
                plan = draw_plan(self.seed, self.server_name, number, self.path,
                                 self.with_tls)
                gateway = self.gateways[plan.is_fast, plan.is_screened]
                self.checks.check_record(await client.play(plan, gateway, self.tls))
                self.check_alive(gateway)

        await asyncio.gather(*(play_some() for _ in range(CONCURRENCY)))
        self.checks.check_log(self.server.read_log())
        self.checks.end_batch()

    def check_alive(self, gateway):
        if gateway.child is not None and (code := gateway.child.poll()) is not None:
            raise RuntimeError(f"gateway {gateway.name} ended with {code}")

    def close(self):
        for gateway in self.gateways.values():
            gateway.close()
        self.server.close()
