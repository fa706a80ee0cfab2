"""Servers on a port of this machine."""

from __future__ import annotations

import socket
import subprocess
import time


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connected(server: subprocess.Popen[bytes], port: int) -> socket.socket:
    """A connection to a server once it listens; it may take its time, but not end."""
    while True:
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionRefusedError:
            assert server.poll() is None, "the server has ended"
            time.sleep(0.05)
