"""The callers: they send a mix of requests and check every response."""

import json
import random
import threading
import time

from . import client
from .client import request
from .world import now

# How many seconds after a fault its effects may last, on a machine that has other work.
STORE_MARGIN, UPSTREAM_MARGIN, TABLE_MARGIN, KEY_MARGIN = 15.0, 4.0, 8.0, 5.0

SAFE = (10, "safe", False, False, None)
FLAGGED = (100, "disposable", False, False, None)
# The answers of the two tables: requested name, canonical form, parent row, both verdicts.
EXPECTED_VERDICTS = [
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
# Not domains: the gateway answers 422.
INVALID_DOMAINS = ["localhost", "a..test", "-a.test", "a_b.test", "jane%40first.test", "1.2.3.4",
                   "a%2Fb.test", "%FF.test", "a.123", "x" * 64 + ".test"]

LISTS = [("overrides.csv", "override"), ("protected.txt", "protected"),
         ("corporate.txt", "corporate"), ("disposable.txt", "disposable"), ("role.txt", "role"),
         ("free.txt", "free"), ("labels.csv", "label"), ("seed.txt", "seed")]


def table_files():
    """Returns the files of both tables."""
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
        self.request_count = 0
        self.actions = [
            (30, self.ask_known_domain), (8, self.ask_unknown_domain),
            (6, self.ask_invalid_domain), (4, self.ask_top_domains), (6, self.ask_usage),
            (20, self.ask_check), (4, self.ask_with_head), (6, self.ask_pipelined),
            (4, self.ask_with_wrong_key), (4, self.ask_with_origin), (2, self.ask_preflight),
            (3, self.ask_unknown_route), (10, self.ask_with_small_limit),
            (6, self.ask_with_changing_key),
        ]

    def run(self):
        weights, actions = zip(*self.actions)
        while not self.run_.done.is_set() and not self.run_.violations.stop.is_set():
            self.run_.may_send.wait()
            action = self.random.choices(actions, weights)[0]
            gateway = self.random.choice(self.run_.gateways)
            if gateway.away.is_set():
                self.close_connection(gateway)
                time.sleep(0.01)
                continue
            try:
                action(gateway)
            except Exception as error:  # noqa: BLE001 - every exception is a violation
                self.report_violation(f"{type(error).__name__}: {error}", action.__name__, gateway)
                self.close_connection(gateway)
            time.sleep(self.random.uniform(0, 2 * self.run_.pause_seconds))
        for gateway in list(self.connections):
            self.close_connection(gateway)

    def report_violation(self, what, where, gateway):
        self.run_.violations.add(f"{where} on {gateway.name}: {what}")

    # --- exchanges ---

    def connection(self, gateway):
        held = self.connections.get(gateway)
        # A draining gateway closes idle connections, so a connection is reused
        # only within a second.
        if held and (held[0].closes or now() - held[1] > 1.0 or held[2] is not gateway.child):
            self.close_connection(gateway)
            held = None
        if not held:
            held = [client.Connection(gateway.http), now(), gateway.child]
            self.connections[gateway] = held
        held[1] = now()
        return held[0]

    def close_connection(self, gateway):
        held = self.connections.pop(gateway, None)
        if held:
            held[0].close()

    def send_requests(self, gateway, *requests, heads=False):
        """Sends requests in one write. Returns the responses, and when they began and ended."""
        connection, since = self.connection(gateway), now()
        connection.send(b"".join(requests))
        answers = []
        for _ in requests:
            answers.append(connection.read(head=heads))
            self.request_count += 1
        self.run_.latencies.append(now() - since)
        return answers, since, now()

    def check_common_headers(self, answer, id_=None):
        sent = answer.header("x-request-id")
        assert sent and (id_ is None or sent == id_), f"request id {sent!r}, sent {id_!r}: {answer}"
        fails_open = answer.status == 429 or answer.status >= 500
        assert (answer.header("x-fail-open") == "true") == fails_open, f"fail open: {answer}"

    def check_refusal(self, answer, code):
        assert answer.status == code, f"expected {code}, but found {answer}"
        body = json.loads(answer.body)
        assert body["error"] == refusal(code), f"{answer}"

    def check_failure(self, gateway, totals, answer, since, until):
        """Checks a 429 or 500 to a counted call. Returns True if the response is one of them."""
        if answer.status == 429 and answer.header("x-riskgate-source") is None:
            totals.add("quota_exceeded")
            self.check_refusal(answer, 429)
            rate = answer.header("ratelimit") or ""
            assert answer.header("retry-after") and rate.startswith('"monthly";r=0;'), f"{answer}"
            assert totals.limit is not None, f"429 without a limit: {answer}"
            least = totals.limit - self.run_.allowed_shortfall(totals)
            assert totals.admitted >= least, (
                f"429 of {totals.account} after {totals.admitted} of {totals.limit}, expected {least}")
            return True
        if answer.status == 500 and b'"internal_error"' in answer.body:
            totals.add("failed")
            self.check_store_failure(gateway, answer, since, until)
            return True
        return False

    def check_store_failure(self, gateway, answer, since, until):
        """A 500 is allowed during a fault of the store, or if the call reached its deadline."""
        had_fault = self.run_.fault_windows.overlaps("store", since, until, STORE_MARGIN)
        if gateway.store == "redis" and had_fault:
            return
        took = until - since
        assert took >= self.run_.store_deadline, f"500 without a fault of the store: {answer}"
        self.run_.slow.append(f"{gateway.name} after {until - since:.2f} s")

    def record_admitted(self, totals, answer):
        totals.add("admitted")
        if totals.limit is None:
            return
        policy, rate = answer.header("ratelimit-policy"), answer.header("ratelimit")
        assert policy == f'"monthly";q={totals.limit}', f"{answer}"
        assert rate and rate.startswith('"monthly";r='), f"{answer}"
        slack = self.run_.allowed_excess(totals)
        is_within = totals.is_within_limit(slack)
        assert is_within, f"{totals.account}: {totals.admitted} of {totals.limit}"

    def check_counted_response(self, gateway, totals, answer, times, status, id_=None):
        """Checks a response to a counted call. Returns True if it has `status`, False if it is an
        allowed failure."""
        self.check_common_headers(answer, id_)
        if self.check_failure(gateway, totals, answer, *times):
            return False
        assert answer.status == status, f"expected {status}, but found {answer}"
        self.record_admitted(totals, answer)
        return True

    def new_request_id(self):
        return f"s{self.number}-{self.request_count}-{self.random.getrandbits(32):08x}"

    def totals(self, gateway, name="main"):
        return self.run_.account_totals[gateway.store, name]

    def domain_request(self, gateway, name, totals, method="GET", id_=None):
        headers = [("X-Request-Id", id_)] if id_ else []
        return request(f"/v1/public/domain/{name}", method, totals.keys[0], headers)

    # --- the mix ---

    def check_verdict(self, answer, times, known):
        _, canonical, parent, verdicts = known
        version = answer.header("x-table-version")
        at = self.run_.tables.table_index(version, *times, TABLE_MARGIN)
        assert at is not None, f"table {version} may not answer now: {answer}"
        score, reason, free, corporate, label = verdicts[at]
        expected = json.dumps({
            "domain": canonical, "risk_score": score, "reason": reason, "is_free_provider": free,
            "is_corporate_email": corporate, "mx_provider_label": label,
        }, separators=(",", ":")).encode()
        assert answer.body == expected, f"expected {expected!r} of table {at}, but found {answer}"
        matched = parent if reason != "safe" else None
        assert answer.header("x-matched-domain") == matched, f"{answer}"

    def ask_known_domain(self, gateway):
        known = self.random.choice(EXPECTED_VERDICTS)
        totals, id_ = self.totals(gateway), self.new_request_id()
        bytes_ = self.domain_request(gateway, known[0], totals, id_=id_)
        [answer], *times = self.send_requests(gateway, bytes_)
        if self.check_counted_response(gateway, totals, answer, times, 200, id_):
            self.check_verdict(answer, times, known)

    def ask_unknown_domain(self, gateway):
        name, totals = f"u{self.random.getrandbits(40):x}.example", self.totals(gateway)
        [answer], *times = self.send_requests(gateway, self.domain_request(gateway, name, totals))
        if self.check_counted_response(gateway, totals, answer, times, 200):
            self.check_verdict(answer, times, (name, name, None, [SAFE, SAFE]))

    def ask_invalid_domain(self, gateway):
        name, totals = self.random.choice(INVALID_DOMAINS), self.totals(gateway)
        [answer], *times = self.send_requests(gateway, self.domain_request(gateway, name, totals))
        if self.check_counted_response(gateway, totals, answer, times, 422):
            self.check_refusal(answer, 422)

    def ask_top_domains(self, gateway):
        totals = self.totals(gateway)
        [answer], *times = self.send_requests(gateway,
                                              request("/v1/public/top-domains", key=totals.keys[0]))
        if self.check_counted_response(gateway, totals, answer, times, 200):
            body = json.loads(answer.body)
            assert body["count"] == len(body["domains"]) and list(body) == ["domains", "count"]
            flagged = {"first.test", "second.test", "new.test", "xn--bcher-kva.test", "exact.test",
                       "lists.test"}
            for row in body["domains"]:
                assert row["domain"] in flagged and row["reason"] != "safe", f"{answer}"

    def ask_usage(self, gateway):
        totals = self.totals(gateway, self.random.choice(["main", "tight"]))
        [answer], *times = self.send_requests(gateway, request("/v1/usage", key=totals.keys[0]))
        self.check_common_headers(answer)
        if answer.status == 500:
            self.check_store_failure(gateway, answer, *times)
            return
        assert answer.status == 200 and "ratelimit" not in answer.headers, f"{answer}"
        body = json.loads(answer.body)
        under_way = 4 * len(self.run_.callers) + totals.unknown + totals.refunded
        most = totals.admitted + under_way
        assert body["month_count"] <= most, f"{body} of {totals.account}, admitted {totals.admitted}"
        assert body["reset_at"].endswith("-01T00:00:00Z"), f"{body}"

    def ask_check(self, gateway):
        totals, id_ = self.totals(gateway), self.new_request_id()
        kind = self.random.choices(["200", "422", "429", "503"], [20, 1, 1, 1])[0]
        target = f"/v1/check/{kind}-{id_}@example.com?q={id_}"
        headers = [("X-Request-Id", id_), ("X-Riskgate-Account", "forged")]
        since = now()
        try:
            [answer], *times = self.send_requests(gateway,
                                                  request(target, "GET", totals.keys[0], headers))
        except client.ConnectionClosed as error:
            # Allowed only if the upstream server closed in the middle of its body.
            self.close_connection(gateway)
            had_fault = self.run_.fault_windows.overlaps("upstream", since, now(), UPSTREAM_MARGIN)
            assert error.status and had_fault, f"{error}"
            totals.add("admitted")
            return
        self.check_common_headers(answer, id_)
        if answer.header("x-riskgate-source") == "upstream":
            self.record_admitted(totals, answer)
            assert answer.status == int(kind) and "server" not in answer.headers, f"{answer}"
            expected = {"asked": target.replace("@", "%40"), "id": id_, "account": totals.account}
            assert json.loads(answer.body) == expected, f"expected {expected}, but found {answer}"
        elif not self.check_failure(gateway, totals, answer, *times):
            self.check_upstream_failure(gateway, totals, answer, times)

    def check_upstream_failure(self, gateway, totals, answer, times):
        had_fault = self.run_.fault_windows.overlaps("upstream", *times, UPSTREAM_MARGIN)
        assert answer.status == 500 and had_fault, f"without a fault of the upstream server: {answer}"
        code = json.loads(answer.body)["error"]
        if code == "upstream_timeout":
            # The upstream server received the call, so it is charged.
            totals.add("admitted")
            return
        assert code == "upstream_unavailable" and "ratelimit" not in answer.headers, f"{answer}"
        totals.add("failed")
        if gateway.store == "redis" and self.run_.fault_windows.overlaps(
            "store", *times, STORE_MARGIN):
            totals.add("refunded")

    def ask_with_head(self, gateway):
        known, totals = self.random.choice(EXPECTED_VERDICTS), self.totals(gateway)
        bytes_ = self.domain_request(gateway, known[0], totals, "HEAD")
        [answer], *times = self.send_requests(gateway, bytes_, heads=True)
        if answer.status == 500:
            totals.add("failed")
            self.check_store_failure(gateway, answer, *times)
        elif self.check_counted_response(gateway, totals, answer, times, 200):
            assert int(answer.header("content-length")) > 100, f"{answer}"

    def ask_pipelined(self, gateway):
        asked, totals = self.random.sample(EXPECTED_VERDICTS, 3), self.totals(gateway)
        ids = [self.new_request_id() + f"-{at}" for at in range(3)]
        connection, since = self.connection(gateway), now()
        connection.send(b"".join(
            self.domain_request(gateway, known[0], totals, id_=id_) for known, id_ in zip(asked, ids)))
        for at, (known, id_) in enumerate(zip(asked, ids)):
            if connection.closes:
                # A server ignores requests after a response with `Connection: close`
                # (RFC 9112 section 9.6).
                return
            try:
                answer = connection.read()
            except client.ConnectionClosed as error:
                raise AssertionError(f"pipelined request {at + 1} of 3: {error}") from error
            self.request_count += 1
            if self.check_counted_response(gateway, totals, answer, (since, now()), 200, id_):
                self.check_verdict(answer, (since, now()), known)

    def ask_with_wrong_key(self, gateway):
        key = self.totals(gateway).keys[0]
        wrong = self.random.choice([
            [], [("Authorization", f"Bearer {key[:-1]}!")], [("Authorization", f"Basic {key}")],
            [("Authorization", f"Bearer {key}")] * 2, [("Authorization", f"Bearer {key}, {key}")],
        ])
        target = self.random.choice(["/v1/usage", "/v1/public/domain/a..b", "/v1/check/a@b.com"])
        [answer], *_ = self.send_requests(gateway, request(target, headers=wrong))
        self.check_common_headers(answer)
        self.check_refusal(answer, 401)
        assert answer.header("www-authenticate") == 'Bearer realm="riskgate"', f"{answer}"

    def ask_with_origin(self, gateway):
        totals = self.totals(gateway, "webby")
        good = self.random.random() < 0.5
        origin = self.random.choice(
            ["https://app.example.com", "https://a.b.example.org"] if good else
            ["https://example.org", "http://app.example.com", "null", "https://app.example.com.x"])
        headers = [("Origin", origin)]
        bytes_ = request("/v1/public/domain/first.test", "GET", totals.keys[0], headers)
        [answer], *times = self.send_requests(gateway, bytes_)
        if not good:
            self.check_common_headers(answer)
            self.check_refusal(answer, 403)
            assert json.loads(answer.body)["detail"] == f"Origin: {origin}", f"{answer}"
            assert "access-control-allow-origin" not in answer.headers, f"{answer}"
            return
        if self.check_counted_response(gateway, totals, answer, times, 200):
            self.check_verdict(answer, times, EXPECTED_VERDICTS[0])
        assert answer.header("access-control-allow-origin") == origin, f"{answer}"

    def ask_preflight(self, gateway):
        headers = [("Origin", "https://app.example.com"), ("Access-Control-Request-Method", "GET")]
        [answer], *_ = self.send_requests(gateway, request("/v1/usage", "OPTIONS", headers=headers))
        self.check_common_headers(answer)
        assert answer.status == 204, f"{answer}"
        assert answer.header("access-control-max-age") == "600", f"{answer}"

    def ask_unknown_route(self, gateway):
        key = self.totals(gateway).keys[0]
        if self.random.random() < 0.5:
            target = self.random.choice(["/", "/v1/usage/", "/v1//usage", "/v1/check/a/../b"])
            [answer], *_ = self.send_requests(gateway, request(target, key=key))
            self.check_refusal(answer, 404)
        else:
            [answer], *_ = self.send_requests(gateway, request("/v1/usage", "DELETE", key))
            self.check_refusal(answer, 405)
            assert answer.header("allow") == "GET, HEAD, OPTIONS", f"{answer}"
        self.check_common_headers(answer)

    def ask_with_small_limit(self, gateway):
        totals = self.totals(gateway, self.random.choices(["tight", "tiny"], [10, 1])[0])
        [answer], *times = self.send_requests(gateway,
                                              self.domain_request(gateway, "first.test", totals))
        if self.check_counted_response(gateway, totals, answer, times, 200):
            self.check_verdict(answer, times, EXPECTED_VERDICTS[0])

    def ask_with_changing_key(self, gateway):
        key = self.run_.key_changer.draw(self.random, gateway.store)
        if key is None:
            return
        totals = self.totals(gateway, "keyed")
        bytes_ = request("/v1/public/domain/first.test", key=key.text)
        [answer], *times = self.send_requests(gateway, bytes_)
        allowed = key.allowed(*times)
        if answer.status == 401:
            self.check_common_headers(answer)
            assert 401 in allowed, f"key {key}: expected {allowed}, but found {answer}"
        elif self.check_counted_response(gateway, totals, answer, times, 200):
            assert 200 in allowed, f"key {key}: expected {allowed}, but found {answer}"
            self.check_verdict(answer, times, EXPECTED_VERDICTS[0])
