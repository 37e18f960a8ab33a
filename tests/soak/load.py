"""The callers: a mix of requests, each answer judged by what was allowed at its time."""

import json
import random
import threading
import time

from . import client
from .client import request
from .world import now

# How long after a trouble its effects may still be seen, on a machine that has other work.
STORE_MARGIN, UPSTREAM_MARGIN, TABLE_MARGIN, KEY_MARGIN = 15.0, 4.0, 8.0, 5.0

SAFE = (10, "safe", False, False, None)
FLAGGED = (100, "disposable", False, False, None)
# What each of the two tables says: name asked, its canonical form, the row, the two verdicts.
KNOWN = [
    ("first.test", "first.test", None, [(*FLAGGED[:4], "First Mail"), (*FLAGGED[:4], "Other")]),
    ("FIRST.Test.", "first.test", None, [(*FLAGGED[:4], "First Mail"), (*FLAGGED[:4], "Other")]),
    ("a.b.first.test", "a.b.first.test", "first.test",
     [(*FLAGGED[:4], "First Mail"), (*FLAGGED[:4], "Other")]),
    ("second.test", "second.test", None, [FLAGGED, SAFE]),
    ("new.test", "new.test", None, [SAFE, FLAGGED]),
    ("b%C3%BCcher.test", "xn--bcher-kva.test", None, [FLAGGED, SAFE]),
    ("XN--BCHER-KVA.test", "xn--bcher-kva.test", None, [FLAGGED, SAFE]),
    ("mail.B%C3%9CCHER.test", "mail.xn--bcher-kva.test", "xn--bcher-kva.test", [FLAGGED, SAFE]),
    ("exact.test", "exact.test", None, [FLAGGED, FLAGGED]),
    ("sub.exact.test", "sub.exact.test", None, [SAFE, SAFE]),
    ("gmail.com", "gmail.com", None, [(0, "safe", True, False, "Gmail")] * 2),
    ("safe-corp.com", "safe-corp.com", None, [(0, "safe", False, True, None)] * 2),
    ("lists.test", "lists.test", None, [(70, "role_account", False, False, None)] * 2),
    ("notfirst.test", "notfirst.test", None, [SAFE, SAFE]),
]
# None of these is a domain: 422.
NEVER = ["localhost", "a..test", "-a.test", "a_b.test", "jane%40first.test", "1.2.3.4",
         "a%2Fb.test", "%FF.test", "a.123", "x" * 64 + ".test"]

LISTS = [("overrides.csv", "override"), ("protected.txt", "protected"),
         ("corporate.txt", "corporate"), ("disposable.txt", "disposable"), ("role.txt", "role"),
         ("free.txt", "free"), ("labels.csv", "label"), ("seed.txt", "seed")]


def table_files():
    """The two tables, as folders of lists."""
    manifest = "".join(
        f'[[list]]\nfile = "{file}"\nkind = "{kind}"\n'
        + ('tier = "a"\n' if kind == "disposable" else "") for file, kind in LISTS)
    files = {
        "manifest.toml": manifest + "[guard]\nmax_changed_share = 1.0\n",
        "overrides.csv": "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,"
                         "mx_provider_label\n",
        "protected.txt": "gmail.com\nsafe-corp.com\n",
        "corporate.txt": "safe-corp.com\n",
        "role.txt": "lists.test\n",
        "free.txt": "gmail.com\n",
        "seed.txt": "first.test\nexact.test\n",
    }
    return [
        {**files, "disposable.txt": "first.test\nsecond.test\nxn--bcher-kva.test\n=exact.test\n",
         "labels.csv": "domain,label\nfirst.test,First Mail\ngmail.com,Gmail\n"},
        {**files, "disposable.txt": "first.test\nnew.test\n=exact.test\n",
         "labels.csv": "domain,label\nfirst.test,Other\ngmail.com,Gmail\n"},
    ]


def refusal(code):
    return {
        400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
        405: "method_not_allowed", 422: "validation_error", 429: "quota_exceeded",
    }[code]


class Caller(threading.Thread):
    """One caller with one connection to each gateway."""

    def __init__(self, number, run):
        super().__init__(name=f"caller-{number}", daemon=True)
        self.number, self.run_, self.random = number, run, random.Random(f"{run.seed}-{number}")
        self.connections = {}
        self.asked = 0
        self.actions = [
            (30, self.known), (8, self.unknown), (6, self.invalid), (4, self.top), (6, self.usage),
            (20, self.check), (4, self.head), (6, self.pipelined), (4, self.wrong_key),
            (4, self.origin), (2, self.preflight), (3, self.nowhere), (10, self.limited),
            (6, self.changing_key),
        ]

    def run(self):
        weights, actions = zip(*self.actions)
        while not self.run_.done.is_set() and not self.run_.violations.stop.is_set():
            self.run_.pause.wait()
            action = self.random.choices(actions, weights)[0]
            gateway = self.random.choice(self.run_.gateways)
            if gateway.away.is_set():
                self.drop(gateway)
                time.sleep(0.01)
                continue
            try:
                action(gateway)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                self.violate(f"{type(error).__name__}: {error}", action.__name__, gateway)
                self.drop(gateway)
            time.sleep(self.random.uniform(0, 2 * self.run_.rest))
        for gateway in list(self.connections):
            self.drop(gateway)

    def violate(self, what, where, gateway):
        self.run_.violations.add(f"{where} on {gateway.name}: {what}")

    # --- exchanges ---

    def connection(self, gateway):
        held = self.connections.get(gateway)
        # Kept connections are used more often than a gateway takes to close them in a drain.
        if held and (held[0].closes or now() - held[1] > 1.0 or held[2] is not gateway.child):
            self.drop(gateway)
            held = None
        if not held:
            held = [client.Connection(gateway.http), now(), gateway.child]
            self.connections[gateway] = held
        held[1] = now()
        return held[0]

    def drop(self, gateway):
        held = self.connections.pop(gateway, None)
        if held:
            held[0].close()

    def ask(self, gateway, *requests, heads=False):
        """The answers to requests in one packet, and when they were under way."""
        connection, since = self.connection(gateway), now()
        connection.send(b"".join(requests))
        answers = []
        for _ in requests:
            answers.append(connection.read(head=heads))
            self.asked += 1
        self.run_.took.append(now() - since)
        return answers, since, now()

    def common(self, answer, id_=None):
        sent = answer.header("x-request-id")
        assert sent and (id_ is None or sent == id_), f"request id {sent!r}, sent {id_!r}: {answer}"
        fails_open = answer.status == 429 or answer.status >= 500
        assert (answer.header("x-fail-open") == "true") == fails_open, f"fail open: {answer}"

    def refused(self, answer, code):
        assert answer.status == code, f"expected {code}, but found {answer}"
        said = json.loads(answer.body)
        assert said["error"] == refusal(code), f"{answer}"

    def excused(self, gateway, book, answer, since, until):
        """A 429 or 500 to a counted call, judged; True if it was one."""
        if answer.status == 429 and answer.header("x-riskgate-source") is None:
            book.add("exhausted")
            self.refused(answer, 429)
            assert answer.header("retry-after") and "ratelimit" not in answer.headers, f"{answer}"
            assert book.limit is not None, f"429 without a limit: {answer}"
            least = book.limit - self.run_.short_by(book)
            assert book.admitted >= least, (
                f"429 of {book.account} after {book.admitted} of {book.limit}, expected {least}")
            return True
        if answer.status == 500 and b'"internal_error"' in answer.body:
            book.add("failed")
            self.store_failed(gateway, answer, since, until)
            return True
        return False

    def store_failed(self, gateway, answer, since, until):
        """A 500 is right while the store is in trouble, or when a call waited its deadline out."""
        trouble = self.run_.spans.touches("store", since, until, STORE_MARGIN)
        if gateway.store == "redis" and trouble:
            return
        assert until - since >= self.run_.store_deadline, f"500 while the store was well: {answer}"
        self.run_.slow.append(f"{gateway.name} after {until - since:.2f} s")

    def admitted(self, book, answer):
        book.add("admitted")
        if book.limit is None:
            return
        policy, rate = answer.header("ratelimit-policy"), answer.header("ratelimit")
        assert policy == f'"monthly";q={book.limit}', f"{answer}"
        assert rate and rate.startswith('"monthly";r='), f"{answer}"
        slack = self.run_.over_by(book)
        assert book.is_never_over(slack), f"{book.account}: {book.admitted} of {book.limit}"

    def counted(self, gateway, book, answer, times, status, id_=None):
        """Whether a counted call got what it asked for; anything else must be excused."""
        self.common(answer, id_)
        if self.excused(gateway, book, answer, *times):
            return False
        assert answer.status == status, f"expected {status}, but found {answer}"
        self.admitted(book, answer)
        return True

    def id(self):
        return f"s{self.number}-{self.asked}-{self.random.getrandbits(32):08x}"

    def book(self, gateway, name="main"):
        return self.run_.books[gateway.store, name]

    def domain(self, gateway, name, book, method="GET", id_=None):
        headers = [("X-Request-Id", id_)] if id_ else []
        return request(f"/v1/public/domain/{name}", method, book.keys[0], headers)

    # --- the mix ---

    def verdict(self, answer, times, known):
        _, canonical, parent, verdicts = known
        version = answer.header("x-table-version")
        at = self.run_.tables.which(version, *times, TABLE_MARGIN)
        assert at is not None, f"table {version} may not answer now: {answer}"
        score, reason, free, corporate, label = verdicts[at]
        expected = json.dumps({
            "domain": canonical, "risk_score": score, "reason": reason, "is_free_provider": free,
            "is_corporate_email": corporate, "mx_provider_label": label,
        }, separators=(",", ":")).encode()
        assert answer.body == expected, f"expected {expected!r} of table {at}, but found {answer}"
        matched = parent if reason != "safe" else None
        assert answer.header("x-matched-domain") == matched, f"{answer}"

    def known(self, gateway):
        known, book, id_ = self.random.choice(KNOWN), self.book(gateway), self.id()
        [answer], *times = self.ask(gateway, self.domain(gateway, known[0], book, id_=id_))
        if self.counted(gateway, book, answer, times, 200, id_):
            self.verdict(answer, times, known)

    def unknown(self, gateway):
        name, book = f"u{self.random.getrandbits(40):x}.example", self.book(gateway)
        [answer], *times = self.ask(gateway, self.domain(gateway, name, book))
        if self.counted(gateway, book, answer, times, 200):
            self.verdict(answer, times, (name, name, None, [SAFE, SAFE]))

    def invalid(self, gateway):
        name, book = self.random.choice(NEVER), self.book(gateway)
        [answer], *times = self.ask(gateway, self.domain(gateway, name, book))
        if self.counted(gateway, book, answer, times, 422):
            self.refused(answer, 422)

    def top(self, gateway):
        book = self.book(gateway)
        [answer], *times = self.ask(gateway, request("/v1/public/top-domains", key=book.keys[0]))
        if self.counted(gateway, book, answer, times, 200):
            said = json.loads(answer.body)
            assert said["count"] == len(said["domains"]) and list(said) == ["domains", "count"]
            flagged = {"first.test", "second.test", "new.test", "xn--bcher-kva.test", "exact.test",
                       "lists.test"}
            for row in said["domains"]:
                assert row["domain"] in flagged and row["reason"] != "safe", f"{answer}"

    def usage(self, gateway):
        book = self.book(gateway, self.random.choice(["main", "tight"]))
        [answer], *times = self.ask(gateway, request("/v1/usage", key=book.keys[0]))
        self.common(answer)
        if answer.status == 500:
            self.store_failed(gateway, answer, *times)
            return
        assert answer.status == 200 and "ratelimit" not in answer.headers, f"{answer}"
        said = json.loads(answer.body)
        under_way = 4 * len(self.run_.callers) + book.unknown + book.given_back
        most = book.admitted + under_way
        assert said["month_count"] <= most, f"{said} of {book.account}, admitted {book.admitted}"
        assert said["reset_at"].endswith("-01T00:00:00Z"), f"{said}"

    def check(self, gateway):
        book, id_ = self.book(gateway), self.id()
        kind = self.random.choices(["200", "422", "429", "503"], [20, 1, 1, 1])[0]
        target = f"/v1/check/{kind}-{id_}@example.com?q={id_}"
        headers = [("X-Request-Id", id_), ("X-Riskgate-Account", "forged")]
        since = now()
        try:
            [answer], *times = self.ask(gateway, request(target, "GET", book.keys[0], headers))
        except client.Ended as error:
            # Only an upstream that ends in the middle of its body may end an answer so.
            self.drop(gateway)
            cut = self.run_.spans.touches("upstream", since, now(), UPSTREAM_MARGIN)
            assert error.status and cut, f"{error}"
            book.add("admitted")
            return
        self.common(answer, id_)
        if answer.header("x-riskgate-source") == "upstream":
            self.admitted(book, answer)
            assert answer.status == int(kind) and "server" not in answer.headers, f"{answer}"
            expected = {"asked": target.replace("@", "%40"), "id": id_, "account": book.account}
            assert json.loads(answer.body) == expected, f"expected {expected}, but found {answer}"
        elif not self.excused(gateway, book, answer, *times):
            self.check_failed(gateway, book, answer, times)

    def check_failed(self, gateway, book, answer, times):
        trouble = self.run_.spans.touches("upstream", *times, UPSTREAM_MARGIN)
        assert answer.status == 500 and trouble, f"while the upstream was well: {answer}"
        code = json.loads(answer.body)["error"]
        if code == "upstream_timeout":
            # The upstream had it, so it counts.
            book.add("admitted")
            return
        assert code == "upstream_unavailable" and "ratelimit" not in answer.headers, f"{answer}"
        book.add("failed")
        if gateway.store == "redis" and self.run_.spans.touches("store", *times, STORE_MARGIN):
            book.add("given_back")

    def head(self, gateway):
        known, book = self.random.choice(KNOWN), self.book(gateway)
        bytes_ = self.domain(gateway, known[0], book, "HEAD")
        [answer], *times = self.ask(gateway, bytes_, heads=True)
        if answer.status == 500:
            book.add("failed")
            self.store_failed(gateway, answer, *times)
        elif self.counted(gateway, book, answer, times, 200):
            assert int(answer.header("content-length")) > 100, f"{answer}"

    def pipelined(self, gateway):
        asked, book = self.random.sample(KNOWN, 3), self.book(gateway)
        ids = [self.id() + f"-{at}" for at in range(3)]
        connection, since = self.connection(gateway), now()
        connection.send(b"".join(
            self.domain(gateway, known[0], book, id_=id_) for known, id_ in zip(asked, ids)))
        for at, (known, id_) in enumerate(zip(asked, ids)):
            if connection.closes:
                # What came behind an answer that closes was not taken (RFC 9112 section 9.6).
                return
            try:
                answer = connection.read()
            except client.Ended as error:
                raise AssertionError(f"pipelined request {at + 1} of 3: {error}") from error
            self.asked += 1
            if self.counted(gateway, book, answer, (since, now()), 200, id_):
                self.verdict(answer, (since, now()), known)

    def wrong_key(self, gateway):
        key = self.book(gateway).keys[0]
        wrong = self.random.choice([
            [], [("Authorization", f"Bearer {key[:-1]}!")], [("Authorization", f"Basic {key}")],
            [("Authorization", f"Bearer {key}")] * 2, [("Authorization", f"Bearer {key}, {key}")],
        ])
        target = self.random.choice(["/v1/usage", "/v1/public/domain/a..b", "/v1/check/a@b.com"])
        [answer], *_ = self.ask(gateway, request(target, headers=wrong))
        self.common(answer)
        self.refused(answer, 401)
        assert answer.header("www-authenticate") == 'Bearer realm="riskgate"', f"{answer}"

    def origin(self, gateway):
        book = self.book(gateway, "webby")
        good = self.random.random() < 0.5
        origin = self.random.choice(
            ["https://app.example.com", "https://a.b.example.org"] if good else
            ["https://example.org", "http://app.example.com", "null", "https://app.example.com.x"])
        headers = [("Origin", origin)]
        bytes_ = request("/v1/public/domain/first.test", "GET", book.keys[0], headers)
        [answer], *times = self.ask(gateway, bytes_)
        if not good:
            self.common(answer)
            self.refused(answer, 403)
            assert json.loads(answer.body)["detail"] == f"Origin: {origin}", f"{answer}"
            assert "access-control-allow-origin" not in answer.headers, f"{answer}"
            return
        if self.counted(gateway, book, answer, times, 200):
            self.verdict(answer, times, KNOWN[0])
        assert answer.header("access-control-allow-origin") == origin, f"{answer}"

    def preflight(self, gateway):
        headers = [("Origin", "https://app.example.com"), ("Access-Control-Request-Method", "GET")]
        [answer], *_ = self.ask(gateway, request("/v1/usage", "OPTIONS", headers=headers))
        self.common(answer)
        assert answer.status == 204, f"{answer}"
        assert answer.header("access-control-max-age") == "600", f"{answer}"

    def nowhere(self, gateway):
        key = self.book(gateway).keys[0]
        if self.random.random() < 0.5:
            target = self.random.choice(["/", "/v1/usage/", "/v1//usage", "/v1/check/a/../b"])
            [answer], *_ = self.ask(gateway, request(target, key=key))
            self.refused(answer, 404)
        else:
            [answer], *_ = self.ask(gateway, request("/v1/usage", "DELETE", key))
            self.refused(answer, 405)
            assert answer.header("allow") == "GET, HEAD, OPTIONS", f"{answer}"
        self.common(answer)

    def limited(self, gateway):
        book = self.book(gateway, self.random.choices(["tight", "tiny"], [10, 1])[0])
        [answer], *times = self.ask(gateway, self.domain(gateway, "first.test", book))
        if self.counted(gateway, book, answer, times, 200):
            self.verdict(answer, times, KNOWN[0])

    def changing_key(self, gateway):
        key = self.run_.changing.draw(self.random, gateway.store)
        if key is None:
            return
        book = self.book(gateway, "keyed")
        bytes_ = request("/v1/public/domain/first.test", key=key.text)
        [answer], *times = self.ask(gateway, bytes_)
        allowed = key.allowed(*times)
        if answer.status == 401:
            self.common(answer)
            assert 401 in allowed, f"key {key}: expected {allowed}, but found {answer}"
        elif self.counted(gateway, book, answer, times, 200):
            assert 200 in allowed, f"key {key}: expected {allowed}, but found {answer}"
            self.verdict(answer, times, KNOWN[0])
