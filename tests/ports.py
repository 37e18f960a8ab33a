"""Free ports for the programs that scripts start.

`tests/support/free_ports.rs` reserves the ports of the tests in the same way.
"""

import errno
import random
import socket

# Below the ephemeral ports of Linux, so that no outgoing connection takes one before it is used.
FIRST_PORT, LAST_PORT = 10_000, 29_999

# These sockets reserve ports until this process ends. The kernel knows them by their names.
_reservations = []


def free_port():
    """Returns a loopback port on which nothing listens, and which no other script or test gets."""
    ports = range(FIRST_PORT, LAST_PORT + 1)
    for port in random.SystemRandom().sample(ports, len(ports)):
        if _reserve(port):
            return port
    raise RuntimeError(f"expected a free port from {FIRST_PORT} to {LAST_PORT}, but found none")


def _reserve(port):
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0riskgate-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError as error:
        reservation.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    _reservations.append(reservation)
    return True
