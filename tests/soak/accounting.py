"""Compares the admitted calls of each account with the usage that gateways report.

A call counts as admitted if the table or the upstream server answered it, even if the response was
cut off. `unknown` counts calls whose connection ended before the response began: the gateway may
have charged them or not.
"""

import json
import threading
import time

from . import client
from .world import now


class AccountTotals:
    def __init__(self, account, store, limit):
        self.account, self.store, self.limit = account, store, limit
        self.lock = threading.Lock()
        self.keys = []
        self.admitted = self.quota_exceeded = self.failed = self.unknown = 0
        # Refunds during a fault of the store: the lease may have been closed before the refund.
        self.refunded = 0

    def add(self, field):
        with self.lock:
            setattr(self, field, getattr(self, field) + 1)

    def lease(self):
        """The most leased calls that one process may hold of this account."""
        return max(1, min(self.limit // 100, max(64, self.limit // 10_000), 4_096))

    def is_within_limit(self, slack):
        return self.limit is None or self.admitted <= self.limit + slack

    def month_count(self, gateway):
        answer = client.get(gateway.http, "/v1/usage", key=self.keys[0])
        return json.loads(answer.body)["month_count"] if answer.status == 200 else None

    def compare_with_usage(self, gateways, timeout=20.0):
        """Returns the usage that each gateway reports, and whether it agrees with the clients."""
        started = now()
        while True:
            reported = [self.month_count(gateway) for gateway in gateways]
            most = self.admitted + self.unknown + self.refunded
            is_balanced = (None not in reported
                           and self.admitted <= min(reported) == max(reported) <= most)
            if is_balanced or now() - started > timeout:
                return reported, is_balanced
            time.sleep(0.2)

    def spend_remaining(self, gateways):
        """Sends requests until no call was admitted for four seconds.

        Idle leases end before that."""
        last = now()
        while now() - last < 4.0:
            for gateway in gateways:
                answer = client.get(gateway.http, "/v1/public/domain/first.test", key=self.keys[0])
                if answer.status == 200:
                    self.add("admitted")
                    last = now()
                elif answer.status != 429:
                    last = now()
            time.sleep(0.01)
