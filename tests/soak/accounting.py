"""The books: for each account, what clients saw admitted, against what the gateways say was spent.

Counts as admitted: every answer with RateLimit headers or of an account without a limit that the
table or the upstream gave, whole or not. `unknown` is a call whose connection ended before its
answer began: it may have been counted.
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
        # Given back while the store was in trouble: the lease may have been closed by then.
        self.refunded = 0

    def add(self, field):
        with self.lock:
            setattr(self, field, getattr(self, field) + 1)

    def lease(self):
        """The most that one process holds unspent."""
        return max(1, min(self.limit // 100, 64))

    def is_within_limit(self, slack):
        return self.limit is None or self.admitted <= self.limit + slack

    def month_count(self, gateway):
        answer = client.get(gateway.http, "/v1/usage", key=self.keys[0])
        return json.loads(answer.body)["month_count"] if answer.status == 200 else None

    def balance(self, gateways, patience=20.0):
        """What each gateway says was spent, and whether that agrees with the clients."""
        begun = now()
        while True:
            said = [self.month_count(gateway) for gateway in gateways]
            most = self.admitted + self.unknown + self.refunded
            good = None not in said and self.admitted <= min(said) == max(said) <= most
            if good or now() - begun > patience:
                return said, good
            time.sleep(0.2)

    def spend_remaining(self, gateways):
        """Asks on until nothing came for longer than others may hold something idle."""
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
