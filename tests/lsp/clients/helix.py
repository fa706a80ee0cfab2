"""Opens OOMLINT_FILE in Helix, waits for a finding, takes "Fix all" from its menu of actions, saves.

Helix has no scripts: a terminal is held before it, keys are sent, and what it draws is read.
"""

import os
import pty
import re
import select
import sys
import termios
import time

PATIENCE = 60


def main() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp("hx", ["hx", os.environ["OOMLINT_FILE"]])
    termios.tcsetwinsize(terminal, (45, 160))
    drawn = ""

    def until(words: str) -> None:
        nonlocal drawn
        end = time.monotonic() + PATIENCE
        while not re.search(words, drawn):
            if time.monotonic() > end:
                sys.exit(f"Helix never drew {words!r}: {drawn[-2000:]!r}")
            if select.select([terminal], [], [], 0.2)[0]:
                drawn += os.read(terminal, 65536).decode("utf-8", "replace")

    def type_in(keys: str) -> None:
        nonlocal drawn
        drawn = ""
        os.write(terminal, keys.encode())

    until("●")  # the mark of a finding beside its line
    type_in("/micro_batch_size\r")
    time.sleep(1)
    type_in(" a")
    until("Ignore")
    type_in("\x10")  # Control-P: the last of the actions, which is for all
    until("Fix all")
    type_in("\r")
    time.sleep(2)
    type_in(":write-all\r")
    until("written")
    type_in(":quit-all!\r")
    os.waitpid(pid, 0)
    print("OOM: fixed in Helix")


main()
