"""Single requests whose responses are checked completely."""

import http.client
import re
import socket
import ssl


class WrongResponse(Exception):
    """A subject sent a wrong response."""


# The certificates of the subjects are made for the run, and nobody signed them.
TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


def connect(subject):
    """A connection for single requests, over HTTP/1.1."""
    if subject.tls:
        return http.client.HTTPSConnection("127.0.0.1", subject.port, timeout=30, context=TLS)
    return http.client.HTTPConnection("127.0.0.1", subject.port, timeout=30)


def connect_socket(subject):
    link = socket.create_connection(("127.0.0.1", subject.port), timeout=30)
    return TLS.wrap_socket(link) if subject.tls else link


def send_request(subject, path, key, origin="", connection=None):
    link = connection or connect(subject)
    try:
        headers = {"Host": "gate.test", "Authorization": f"Bearer {key}"}
        if origin:
            headers["Origin"] = origin
        link.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            link.putheader(name, value)
        link.endheaders()
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        if connection is None:
            link.close()


def mean_length(subject, lines):
    """The mean length of complete responses, headers included."""
    total = 0
    with connect_socket(subject) as link:
        for path, key, origin, _ in lines:
            browser = f"Origin: {origin}\r\n" if origin else ""
            link.sendall((f"GET {path} HTTP/1.1\r\nHost: gate.test\r\n"
                          f"Authorization: Bearer {key}\r\n{browser}\r\n").encode())
            received = b""
            while not (head := received.find(b"\r\n\r\n") + 4) > 3:
                received += link.recv(65536)
            length = int(re.search(rb"content-length: *(\d+)", received[:head], re.IGNORECASE)[1])
            while len(received) < head + length:
                received += link.recv(65536)
            total += len(received)
    return total / len(lines)


def check_fields(several, mix):
    """Checks that all subjects send the header fields of the first one, which is riskgate, with
    values of the same lengths. docs/benchmarks.md names the exceptions."""
    answers = {}
    for wanted in (False, True):
        path, key, origin, _ = next(line for line in mix.lines if bool(line[2]) == wanted)
        for subject in several:
            _, headers, _ = send_request(subject, path, key, origin)
            fields = {name.lower(): len(value) for name, value in headers.items()}
            # Traefik joins the exposed names without spaces; the ids of some peers have hyphens.
            fields |= {name: 0 for name in ("x-request-id", "access-control-expose-headers")
                       if name in fields}
            expected = answers.setdefault(wanted, fields)
            missing = [name for name in expected.keys() - {"x-matched-domain", "connection"}
                       if fields.get(name) != expected[name]]
            # The seconds until the end of the month have fewer digits near its end.
            if set(missing) - {"ratelimit"} or "ratelimit" not in fields:
                raise WrongResponse(f"{subject.name}: expected {sorted(missing)} as riskgate sends "
                                    f"them, but found {headers}")


def check_subject(subject, mix, count=200):
    """Checks responses to some requests of the workload, and then what the gates must refuse."""
    connection = connect(subject)
    left = []
    lines = mix.sample(count)
    for path, key, origin, body in lines:
        status, headers, output = send_request(subject, path, key, origin, connection)
        if (status, output) != (200, body):
            raise WrongResponse(
                f"{subject.name}: {path}: expected 200 {body}, but found {status} {output}")
        name = path.rpartition("/")[2]
        row = subject.world.rows.row_of(name)
        matched = row if row != name else None
        if "quota" in subject.does and headers["X-Matched-Domain"] != matched:
            raise WrongResponse(
                f"{subject.name}: {path}: expected {row} to match, but found {headers}")
    connection.close()
    if not subject.gates:
        return
    path, key, _, _ = next(line for line in lines if line[2])
    refused = [(401, key[:-1] + "!", ""), (403, key, "https://elsewhere.example.com")]
    for wanted, with_key, origin in refused:
        status, _, output = send_request(subject, path, with_key, origin)
        if status != wanted:
            raise WrongResponse(f"{subject.name}: expected {wanted}, but found {status} {output}")
    if "quota" in subject.does:
        for _ in range(3):
            _, headers, _ = send_request(subject, path, key)
            left.append(int(re.search(r"r=(\d+)", headers["RateLimit"])[1]))
        if left[0] - left[2] != 2:
            raise WrongResponse(
                f"{subject.name}: expected each call to be counted, but found {left}")
