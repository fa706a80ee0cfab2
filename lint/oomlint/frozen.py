"""``@frozen``: what ``@dataclass(frozen=True, slots=True)`` makes, for a fraction of its price.

The standard decorator compiles six methods for every class, which for the hundred classes of a
run takes longer than the run. Here the methods are shared by all classes; an ``__init__`` of its
own is compiled for a class of which many instances are made. The functions of :mod:`dataclasses`
(``fields``, ``replace``, ``asdict``) work as ever: what they ask of a class is made when they ask.
That module, which imports half a compiler, is loaded only then. ``@mutable`` makes what
``@dataclass(slots=True)`` makes; for both, ``field`` is the one of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

T = TypeVar("T")
C = TypeVar("C", bound=type)

_MISSING: Any = object()


class Field:
    """What the body of a class says about a field, beyond a plain default."""

    __slots__ = ("_options", "default", "factory", "is_parameter", "is_shown")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.default, self.factory = default, default_factory
        self.is_parameter, self.is_shown = init, repr
        options = {"default": default, "default_factory": default_factory}
        self._options = {name: value for name, value in options.items() if value is not _MISSING}
        self._options |= {"init": init, "repr": repr, "metadata": metadata}

    def standard(self) -> Any:
        """The same as :mod:`dataclasses` has it."""
        from dataclasses import field

        return field(**self._options)


if TYPE_CHECKING:
    from dataclasses import field as field

    from typing_extensions import dataclass_transform
else:
    field = Field

    def dataclass_transform(**_options: Any) -> Callable[[T], T]:
        return lambda decorator: decorator


# So many instances are made before a class gets an __init__ of its own: compiling one takes some
# 200 µs, and an instance without it 3 µs more (measured on CPython 3.11).
_MANY = 50


@overload
def frozen(cls: C, /) -> C: ...
@overload
def frozen(
    *, eq: bool = ..., order: bool = ..., kw_only: bool = ..., slots: bool = ...
) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type | None = None,
    /,
    *,
    eq: bool = True,
    order: bool = False,
    kw_only: bool = False,
    slots: bool = True,
) -> Any:
    """A dataclass whose instances do not change. The options mean what they mean there."""
    methods: dict[str, Any] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if eq:
        methods |= {"__eq__": _equal, "__hash__": _hash}
    if order:
        methods |= {"__lt__": _less, "__le__": _at_most, "__gt__": _more, "__ge__": _at_least}

    def make(cls: type) -> type:
        return _dataclass(cls, methods, kw_only, slots)

    return make if cls is None else make(cls)


@overload
def mutable(cls: C, /) -> C: ...
@overload
def mutable(*, eq: bool = ..., slots: bool = ...) -> Callable[[C], C]: ...
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type | None = None, /, *, eq: bool = True, slots: bool = True) -> Any:
    """A dataclass whose instances change. The options mean what they mean there."""
    methods = {"__eq__": _equal, "__hash__": None} if eq else {}

    def make(cls: type) -> type:
        return _dataclass(cls, methods, False, slots)

    return make if cls is None else make(cls)


def _dataclass(cls: type, methods: Mapping[str, Any], kw_only: bool, slots: bool) -> type:
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}()"  # else dataclass() works out a signature
    own = _own_parameters(cls, kw_only)
    standard = {name: _Standard(name, cls, kw_only) for name in _STANDARD}
    methods = {"__repr__": _repr, **methods, **standard, _OWN: own}
    if "__init__" not in vars(cls):
        methods["__init__"] = _general_init()
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    methods = {name: value for name, value in methods.items() if name not in vars(cls)}
    if slots:
        return _with_slots(cls, own, methods)
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def _with_slots(cls: type, own: tuple[Parameter, ...], methods: dict[str, Any]) -> type:
    """The class anew, with a slot for each field; what was set in its body stays with the old."""
    names = [p.name for p in own]
    left_out = {"__dict__", "__weakref__", *names}
    namespace = {name: value for name, value in vars(cls).items() if name not in left_out}
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    namespace["__slots__"] = tuple(name for name in names if name not in inherited)
    namespace["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, namespace | methods)


# -- fields --------------------------------------------------------------------------------

_OWN = "__frozen_fields__"
_STANDARD = ("__dataclass_fields__", "__dataclass_params__")


class Parameter:
    """A field of a class, as far as ``__init__`` and ``repr`` want to know it."""

    __slots__ = ("default", "factory", "is_keyword", "is_parameter", "is_shown", "name")

    def __init__(self, name: str, value: Any, kw_only: bool) -> None:
        self.name = name
        self.default = value
        self.factory: Any = _MISSING
        self.is_parameter = self.is_shown = True
        self.is_keyword = kw_only
        if isinstance(value, Field):
            self.default, self.factory = value.default, value.factory
            self.is_parameter, self.is_shown = value.is_parameter, value.is_shown
        elif type(value).__module__ == "dataclasses":
            raise TypeError(f"{name}: a class of oomlint.frozen wants the field() of that module")


def _own_parameters(cls: type, kw_only: bool) -> tuple[Parameter, ...]:
    """The fields that the body of a class declares."""
    body = vars(cls)
    declared: dict[str, Any] = body.get("__annotations__", {})
    if "__annotate_func__" in body:
        # From Python 3.14 on they are worked out when asked for (PEP 649).
        declared = cls.__annotations__
    return tuple(
        Parameter(name, body.get(name, _MISSING), kw_only)
        for name, annotation in declared.items()
        if "ClassVar[" not in str(annotation)
    )


_parameters: dict[type, tuple[Parameter, ...]] = {}


def parameters(cls: type) -> tuple[Parameter, ...]:
    """All fields of a class in order, those of its bases first; none of any other class."""
    known = _parameters.get(cls)
    if known is None:
        found: dict[str, Parameter] = {}
        for base in reversed(cls.__mro__):
            for parameter in vars(base).get(_OWN, ()):
                found[parameter.name] = parameter
        known = _parameters[cls] = tuple(found.values())
    return known


class _Standard:
    """What :mod:`dataclasses` keeps in a class, made when it is first asked for."""

    __slots__ = ("_kw_only", "_name", "_original")

    def __init__(self, name: str, original: type, kw_only: bool) -> None:
        self._name, self._original, self._kw_only = name, original, kw_only

    def __get__(self, _instance: object, cls: type) -> Any:
        from dataclasses import dataclass

        for name, value in list(vars(self._original).items()):
            if isinstance(value, Field):
                setattr(self._original, name, value.standard())
        owner = next(base for base in cls.__mro__ if vars(base).get(self._name) is self)
        make = dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)
        made: Any = make(self._original)
        for name in _STANDARD:
            setattr(owner, name, vars(made)[name])
        return getattr(owner, self._name)


def replace(instance: T, /, **changes: Any) -> T:
    """What ``dataclasses.replace`` does, for a class of ours and without asking its fields."""
    make: Any = type(instance)
    known = _arguments.get(make)
    if known is None:
        names = tuple(p.name for p in parameters(make) if p.is_parameter)
        known = _arguments[make] = names, _reader(names)
    names, values = known
    made: T = make(**{**dict(zip(names, values(instance), strict=True)), **changes})
    return made


_arguments: dict[type, tuple[tuple[str, ...], Callable[[Any], Any]]] = {}


def _reader(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """What reads these attributes of an instance at once."""
    if len(names) == 1:
        only = attrgetter(*names)
        return lambda instance: (only(instance),)
    return attrgetter(*names) if names else lambda _: ()


# -- methods -------------------------------------------------------------------------------


def _general_init() -> Callable[..., None]:
    """An ``__init__`` for the first instances of one class."""
    made = 0
    takes: tuple[Parameter, ...] | None = None
    positional: list[str] = []

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal made, takes, positional
        cls = type(self)
        if takes is None:
            takes = tuple(p for p in parameters(cls) if p.is_parameter)
            positional = [p.name for p in takes if not p.is_keyword]
        made += 1
        values = {**dict(zip(positional, args, strict=False)), **kwargs}
        is_sound = len(values) == len(args) + len(kwargs)
        if made > _MANY or not is_sound or not _fill(self, takes, values):
            cls.__init__ = _compiled_init(cls)  # whose errors are Python's own
            cls.__init__(self, *args, **kwargs)

    return init


def _fill(self: Any, takes: tuple[Parameter, ...], values: dict[str, Any]) -> bool:
    """Set every field; whether the values were those that ``__init__`` takes."""
    put = object.__setattr__
    left = len(values)
    for p in takes:
        if p.name in values:
            put(self, p.name, values[p.name])
            left -= 1
        elif p.default is not _MISSING:
            put(self, p.name, p.default)
        elif p.factory is not _MISSING:
            put(self, p.name, p.factory())
        else:
            return False
    if left == 0 and hasattr(self, "__post_init__"):
        self.__post_init__()
    return left == 0


def _compiled_init(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that takes the fields of a class in their order."""
    known: dict[str, Any] = {"_MISSING": _MISSING, "put": object.__setattr__}
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for p in parameters(cls):
        if not p.is_parameter:  # __post_init__ sets it
            continue
        parameter, value = p.name, p.name
        if p.default is not _MISSING:
            known[f"default_{p.name}"] = p.default
            parameter += f"=default_{p.name}"
        elif p.factory is not _MISSING:
            known[f"make_{p.name}"] = p.factory
            parameter += "=_MISSING"
            value = f"make_{p.name}() if {p.name} is _MISSING else {p.name}"
        (named if p.is_keyword else positional).append(parameter)
        slot: Any = getattr(cls, p.name, None)
        if hasattr(slot, "__set__"):  # quicker than by name
            known[f"put_{p.name}"] = slot.__set__
            body.append(f" put_{p.name}(self, {value})")
        else:
            body.append(f" put(self, {p.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    signature = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    exec(f"def __init__({signature}):\n" + "\n".join(body or [" pass"]), known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


_getters: dict[type, Callable[[Any], Any]] = {}


def _values(self: object) -> Any:
    """The values of all fields, in a form that compares as they do."""
    cls = type(self)
    if cls not in _getters:
        names = [p.name for p in parameters(cls)]
        _getters[cls] = attrgetter(*names) if names else lambda _: ()
    return _getters[cls](self)


def _equal(self: object, other: object) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _less(self: object, other: object) -> Any:
    return _values(self) < _values(other) if other.__class__ is self.__class__ else NotImplemented


def _at_most(self: object, other: object) -> Any:
    return _values(self) <= _values(other) if other.__class__ is self.__class__ else NotImplemented


def _more(self: object, other: object) -> Any:
    return _values(self) > _values(other) if other.__class__ is self.__class__ else NotImplemented


def _at_least(self: object, other: object) -> Any:
    return _values(self) >= _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = (f"{p.name}={getattr(self, p.name)!r}" for p in parameters(type(self)) if p.is_shown)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, _value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, p.name) for p in parameters(type(self))]


def _set_state(self: Any, state: list[Any]) -> None:
    for parameter, value in zip(parameters(type(self)), state, strict=True):
        object.__setattr__(self, parameter.name, value)
