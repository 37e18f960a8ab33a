"""A server that refuses every request that is not exactly well formed, and does what requests say.

    python3 -m desync.strict_server PORT LOG [--fault wrong-id]

It writes each request that it saw to LOG, as a line of JSON. The field `X-Draw` of a request says
what to do, as `key=value` with commas:

  k         how often the body of the response repeats the id
  resp      the framing of the response: `len`, `chunked`, `close`; or its status: `204`, `304`
  early     answers before the body has arrived; then reads the rest (`drain`) or closes (`shut`)
  slow      sends the response in so many parts
  interim   sends a 1xx before the response; 103103 is two of them
  fake      the body of the response contains a whole response with another id
  reset     resets the connection after so many bytes of the response
  drop      closes the connection instead of an answer
  bye       closes the connection so many microseconds after the response, which does not say so
  announce  the response says `Connection: close`
  over      sends a second response in the same packet
  late      sends a 408 so many microseconds after the response, and closes: nobody asked for it
"""

import asyncio
import hashlib
import json
import random
import re
import signal
import socket
import struct
import sys
import time

REQUEST_LINE = re.compile(rb"(GET|HEAD|OPTIONS|POST|PUT|DELETE) (/[!-~]*) HTTP/1\.1")
FIELD_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+): ([\t -~\x80-\xff]*)")
MAX_HEAD_BYTES = 64 * 1024
# How long a connection with an answer that nobody asked for is watched.
WATCH_SECONDS = 1.0


class Malformed(Exception):
    pass


def parse_head(head):
    first, *lines = head[:-4].split(b"\r\n")
    line = REQUEST_LINE.fullmatch(first)
    if not line:
        raise Malformed(f"request line {first[:200]!r}")
    fields = {}
    for text in lines:
        pair = FIELD_LINE.fullmatch(text)
        if not pair:
            raise Malformed(f"field {text[:200]!r}")
        fields.setdefault(pair[1].lower().decode(), []).append(pair[2].decode("latin-1"))
    for name in ("host", "x-id", "x-request-id"):
        if len(fields.get(name, [])) != 1:
            raise Malformed(f"expected one {name}, but found {fields.get(name)}")
    lengths, codings = fields.get("content-length", []), fields.get("transfer-encoding", [])
    if len(lengths) + len(codings) > 1 or codings not in ([], ["chunked"]):
        raise Malformed(f"framing {lengths} {codings}")
    if lengths and not re.fullmatch("0|[1-9][0-9]*", lengths[0]):
        raise Malformed(f"length {lengths[0]!r}")
    return line[1].decode(), line[2].decode(), fields


async def read_body(reader, fields):
    if lengths := fields.get("content-length"):
        return await reader.readexactly(int(lengths[0]))
    if "transfer-encoding" not in fields:
        return b""
    parts = []
    while True:
        line = await reader.readuntil(b"\r\n")
        if not re.fullmatch(rb"[0-9a-fA-F]{1,16}\r\n", line):
            raise Malformed(f"size of a chunk {line[:200]!r}")
        size = int(line, 16)
        part = await reader.readexactly(size + 2)
        if not part.endswith(b"\r\n"):
            raise Malformed(f"end of a chunk {part[-20:]!r}")
        parts.append(part[:-2])
        if not size:
            return b"".join(parts)


def other_response(name, kind):
    """A response with an id that is never that of a request."""
    other = kind + name[1:]
    return (f"HTTP/1.1 200 OK\r\nX-Seen-Id: {other}\r\nContent-Length: {len(other) + 1}\r\n\r\n"
            f"{other}\n").encode()


def response_body(name, draw):
    body = f"{name}\n".encode() * int(draw.get("k", 1))
    return body + b"\r\n" + other_response(name, "u") if "fake" in draw else body


class Server:
    def __init__(self, log, fault):
        self.log, self.fault = open(log, "a", encoding="utf-8"), fault
        self.last_name = "q-0-0"

    def write(self, record):
        self.log.write(json.dumps(record) + "\n")
        self.log.flush()

    async def serve(self, reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            number = 0
            while await self.serve_one(reader, writer, number):
                number += 1
        except (OSError, asyncio.IncompleteReadError):
            pass
        except (Malformed, asyncio.LimitOverrunError) as error:
            self.write({"malformed": str(error)})
        finally:
            writer.close()

    async def serve_one(self, reader, writer, number, unsolicited_at=None):
        """Serves one request. Returns True if the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, fields = parse_head(head)
        name = fields["x-id"][0]
        draw = dict(part.split("=") for part in fields.get("x-draw", [""])[0].split(",") if part)
        seen = {"method": method, "path": target, "x_id": name,
                "request_id": fields["x-request-id"][0], "number": number, "complete": False,
                "answered": 0}
        if unsolicited_at is not None:
            seen["after_unsolicited_us"] = int((time.monotonic() - unsolicited_at) * 1e6)
        try:
            if unsolicited_at is not None:
                return False
            if "drop" in draw:
                await self.read(reader, fields, seen)
                return False
            if "early" not in draw:
                await self.read(reader, fields, seen)
            if not await self.answer(writer, method, name, draw, seen):
                return False
            if "early" in draw:
                if draw["early"] == "shut":
                    return False
                await self.read(reader, fields, seen)
        finally:
            self.write(seen)
        return await self.go_on(reader, writer, number, draw, name)

    async def read(self, reader, fields, seen):
        body = await read_body(reader, fields)
        seen["sha"], seen["complete"] = hashlib.sha256(body).hexdigest(), True
        seen["start"] = body[:40].decode("latin-1")

    async def answer(self, writer, method, name, draw, seen):
        """Sends the response. Returns True if the connection goes on."""
        if self.fault == "wrong-id" and random.random() < 0.005:
            name, self.last_name = self.last_name, name
        self.last_name = name
        body, resp = response_body(name, draw), draw.get("resp", "len")
        status = resp if resp in ("204", "304") else "200"
        lines = [f"HTTP/1.1 {status} Answer", f"X-Seen-Id: {name}"]
        if "sha" in seen:
            lines.append(f"X-Body: {seen['sha']}")
        if status == "200":
            lines += {"len": [f"Content-Length: {len(body)}"],
                      "chunked": ["Transfer-Encoding: chunked"], "close": []}[resp]
        if "announce" in draw or resp == "close" or draw.get("early") == "shut":
            lines.append("Connection: close")
        head = "\r\n".join([*lines, "", ""]).encode()
        if method == "HEAD" or status != "200":
            data = head
        elif resp == "chunked":
            data = head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        else:
            data = head + body
        if interim := draw.get("interim"):
            for one in (interim[:3], interim[3:]):
                if one:
                    writer.write(f"HTTP/1.1 {one} Interim\r\nX-Hint: a\r\n\r\n".encode())
        if "reset" in draw:
            data = data[:int(draw["reset"])]
        if "over" in draw:
            # In one packet with the response, it can never pass for the next one.
            data += other_response(name, "o" if "slow" not in draw else "u")
        await send(writer, data, int(draw.get("slow", 1)))
        seen["answered"] = len(data)
        if "reset" in draw:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                       struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        return "announce" not in draw and resp != "close"

    async def go_on(self, reader, writer, number, draw, name):
        """Does what the request asks for after its response."""
        if "bye" in draw:
            await asyncio.sleep(int(draw["bye"]) / 1e6)
            return False
        if "over" in draw:
            await self.watch(reader, writer, number)
            return False
        if "late" in draw:
            await asyncio.sleep(int(draw["late"]) / 1e6)
            # Data in the buffer is a request, which the server would serve instead.
            if not has_arrived(reader, writer):
                other = "u" + name[1:]
                writer.write(f"HTTP/1.1 408 Request Timeout\r\nX-Seen-Id: {other}\r\nConnection: "
                             f"close\r\nContent-Length: {len(other)}\r\n\r\n{other}".encode())
                await self.watch(reader, writer, number)
                return False
        return True

    async def watch(self, reader, writer, number):
        """Sees whether the gateway uses a connection on which it got an answer to nothing."""
        sent_at = time.monotonic()
        self.write({"unsolicited": True})
        try:
            writer.write_eof()
            await asyncio.wait_for(self.serve_one(reader, writer, number + 1, sent_at),
                                   WATCH_SECONDS)
        except asyncio.TimeoutError:
            pass


def has_arrived(reader, writer):
    """Returns True if bytes have arrived, in the buffer or in the kernel."""
    if reader._buffer or reader.at_eof():  # noqa: SLF001 - asyncio has no other way to ask
        return True
    stream = writer.get_extra_info("socket")
    try:
        with socket.socket(fileno=socket.dup(stream.fileno())) as twin:
            twin.setblocking(False)
            twin.recv(1, socket.MSG_PEEK)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


async def send(writer, data, parts):
    size = max(1, -(-len(data) // parts))
    for at in range(0, len(data), size):
        writer.write(data[at:at + size])
        if at + size < len(data):
            await asyncio.sleep(random.choice((0, 0.001, 0.003)))
    await writer.drain()


async def main(port, log, fault):
    server = Server(log, fault)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", port, limit=MAX_HEAD_BYTES,
                                          backlog=1024)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with listener:
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2],
                     sys.argv[4] if sys.argv[3:4] == ["--fault"] else ""))
