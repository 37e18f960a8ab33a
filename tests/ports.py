"""Free ports for the programs that scripts start."""

import random
import socket

# Below the ephemeral ports of Linux, so that no outgoing connection takes one before it is used.
FIRST_PORT, LAST_PORT = 10_000, 29_999


def free_port():
    """Returns a loopback port on which nothing listens."""
    while True:
        port = random.SystemRandom().randint(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
