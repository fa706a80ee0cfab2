"""Names of what is known of a run: the leaves of the plan, and what a dialect keeps for itself.

``f.parallel.zero.stage`` is the field of that leaf. To a type checker ``f`` is a plan, so that a
name which the plan does not have is an error there, and ``cells[f.batch.micro]`` is an ``int``;
at run time a wrong name is an ``AttributeError`` where the module is imported. What a framework has
and the plan does not is declared once, by its dialect::

    class own(Private, prefix="axolotl"):
        gc: str
        plugins: tuple[str, ...]

A field is its dotted path, so that it can be written to JSON and looked up by what a user typed;
nobody else spells one as text (:func:`field_named` is for settings and options, :func:`declared`
and :func:`declare` for data that names fields).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from oomlint.errors import UsageError
from oomlint.plan import Plan, leaf_paths
from oomlint.plan.model import Section


class Field(str):
    """The dotted path of one field: ``batch.micro`` of the plan, or private: ``axolotl.gc``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<field {self!s}>"


class _Branch:
    """A record of the plan, whose attributes are fields or further records."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the plan has no field {self._path}{name.rstrip('_')}")


def _grown(section: Section, prefix: str) -> _Branch:
    branch = _Branch(prefix)
    names = zip(section.__struct_fields__, section.__struct_encode_fields__, strict=True)
    for name, public in names:
        inner, path = getattr(section, name), prefix + public
        is_section = isinstance(inner, Section)
        setattr(branch, name, _grown(inner, f"{path}.") if is_section else _leaf(path))
    return branch


_known: dict[str, Field] = {}


def _leaf(path: str) -> Field:
    return _known.setdefault(path, Field(path))


f: Plan = cast(Plan, _grown(Plan(), ""))
"""The fields of the plan, by the plan's own attributes: ``f.save.async_`` is ``save.async``."""


class Private:
    """Base of the classes in which a dialect declares fields of its own, each with its type."""

    def __init_subclass__(cls, *, prefix: str) -> None:
        for name in cls.__annotations__:
            path = f"{prefix}.{name.rstrip('_')}" if prefix else name.rstrip("_")
            if path in leaf_paths():
                raise TypeError(f"{path} is a field of the plan: it needs no declaration")
            setattr(cls, name, _leaf(path))

    @classmethod
    def all(cls) -> tuple[Any, ...]:
        """The declared fields, in the order of their declaration."""
        return tuple(getattr(cls, name) for name in cls.__annotations__)


def declared(path: str) -> Field | None:
    """The field of the plan, or of a dialect, that data names by its path; ``None`` for no field."""
    return _known.get(path)


def declare(path: str) -> Field:
    """A field that data declares, where no class does: ``script.freeze_llm``.

    Raises:
        ValueError: the plan has a field of that name.
    """
    if path in leaf_paths():
        raise ValueError(f"{path} is a field of the plan: it needs no declaration")
    return _leaf(path)


def below(branch: object) -> Iterator[Any]:
    """Every field of a record of the plan: ``below(f.parallel.zero)``."""
    for name, value in vars(branch).items():
        if isinstance(value, Field):
            yield value
        elif name != "_path":
            yield from below(value)


def path_of(field: object) -> str:
    """The dotted path of a field, for people."""
    return str(field)


def field_named(path: str) -> Field:
    """The field that a user means by a dotted path.

    Raises:
        UsageError: there is none, with the nearest one.
    """
    if path in leaf_paths():
        return _leaf(path)
    from difflib import get_close_matches

    near = get_close_matches(path, leaf_paths(), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"a plan has no field {path!r}{hint}")


ZERO_3: Mapping[Any, Any] = {f.parallel.zero.stage: 3, f.parallel.zero.gather16_on_save: True}
"""What every change sets that brings in ZeRO-3: without the gather no model is saved at the end."""
