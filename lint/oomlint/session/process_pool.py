"""Work shared out to processes, of which any may die at any time.

The standard pool is no help there: where one of its processes is killed, as a host without memory does to the largest,
:class:`concurrent.futures.ProcessPoolExecutor` breaks as a whole and does not say over which item. Here that item is tried
once more and then named, and all others keep their results.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from oomlint.errors import in_words
from oomlint.session import interrupts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

T = TypeVar("T")

# An item that takes two processes with it is not tried a third time.
_TRIES = 2
_NO_MORE = None


class Lost(Exception):
    """What became of an item that has no result, in words."""


def can_fork() -> bool:
    """Whether processes can share what is loaded; on macOS system libraries do not survive it."""
    return hasattr(os, "fork") and sys.platform not in ("darwin", "win32")


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shared_out(
    work: Callable[[T], Any],
    items: Iterable[T],
    processes: int,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[tuple[T, Any]]:
    """Every item with ``work(item)``, as they come, from up to ``processes`` forked processes.
    While those ``prepare`` themselves, the items are made here.

    Where there is no result, :class:`Lost` stands in its place: ``work`` raised an exception, or the
    process that did it died, and another one after it. Items and results travel pickled.
    """
    from multiprocessing import get_context
    from multiprocessing.connection import wait

    fork = get_context("fork")
    tries: dict[int, int] = {}
    working: dict[Any, tuple[ForkProcess, int]] = {}
    started: list[ForkProcess] = []

    def begin() -> tuple[Connection, ForkProcess]:
        ours, theirs = fork.Pipe()
        arguments = (work, prepare, theirs, os.getpid())
        process = fork.Process(target=_serve, args=arguments, daemon=True)
        with interrupts.held_back():
            process.start()
            started.append(process)
        theirs.close()
        return ours, process

    def hand_out(connection: Connection, process: ForkProcess) -> None:
        item: T | None = _NO_MORE
        if left:
            number = left.popleft()
            tries[number] = tries.get(number, 0) + 1
            working[connection] = (process, number)
            item = known[number]
        # A process that has died meanwhile is noticed where its result is waited for.
        with suppress(OSError):
            connection.send(item)

    try:
        idle = [begin() for _ in range(processes)]
        known = list(items)
        left = deque(range(len(known)))
        for connection, process in idle:
            hand_out(connection, process)
        while working:
            for ready in wait(list(working)):
                connection = cast("Connection", ready)
                process, number = working.pop(connection)
                try:
                    result = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    if tries[number] < _TRIES:
                        left.appendleft(number)
                    else:
                        yield known[number], Lost(_how_it_ended(process.exitcode))
                    if left:
                        hand_out(*begin())
                    continue
                hand_out(connection, process)
                yield known[number], result
    finally:
        # Whoever has been given nothing yet would wait for it, and we for them.
        for process in started:
            process.kill()
        for process in started:
            process.join()


def _serve(
    work: Callable[[T], Any], prepare: Callable[[], object], connection: Connection, parent: int
) -> None:
    """The life of a process: items in, results out, until nobody asks any more."""
    interrupts.ignore()  # the one who hands out hears it, and ends us
    prepare()
    gc.freeze()
    gc.disable()  # an item is too small for its garbage to matter before it is done
    while True:
        while not connection.poll(1):
            if os.getppid() != parent:
                return
        item = connection.recv()
        if item is _NO_MORE:
            return
        try:
            result = work(item)
        except Exception as error:  # told where it is reported: a traceback helps nobody here
            result = Lost(in_words(error))
        connection.send(result)
        del result
        tidy()


# Objects that may refer to others, net of those freed; they are some 65 MB.
_GARBAGE = 500_000


def tidy() -> None:
    """Between two items: free what those before left behind, once it is worth the search, and
    never look again through what is kept, modules and tables."""
    if gc.get_count()[0] > _GARBAGE:
        gc.collect()
        gc.freeze()


def _how_it_ended(status: int | None) -> str:
    if status is not None and status < 0:
        return f"the process that checked it was killed by signal {-status}, twice"
    return f"the process that checked it ended with status {status}, twice"
