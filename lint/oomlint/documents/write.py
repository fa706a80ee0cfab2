"""Writing files back: all of them or none, and only if they are still what was read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oomlint.documents.staged import clear_folders, new_staged
from oomlint.errors import CannotEdit, ReadError

if TYPE_CHECKING:
    from typing_extensions import Self


def write_atomically(
    path: Path, data: bytes, *, expected: bytes | None, roots: Iterable[Path] = ()
) -> None:
    """Replace a file's bytes in one step; on any failure the old file stays as it was.

    ``expected`` is what the file held when it was read, ``None`` for a file that does not
    exist yet. A symbolic link stays one: its target is written, provided that it lies below
    one of ``roots``. Mode and, where the system allows it, owner are kept.

    Raises:
        CannotEdit: the file changed since it was read, or is a link out of ``roots``.
        ReadError: it cannot be read, or the folder or the disk does not take the new text.
    """
    with _Staged(path, data, expected, roots) as staged:
        staged.put()


def write_all(
    texts: Mapping[str, bytes],
    originals: Mapping[str, bytes | None],
    folder: Path,
    roots: Iterable[Path],
) -> None:
    """Write every changed file (path below ``folder`` → bytes), or none.

    Whatever links its path takes, each must lie below one of ``roots``.

    All new texts lie on the disk before the first takes its place; a failure after that restores
    the rest. Only a kill in the instant between two files can leave one new and one old: the next
    check then finds the text that was left, and the next call takes it away. A file whose original is ``None`` is new; it comes
    before those that may refer to it.

    Raises:
        CannotEdit: a file changed since it was read, lies outside of ``roots``, or is being
            written by another oomlint.
        ReadError: a file cannot be written.
    """
    roots = [root.resolve() for root in roots]
    for name in texts:
        if not is_below(folder / name, roots):
            raise CannotEdit(f"{name} lies outside of the folders being checked")
    put: list[str] = []
    with contextlib.ExitStack() as stack:
        staged = {
            name: stack.enter_context(_Staged(folder / name, texts[name], originals[name], roots))
            for name in sorted(texts, key=lambda name: (originals[name] is not None, name))
        }
        try:
            for name, file in staged.items():
                file.put()
                put.append(name)
        except BaseException:  # Ctrl-C, too
            for name in reversed(put):
                with contextlib.suppress(CannotEdit, ReadError, OSError):
                    _restore(folder / name, originals[name], texts[name], roots)
            raise
    clear_folders({_target(folder / name, roots).parent for name in texts})


def is_below(file: Path, roots: Iterable[Path]) -> bool:
    """Whether a file lies in one of some folders, all links followed; the folders have none."""
    real = Path(os.path.realpath(file))
    return any(real.is_relative_to(root) for root in roots)


class _Staged:
    """The new text of a file beside it, until it is put in its place or goes again."""

    def __init__(
        self, path: Path, data: bytes, expected: bytes | None, roots: Iterable[Path]
    ) -> None:
        self._path, self._data, self._expected = path, data, expected
        self._target = _target(path, roots)
        self._temporary: str | None = None
        self._lock: int | None = None
        self._life: int | None = None

    def __enter__(self) -> Self:
        target = self._target
        try:
            self._lock = _locked(self._path, target)
            status = _check_unchanged(self._path, target, self._expected)
            descriptor, self._temporary = new_staged(target)
            if os.name == "posix":  # elsewhere no open file can be renamed, and none is locked
                self._life = os.dup(descriptor)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._data)
                file.flush()
                _copy_attributes(target, file.fileno())
                _copy_status(file.fileno(), status)
                os.fsync(file.fileno())
        except OSError as error:
            self.__exit__()
            raise self._cannot(error) from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
        for descriptor in (self._lock, self._life):
            if descriptor is not None:
                os.close(descriptor)

    def put(self) -> None:
        # Checked again as late as possible: an editor may have saved in the meantime.
        _check_unchanged(self._path, self._target, self._expected)
        assert self._temporary is not None
        try:
            if self._expected is None:
                _create(self._temporary, self._target)
            else:
                os.replace(self._temporary, self._target)
                self._temporary = None
        except FileExistsError:
            raise CannotEdit(f"{self._path} exists already") from None
        except OSError as error:
            raise self._cannot(error) from None
        if self._life is not None:  # it is the file itself now, for anybody to lock
            os.close(self._life)
            self._life = None
        _sync_folder(self._target.parent)

    def _cannot(self, error: OSError) -> ReadError:
        return ReadError(str(self._path), f"cannot be written: {_reason(error)}")


def _locked(path: Path, target: Path) -> int | None:
    """An open descriptor that keeps other oomlints from writing the same file, where the system
    has such locks and there is a file.

    Raises:
        CannotEdit: another one is writing it.
    """
    try:
        import fcntl

        # Without waiting: in place of the file there may be a pipe.
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CannotEdit(f"{path} is being written by another oomlint") from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _restore(path: Path, original: bytes | None, written: bytes, roots: Iterable[Path]) -> None:
    if original is None:
        if path.read_bytes() == written:
            path.unlink()
        return
    with _Staged(path, original, written, roots) as staged:
        staged.put()


def _create(temporary: str, target: Path) -> None:
    """Give a file its name unless something has it: unlike a rename, a link replaces nothing.

    Where a file system has no links, what was checked just before has to do.
    """
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        os.rename(temporary, target)


def _target(path: Path, roots: Iterable[Path]) -> Path:
    """The file itself, or where a symbolic link leads if that is allowed."""
    try:
        if not path.is_symlink():
            return path
        target = path.resolve(strict=True)
        allowed = [root.resolve() for root in roots]
    except (OSError, RuntimeError) as error:
        raise ReadError(str(path), f"the link leads nowhere: {_reason(error)}") from None
    if not any(target.is_relative_to(root) for root in allowed):
        raise CannotEdit(f"{path} is a link to {target}, outside of the folders being checked")
    return target


def _check_unchanged(path: Path, target: Path, expected: bytes | None) -> os.stat_result | None:
    try:
        status = target.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ReadError(str(path), "is not a regular file")
        found: bytes | None = target.read_bytes()
    except FileNotFoundError:
        status, found = None, None
    except OSError as error:
        raise ReadError(str(path), f"cannot be read: {_reason(error)}") from None
    if found == expected:
        # The folder alone would have to permit it; but whoever protects a file means its text.
        if status is not None and not os.access(target, os.W_OK):
            raise ReadError(str(path), "cannot be written: it is read-only")
        return status
    if expected is None:
        raise CannotEdit(f"{path} exists already")
    if found is None:
        raise CannotEdit(f"{path} was deleted since it was read")
    raise CannotEdit(f"{path} was changed by another program since it was read")


def _copy_attributes(target: Path, descriptor: int) -> None:
    """Give the new text the extended attributes of the old file, access lists included; where the
    system has none, or does not permit one, there is nothing to keep."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(target):
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(target, name))


def _copy_status(descriptor: int, status: os.stat_result | None) -> None:
    if os.name != "posix":
        return
    if status is None:
        # mkstemp makes files private; a new file gets what the user's umask says.
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        return
    # Only root may give files away; changing the owner clears set-id bits, so mode comes last.
    with contextlib.suppress(OSError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make the rename durable where folders can be synced; the file itself is safe already."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
