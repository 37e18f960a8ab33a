"""The upstream server of the gateways: it returns what it was asked, or misbehaves.

Modes: `healthy`, `refuse` (the port is closed), `silent` (reads requests and never responds), `cut`
(closes in the middle of a body), `garbage` (sends no HTTP).
"""

import json
import socket
import threading


class Upstream:
    def __init__(self):
        self.mode = "healthy"
        self.leaks = []
        self.listener = None
        self.port = 0
        self.open = set()
        self.lock = threading.Lock()
        self.listen()

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def set_mode(self, mode):
        before, self.mode = self.mode, mode
        if mode == "refuse":
            # A thread that waits in accept() would go on accepting; shutdown() wakes it.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.drop()
        elif before == "refuse":
            self.listen()

    def drop(self):
        """Closes all open connections."""
        with self.lock:
            for stream in self.open:
                try:
                    stream.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept(self, listener):
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        with self.lock:
            self.open.add(stream)
        try:
            reader = stream.makefile("rb")
            while self.answer(stream, reader):
                pass
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(stream)
            stream.close()

    def answer(self, stream, reader):
        first = reader.readline().decode("latin-1").split(" ")
        if len(first) != 3:
            return False
        headers = {}
        while (line := reader.readline().decode("latin-1").rstrip("\r\n")):
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        if "authorization" in headers:
            self.leaks.append(f"a key reached the upstream: {first[1]}")
        mode = self.mode
        if mode == "silent":
            # Waits until the gateway times out and closes.
            stream.settimeout(10)
            return bool(stream.recv(1)) and False
        if mode == "garbage":
            stream.sendall(b"\x00\x01 this is no HTTP\r\n\r\n")
            return False
        body = json.dumps({
            "asked": first[1],
            "id": headers.get("x-request-id"),
            "account": headers.get("x-riskgate-account"),
        }).encode()
        # The target names the status: 422-7@example.com.
        wanted = first[1].removeprefix("/v1/check/")[:3]
        status = wanted if wanted in ("422", "429", "503") else "200"
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nServer: secret\r\n\r\n"
        if mode == "cut":
            stream.sendall(head.encode() + body[: len(body) // 2])
            return False
        stream.sendall(head.encode() + (b"" if first[0] == "HEAD" else body))
        return True
