"""Reads the packaged hardware tables: a line per entry, its keys first, found by byte search.

Each line of ``data/*.tsv`` is ``<tab>key<tab>key<tab>{json}``, keys in lower case.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from msgspec.json import decode


@cache
def _data(table: str) -> bytes:
    with open(os.path.join(os.path.dirname(__file__), "data", f"{table}.tsv"), "rb") as file:
        return file.read()


def find(table: str, key: str) -> list[dict[str, Any]]:
    """Every entry of ``table`` that has ``key``, in the order of the table."""
    if not key or "\t" in key or "\n" in key:
        return []
    data, needle = _data(table), b"\t" + key.encode("utf-8", "replace") + b"\t"
    found = []
    at = data.find(needle)
    while at >= 0:
        end = data.find(b"\n", at)
        found.append(_entry(data[data.rfind(b"\n", 0, at) + 1 : end]))
        at = data.find(needle, end)
    return found


def entries(table: str) -> list[dict[str, Any]]:
    """Every entry of ``table``."""
    return [_entry(line) for line in _data(table).splitlines()]


def keys(table: str) -> list[str]:
    """Every key of ``table``."""
    return [key.decode() for line in _data(table).splitlines() for key in line.split(b"\t")[1:-1]]


def _entry(line: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = decode(line.rsplit(b"\t", 1)[-1])
    return entry
