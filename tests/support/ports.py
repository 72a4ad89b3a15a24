import random
import socket


def free_port():
    """A port of this machine for a server that is started a moment later: below those that Linux deals out to outgoing
    connections, one of which could take it in between."""
    while True:
        with socket.socket() as probe:
            port = random.randrange(10000, 32000)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
