"""What a profile says, made into the table of a script's options and what the script makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from msgspec.structs import replace

# Modules that declare the fields which profiles name.
import oomlint.dialects.accelerate.keys
import oomlint.dialects.common.fields
import oomlint.dialects.deepspeed.keys
import oomlint.dialects.machine.fields  # noqa: F401
from oomlint.dialects import kinds
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said, Sourced
from oomlint.dialects.profiles.formulas import BadFormula, Formula, formula
from oomlint.dialects.profiles.records import FieldRule, Option, ProfiledScript, ProfileError
from oomlint.dialects.setting import Origin
from oomlint.dialects.table import Row, Table
from oomlint.dialects.trainer import keys
from oomlint.dialects.trainer.fields import script as shared_script
from oomlint.plan.fields import declare, declared, path_of

KINDS: Mapping[str, kinds.Kind] = {
    "boolean": kinds.BOOLEAN,
    "count": kinds.COUNT,
    "positive": kinds.POSITIVE,
    "number": kinds.NUMBER,
    "text": kinds.TEXT,
    "list": kinds.LIST,
    "length": keys.LENGTH,
    "targets": keys.TARGETS,
}
"""``count`` is at least 0 and ``positive`` at least 1; a ``length`` of tokens is none where it is not
positive; ``targets`` are the modules of an adapter."""

_OWN = "script."


class ScriptTable(Table, frozen=True):
    """The options of a script, and what it makes of them."""

    meaning: Meaning = Meaning()
    has_only: frozenset[str] = frozenset()
    """Its options, where the script has none but these."""

    def knows(self, option: str) -> bool:
        """Whether the profile says what comes of an option, or that nothing does."""
        return option in self.names or option in self.known


def meaning_of_script(blocks: Iterable[Block]) -> Meaning | None:
    """What the script makes of its options that one of a run's blocks was read as."""
    tables = [block.table for block in blocks]
    return next((t.meaning for t in reversed(tables) if isinstance(t, ScriptTable)), None)


@cache
def script_table(script: ProfiledScript) -> ScriptTable:
    """The options of a script with what it makes of them.

    Raises:
        ProfileError: the profile names what there is not.
    """
    return _Builder(script).table()


class _Builder:
    def __init__(self, script: ProfiledScript) -> None:
        self.script = script
        named = (*(option.stands_for for option in script.options), *script.derive)
        own = {path for path in named if path.startswith(_OWN) and path not in _SHARED}
        own |= {self._path(option) for option in script.options if not option.stands_for}
        self.own = frozenset(own)
        for path in own:
            declare(path)

    def fault(self, key: str, words: str) -> ProfileError:
        return ProfileError(self.script.file, f"{self.script.name}: {key}", words)

    def field(self, path: str, key: str) -> Any:
        found = self._found(path)
        if found is None:
            raise self.fault(key, f"there is no field {path}")
        return found

    def _found(self, path: str) -> Any:
        """A field of the plan or of a dialect; of those that profiles declare this one's alone."""
        is_of_others = path.startswith(_OWN) and path not in self.own | _SHARED
        return None if is_of_others else declared(path)

    def _path(self, option: Option) -> str:
        path = f"{_OWN}{option.name}"
        if path in _SHARED:
            raise self.fault(f"options.{option.name}", f"{path} means something else: name a field")
        return path

    # -- options -----------------------------------------------------------------------------------

    def table(self) -> ScriptTable:
        script = self.script
        base = keys.TRAINER if script.extends == "trainer" else _BARE
        defaults = {self.field(path, "defaults"): v for path, v in script.defaults.of.items()}
        facts = {self.field(path, "facts"): v for path, v in script.facts.of.items()}
        own = (*map(self._row, script.options), *base.rows)
        rows = tuple(
            self._with_default(row, defaults, facts) for row in own if row.key not in script.drops
        )
        decided = {row.field for row in rows if row.default is not None}
        return ScriptTable(
            name=f"options of {script.name}",
            rows=rows,
            known=base.known | script.known | frozenset(script.drops),
            known_prefixes=base.known_prefixes,
            ignores_unknown=base.ignores_unknown,
            loader=base.loader,
            section=base.section,
            renamed=base.renamed,
            meaning=self.meaning({f: v for f, v in facts.items() if f not in decided}),
            has_only=frozenset(
                option.name for option in script.options if script.extends == "nothing"
            ),
        )

    def _with_default(self, row: Row, defaults: Mapping[Any, Any], facts: Mapping[Any, Any]) -> Row:
        """A row with the script's default, or with what the script does whatever that one is."""
        script = self.script
        if row.field in defaults:
            source = script.defaults.source or script.source
            row = replace(row, default=defaults[row.field], source=source, changes=())
        if row.field in facts and row.default is not None:
            source = script.facts.source or script.source
            row = replace(row, default=facts[row.field], source=source, changes=())
        return row

    def _row(self, option: Option) -> Row:
        key = f"options.{option.name}"
        kind = KINDS.get(option.kind)
        if kind is None:
            raise self.fault(key, f"there is no kind {option.kind!r}, but {', '.join(KINDS)}")
        if option.spellings:
            kind = kinds.choice(option.spellings, otherwise=None)
        if not self.script.checks:
            kind = kind.unchecked()
        field = self.field(option.stands_for or self._path(option), key)
        source = option.source or ("" if option.default is None else self.script.source)
        return Row(option.name, field, kind, option.default, option.aliases, source)

    # -- what the script makes of them -------------------------------------------------------------

    def meaning(self, facts: Mapping[Any, Any]) -> Meaning:
        script, made = self.script, Meaning()
        for field, value in facts.items():
            made.constant(field, value, script.facts.source or script.source)
        for path, rule in script.derive.items():
            compute = self._computed(rule, f"derive.{path}")
            source = rule.source or script.source
            made.derive(self.field(path, "derive"), source=source)(compute)
        for path, rule in script.override.items():
            compute = self._computed(rule, f"override.{path}")
            source = rule.source or script.source
            made.override(self.field(path, "override"), source=source)(compute)
        for path, rule in script.assume.items():
            compute = self._computed(rule, f"assume.{path}")
            _assume(made, self.field(path, "assume"), compute, rule.why)
        for path, rule in script.unread.items():
            key = f"unread.{path}"
            when = self._formula(rule.when or "True", key)
            by = tuple(self.field(other, key) for other in rule.by)
            _leave_open(made, self.field(path, key), by, when)
        for path, why in script.cannot.items():
            made.cannot_say(why, self.field(path, "cannot"))
        return made

    def _formula(self, text: str, key: str) -> Formula:
        try:
            return formula(text, self._found)
        except BadFormula as error:
            raise self.fault(key, str(error)) from None

    def _computed(self, rule: FieldRule, key: str) -> Formula:
        value = rule.value
        what = self._formula(rule.formula, key) if rule.formula else lambda run: value
        if not rule.when:
            return what
        when = self._formula(rule.when, key)
        return lambda run: what(run) if when(run) else None


_BARE = Table("", (), known_prefixes=("",), loader="yaml12", section="training")
_SHARED = frozenset(map(path_of, shared_script.all()))


def _assume(made: Meaning, field: Any, compute: Callable[[Cells], Any], why: str) -> None:
    """A guess that takes the place of the default, where nobody says the field."""

    @made.override(field)
    def guess(run: Cells) -> Any:
        if run.mentions(field):
            return None
        value = compute(run)
        return None if value is None else Sourced(value, why, is_assumed=True)


def _leave_open(made: Meaning, field: Any, by: tuple[Any, ...], when: Formula) -> None:
    """A field that is not known, for what others say."""

    @made.said(field)
    def left_open(run: Cells, _field: Any, said: Said) -> Said:
        if said is not None or not when(run):
            return said
        origins = (_origin(run, other) for other in by)
        return next((origin for origin in origins if origin is not None), None)


def _origin(run: Cells, field: Any) -> Origin | None:
    """Where a field's value comes from, or the place that sets it to what cannot be read."""
    setting = run.setting(field)
    if setting is not None:
        return setting.origin
    said = run.said(field)
    return said if isinstance(said, Origin) else None
