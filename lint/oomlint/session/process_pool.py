"""Work shared out to processes, of which any may die at any time.

The standard pool is no help there: where one of its processes is killed, as a host without memory does to the largest,
:class:`concurrent.futures.ProcessPoolExecutor` breaks as a whole and does not say over which item. Here that item is tried
once more and then named, and all others keep their results.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
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
# Seconds between two looks whether anybody still waits for a result.
_WATCHED = 1.0


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
    pool = _Pool(work, prepare)
    try:
        idle = [pool.begin() for _ in range(processes)]
        pool.take(items)
        for connection, process in idle:
            pool.hand_out(connection, process)
        yield from pool.results()
    finally:
        pool.end()


class _Pool:
    """Processes, what each of them works on, and what is left to do."""

    def __init__(self, work: Callable[[Any], Any], prepare: Callable[[], object]) -> None:
        from multiprocessing import get_context

        self._fork = get_context("fork")
        self._serving = (work, prepare)
        self._started: list[ForkProcess] = []
        self._ours: list[Connection] = []
        self._working: dict[Any, tuple[ForkProcess, int]] = {}
        self._items: list[Any] = []
        self._left: deque[int] = deque()
        self._tries: dict[int, int] = {}

    def begin(self) -> tuple[Connection, ForkProcess]:
        """Another process, which waits for an item."""
        ours, theirs = self._fork.Pipe()
        self._ours.append(ours)
        arguments = (*self._serving, theirs, tuple(self._ours))
        process = self._fork.Process(target=_serve, args=arguments, daemon=True)
        with interrupts.held_back():
            process.start()
            self._started.append(process)
        theirs.close()
        return ours, process

    def take(self, items: Iterable[Any]) -> None:
        """What there is to do."""
        self._items = list(items)
        self._left = deque(range(len(self._items)))

    def hand_out(self, connection: Connection, process: ForkProcess) -> None:
        """Give a process the next item, or word that there is none."""
        item: Any = _NO_MORE
        if self._left:
            number = self._left.popleft()
            self._tries[number] = self._tries.get(number, 0) + 1
            self._working[connection] = (process, number)
            item = self._items[number]
        # A process that has died meanwhile is noticed where its result is waited for.
        with suppress(OSError):
            connection.send(item)

    def results(self) -> Iterator[tuple[Any, Any]]:
        """Each item with its result, as they come, while the others go on."""
        from multiprocessing.connection import wait

        while self._working:
            for ready in wait(list(self._working)):
                yield from self._result_of(cast("Connection", ready))

    def _result_of(self, connection: Connection) -> Iterator[tuple[Any, Any]]:
        """The result of one process; none where it died and its item is tried again."""
        process, number = self._working.pop(connection)
        try:
            result = connection.recv()
        except (EOFError, OSError):
            process.join()
            if self._tries[number] < _TRIES:
                self._left.appendleft(number)
            else:
                yield self._items[number], Lost(_how_it_ended(process.exitcode))
            if self._left:
                self.hand_out(*self.begin())
            return
        self.hand_out(connection, process)
        yield self._items[number], result

    def end(self) -> None:
        """Whoever has been given nothing yet would wait for it, and we for them."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.join()


def _serve(
    work: Callable[[T], Any],
    prepare: Callable[[], object],
    connection: Connection,
    inherited: tuple[Connection, ...],
) -> None:
    """The life of a process: items in, results out, until nobody asks any more.

    A fork inherits the other end of each connection, its own included. It closes them: else nobody would hear that the one
    who handed out was killed, and a result too large for the pipe would be waited with for ever.
    """
    interrupts.ignore()  # the one who hands out hears it, and ends us
    _end_with(os.getppid())
    for each in inherited:
        each.close()
    prepare()
    gc.freeze()
    gc.disable()  # an item is too small for its garbage to matter before it is done
    with suppress(EOFError, OSError):  # nobody is there any more
        while (item := connection.recv()) is not _NO_MORE:
            connection.send(_result(work, item))
            del item
            tidy()


def _end_with(parent: int) -> None:
    """End this process once the one that started it is gone: an item may take minutes in which nothing is sent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCHED)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _result(work: Callable[[T], Any], item: T) -> Any:
    try:
        return work(item)
    except Exception as error:  # told where it is reported: a traceback helps nobody here
        return Lost(in_words(error))


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
