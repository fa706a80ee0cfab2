"""Reads the packaged hardware tables: a line per entry, its keys first, found by byte search.

Each line of ``data/*.tsv`` is ``<tab>key<tab>key<tab>{json}``, keys in lower case.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from msgspec import DecodeError
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
        found.append(_entry(table, data[data.rfind(b"\n", 0, at) + 1 : end]))
        at = data.find(needle, end)
    return found


def entries(table: str) -> list[dict[str, Any]]:
    """Every entry of ``table``."""
    return [_entry(table, line) for line in _data(table).splitlines()]


def keys(table: str) -> list[str]:
    """Every key of ``table``."""
    return [key.decode() for line in _data(table).splitlines() for key in line.split(b"\t")[1:-1]]


def _entry(table: str, line: bytes) -> dict[str, Any]:
    head, _, text = line.rpartition(b"\t")
    start, *keys = head.split(b"\t")
    if start or not keys:
        raise ValueError(f"{table}.tsv: no tab and key begin the line {line[:40].decode()}…")
    try:
        entry: dict[str, Any] = decode(text)
    except DecodeError as error:
        raise ValueError(
            f"{table}.tsv: the entry of {keys[0].decode()} is no JSON: {error}"
        ) from None
    return entry
