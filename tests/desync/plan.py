"""Draws the connections of a hunt: their requests, how their bytes are cut, and how they end.

A plan follows from the seed, the server and the number of its connection alone, so the checks can
draw an old plan again. This module opens no socket.

Each request has an id, `q-CONNECTION-INDEX`, in its path, in two of its fields and at the start of
its body. Some bodies contain a whole request with a poison id, `p-CONNECTION-INDEX`. No parser that
reads the framing right ever sees this request.
"""

import hashlib
import random
from dataclasses import dataclass, field

# Methods whose requests riskgate may send a second time.
IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
# The longest body that riskgate holds until it is complete.
MAX_HELD_BODY_BYTES = 64 * 1024
MAX_REQUESTS = 8
HOST = "gate.test"
FILLER = b"the quick brown fox jumps over the lazy dog "
EMAILS = ("jane%40gmail.com", "jane%40first.test", "info%40second.test", "no address")

# What a request must get.
SERVED = "served"    # the answer of the server, with the id of the request
REFUSED = "refused"  # a 4xx of riskgate, and then the end of the connection
OWN = "own"          # a 4xx of riskgate; the connection may stay open
EITHER = "either"    # one of SERVED, REFUSED and OWN
CUT = "cut"          # anything, because the client sends only a part of the request


@dataclass(slots=True)
class Request:
    id: str
    method: str
    expected: str
    # What the server is to do; see strict_server.py. In the field X-Draw.
    draw: dict
    head: bytes = b""
    # The body without its framing, and with it.
    content: bytes = b""
    body: bytes = b""
    # The kind of framing, for reports.
    framing: str = "none"
    waits_for_continue: bool = False

    @property
    def wire(self):
        return self.head + self.body

    def digest(self):
        return hashlib.sha256(self.content).hexdigest()


@dataclass(slots=True)
class Plan:
    number: int
    # Which gateway: with the fast path or without, with screening or without, over TLS or not.
    is_fast: bool
    is_screened: bool
    is_tls: bool
    requests: list = field(default_factory=list)
    # ("send", bytes), ("pause", seconds), ("answers", count), ("continue", count), ("fin",),
    # ("rst",); client.py plays them.
    steps: list = field(default_factory=list)
    # Where each request begins in the bytes that the client sends, and where the last one ends.
    offsets: list = field(default_factory=list)
    # Whether the client closes or half-closes the connection before it has all answers.
    leaves_early: bool = False


def draw_plan(seed, server, number, path="both", with_tls=True):
    draw = random.Random(f"{seed}-{server}-{number}")
    is_fast = draw.random() < 0.5
    plan = Plan(number, is_fast if path == "both" else path == "fast", draw.random() < 0.5,
                draw.random() < 0.1 and with_tls)
    count = min(MAX_REQUESTS, draw.choice((1, 2, 2, 3, 3, 4, 5, 6, 8)))
    for index in range(count):
        request = draw_request(draw, server, number, index)
        plan.requests.append(request)
        if request.expected == REFUSED:
            # What follows is the poison behind the malformed request.
            break
    ending = draw.random()
    last = plan.requests[-1]
    if ending < 0.06 and last.expected == SERVED:
        cut_last(draw, plan)
    else:
        set_offsets(plan)
        draw_steps(draw, plan)
        if ending < 0.09 and not plan.is_tls:
            # The client half-closes behind its last request.
            drop_last_wait(plan)
            plan.steps.append(("fin",))
            plan.leaves_early = True
        elif ending < 0.13:
            # The client resets the connection while answers are on their way.
            drop_last_wait(plan)
            plan.steps += [("pause", draw.random() * 0.004), ("rst",)]
            plan.leaves_early = True
    return plan


def drop_last_wait(plan):
    while plan.steps and plan.steps[-1][0] in ("answers", "pause"):
        plan.steps.pop()


def draw_request(draw, server, number, index):
    name = f"q-{number}-{index}"
    kind = draw.random()
    if kind < 0.06:
        return draw_malformed(draw, name)
    method = draw.choice(("GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "POST", "POST", "POST",
                          "PUT", "DELETE"))
    request = Request(name, method, SERVED, {})
    has_body = method in ("POST", "PUT") or method == "DELETE" and draw.random() < 0.5
    if has_body:
        request.content = draw_content(draw, name)
    request.draw = draw_behaviour(draw, server, method, has_body)
    # What nginx reads whole, and what it answers at once.
    folder = "direct" if request.draw.get("early") else "read"
    fields = own_fields(name, request.draw)
    if has_body:
        fields.append("Content-Type: application/x-www-form-urlencoded")
        frame_body(draw, request, fields)
    if draw.random() < 0.05:
        fields.append(draw.choice(("Connection: keep-alive", "Cookie: a=b", "Accept: text/html",
                                   "Origin: https://app.example.com", "TE: trailers",
                                   "Connection: X-Hop", "Upgrade: websocket", "X-Empty:")))
    draw.shuffle(fields)
    target = f"/{folder}/{name}"
    odd = draw.random()
    if odd < 0.01:
        target, request.expected = f"http://{HOST}{target}", EITHER
    elif odd < 0.02:
        fields.append(f"X-Long: {'x' * draw.choice((1000, 8000, 15000))}")
        request.expected = EITHER
    elif odd < 0.025 and index:
        # A line end that some clients send behind a body.
        request.head, request.expected = b"\r\n", EITHER
    request.head += head_bytes(f"{method} {target} HTTP/1.1", fields)
    return request


def own_fields(name, behaviour):
    text = ",".join(f"{key}={value}" for key, value in behaviour.items())
    return [f"Host: {HOST}", f"X-Id: {name}", f"X-Request-Id: {name}", f"X-Draw: {text}"]


def head_bytes(line, fields):
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


def poison_request(name, method="GET"):
    """A whole request that no server may see."""
    poison = "p" + name[1:]
    return head_bytes(f"{method} /poison/{poison} HTTP/1.1", own_fields(poison, {}))


def draw_content(draw, name):
    size = draw.choices((0, 60, 4_000, 0, 200_000), (20, 45, 30, 3, 2))[0]
    if size:
        size = draw.randrange(size)
    elif draw.random() < 0.13:
        # Around what riskgate holds.
        size = MAX_HELD_BODY_BYTES + draw.randrange(-3, 4)
    content = f"id={name}&email={draw.choice(EMAILS)}&pad=".encode()
    if draw.random() < 0.4:
        content += draw.choice((b"", b"\r\n", b"\r\n\r\n", b"\r\n0\r\n\r\n")) + poison_request(
            name, draw.choice(("GET", "POST")))
    if len(content) < size:
        content += (FILLER * (1 + (size - len(content)) // len(FILLER)))[:size - len(content)]
    return content


def frame_body(draw, request, fields):
    kind = draw.random()
    if kind < 0.5:
        request.framing = "length"
        fields.append(f"Content-Length: {len(request.content)}")
        request.body = request.content
    else:
        request.framing = "chunks"
        coding = draw.choice(("chunked",) * 8 + ("Chunked", "CHUNKED"))
        fields.append(f"Transfer-Encoding: {coding}")
        request.body = chunks_of(draw, request.content)
    if draw.random() < 0.12:
        fields.append("Expect: 100-continue")
        request.waits_for_continue = draw.random() < 0.6


def chunks_of(draw, content):
    parts, at = [], 0
    most = draw.choice((7, 100, 1_000, 70_000))
    # Not more than some hundred chunks.
    most = max(most, len(content) // 200)
    while at < len(content):
        part = content[at:at + draw.randint(1, most)]
        at += len(part)
        size = draw.choice((f"{len(part):x}", f"{len(part):X}", f"{len(part):05x}"))
        if draw.random() < 0.1:
            size += draw.choice((";a", ";a=b", ';a="b;c"', ";a=b;c=d", ';q="\\""'))
        parts += [size.encode(), b"\r\n", part, b"\r\n"]
    parts.append(draw.choice((b"0", b"0", b"0", b"000", b"0;end=1")) + b"\r\n")
    if draw.random() < 0.1:
        parts.append(b"X-Trailer: t\r\nContent-Length: 3\r\n")
    return b"".join([*parts, b"\r\n"])


def draw_behaviour(draw, server, method, has_body):
    """What the server is to do with a request; see strict_server.py."""
    behaviour = {"k": draw.choice((1, 1, 1, 2, 50)) if server != "nginx" else 1}
    if has_body and draw.random() < 0.15 or server == "nginx" and draw.random() < 0.5:
        behaviour["early"] = "drain"
    if server == "nginx":
        return behaviour
    if draw.random() < 0.1:
        behaviour["slow"] = draw.randint(2, 5)
    behaviour["resp"] = draw.choice(("len", "len", "chunked"))
    if server != "strict":
        return behaviour
    odd = draw.random()
    if odd < 0.04:
        behaviour["resp"] = "close"
    elif odd < 0.08:
        behaviour["resp"] = draw.choice(("204", "304"))
    elif odd < 0.10:
        behaviour["reset"] = draw.randrange(0, 400)
    elif odd < 0.115:
        behaviour["drop"] = 1
    elif odd < 0.145:
        behaviour["bye"] = draw.choice((0, 0, 200, 2_000))
    elif odd < 0.165:
        behaviour["late"] = draw.choice((0, 50, 300, 1_500, 5_000))
    elif odd < 0.175:
        behaviour["over"] = 1
    elif odd < 0.19:
        behaviour["announce"] = 1
    if draw.random() < 0.06:
        behaviour["interim"] = draw.choice((100, 102, 103, 103103))
    if "early" in behaviour and draw.random() < 0.3:
        behaviour["early"] = "shut"
    if draw.random() < 0.3:
        behaviour["fake"] = 1
    return behaviour


def malformed_kinds():
    """Requests that two parsers may read differently: fields, bytes behind the header, status.

    `P` stands for a whole request with a poison id. `n` is its length, `x` its length in hex.
    """
    chunked = "Transfer-Encoding: chunked"
    whole = b"0\r\n\r\n%P"
    return {
        # Two framings at once.
        "cl-te": (["Content-Length: %m", chunked], whole),
        "te-cl": ([chunked, "Content-Length: 4"], b"%x\r\n%P\r\n0\r\n\r\n"),
        "cl-zero-te": (["Content-Length: 0", chunked], b"%x\r\n%P\r\n0\r\n\r\n"),
        "two-cl": (["Content-Length: 0", "Content-Length: %n"], b"%P"),
        "two-cl-other": (["Content-Length: %n", "Content-Length: 0"], b"%P"),
        "two-cl-same": (["Content-Length: %n", "Content-Length: %n"], b"%P"),
        "cl-list": (["Content-Length: %n, 0"], b"%P"),
        "cl-list-same": (["Content-Length: 0, 0"], b"%P"),
        # Transfer codings.
        "te-chunked-identity": (["Transfer-Encoding: chunked, identity"], whole),
        "te-identity-chunked": (["Transfer-Encoding: identity, chunked"], whole),
        "te-identity": (["Transfer-Encoding: identity", "Content-Length: %n"], b"%P"),
        "two-te": (["Transfer-Encoding: identity", chunked], whole),
        "two-te-same": ([chunked, chunked], whole),
        "te-unknown": (["Transfer-Encoding: xchunked", "Content-Length: %m"], whole),
        "te-quoted": (['Transfer-Encoding: "chunked"'], whole),
        "te-control": (["Transfer-Encoding: \x0bchunked"], whole),
        "te-comma": (["Transfer-Encoding: ,chunked"], whole),
        "te-parameter": (["Transfer-Encoding: chunked;q=1"], whole),
        "te-empty": (["Transfer-Encoding:", "Content-Length: %n"], b"%P"),
        # Field lines.
        "space-before-colon": (["Transfer-Encoding : chunked", "Content-Length: %m"], whole),
        "cl-space-before-colon": (["Content-Length : %n"], b"%P"),
        "tab-before-colon": (["Content-Length\t: %n"], b"%P"),
        "folded-te": (["Transfer-Encoding:\r\n chunked", "Content-Length: %m"], whole),
        "folded-cl": (["X-A: b\r\n Content-Length: %n"], b"%P"),
        "bare-lf": (["X-A: b\nTransfer-Encoding: chunked", "Content-Length: %m"], whole),
        "bare-lf-end": (["Content-Length: %n\n"], b"%P"),
        "bare-cr": (["X-A: b\rTransfer-Encoding: chunked", "Content-Length: %m"], whole),
        "nul": (["X-A: b\0c", "Content-Length: %n"], b"%P"),
        "nul-in-cl": (["Content-Length: %n\0"], b"%P"),
        "no-colon": (["Content-Length %n"], b"%P"),
        "name-with-nul": (["Content-Length\0: %n"], b"%P"),
        # Lengths.
        "cl-plus": (["Content-Length: +%n"], b"%P"),
        "cl-minus": (["Content-Length: -%n"], b"%P"),
        "cl-hex": (["Content-Length: 0x%x"], b"%P"),
        "cl-empty": (["Content-Length:"], b"%P"),
        "cl-space": (["Content-Length: 0 %n"], b"%P"),
        "cl-fraction": (["Content-Length: %n.0"], b"%P"),
        "cl-huge": (["Content-Length: 18446744073709551616"], b"%P"),
        "cl-underscore": (["Content-Length: 1_0"], b"%P"),
        # Chunks.
        "chunk-hex": ([chunked], b"0x%x\r\n%P\r\n0\r\n\r\n"),
        "chunk-space": ([chunked], b"%x \r\n%P\r\n0\r\n\r\n"),
        "chunk-space-zero": ([chunked], b"0 \r\n\r\n%P"),
        "chunk-leading-space": ([chunked], b" %x\r\n%P\r\n0\r\n\r\n"),
        "chunk-tab": ([chunked], b"%x\t\r\n%P\r\n0\r\n\r\n"),
        "chunk-plus": ([chunked], b"+%x\r\n%P\r\n0\r\n\r\n"),
        "chunk-minus": ([chunked], b"-1\r\n\r\n%P"),
        "chunk-empty": ([chunked], b"\r\n\r\n%P"),
        "chunk-underscore": ([chunked], b"1_0\r\n%P\r\n0\r\n\r\n"),
        "chunk-huge": ([chunked], b"10000000000000000\r\n%P\r\n0\r\n\r\n"),
        "chunk-cr-extension": ([chunked], b"0;a\rb\r\n\r\n%P"),
        "chunk-lf-extension": ([chunked], b"2;\n%x\r\n%P\r\n0\r\n\r\n"),
        "chunk-nul-extension": ([chunked], b"0;a\0\r\n\r\n%P"),
        "chunk-bare-lf": ([chunked], b"0\n\n%P"),
        "chunk-bare-lf-data": ([chunked], b"3\r\nabc\n0\r\n\r\n%P"),
        "chunk-too-long": ([chunked], b"3\r\nabcd\r\n0\r\n\r\n%P"),
        "chunk-no-line-end": ([chunked], b"3\r\nabc0\r\n\r\n%P"),
        "trailer-space": ([chunked], b"0\r\nX-A : b\r\n\r\n%P"),
        "trailer-bare-lf": ([chunked], b"0\r\nX-A: b\n\r\n\r\n%P"),
        "trailer-no-colon": ([chunked], b"0\r\nGET /a HTTP/1.1\r\n\r\n%P"),
    }


MALFORMED = malformed_kinds()
# Requests whose first line or whose method makes them malformed.
MALFORMED_LINES = {
    "get-with-length": ("GET {path} HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "get-with-chunks": ("GET {path} HTTP/1.1", ["Transfer-Encoding: chunked"], b"0\r\n\r\n%P"),
    "head-with-length": ("HEAD {path} HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "chunks-in-http-1.0": ("POST {path} HTTP/1.0", ["Transfer-Encoding: chunked"], b"0\r\n\r\n%P"),
    "space-in-target": ("POST {path} HTTP/1.1 HTTP/1.1", ["Content-Length: 0"], b"%P"),
    "http-0.9": ("GET {path}", [], b"%P"),
    "two-spaces": ("POST  {path} HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "version": ("POST {path} HTTP/2.0", ["Content-Length: %n"], b"%P"),
    "bare-lf-line": ("POST {path} HTTP/1.1\nX-A: b", ["Content-Length: %n"], b"%P"),
    "space-before-line": (" POST {path} HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "long-field": ("POST {path} HTTP/1.1", ["Content-Length: %n", f"X-Long: {'x' * 20_000}"],
                   b"%P"),
    "many-fields": ("POST {path} HTTP/1.1", ["Content-Length: %n", *["A: b"] * 100], b"%P"),
    "other-host": ("POST http://other.test{path} HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "authority": ("POST gate.test:80 HTTP/1.1", ["Content-Length: %n"], b"%P"),
    "connect": ("CONNECT gate.test:80 HTTP/1.1", [], b"%P"),
    "trace": ("TRACE {path} HTTP/1.1", [], b"%P"),
}
MALFORMED_NAMES = [*MALFORMED, *MALFORMED_LINES]
# Of those, the requests whose framing is clear: riskgate refuses them and reads their body.
CLEARLY_FRAMED = ("authority",)


def draw_malformed(draw, name):
    kind = draw.choice(MALFORMED_NAMES)
    if kind in MALFORMED:
        line, (extra, behind) = "POST {path} HTTP/1.1", MALFORMED[kind]
    else:
        line, extra, behind = MALFORMED_LINES[kind]
    poison = poison_request(name)
    # `%m` is the length of `0\r\n\r\n` and the poison.
    values = {"%n": str(len(poison)), "%x": f"{len(poison):x}", "%m": str(len(poison) + 5)}

    def fill(text):
        for mark, value in values.items():
            text = text.replace(mark, value)
        return text

    fields = own_fields(name, {"k": 1, "resp": "len"})
    at = draw.randrange(len(fields) + 1)
    fields[at:at] = [fill(one) for one in extra]
    request = Request(name, line.split()[0], REFUSED, {"k": 1, "resp": "len"}, framing=kind)
    request.head = head_bytes(line.format(path=f"/read/{name}"), fields)
    for mark, value in values.items():
        behind = behind.replace(mark.encode(), value.encode())
    request.body = behind.replace(b"%P", poison)
    if kind in CLEARLY_FRAMED:
        request.expected = OWN
    elif draw.random() < 0.5:
        # More poison, for a parser that finds another end.
        request.body += poison
    return request


def cut_last(draw, plan):
    """The client sends only a part of the last request, and then ends the connection."""
    last = plan.requests[-1]
    wire, head_length, last.expected = last.wire, len(last.head), CUT
    # The last byte is never sent, so the request is never complete.
    cut = draw.randrange(1, len(wire))
    if len(wire) > head_length and draw.random() < 0.7:
        cut = draw.randrange(head_length, len(wire))
    last.head, last.body, last.waits_for_continue = wire[:min(cut, head_length)], \
        wire[head_length:cut], False
    set_offsets(plan)
    draw_steps(draw, plan)
    drop_last_wait(plan)
    if draw.random() < 0.5:
        plan.steps.append(("answers", len(plan.requests) - 1))
    plan.steps.append(("fin",) if draw.random() < 0.5 and not plan.is_tls else ("rst",))
    plan.leaves_early = True


def set_offsets(plan):
    plan.offsets = [0]
    for request in plan.requests:
        plan.offsets.append(plan.offsets[-1] + len(request.head) + len(request.body))


def draw_steps(draw, plan):
    """Groups the requests into flights: a client sends the next one once it has all answers."""
    depth = draw.choice((1, 1, 2, 3, 8))
    flight, sent = [], 0
    for index, request in enumerate(plan.requests):
        if request.waits_for_continue:
            flight.append(request.head)
            add_pieces(draw, plan, b"".join(flight))
            plan.steps.append(("continue", index + 1))
            flight = [request.body]
        else:
            flight.append(request.wire)
        sent += 1
        if sent == depth or index == len(plan.requests) - 1:
            add_pieces(draw, plan, b"".join(flight))
            plan.steps.append(("answers", index + 1))
            flight, sent = [], 0
            if draw.random() < 0.1:
                # The connection, and that to the server, are idle.
                plan.steps.append(("pause", draw.random() * 0.01))


def add_pieces(draw, plan, data):
    if not data:
        return
    style = draw.random()
    if style < 0.55 or len(data) < 2:
        cuts = []
    elif style < 0.98 or len(data) > 600:
        cuts = sorted({draw.randrange(1, len(data)) for _ in range(draw.randint(1, 4))})
    else:
        cuts = list(range(1, len(data)))
    pause = draw.choice((0, 0, 0.0005, 0.002, 0.01)) if len(cuts) < 10 else 0
    at = 0
    for cut in [*cuts, len(data)]:
        plan.steps.append(("send", data[at:cut]))
        if cut < len(data):
            plan.steps.append(("pause", pause))
        at = cut
