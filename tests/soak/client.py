"""A raw HTTP/1.1 client: sends the given bytes and reads exactly one response at a time.

It does not check responses; its callers do.
"""

import socket

TIMEOUT_SECONDS = 20.0


class ConnectionClosed(Exception):
    """The connection ended before the response was complete.

    `status` is 0 if no response had begun."""

    def __init__(self, what, status=0, headers=None):
        super().__init__(what)
        self.status = status
        self.headers = headers or {}


class ConnectFailed(Exception):
    """The connection was refused."""


class Response:
    """A complete response. Header names are in lower case; each name has a list of values."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name):
        values = self.headers.get(name, [])
        if len(values) > 1:
            raise ConnectionClosed(f"{name} is there twice: {values}", self.status)
        return values[0] if values else None

    def __str__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Connection:
    """A persistent connection."""

    def __init__(self, port):
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        except ConnectionRefusedError as error:
            raise ConnectFailed(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read_buf = b""
        self.closes = False

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise ConnectionClosed(f"sending: {error!r}") from error

    def read(self, head=False):
        while b"\r\n\r\n" not in self.read_buf:
            self.read_buf += self.receive("before the end of a header")
        block, self.read_buf = self.read_buf.split(b"\r\n\r\n", 1)
        lines = block.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers.setdefault(name.lower(), []).append(value.strip())
        self.closes = headers.get("connection") == ["close"]
        try:
            body = b"" if head or status == 204 else self.body(headers)
        except ConnectionClosed as error:
            raise ConnectionClosed(str(error), status, headers) from error
        return Response(status, headers, body)

    def body(self, headers):
        if "transfer-encoding" in headers:
            return self.read_chunks()
        length = int(headers["content-length"][0])
        return self.read_exactly(length)

    def read_chunks(self):
        whole = b""
        while True:
            while b"\r\n" not in self.read_buf:
                self.read_buf += self.receive("inside a chunked body")
            size, self.read_buf = self.read_buf.split(b"\r\n", 1)
            chunk = self.read_exactly(int(size, 16) + 2)
            if chunk == b"\r\n":
                return whole
            whole += chunk[:-2]

    def read_exactly(self, length):
        while len(self.read_buf) < length:
            self.read_buf += self.receive(f"{len(self.read_buf)} of {length} bytes into a body")
        taken, self.read_buf = self.read_buf[:length], self.read_buf[length:]
        return taken

    def receive(self, where):
        try:
            data = self.socket.recv(65536)
        except OSError as error:
            raise ConnectionClosed(f"{error!r} {where}") from error
        if not data:
            raise ConnectionClosed(f"closed {where}")
        return data

    def close(self):
        self.socket.close()


def request(target, method="GET", key=None, headers=()):
    """Returns the bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: gate.test"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8")


def get(port, target, **more):
    """Sends a request on a new connection and returns the response."""
    connection = Connection(port)
    try:
        connection.send(request(target, **more))
        return connection.read(head=more.get("method") == "HEAD")
    finally:
        connection.close()
