"""From a proposal in canonical terms to edits in whatever file the value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC, Set
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.common.declared import check_option
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.setting import Setting
from oomlint.documents import SHELL_SUFFIXES, kind_of
from oomlint.documents.base import Entry, Mapping, ShellDocument
from oomlint.documents.text import Edit, Source, together
from oomlint.errors import CannotEdit, UntrueComment
from oomlint.fix.homes import home_of
from oomlint.fix.new_files import (
    AddedConfig,
    accelerate_config_around,
    added_config,
    is_to_be_added,
)
from oomlint.fix.own_steps import reads_gradients
from oomlint.fix.ownership import (
    said_by_reader,
    started_plainly,
    why_not_ours,
    why_the_frameworks,
    why_unused,
)
from oomlint.fix.packages import missing_package, untold_package
from oomlint.fix.sharing import Apart, FixFields, set_apart, tuned_fields
from oomlint.fix.story import (
    added_elsewhere,
    branch_at,
    commented_out,
    contradiction,
    machine_in_name,
    stage_in_comment,
    starts_what_is_given,
    tried_before,
    untrue_beside,
    variable_in,
    variant_beside,
    warning_at,
)
from oomlint.judgement import Risk, settled
from oomlint.linting.rule import (
    Applicability,
    Proposal,
    ReadyEdits,
    RemoveKey,
    RenameKey,
    SetFields,
    Wish,
    short,
)
from oomlint.memory import Estimate
from oomlint.plan import leaf_paths
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.runs.vendored.declared import lacks
from oomlint.wording.amounts import gib


class Fix(Struct, frozen=True, eq=False):
    """Edits that carry out a proposal.

    ``expected`` are the settings (own fields of the dialect) as the run has them after the
    edits. ``freed`` are fields that may read differently too, because their key was renamed or
    removed, ``None`` if any may (a mended script). Everything else must read as before.
    ``reason`` says why a fix is only shown. ``rise`` is what the predicted GPU peak grows by, in
    bytes; the title says it.

    Of files that other runs use too: ``leaves`` are those that the run no longer names, having a
    copy of its own, ``joins`` those that it names in their place and that were there before, and
    ``also`` are the names of the other runs for which the same change was found.

    ``changes`` are the fields of the plan that it sets, by name, ``gpu_bytes_after`` and
    ``host_bytes_after`` the peaks that are predicted then, and ``risk_after`` how likely the run dies.
    ``doubt`` says why it is not safe where the run trains the same with it (:mod:`oomlint.fix.assurance`).
    ``is_told_otherwise`` where nothing but a comment is against it, which would then be untrue.
    ``is_failure`` where working it out met a bug, which ``reason`` tells.
    ``limit_bytes_after`` is how much there is then of the resource in question, where the fix changes that.
    """

    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]
    predicted_bytes_after: int | None = None
    expected: MappingABC[str, Any] = field(default_factory=dict)
    freed: frozenset[str] | None = frozenset()
    reason: str | None = None
    rise: int = 0
    leaves: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    changes: MappingABC[str, Any] = field(default_factory=dict)
    gpu_bytes_after: int | None = None
    host_bytes_after: int | None = None
    limit_bytes_after: int | None = None
    risk_after: Risk | None = None
    made: Made | None = None
    doubt: str = ""
    is_told_otherwise: bool = False
    is_failure: bool = False

    @property
    def trains_the_same(self) -> bool:
        """Whether what is trained and saved is the same, up to floating-point order."""
        return self.applicability is Applicability.SAFE or bool(self.doubt)

    def unsure(self, doubt: str) -> Fix:
        """It is not known to do what it is for: its title says why, and a safe one is made on request alone."""
        aside = f"{self.title[:-1]}; " if self.title.endswith(")") else f"{self.title} ("
        title = self.title if doubt in self.title else f"{aside}{doubt})"
        if self.applicability is not Applicability.SAFE:
            return replace(self, title=title)
        return replace(self, title=title, applicability=Applicability.UNSAFE, doubt=doubt)

    def declined(self, reason: str) -> Fix:
        """It is only shown, without its edits, and why."""
        shown = Applicability.DISPLAY
        return replace(self, applicability=shown, edits=(), reason=reason, made=None)


class CandidateFix(Protocol):
    """A fix of a run, whoever proposes it."""

    @property
    def run(self) -> Run | None: ...

    @property
    def fix(self) -> Fix | None: ...


class Planned(Struct, frozen=True):
    """A fix of a run that no finding asked for."""

    run: Run | None
    fix: Fix | None


class Made(Struct, frozen=True, eq=False):
    """What a fix was made of, and ``edits`` as they are where every file is the run's alone."""

    run: Run
    proposal: Proposal
    resource: str | None
    edits: tuple[Edit, ...]


def make_fix(
    run: Run, proposal: Proposal, resource: str | None, *, agreed: Set[str] = frozenset()
) -> Fix | None:
    """The fix for a proposal, or ``None`` where it can neither be written nor usefully shown.

    A file that other runs use too is copied first, but for those in ``agreed``. Edits that some
    file cannot take safely turn the fix into one that is only displayed, with the reason.
    """
    promise = _Promise()
    expected = promise.expected
    try:
        plain = _plain_edits(run, proposal, promise)
        changed = _after(run, proposal)
    except CannotEdit as error:
        return _shown(proposal, error)
    made = Made(run, proposal, resource, plain)
    try:
        fields = FixFields(_wished(proposal), promise.written)
        apart = set_apart(run, plain, expected, agreed, fields)
        _check_comments(run, apart.edits)
    except CannotEdit as error:
        return _shown(proposal, error, made)
    after = None if changed is None else changed.estimate
    limits = _limits(run if changed is None else changed)
    raised = limits[resource == "host"]
    rise = 0 if after is None else _rise(run, after)
    device = None if after is None else after.host if resource == "host" else after.gpu
    package = untold_package(run, plain)
    fix = Fix(
        _title(proposal, promise, apart, rise),
        _applicability(run, changed, proposal) if apart.edits else Applicability.DISPLAY,
        apart.edits,
        None if device is None else device.peak_bytes,
        expected,
        _freed(run, proposal, apart, promise),
        rise=rise,
        changes=_changes(run, proposal),
        gpu_bytes_after=None if after is None else after.gpu.peak_bytes,
        host_bytes_after=None if after is None else after.host.peak_bytes,
        limit_bytes_after=None if raised == _limits(run)[resource == "host"] else raised,
        risk_after=None if after is None else Risk.by(after, *limits),
        leaves=frozenset(apart.left),
        joins=apart.joined | promise.joined,
        made=made,
    )
    # Without it the run stops at its first line.
    return fix if package is None else fix.unsure(f"it needs {package}")


def _shown(proposal: Proposal, error: CannotEdit, made: Made | None = None) -> Fix:
    """A proposal without its edits, and why."""
    return Fix(
        proposal.title,
        Applicability.DISPLAY,
        (),
        reason=str(error),
        made=made,
        is_told_otherwise=isinstance(error, UntrueComment),
    )


def can_write(run: Run, values: MappingABC[Any, Any]) -> bool:
    """Whether the files of a run can be made to say ``values``, in words and places that its authors
    would have taken too."""
    promise = _Promise()
    try:
        plain = _plain_edits(run, Proposal.set("", values), promise)
        fields = FixFields(values, promise.written)
        apart = set_apart(run, plain, promise.expected, frozenset(), fields)
        _check_comments(run, apart.edits)
        return bool(apart.edits)
    except CannotEdit:
        return False


class _Promise(Struct):
    """What edits come to: ``expected`` is what the run then says, ``written`` the fields of each file that are to say it.
    ``joined`` are files that it names now and that were here before, ``freed`` what these may say otherwise."""

    expected: dict[Any, Any] = field(default_factory=dict)
    written: dict[str, set[Any]] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()
    freed: frozenset[Any] = frozenset()


def _plain_edits(run: Run, proposal: Proposal, promise: _Promise) -> tuple[Edit, ...]:
    """The edits of a proposal as they are where every file is the run's alone, and what they promise.

    Raises:
        CannotEdit: it cannot be written, or the files say why it should not be.
    """
    edits: list[Edit] = []
    for wish in proposal.wishes:
        edits += _edits_for(run, wish, promise)
    plain = together(edits)
    _check_places(run, plain)
    _check_story(run, proposal, plain)
    return plain


def _check_places(run: Run, edits: tuple[Edit, ...]) -> None:
    """Files are changed where the user asked for it, however a config names others, and only those that the project
    has of its own and that something of it may run.

    Raises:
        CannotEdit: one is not to be changed.
    """
    if run.parts.copier is None:
        return
    workspace = run.parts.copier.workspace
    paths = dict.fromkeys(edit.path for edit in edits)
    for path in paths:
        reason = workspace.why_not_to_change(path)
        if reason is not None:
            raise CannotEdit(reason)
    root = () if run.parts.root is None else (run.parts.root.path,)
    foreign = (why_not_ours(workspace, path) for path in (*root, *paths))
    # A registry of configs in Python is where the run itself stands.
    code = (why_the_frameworks(run, path) for path in paths if path not in root)
    reason = next(filter(None, (*foreign, *code)), None) or (why_unused(run) if paths else None)
    if reason is not None:
        raise CannotEdit(reason)


def _check_story(run: Run, proposal: Proposal, edits: tuple[Edit, ...]) -> None:
    """What a file is called, and what somebody noted beside a value, holds after a change too.

    Raises:
        CannotEdit: it would not, or the project lacks what the change needs.
    """
    wished = _wished(proposal)
    documents = {claim.path: claim.document.source for claim in run.claims}
    _check_names(run, wished)
    for path, document in documents.items():
        said = stage_in_comment(_script(run, path) or document, run.plan, wished)
        if said is not None:
            raise UntrueComment(f"a comment in {_name(path)} would no longer be true: {said}")
    _check_comments(run, edits)
    for edit in edits:
        source = _script(run, edit.path) or documents.get(edit.path)
        reason = None if source is None else next(_told_around(source, edit), None)
        if reason is not None:
            raise CannotEdit(reason)
    reader = reads_gradients(run, wished)
    if reader is not None:
        raise CannotEdit(f"{reader} works on gradients itself, which are spread or moved then")
    package = missing_package(run, edits)
    if package is not None:
        raise CannotEdit(f"it needs {package}, which the project does not require")


def _check_names(run: Run, wished: MappingABC[Any, Any]) -> None:
    """What the files of a run are called holds after a change too.

    Raises:
        CannotEdit: it would not.
    """
    begins = {run.claims[0].path, *((run.parts.root.path,) if run.parts.root else ())}
    for path in dict.fromkeys(c.path for c in run.claims if c.path in begins):
        word = contradiction(path, run.plan, wished)
        if word is not None:
            raise CannotEdit(f"{_name(path)} would no longer be what its name says: {word}")
    hardware = run.parts.hardware
    if wished and hardware is not None and run.parts.root is not None:
        machine = machine_in_name(run.parts.root.path, hardware)
        if machine is not None:
            raise CannotEdit(f"{_name(run.parts.root.path)} is for another machine: {machine}")
    beside = (
        () if run.parts.copier is None else run.parts.copier.workspace.beside(run.claims[0].path)
    )
    variant = variant_beside(run.claims[0].path, beside, wished)
    if variant is not None:
        raise CannotEdit(f"{_name(variant)} beside it is for that")


def _told_around(source: Source, edit: Edit) -> Iterator[str]:
    """What the text around an edit says against it."""
    if edit.replacement and (variable := variable_in(source, edit)):
        yield f"it is written as {variable}, on which more of the script may rest"
    if starts_what_is_given(source, edit):
        yield "the script starts whatever it is given, with the options of that"
    if branch := branch_at(source, edit):
        yield f"the script sets it where {short(branch)} holds, and for that"
    if option := added_elsewhere(source, edit):
        yield f"the script puts {option} into a variable for it itself"
    if off := commented_out(source, edit):
        yield f"the script has {off} as a comment: somebody switched it off"
    if tried := tried_before(source, edit):
        yield f"the file has {tried} as a comment: somebody left it out"


def _script(run: Run, path: str) -> Source | None:
    """A shell script as it stands; what a run reads of it may be one of its commands."""
    if run.parts.copier is None or kind_of(path) not in SHELL_SUFFIXES:
        return None
    data = run.parts.copier.workspace.read_or_none(path)
    return None if data is None else Source.from_bytes(path, data)


def _check_comments(run: Run, edits: tuple[Edit, ...]) -> None:
    """Nobody warns of a change beside what it replaces, the name of a file included, or says a number there that it
    changes.

    Raises:
        CannotEdit: somebody does.
    """
    documents = {claim.path: claim.document.source for claim in run.claims}
    for edit in edits:
        source = documents.get(edit.path)
        warning = None if source is None else warning_at(source, edit)
        if warning is not None:
            raise CannotEdit(f"a comment beside it warns: {warning}")
        untrue = None if source is None else untrue_beside(source, edit)
        if untrue is not None:
            raise UntrueComment(f"a comment beside it would no longer be true: {untrue}")


def _wished(proposal: Proposal) -> dict[Any, Any]:
    """The fields that a proposal sets."""
    values: dict[Any, Any] = {}
    for wish in proposal.wishes:
        if isinstance(wish, SetFields):
            values.update(wish.values)
    return values


def _changes(run: Run, proposal: Proposal) -> dict[str, Any]:
    """What a proposal sets, a key under its right name included."""
    values: dict[str, Any] = {}
    for wish in proposal.wishes:
        if isinstance(wish, SetFields):
            values |= {str(field): value for field, value in wish.values.items()}
        elif isinstance(wish, RenameKey):
            meant = (each for each in run.misspelt if each.key is wish.key)
            values |= {str(each.field): each.value for each in meant}
    return values


def _applicability(run: Run, changed: Run | None, proposal: Proposal) -> Applicability:
    """That of the proposal; where DeepSpeed trains in place of DDP, what is computed is rounded otherwise."""
    swaps = run.plan.parallel.backend == "ddp" and changed is not None
    if changed is not None and swaps and changed.plan.parallel.backend == "zero":
        return min(proposal.applicability, Applicability.UNSAFE)
    return proposal.applicability


def _title(proposal: Proposal, promise: _Promise, apart: Apart, rise: int) -> str:
    """The proposal's title, the files that it adds, and what it costs in memory: settings that a card can run at all may
    need more than those that it cannot."""
    asides = [
        f"{'by naming' if copy.path in apart.joined else 'in a copy,'} {_name(copy.path)}"
        + (f", since {why}" if why else "")
        for copy, why in apart.left.values()
    ]
    copies = {copy.path for copy, _ in apart.left.values()}
    new = (edit.path for edit in apart.edits if edit.creates and edit.path not in copies)
    asides += [f"in a new file, {_name(path)}" for path in new]
    asides += [f"by naming {_name(path)}" for path in sorted(promise.joined)]
    if rise:
        asides.append(f"it raises the predicted GPU peak by {gib(rise)}")
    return f"{proposal.title} ({'; '.join(asides)})" if asides else proposal.title


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _freed(run: Run, proposal: Proposal, apart: Apart, promise: _Promise) -> frozenset[str] | None:
    written = promise.written
    fields: set[str] = {*apart.freed, *promise.freed}
    for block, _ in run.parts.blocks:
        fields |= block.following(written.get(block.path, ()))
    if any(ref.deepspeed in names for names in written.values()):
        # Another config that is shipped may say "auto" of the run's own precision, or say it.
        fields |= {row.field for row in DEEPSPEED.rows if row.key.startswith(("bf16.", "fp16."))}
    for wish in proposal.wishes:
        if isinstance(wish, ReadyEdits):
            return None
        if isinstance(wish, RenameKey):
            fields |= _fields_named(wish.key.block, wish.new_key)
        elif isinstance(wish, RemoveKey):
            gone = {id(entry) for entry in _with_section(wish)}
            fields |= {name for name, s in run.settings.items() if id(s.origin.entry) in gone}
            for entry in _with_section(wish):
                fields |= _fields_named(wish.block, entry.key)
    return frozenset(fields)


def _with_section(wish: RemoveKey) -> tuple[Entry, ...]:
    """The keys that go."""
    if not wish.is_whole:
        return (wish.entry,)
    return tuple(wish.block.holder(wish.entry).entries.values())


def _fields_named(block: Block, key: str) -> set[str]:
    """The fields that a key sets: one, or, of a key that holds others, all of theirs."""
    table = block.table
    fields = {row.field for name, row in table.names.items() if f"{name}.".startswith(f"{key}.")}
    row = table.names.get(key)
    if row is not None and row.table is not None:
        fields |= {inner.field for inner in row.table.rows}
    return fields


def _edits_for(run: Run, wish: Wish, promise: _Promise) -> list[Edit]:
    if isinstance(wish, SetFields):
        return _set_fields(run, wish.values, promise)
    if isinstance(wish, RenameKey):
        stray = wish.key
        new_key = wish.new_key.rpartition(".")[2]
        if new_key in stray.mapping.entries:
            raise CannotEdit(f"{new_key} is already set")
        table = stray.block.table
        # A key's own row goes before one that has it for another name.
        own = (each for each in table.rows if each.key == wish.new_key)
        row = next(own, table.names.get(wish.new_key))
        if row is not None:
            check_option(stray.block, row, run.cells)
        return stray.block.document.rename_entry(stray.mapping, stray.entry.key, new_key)
    if isinstance(wish, RemoveKey):
        _check_starts(run, wish)
        holder, entry = _removed(wish)
        return wish.block.document.remove_entry(holder, entry.key)
    assert isinstance(wish, ReadyEdits)
    return list(wish.edits)


def _check_starts(run: Run, wish: RemoveKey) -> None:
    """See that a device map stays which a single process needs that something else here starts.

    Raises:
        CannotEdit: it does.
    """
    if f.load.device_map not in _fields_named(wish.block, wish.entry.key):
        return
    other = started_plainly(run, wish.block.path)
    if other is not None:
        raise CannotEdit(f"{other} starts it with plain python, where the map spreads the model")


def _removed(wish: RemoveKey) -> tuple[Mapping, Entry]:
    """What goes with a key that is removed, and what holds it."""
    root, holder = wish.block.mapping, wish.block.holder(wish.entry)
    section = _above(root, holder) if wish.is_whole else None
    return _whole_entry(root, *(section or (holder, wish.entry)))


def _whole_entry(root: Mapping, holder: Mapping, entry: Entry) -> tuple[Mapping, Entry]:
    """An entry to remove and what holds it; where it stands alone, the one that would be left empty."""
    while holder is not root and len(holder.entries) == 1 and not holder.duplicates:
        above = _above(root, holder)
        if above is None:
            break
        holder, entry = above
    return holder, entry


def _above(mapping: Mapping, wanted: Mapping) -> tuple[Mapping, Entry] | None:
    """The mapping, at or below another, that holds one as a value, and the entry in which it does."""
    for entry in mapping.entries.values():
        if entry.value is wanted:
            return mapping, entry
        if isinstance(entry.value, Mapping):
            found = _above(entry.value, wanted)
            if found is not None:
                return found
    return None


def _set_fields(run: Run, values: MappingABC[str, Any], promise: _Promise) -> list[Edit]:
    by_block: dict[int, tuple[Block, dict[Any, Any]]] = {}
    edits: list[Edit] = []
    expected = promise.expected
    changed = run.what_if(values)
    _check_effect(run, changed, values)
    for name, value in changed.wished.items():
        setting = changed.settings.get(name)
        expected[name] = None if setting is None else setting.value
        block = home_of(run, name, removes=value is None, near=changed.wished)
        refused = block.refuses_new(name, (each for each, _ in run.parts.blocks))
        if refused is not None:
            raise CannotEdit(refused)
        _check_copy(run, block, name)
        _check_readers(run, block, name)
        _check_namesakes(run, block, name, value)
        _check_engine(run, block, values)
        if name == ref.deepspeed and is_to_be_added(run, value):
            added = added_config(run, block, str(value))
            value = expected[name] = added.reference
            edits += _adding(added, promise)
        by_block.setdefault(id(block), (block, {}))[1][name] = value
        promise.written.setdefault(block.path, set()).add(name)
    for name in run.settings.keys() | changed.settings.keys():
        # A key that the wish brings into force or out of it, or that another file now says.
        if _explicitly(changed, name) != _explicitly(run, name):
            setting = changed.settings.get(name)
            if name not in promise.freed:
                expected.setdefault(name, None if setting is None else setting.value)
    for block, wanted in by_block.values():
        # What a framework ships is changed in a copy.
        writable = block if block.copy is None else replace(block, locked=None)
        edits += writable.write(wanted)
    return edits


def _adding(added: AddedConfig, promise: _Promise) -> list[Edit]:
    """The edit that adds a config, or, of one that is here already, none: that has tuning of its own."""
    if added.text is not None:
        return [Edit(added.path, 0, 0, added.text, creates=True)]
    promise.joined |= {added.path}
    promise.freed |= tuned_fields(DEEPSPEED)
    return []


def _check_copy(run: Run, block: Block, field: Any) -> None:
    """See that a project which carries its own copy of a framework gets no key that this copy has not, and another one
    none that the release which it runs may not have yet, where that stops at such a key.

    Raises:
        CannotEdit: it would.
    """
    copier, row = run.parts.copier, block.table.by_field.get(field)
    if copier is None or row is None or run.is_explicit(field):
        return
    is_new = lacks(copier.workspace, run.claims, block, row.key)
    if is_new:
        raise CannotEdit(f"the project's own copy of {run.dialect.name} has no key {row.key}")
    spans = block.table.spans
    if is_new is None and spans is not None:
        oldest = run.cells.oldest(spans.package)
        said = (path for each, _ in run.parts.blocks for path in each.mapping.paths())
        untold = spans.why_untold(row.key, oldest, said)
        if untold is not None:
            raise CannotEdit(untold)


def _check_readers(run: Run, block: Block, field: Any) -> None:
    """See that no code of the project's own that reads a config says a key of it itself.

    Raises:
        CannotEdit: it does.
    """
    row = block.table.by_field.get(field)
    if row is None:
        return
    key = row.key.rpartition(".")[2]
    reader = said_by_reader(run, block.path, key)
    if reader is not None:
        raise CannotEdit(f"{reader} reads {_name(block.path)} and says {key} itself")


def _check_engine(run: Run, block: Block, values: MappingABC[Any, Any]) -> None:
    """See that no flags of a launcher bring DeepSpeed into a run that DDP trains where the project has a config for that.

    Raises:
        CannotEdit: they would.
    """
    copier = run.parts.copier
    is_by_flags = block.table.section == "launcher" and isinstance(block.document, ShellDocument)
    brings = run.plan.parallel.backend == "ddp" and f.parallel.zero.stage in values
    if copier is None or not (is_by_flags and brings):
        return
    kept = accelerate_config_around(copier.workspace, block.path)
    if kept is not None:
        raise CannotEdit(
            f"the project has {kept} for DeepSpeed, and whether this run takes it is its author's to say"
        )


def _check_namesakes(run: Run, block: Block, field: Any, value: Any) -> None:
    """See that a file does not say otherwise already, under a name that nobody reads but that anybody would take
    for the key's: ``fsdp: {cpu_offload: False}`` above ``fsdp_cpu_offload: True``.

    Raises:
        CannotEdit: it does.
    """
    row = block.table.by_field.get(field)
    if row is None or run.is_explicit(field):
        return
    for path, entry in _sections(block.mapping):
        if path in block.table.names or _letters(path) != _letters(row.key):
            continue
        said = block.value(entry.value)
        if said != value:
            raise CannotEdit(f"the file says {path}: {said}, which no code reads")


def _sections(mapping: Mapping) -> Iterator[tuple[str, Entry]]:
    """What the mappings in a mapping hold, by dotted name."""
    for outer in mapping.entries.values():
        if isinstance(outer.value, Mapping):
            for entry in outer.value.entries.values():
                yield f"{outer.key}.{entry.key}", entry


def _letters(key: str) -> str:
    return key.replace(".", "").replace("_", "").replace("-", "").lower()


def _explicitly(run: Run, name: str) -> tuple[bool, Any]:
    """Whether files say a field, and what."""
    setting = run.settings.get(name)
    is_said = run.is_explicit(name)
    return is_said, setting.value if is_said and setting is not None else None


def _check_effect(run: Run, changed: Run, values: MappingABC[str, Any]) -> None:
    """A key that can be written is not enough: the run must then do something else.

    A framework may have its own word for what a fix wants (torchtune's chunked loss for a fused
    one); what stays as it was is no fix. Limits of the machine are not the run's to change.

    Raises:
        CannotEdit: another key of the run would keep the field as it is.
    """
    for name, value in values.items():
        if name not in leaf_paths() or name.startswith("host.") or value is None:
            continue
        was, now = run.plan.get(name), changed.plan.get(name)
        wanted = tuple(value) if isinstance(value, list) else value
        if now == was != wanted:
            raise CannotEdit(f"another setting of this run keeps it at {now}")


def _after(run: Run, proposal: Proposal) -> Run | None:
    """The run to compute with once the proposal's fields are set and its keys are gone; of what else it
    may do no number is known. A key under its right name is in the prediction already."""
    values: dict[Any, Any] = {}
    gone: set[int] = set()
    for wish in proposal.wishes:
        if isinstance(wish, SetFields):
            values.update(wish.values)
        elif isinstance(wish, RemoveKey):
            gone |= {id(entry) for entry in _with_section(wish)}
    if not values and not gone:
        return None
    changed = _without(run, gone) if gone else run
    return settled(changed.what_if(values) if values else changed)


def _without(run: Run, gone: set[int]) -> Run:
    """The run as if its files had not the entries with these identities."""
    blocks = tuple(
        (block, replace(reading, settings=_kept(reading.settings, gone)))
        for block, reading in run.parts.blocks
    )
    parts = replace(run.parts, blocks=blocks, based_on=None)
    return replace(run, parts=parts, _cache={}).assuming({})


def _kept(settings: MappingABC[str, Setting], gone: set[int]) -> dict[str, Setting]:
    return {name: s for name, s in settings.items() if id(s.origin.entry) not in gone}


def _limits(run: Run) -> tuple[int | None, int | None]:
    """What there is of GPU and host, in bytes."""
    return run.limits.gpu_bytes, run.limits.host_bytes


def _rise(run: Run, after: Estimate) -> int:
    """Bytes by which the predicted GPU peak grows, 0 where it does not or nothing is known."""
    peak, was = after.gpu.peak_bytes, settled(run).estimate.gpu.peak_bytes
    return 0 if peak is None or was is None or not is_higher(peak, was) else peak - was


def is_higher(peak: int, was: int) -> bool:
    """Whether a prediction has risen by more than rounding."""
    return peak > was * 1.0001
