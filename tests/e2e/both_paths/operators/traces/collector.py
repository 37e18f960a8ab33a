"""A collector of OpenTelemetry traces: OTLP over gRPC and over HTTP, with the official messages.

Prints the ports of both, then each span as a line of JSON.
"""

import json
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

lock = Lock()


def print_line(value):
    with lock:
        print(json.dumps(value), flush=True)


def value_of(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def print_spans(request, transport):
    for resource in request.resource_spans:
        service = {a.key: value_of(a.value) for a in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                print_line({
                    "transport": transport,
                    "service": service["service.name"],
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent_id": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "attributes": {a.key: value_of(a.value) for a in span.attributes},
                    "is_error": span.status.code == 2,
                })


class Service(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        print_spans(request, "grpc")
        return trace_service_pb2.ExportTraceServiceResponse()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_known = self.path == "/v1/traces"
        is_known &= self.headers["Content-Type"] == "application/x-protobuf"
        if is_known:
            request = trace_service_pb2.ExportTraceServiceRequest()
            request.ParseFromString(body)
            print_spans(request, "http")
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=http_server.serve_forever, daemon=True).start()
grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), grpc_server)
grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
grpc_server.start()
print_line({"http": http_server.server_address[1], "grpc": grpc_port})
sys.stdin.read()
