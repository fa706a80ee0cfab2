"""What ``datasets.load_dataset`` is given: the name of a set, or a format with the files that are in it."""

from __future__ import annotations

# datasets 4.4 packaged_modules/__init__.py, those of text samples.
_FORMATS = frozenset({"json", "csv", "parquet", "text"})


def set_or_file(path: object, files: object) -> object:
    """The set that is loaded by its name, or the one file of which it is made (``path: json`` with ``data_files``)."""
    if not (isinstance(path, str) and path in _FORMATS):
        return path
    if isinstance(files, (list, tuple)) and len(files) == 1:
        files = files[0]
    return files if isinstance(files, str) and files else path
