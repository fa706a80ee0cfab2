"""Training commands inside files of schedulers and containers: whose runs they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping as MappingABC

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Reference
from oomlint.dialects.block import Block
from oomlint.documents.base import Document, Mapping, Node, Scalar, Sequence
from oomlint.documents.embedded import EmbeddedShell, embedded_script, embedded_words
from oomlint.documents.shell.names import SHELLS, WRAPPERS
from oomlint.documents.yaml.document import YamlDocument
from oomlint.errors import ParseError

SceneOf = Callable[[Claim], Iterable[Block]]


def command_of(
    document: YamlDocument,
    *nodes: Node | None,
    variables: Mapping | None = None,
    is_one_command: bool = False,
) -> EmbeddedShell | None:
    """The command that ``command``, ``args`` and their like make together.

    A string is a script; lists are joined to one command, and where that is a shell with
    ``-c``, the script behind it counts. ``variables`` are those that a shell will see; ``is_one_command``
    where no shell sees a string, but what reads the file splits it into words.
    """
    known = {name: entry.value for name, entry in variables.entries.items()} if variables else {}
    present = [node for node in nodes if node is not None]
    try:
        if len(present) == 1 and isinstance(present[0], Scalar):
            return _script(document, present[0], known, is_one_command=is_one_command)
        lists = [node for node in present if isinstance(node, Sequence)]
        if not lists or len(lists) != len(present):
            return None
        script = _script_of_shell([item for node in lists for item in node.items])
        if script is not None:
            return _script(document, script, known)
        return embedded_words(document, lists)
    except ParseError:
        return None


def _script(
    document: YamlDocument,
    node: Scalar,
    variables: dict[str, Node],
    *,
    is_one_command: bool = False,
) -> EmbeddedShell | None:
    if not isinstance(node.value, str) or not node.value.strip():
        return None
    return embedded_script(document, node, variables, is_one_command=is_one_command)


def _script_of_shell(items: list[Node]) -> Scalar | None:
    """The script of ``[bash, -c, script]``, whatever wraps the shell."""
    words = [text_of(item) for item in items]
    shell = next((n for n, word in enumerate(words) if word.rpartition("/")[2] in SHELLS), None)
    if shell is None or not all(w in WRAPPERS or w.startswith("-") for w in words[:shell]):
        return None
    for number in range(shell + 1, len(words) - 1):
        option = words[number]
        if not option.startswith(("-", "+")):
            return None
        if option.startswith("-") and not option.startswith("--") and option.endswith("c"):
            rest = items[number + 2 if words[number + 1] == "--" else number + 1 :]
            return rest[0] if rest and isinstance(rest[0], Scalar) else None
    return None


def claims_in(
    command: Document, scene: SceneOf, mounts: MappingABC[str, str] | None = None
) -> Iterator[Claim]:
    """The runs that a command starts, each with the blocks of the scene that it stands in.

    Only commands that train are claimed: what else a container runs is none of our business.
    ``mounts`` maps folders as the command sees them to those that stand for them here.
    """
    from oomlint.dialects import registry

    for dialect in registry().dialects:
        if ".sh" not in dialect.suffixes:
            continue
        for claim in dialect.recognise(command):
            if claim.kind in ("run", "launch") and _may_train(claim):
                head, *rest = claim.blocks
                yield replace(
                    claim,
                    blocks=(head, *scene(claim), *rest),
                    references=tuple(_outside(r, mounts or {}) for r in claim.references),
                )


def _outside(reference: Reference, mounts: MappingABC[str, str]) -> Reference:
    """A file of the container as a file here; one that only its image has may be missing."""
    path = reference.path
    for inside in sorted(mounts, key=len, reverse=True):
        folder = inside.rstrip("/") + "/"
        if (path + "/").startswith(folder):
            rest = path[len(folder) :]
            return replace(reference, path=f"{mounts[inside].rstrip('/')}/{rest}".rstrip("/"))
    return replace(reference, optional=True) if path.startswith(("/", "~")) else reference


def _may_train(claim: Claim) -> bool:
    trains = any(block.table.section == "training" for block in claim.blocks)
    return bool(claim.blocks) and (claim.kind == "run" or trains or bool(claim.references))


def child(node: Node | None, *path: str) -> Node | None:
    """What stands below a mapping under nested keys."""
    for key in path:
        entry = node.entries.get(key) if isinstance(node, Mapping) else None
        if entry is None:
            return None
        node = entry.value
    return node


def text_of(node: Node | None) -> str:
    """The text of a scalar, nothing for all else."""
    return str(node.value) if isinstance(node, Scalar) and node.value is not None else ""


def items_of(node: Node | None) -> tuple[Node, ...]:
    return node.items if isinstance(node, Sequence) else ()
