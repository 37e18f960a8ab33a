"""What must hold on each connection of a hunt, and in the log of the server behind the gateway.

Clients and the server cut connections, so a missing answer is allowed where the plan explains it.
An answer of another request, a request that the server saw twice, and a request made of the bytes
of another are violations in any case.
"""

import hashlib
import re
from collections import Counter

from .plan import CUT, IDEMPOTENT, MAX_HELD_BODY_BYTES, OWN, REFUSED, SERVED, draw_plan
from .strict_server import response_body

REQUEST_ID = re.compile(r"q-(\d+)-(\d+)")
GENERATED_ID = re.compile(r"[0-9a-f]{32}")
# If a server sends an answer that nobody asked for just before a request arrives, no gateway can
# tell it from the answer to this request. On a busy machine, a process may wait this long between
# its check of the connection and its write; this must be rare.
MAX_RACE_MICROSECONDS, MAX_RACE_SHARE, MIN_RACES = 1_000_000, 0.1, 5
# What the server does, as plans say it, and after which a response may be missing or incomplete.
CUTTING = ("reset", "drop", "bye", "late", "over", "early")
# The most bytes of an event in a report. Of more events, those of one kind in a row are joined.
SHOWN_BYTES, MAX_EVENTS = 3_000, 60


class Violation(Exception):
    pass


class Checks:
    """The checks of one server. `play.py` gives it records of connections and lines of the log."""

    def __init__(self, seed, server, path, connections, with_tls):
        self.seed, self.server, self.path, self.with_tls = seed, server, path, with_tls
        self.seen = bytearray(8 * connections)
        self.requests, self.statuses, self.own = Counter(), Counter(), Counter()
        self.races, self.unsolicited, self.retried, self.log_lines = 0, 0, 0, 0
        self.records, self.older = {}, {}
        # What the server saw of the requests of `records` and `older`.
        self.sightings = {}
        # Answers that the server sent without a request: they are judged once the log has come.
        self.suspects = []
        # The violations of each connection since the last batch, and reports on all earlier ones.
        self.found, self.violations = {}, []

    def add(self, number, what):
        """Adds a violation of the connection with this number; None if it has no known number."""
        self.found.setdefault(number, []).append(what)

    # --- the client's side ---

    def check_record(self, record):
        plan = record.plan
        self.records[plan.number] = record
        path = "fast" if plan.is_fast else "pingora"
        self.requests[path] += sum(record.sent_bytes > offset for offset in plan.offsets[:-1])
        for response in record.finals:
            self.statuses[path, response.status] += 1
            if "x-seen-id" not in response.fields:
                self.own[path, response.status] += 1
        try:
            check_connection(record, self.suspects)
        except Violation as violation:
            self.add(plan.number, str(violation))

    # --- the server's side ---

    def check_log(self, lines):
        for seen in lines:
            if "unsolicited" in seen:
                self.unsolicited += 1
                continue
            self.log_lines += 1
            try:
                number = None
                if "malformed" in seen:
                    found = REQUEST_ID.search(seen["malformed"])
                    number = int(found[1]) if found else None
                    raise Violation(f"the server got a malformed request: {seen['malformed']}")
                if seen.get("status") == 400 and not seen.get("x_id"):
                    raise Violation(f"the server got a malformed request: {seen}")
                found = re.fullmatch(r"[qpuo]-(\d+)-(\d+)", seen["x_id"])
                number = int(found[1]) if found else None
                self.check_sighting(seen)
            except Violation as violation:
                self.add(number, str(violation))

    def plan(self, number):
        record = self.records.get(number) or self.older.get(number)
        return record.plan if record else draw_plan(
            self.seed, self.server, number, self.path, self.with_tls)

    def check_sighting(self, seen):
        name = seen["x_id"]
        found = REQUEST_ID.fullmatch(name)
        if not found:
            raise Violation(f"the server got the request {name!r}, which is only in a body: {seen}")
        if seen["request_id"] != name or not seen["path"].endswith("/" + name):
            raise Violation(f"the server got a request with several ids: {seen}")
        number, index = int(found[1]), int(found[2])
        if not 8 * number + index < len(self.seen) or index >= len(self.plan(number).requests):
            raise Violation(f"the server got a request that nobody has sent: {seen}")
        request = self.plan(number).requests[index]
        earlier = self.sightings.setdefault((number, index), [])
        earlier.append(seen)
        self.seen[8 * number + index] += 1
        if request.expected == REFUSED:
            raise Violation(f"the server got a malformed request ({request.framing}): {seen}")
        if seen["method"] != request.method:
            raise Violation(f"the server got {seen['method']} of {request.method} {name}")
        self.check_body(request, seen)
        self.check_repetition(request, earlier, self.seen[8 * number + index])

    def check_body(self, request, seen):
        if body := seen.get("body"):
            # nginx logs the body itself.
            seen["sha"] = hashlib.sha256(body.encode("latin-1")).hexdigest()
            seen["body"], seen["complete"] = body[:100], seen["status"] == 200
        if not seen.get("complete"):
            return
        if request.expected == CUT:
            raise Violation(f"the server got a complete request that the client cut: {seen}")
        if seen["sha"] != request.digest():
            raise Violation(f"the server got another body than {request.content[:100]!r}…: {seen}")

    def check_repetition(self, request, sightings, count):
        if count < 2:
            return
        self.retried += 1
        first = sightings[0]
        if request.method not in IDEMPOTENT:
            raise Violation(f"the server got a {request.method} {count} times: {sightings}")
        if count > 2:
            raise Violation(f"the server got a request {count} times: {sightings}")
        # Only the strict server knows more. The lines of two connections may be in any order.
        numbers = [(one.get("number", 1), one.get("answered", 0)) for one in sightings]
        if len(sightings) == 2 and "number" in first and not any(
                number > 0 and answered == 0 for number, answered in numbers):
            raise Violation(f"the server got a request twice, and had answered it: {sightings}")

    def end_batch(self, is_last=False):
        """Judges what had to wait for the log, and forgets older connections."""
        waiting = []
        for number, index in self.suspects:
            sightings = self.sightings.get((number, index), [])
            gaps = [one["after_unsolicited_us"] for one in sightings
                    if "after_unsolicited_us" in one]
            if any(gap <= MAX_RACE_MICROSECONDS for gap in gaps):
                self.races += 1
            elif number in self.records and not is_last:
                waiting.append((number, index))
            else:
                self.add(number, f"request {index} got an answer that the server sent without a "
                                 f"request, {gaps or 'unknown'} µs before this one arrived")
        self.suspects = waiting
        if is_last and self.races > max(MIN_RACES, MAX_RACE_SHARE * self.unsolicited):
            self.add(None, f"{self.races} of {self.unsolicited} answers that the server sent "
                           f"without a request became answers to requests")
        self.report_found()
        self.sightings = {key: all_ for key, all_ in self.sightings.items()
                          if key[0] in self.records}
        self.older, self.records = self.records, {}

    def report_found(self):
        for number, found in self.found.items():
            record = self.records.get(number) or self.older.get(number)
            sightings = [one for (of, _), all_ in self.sightings.items() if of == number
                         for one in all_]
            self.violations.append(describe(self, number, found, record, sightings))
        self.found = {}


def check_connection(record, suspects):
    plan = record.plan
    if record.fault:
        raise Violation(record.fault)
    if record.hangs:
        raise Violation("the connection hangs")
    if len(record.finals) > len(plan.requests):
        raise Violation(f"{len(record.finals)} answers for {len(plan.requests)} requests")
    check_interims(record)
    closing = None
    for index, (request, response) in enumerate(zip(plan.requests, record.finals)):
        if closing is not None:
            raise Violation(f"an answer to request {index} after `Connection: close`")
        if record.sent_bytes <= plan.offsets[index]:
            raise Violation(f"an answer to request {index}, which was not sent yet")
        if check_answer(request, response) == "unsolicited":
            suspects.append((plan.number, index))
        if not response.is_complete:
            check_incomplete(record, index)
            return
        if response.closes():
            closing = index
    check_missing(record, closing)


def check_interims(record):
    """Checks that riskgate keeps the interim responses of the server, and sends only its own."""
    expecting = sum(b"100-continue" in request.head for request in record.plan.requests)
    odd = [one for one in record.interims if one.status != 100 or one.fields]
    if odd or len(record.interims) > expecting:
        raise Violation(f"{len(record.interims)} interim responses for {expecting} requests with "
                        f"Expect: {odd}")


def check_answer(request, response):
    request_ids = response.fields.get("x-request-id", [])
    seen = response.fields.get("x-seen-id")
    if len(request_ids) != 1:
        raise Violation(f"the answer to {request.id} has the request ids {request_ids}")
    request_id = request_ids[0].decode()
    is_foreign = request.expected in (REFUSED, CUT) and GENERATED_ID.fullmatch(request_id)
    if request_id != request.id and not is_foreign:
        raise Violation(f"the answer to {request.id} has the request id {request_id}")
    if seen is None:
        check_own_answer(request, response)
        return "own"
    if len(seen) == 1 and seen[0].startswith(b"u-"):
        return "unsolicited"
    if seen != [request.id.encode()]:
        raise Violation(f"the answer to {request.id} is that to {seen}")
    # Of a longer body, the server has read a part, and may answer before the rest.
    is_early = "early" in request.draw and len(request.content) > MAX_HELD_BODY_BYTES
    if request.expected in (REFUSED, OWN) or request.expected == CUT and not is_early:
        raise Violation(f"{request.id} ({request.framing}) must not be served, but was")
    check_served_answer(request, response)
    return "served"


def check_own_answer(request, response):
    if response.fields.get("x-riskgate-source") == [b"upstream"]:
        raise Violation(f"the server answered {request.id} with {response.status} without an id")
    for found in re.finditer(rb"[qpuo]-\d+-\d+", response.body):
        if found[0] != request.id.encode():
            raise Violation(f"the answer to {request.id} names {found[0]!r}")
    if request.expected == REFUSED and not 400 <= response.status < 500:
        raise Violation(f"{request.id} ({request.framing}) got {response.status}, and not a 4xx")
    if request.expected == REFUSED and not response.closes():
        raise Violation(f"the connection stays open after {request.id} ({request.framing})")
    if request.expected == SERVED and response.status < 500:
        raise Violation(f"{request.id} got {response.status}, and not the answer of the server")


def check_served_answer(request, response):
    draw = request.draw
    status = int(draw["resp"]) if draw.get("resp") in ("204", "304") else 200
    if response.status != status:
        raise Violation(f"{request.id} got {response.status}, and the server sent {status}")
    body = response_body(request.id, draw)
    if request.method == "HEAD" or status != 200:
        body = b""
    # A response that the server cut must not look complete.
    if response.body != body and (response.is_complete or not body.startswith(response.body)):
        raise Violation(f"{request.id} got the body {response.body!r}, and not {body!r}")
    digest = response.value("x-body")
    if digest and request.expected != CUT and digest != request.digest():
        raise Violation(f"{request.id}: the server got another body than the client sent")


def check_incomplete(record, index):
    """Checks that something explains why a response is incomplete."""
    plan = record.plan
    draw = plan.requests[index].draw
    if index < len(record.finals) - 1:
        raise Violation(f"an answer behind the incomplete answer to request {index}")
    if not plan.leaves_early and not any(key in draw for key in CUTTING):
        raise Violation(f"the answer to request {index} is incomplete")


def check_missing(record, closing):
    """Checks that something explains why a request has no answer."""
    plan, index = record.plan, len(record.finals)
    if index == len(plan.requests) or plan.leaves_early or closing is not None:
        return
    if record.withheld is not None:
        return
    if record.sent_bytes < plan.offsets[index + 1]:
        if record.end in ("gateway", "reset"):
            raise Violation(f"the connection ended before request {index} was sent")
        return
    # A request at whose end the server resets the connection still gets an answer: a 500.
    raise Violation(f"request {index} got no answer; end of the connection: {record.end}")


def describe(checks, number, found, record, sightings):
    lines = [*(f"VIOLATION: {what}" for what in found[:4]),
             f"seed {checks.seed}, server {checks.server}, connection {number}"]
    if record is None:
        return "\n".join(lines)
    plan = record.plan
    lines.append(f"path {'fast' if plan.is_fast else 'pingora'}, screening {plan.is_screened}, "
                 f"TLS {plan.is_tls}, end {record.end or '-'}, {len(record.finals)} answers, "
                 f"leaves early {plan.leaves_early}")
    for request in plan.requests:
        lines.append(f"  {request.id}: {request.method}, {request.framing}, {request.expected}, "
                     f"{len(request.head)} + {len(request.body)} bytes, server: {request.draw}")
    times = [when for when, _ in record.sent + record.received]
    begun = min(times, default=0)
    events = sorted([(when, "sent", data) for when, data in record.sent] +
                    [(when, "received", data) for when, data in record.received],
                    key=lambda one: one[0])
    for when, kind, data in join_events(events):
        more = f" … {len(data)} bytes" if len(data) > SHOWN_BYTES else ""
        lines.append(f"{1000 * (when - begun):9.2f} ms {kind:8} {data[:SHOWN_BYTES]!r}{more}")
    if record.ended_at:
        lines.append(f"{1000 * (record.ended_at - begun):9.2f} ms ended by: {record.end}")
    lines.append("the server saw:")
    lines += [f"  {seen}" for seen in sightings] or ["  nothing"]
    return "\n".join(lines)


def join_events(events):
    """Joins what was sent in many small parts."""
    if len(events) <= MAX_EVENTS:
        return events
    joined = []
    for when, kind, data in events:
        if joined and joined[-1][1] == kind:
            joined[-1] = (joined[-1][0], kind, joined[-1][2] + data)
        else:
            joined.append((when, kind, data))
    return joined
