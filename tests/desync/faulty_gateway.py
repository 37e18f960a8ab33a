"""Gateways that confuse requests on purpose. `scripts/desync --self-test` must notice each of them.

A faulty gateway reads and writes HTTP/1.1 in the simplest way, so it understands well-formed
requests only. It does no harm to most requests; it makes its mistake in one of a hundred.
"""

import asyncio
import random
import re

# Each mistake, what it is, and what the checks must say about it. Without a mistake, they say
# nothing.
MISTAKES = {
    "none": ("none", None),
    "swap": ("an answer goes to the client of another request", "the answer to .* is that to"),
    "repeat": ("a request goes to the server twice", "twice|[0-9] times"),
    "split": ("the end of a body goes to the server as a request", "which is only in a body"),
    "leftover": ("bytes behind an answer become the next answer",
                 "sent without a request|is that to .*o-"),
    "cut": ("a byte of a body is lost", "another body than"),
    "lenient": ("the server gets malformed requests", "the server got a malformed request"),
    "silent": ("a connection ends in place of an answer", "got no answer"),
    "wrong-id": ("the server, and not the gateway, confuses ids", "the answer to .* is that to"),
}
SHARE = 0.01


class FaultyGateway:
    """Looks like `servers.Gateway`, but serves in the event loop of the hunt."""

    child = None

    def __init__(self, mistake, server_port, path):
        self.mistake, self.server_port, self.path = mistake, server_port, path
        self.name, self.http, self.https = mistake, 0, 0
        self.idle = []
        self.kept_answer = None
        self.listener, self.tasks = None, set()

    def start(self):
        pass

    def retries(self):
        return 0

    def close(self):
        pass

    async def listen(self):
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 20)
        # This gateway speaks no TLS.
        self.http = self.listener.sockets[0].getsockname()[1]

    async def stop(self):
        self.listener.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def errs(self, mistake):
        return self.mistake == mistake and random.random() < SHARE

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            while await self.exchange(reader, writer):
                pass
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError,
                asyncio.LimitOverrunError):
            pass
        finally:
            self.tasks.discard(asyncio.current_task())
            await end_connection(reader, writer)

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).lstrip(b"\r\n")
        name = (re.search(rb"\r\nX-Request-Id: (\S+)", head) or [b"", b"-"])[1]
        if not is_well_formed(head) and self.mistake != "lenient":
            return await refuse(writer, name)
        if b"\r\nExpect:" in head:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_request_body(reader, head)
        head = re.sub(rb"\r\n(Expect|Transfer-Encoding|Content-Length|Upgrade|TE):[^\r]*", b"",
                      head, flags=re.I)
        if body is None:
            return await refuse(writer, name)
        if body and self.errs("cut"):
            body = body[:-1]
        length = len(body)
        if b"GET /poison" in body and self.mistake == "split":
            length = body.index(b"GET /poison")
        head = head.replace(b":\r\n", b": \r\n")
        request = head[:-2] + b"Content-Length: %d\r\n\r\n" % length + body
        method = head.split(b" ", 1)[0]
        if self.errs("repeat"):
            await self.ask(request, method)
        if self.errs("silent"):
            return False
        answer = await self.ask(request, method)
        if self.errs("swap"):
            answer, self.kept_answer = self.kept_answer or answer, answer
        writer.write(answer.replace(b"\r\n", b"\r\nX-Request-Id: " + name + b"\r\n", 1))
        await writer.drain()
        return b"\r\nconnection: close" not in answer.lower()

    async def ask(self, request, method):
        """Sends a request to the server, and returns the answer."""
        # Without a mistake, each request has a connection of its own.
        server = self.idle.pop() if self.idle else await asyncio.open_connection(
            "127.0.0.1", self.server_port)
        try:
            server[1].write(request)
            answer = await read_answer(server[0], method)
        except (OSError, asyncio.IncompleteReadError):
            # A part of an answer would have to be forwarded; a 500 is as good.
            return own_answer(b"500")
        if self.mistake == "leftover" and b"close" not in answer.lower():
            self.idle.append(server)
        else:
            server[1].close()
        return answer


def is_well_formed(head):
    lines = head[:-4].split(b"\r\n")
    framings = [line for line in lines
                if re.match(rb"(?i)(content-length|transfer-encoding)", line)]
    return (len(head) < 16_384 and
            re.fullmatch(rb"[A-Z]+ /\S* HTTP/1\.1", lines[0]) and len(framings) < 2 and
            len(lines) < 60 and all(re.fullmatch(rb"[\w-]+: ?[\t -~]*", line) for line in lines[1:])
            and not (framings and lines[0].startswith((b"GET", b"HEAD", b"TRACE")))
            and not lines[0].startswith((b"TRACE", b"CONNECT")) and
            all(re.fullmatch(rb"(?i)content-length: \d{1,19}|transfer-encoding: chunked", line)
                for line in framings))


async def refuse(writer, name):
    writer.write(own_answer(b"400", b"X-Request-Id: " + name + b"\r\n"))
    return False


async def end_connection(reader, writer):
    """Reads what the client still sends, so that no reset destroys the last answer."""
    try:
        writer.write_eof()
        await asyncio.wait_for(reader.read(-1), 0.5)
    except (OSError, asyncio.CancelledError, asyncio.TimeoutError):
        pass
    finally:
        writer.close()


def own_answer(status, fields=b""):
    return (b"HTTP/1.1 " + status + b" No\r\n" + fields +
            b"Connection: close\r\nContent-Length: 0\r\n\r\n")


async def read_request_body(reader, head):
    """Returns the body; None if its chunks are malformed."""
    if length := re.search(rb"(?i)\r\ncontent-length: (\d+)", head):
        return await reader.readexactly(int(length[1]))
    if not re.search(rb"(?i)\r\ntransfer-encoding:", head):
        return b""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        found = re.fullmatch(rb"([0-9a-fA-F]{1,16})(;[ -~]*)?\r\n", line)
        if not found:
            return None
        if size := int(found[1], 16):
            body += await reader.readexactly(size)
            if await reader.readexactly(2) != b"\r\n":
                return None
            continue
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            if not re.fullmatch(rb"[\w-]+: [ -~]*\r\n", line):
                return None
        return body


async def read_answer(reader, method):
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 1"):
            break
    body = b""
    if method != b"HEAD" and not head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
        if length := re.search(rb"\r\nContent-Length: (\d+)", head):
            body = await reader.readexactly(int(length[1]))
        elif b"\r\nTransfer-Encoding:" in head:
            body = await reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            body = await reader.read()
    return head + body
