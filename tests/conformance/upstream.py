"""A checking service that accepts only targets of the form that docs/openapi.yaml documents.

Prints its port. riskgate itself forwards more targets than this service accepts.
"""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TARGET = re.compile(
    r"(?:[A-Za-z0-9.!#$%&'*+=?^_`{|}~-]+@)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802 - the library's name
        target = unquote(urlsplit(self.path).path.removeprefix("/v1/check/"))
        if len(target) <= 320 and TARGET.fullmatch(target):
            self.answer(200, {"target": target, "checked_by": "conformance"})
        else:
            self.answer(422, {
                "error": "validation_error",
                "message": "Invalid email or domain format.",
                "detail": "expected an e-mail address or a domain",
            })

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status, said):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


# Many clients connect at once, and the service must serve them all.
ThreadingHTTPServer.request_queue_size = 1024
server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(server.server_port, flush=True)
server.serve_forever()
