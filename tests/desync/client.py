"""Plays a planned connection, and reads its responses strictly.

It judges nothing but the grammar of the responses; checks.py does the rest.
"""

import asyncio
import re
import socket
import struct
import time
from dataclasses import dataclass, field

# A connection that takes longer hangs.
TIMEOUT_SECONDS = 180.0
# How long a client waits for `100 Continue`.
CONTINUE_SECONDS = 0.3
# How long a client that has all its answers waits for bytes that belong to none.
REST_SECONDS = 0.002
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\t -~]*")
FIELD_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+): ?([\t -~\x80-\xff]*)")
BODILESS = (204, 304)


class Malformed(Exception):
    """The bytes from the gateway are no HTTP/1.1."""


@dataclass(slots=True)
class Response:
    status: int
    # Names in lower case; each has a list of values.
    fields: dict
    body: bytes = b""
    is_complete: bool = False
    # Where it begins in the received bytes.
    offset: int = 0

    def value(self, name):
        return b", ".join(self.fields.get(name, [])).decode("latin-1")

    def closes(self):
        return "close" in self.value("connection").lower()


@dataclass(slots=True)
class Record:
    """What happened on one connection."""
    plan: object
    sent: list = field(default_factory=list)
    received: list = field(default_factory=list)
    sent_bytes: int = 0
    finals: list = field(default_factory=list)
    interims: list = field(default_factory=list)
    fault: str = ""
    # How the connection ended: "gateway" closed it, the "client" did, or it was "reset".
    end: str = ""
    ended_at: float = 0.0
    hangs: bool = False
    # The first request whose body the client never sent, because it got its answer before.
    withheld: int | None = None


class ResponseReader:
    """Finds the responses in the bytes of a connection."""

    def __init__(self, record):
        self.record = record
        self.data = bytearray()
        self.removed = 0
        self.current = None
        # What comes next: None is a head, an int so many bytes of a body; "size" and "trailers" are
        # lines of chunks, "rest" is all until the end.
        self.next = None
        self.left = 0

    def feed(self, data):
        self.data += data
        while self.read_element():
            pass

    def read_element(self):
        if self.next is None:
            return self.read_head()
        if self.next == "rest":
            self.current.body += self.take(len(self.data))
            return False
        if self.next in ("length", "chunk"):
            part = self.take(min(self.left, len(self.data)))
            self.current.body += part
            self.left -= len(part)
            if self.left:
                return False
            if self.next == "length":
                self.finish()
            else:
                self.next = "chunk end"
            return True
        end = self.data.find(b"\r\n")
        if end < 0:
            return False
        line = self.take(end + 2)[:-2]
        if self.next == "chunk end":
            if line:
                raise Malformed(f"expected the end of a chunk, but found {line[:80]!r}")
            self.next = "size"
        elif self.next == "size":
            if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", line):
                raise Malformed(f"expected the size of a chunk, but found {line[:80]!r}")
            self.left = int(line, 16)
            self.next = "chunk" if self.left else "trailers"
        elif not line:
            self.finish()
        elif not FIELD_LINE.fullmatch(line):
            raise Malformed(f"expected a trailer field, but found {line[:80]!r}")
        return True

    def take(self, count):
        part = bytes(self.data[:count])
        del self.data[:count]
        self.removed += count
        return part

    def read_head(self):
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            if self.data and not b"HTTP/1.1 ".startswith(self.data[:9]):
                raise Malformed(f"expected a response, but found {bytes(self.data[:80])!r}")
            return False
        offset = self.removed
        first, *lines = self.take(end + 4)[:-4].split(b"\r\n")
        found = STATUS_LINE.fullmatch(first)
        if not found:
            raise Malformed(f"expected a status line, but found {first[:80]!r}")
        fields = {}
        for line in lines:
            pair = FIELD_LINE.fullmatch(line)
            if not pair:
                raise Malformed(f"expected a field, but found {line[:80]!r}")
            fields.setdefault(pair[1].lower().decode(), []).append(pair[2])
        response = Response(int(found[1]), fields, offset=offset)
        if response.status < 200:
            response.is_complete = True
            self.record.interims.append(response)
            return True
        self.current = response
        finals, requests = self.record.finals, self.record.plan.requests
        method = requests[len(finals)].method if len(finals) < len(requests) else "GET"
        finals.append(response)
        self.choose_body(response, method)
        return True

    def choose_body(self, response, method):
        lengths, codings = (response.fields.get(name, []) for name in
                            ("content-length", "transfer-encoding"))
        if len(lengths) > 1 or len(codings) > 1 or lengths and codings:
            raise Malformed(f"expected one framing, but found {lengths + codings}")
        if method == "HEAD" or response.status in BODILESS:
            self.finish()
        elif codings:
            if codings[0].lower() != b"chunked":
                raise Malformed(f"expected chunked, but found {codings[0]!r}")
            self.next = "size"
        elif lengths:
            if not lengths[0].isdigit():
                raise Malformed(f"expected a length, but found {lengths[0]!r}")
            self.left = int(lengths[0])
            self.next = "length"
            if not self.left:
                self.finish()
        else:
            self.next = "rest"

    def finish(self):
        self.current.is_complete = True
        self.current = self.next = None

    def end(self):
        if self.next == "rest":
            self.finish()


class Client(asyncio.Protocol):
    def __init__(self, record):
        self.record = record
        self.reader = ResponseReader(record)
        self.transport = None
        self.waiter = None
        self.is_writable = asyncio.Event()
        self.is_writable.set()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.record.received.append((time.monotonic(), data))
        if not self.record.fault:
            try:
                self.reader.feed(data)
            except Malformed as error:
                self.record.fault = str(error)
        self.wake()

    def eof_received(self):
        self.record.end, self.record.ended_at = "gateway", time.monotonic()
        self.reader.end()
        self.wake()
        return False

    def connection_lost(self, error):
        if not self.record.end:
            self.record.end = "reset" if error else "client"
            self.record.ended_at = time.monotonic()
        self.is_writable.set()
        self.wake()

    def pause_writing(self):
        self.is_writable.clear()

    def resume_writing(self):
        self.is_writable.set()

    def wake(self):
        if self.waiter and not self.waiter.done():
            self.waiter.set_result(None)

    def has_ended(self):
        return bool(self.record.end or self.record.fault)

    async def wait_for(self, condition, seconds=None):
        deadline = seconds and time.monotonic() + seconds
        while not condition() and not self.has_ended():
            self.waiter = asyncio.get_running_loop().create_future()
            if deadline is None:
                await self.waiter
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return
            timer = asyncio.get_running_loop().call_later(left, self.wake)
            await self.waiter
            timer.cancel()

    async def play(self):
        record = self.record
        for step in record.plan.steps:
            if self.has_ended():
                break
            kind = step[0]
            if kind == "send":
                record.sent.append((time.monotonic(), step[1]))
                record.sent_bytes += len(step[1])
                self.transport.write(step[1])
                await self.is_writable.wait()
            elif kind == "pause":
                await asyncio.sleep(step[1])
            elif kind == "answers":
                await self.wait_for(lambda: self.complete_count() >= step[1])
                if any(one.closes() for one in record.finals):
                    break
            elif kind == "continue":
                before = len(record.interims)
                await self.wait_for(lambda: len(record.interims) > before or
                                    len(record.finals) >= step[1], CONTINUE_SECONDS)
                if len(record.finals) >= step[1]:
                    # The body is not sent, so no further request can follow.
                    record.withheld = step[1] - 1
                    break
            elif kind == "fin":
                if self.transport.can_write_eof():
                    self.transport.write_eof()
                await self.wait_for(lambda: False)
            elif kind == "rst":
                self.reset()
                return
        await self.finish()

    def complete_count(self):
        finals = self.record.finals
        return len(finals) - (1 if finals and not finals[-1].is_complete else 0)

    async def finish(self):
        """Waits for the end of the connection if an answer announces it, else closes."""
        record = self.record
        closes = record.withheld is not None or any(one.closes() for one in record.finals)
        if closes:
            if record.withheld is not None:
                self.transport.write_eof() if self.transport.can_write_eof() else None
            await self.wait_for(lambda: False)
        else:
            await self.wait_for(lambda: bool(self.reader.data), REST_SECONDS)

    def reset(self):
        self.record.end = "client"
        stream = self.transport.get_extra_info("socket")
        if stream is not None and stream.fileno() >= 0:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


async def play(plan, gateway, tls_context):
    """Plays the plan, and returns its record."""
    record = Record(plan)
    loop = asyncio.get_running_loop()
    client = Client(record)
    port = gateway.https if plan.is_tls else gateway.http
    try:
        # Retries only what the machine refuses: no local port is free, or the queue is full.
        for attempt in range(5):
            try:
                await loop.create_connection(lambda: client, "127.0.0.1", port,
                                             ssl=tls_context if plan.is_tls else None)
                break
            except (ConnectionResetError, OSError):
                if attempt == 4:
                    raise
                await asyncio.sleep(0.05)
        await asyncio.wait_for(client.play(), TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        record.hangs = True
    except OSError as error:
        record.end = record.end or f"reset: {error!r}"
    if client.transport is not None:
        client.transport.abort()
    if client.reader.data and not record.fault and client.reader.next is None:
        record.fault = f"bytes behind the last answer: {bytes(client.reader.data[:200])!r}"
    return record
