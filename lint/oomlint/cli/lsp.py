"""``oomlint lsp``: the language server, on standard input and output or on a local port."""

from __future__ import annotations

import logging
import sys

import click

from oomlint.cli.extras import needing
from oomlint.errors import UsageError


@click.command()
@click.option(
    "--tcp", metavar="HOST:PORT", help="Serve one client there instead of on standard input."
)
@click.option("--stdio", is_flag=True, help="Serve on standard input and output (the default).")
@click.option("--verbose", is_flag=True, help="Log on standard error what goes wrong.")
def lsp(tcp: str | None, stdio: bool, verbose: bool) -> int:
    """Serve an editor: findings while you type, fixes, hover, hints and completion.

    Nobody but a program of this machine can connect with --tcp: the host is localhost.
    """
    if tcp is not None and stdio:
        raise UsageError("--tcp and --stdio exclude one another")
    address = _local(tcp) if tcp is not None else None
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if verbose else logging.CRITICAL)
    with needing("editor", "oomlint lsp"):
        from oomlint.lsp.server import Server

    server = Server()
    if address is None:
        # The protocol has standard output for itself: what else would print there goes to stderr.
        output, sys.stdout = sys.stdout.buffer, sys.stderr
        server.start_io(stdout=output)
    else:
        server.start_tcp(*address)
    return 0


def _local(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or a port; the protocol has no passwords, so the host is this machine."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise UsageError(f"--tcp {text}: anybody could connect; write 127.0.0.1:PORT")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise UsageError(f"--tcp {text}: write HOST:PORT, such as 127.0.0.1:7777")
    return host, number
