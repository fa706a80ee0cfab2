"""From YAML events to nodes with exact spans, and what edits have to know of their places.

A node's span comes from its tokens, so that what is written around it (properties, comments,
the indicators of a collection) is known when it is changed.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal as Choice

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.scalars import resolve
from oomlint.documents.text import Source, Span
from oomlint.documents.yaml.events import COLLECTION_ENDS, COLLECTION_STARTS, MAX_DEPTH, fail

_MAX_EXPANDED_VALUES: Final = 1_000_000

_TEMPLATED: Final = re.compile(r"\$\{|\{\{|\{%")
_TRIVIA: Final = re.compile(r"(?:[ \t\r\n\x85\u2028\u2029]+|#[^\r\n]*)*")
_TRIVIA_STARTS: Final = frozenset(" \t\r\n\x85\u2028\u2029#")
_TAG: Final = re.compile(r"!<[^>]*>|[^\s,\[\]{}]+")
BLOCK_HEADER: Final = re.compile(r"[|>][-+0-9]*(?P<comment>[ \t]+#[^\r\n]*)?")
CORE_TAG: Final = "tag:yaml.org,2002:"
FILLED_IN: Final = "it is filled in by a template or an interpolation"

Style = Choice["empty", "plain", "single", "double", "literal", "block", "flow", "pair", "template"]
STYLES: Final[dict[str, Style]] = {"'": "single", '"': "double", "|": "literal", ">": "literal"}


class CollectionItem(Struct, frozen=True):
    """An entry or item in its collection: from its first token to the end of its last."""

    start: int
    end: int
    entry: Entry | None = None
    editable_key: bool = True


class NodeContext(Struct, frozen=True):
    """What an edit has to know of a node beyond its span.

    ``head`` is where the value may start: behind the colon, dash or properties.
    ``outer`` is where the enclosing block mapping starts, if that is what encloses it.
    """

    style: Style
    head: int
    tag: str | None = None
    parts: tuple[CollectionItem, ...] = ()
    merged: frozenset[str] = frozenset()
    outer: int | None = None
    is_root: bool = False
    lacks_colon: bool = False


class Anchor(Struct, frozen=True):
    offset: int
    uses: tuple[int, ...]


class NodeBuilder:
    """Turns events into nodes and the places that edits need."""

    def __init__(self, source: Source, events: list[Any]) -> None:
        self.source = source
        self.text = source.text
        self.events = events
        self.kinds = [type(event).__name__ for event in events]
        self.cursor = 0
        self.places: dict[Node, NodeContext] = {}
        self.block_scalars: dict[int, tuple[int, str]] = {}
        self.merged_entries = 0
        self.sizes: dict[Node, tuple[int, int]] = {}
        self.targets: dict[int, int] = {}
        self.uses: dict[int, list[int]] = {}
        self.anchored: dict[int, Node] = {}
        if "*" in self.text:
            self._resolve_aliases()

    def roots(self) -> tuple[Node, ...]:
        """A node for each document."""
        roots: list[Node] = []
        head = 0
        while self.cursor < len(self.events):
            kind = self.kinds[self.cursor]
            if kind == "DocumentStartEvent":
                head = self.events[self.cursor].end_mark.index
            if kind.startswith(("Stream", "Document")):
                self.cursor += 1
                continue
            root = self._node(head, None)[0]
            if root in self.places:
                self.places[root] = replace(self.places[root], is_root=True)
            roots.append(root)
        if sum(self._size(root)[0] for root in roots) > _MAX_EXPANDED_VALUES:
            fail(self.source, 0, "its anchors and aliases expand to more than a million values")
        return tuple(roots)

    def anchors(self) -> tuple[Anchor, ...]:
        """Where the anchors stand, and the aliases that repeat them."""
        return tuple(
            Anchor(self.events[index].start_mark.index, tuple(uses))
            for index, uses in self.uses.items()
        )

    def _resolve_aliases(self) -> None:
        defined: dict[str, int] = {}
        for index, (kind, event) in enumerate(zip(self.kinds, self.events, strict=True)):
            anchor: str = getattr(event, "anchor", None) or ""
            if kind == "DocumentStartEvent":
                defined = {}
            elif kind == "AliasEvent":
                if anchor not in defined:
                    fail(
                        self.source,
                        event.start_mark.index,
                        f"the alias *{anchor} has no anchor &{anchor} before it",
                    )
                self.targets[index] = defined[anchor]
                self.uses.setdefault(defined[anchor], []).append(event.start_mark.index)
            elif anchor:
                defined[anchor] = index

    # -- nodes --------------------------------------------------------------------

    def _node(
        self, head: int, locked: str | None, *, outer: int | None = None
    ) -> tuple[Node, int, int]:
        """The next node, where its first token starts and where its last one ends."""
        index = self.cursor
        event, kind = self.events[index], self.kinds[index]
        if kind == "AliasEvent":
            self.cursor += 1
            return self._alias(index, event)
        uses = self.uses.get(index)
        if uses and locked is None:
            line = self.source.position(uses[0])[0]
            locked = f"shared: line {line} takes the same value through the anchor &{event.anchor}"
        if kind == "ScalarEvent":
            self.cursor += 1
            built = self._scalar(event, head, locked)
        else:
            built = self._collection(event, kind, head, locked, outer)
        if uses:
            self.anchored[index] = built[0]
        return built

    def _alias(self, index: int, event: Any) -> tuple[Node, int, int]:
        start, end = event.start_mark.index, event.end_mark.index
        node = self.anchored.get(self.targets[index])
        if node is None:
            fail(
                self.source, start, f"the alias *{event.anchor} stands inside of what it refers to"
            )
        assert node is not None
        if isinstance(node, Scalar):
            node = replace(node, via=Span(start, end))
        return node, start, end

    def _scalar(self, event: Any, head: int, locked: str | None) -> tuple[Node, int, int]:
        text = self.text
        start, end = event.start_mark.index, event.end_mark.index
        has_properties = event.anchor is not None or event.tag is not None
        content = start
        if has_properties:
            head, content = self._after_properties(event, start)
        elif start < end and event.style not in STYLES and "{" not in event.value:
            node = Scalar(Span(start, end), event.value, True, None, locked)
            self.places[node] = NodeContext("plain", head)
            return node, start, end
        if event.style in STYLES:
            style = STYLES[event.style]
        elif event.value == "" or content >= end:
            style = "empty"
        else:
            style = "plain"
        if style == "empty":
            start, content, end = (start if has_properties else head), head, head
        elif style == "literal":
            raw_end = end
            end = content + len(text[content:end].rstrip("\r\n"))
            header = BLOCK_HEADER.match(text, content)
            indicators = header.group() if header else ""
            chomping = next((c for c in indicators.partition(" ")[0] if c in "-+"), "")
            self.block_scalars[end] = (raw_end, chomping)
            if chomping != "-" and raw_end == len(text) and not text.endswith(("\n", "\r")):
                locked = locked or "the file ends inside this block of text without a new line"
        if has_properties and content == head < end:
            locked = locked or "no blank stands between its anchor and it"
        tag = None if event.tag is None else str(event.tag)
        value, reason = (event.value, None) if tag is None else _tagged(tag, event.value)
        if text.find("{", content, end) >= 0 and _TEMPLATED.search(text, content, end):
            reason = reason or FILLED_IN
        plain = tag is None and style in ("plain", "empty")
        node = Scalar(Span(content, end), value, plain, None, locked or reason)
        self.places[node] = NodeContext(style, head, tag)
        return node, start, end

    def _collection(
        self, event: Any, kind: str, head: int, locked: str | None, outer: int | None
    ) -> tuple[Node, int, int]:
        start, opened = event.start_mark.index, event.end_mark.index
        has_properties = event.anchor is not None or event.tag is not None
        content = start
        if has_properties:
            head, content = self._after_properties(event, start)
        is_flow = bool(event.flow_style)
        style: Style = "block"
        if is_flow:
            content = max(opened - 1, content)
            style = "flow" if self.text[start:opened][-1:] in ("{", "[") else "pair"
        if style == "flow" and self.text.startswith("{{", content):
            return self._template(content, start)
        tag = None if event.tag is None else str(event.tag)
        if tag not in (None, "!", CORE_TAG + "map", CORE_TAG + "seq"):
            locked = (
                locked or f"it has the tag {short_tag(tag)}, which only its own loader understands"
            )
        self.cursor += 1
        inside = content + 1 if style == "flow" else head
        node: Node
        merged: frozenset[str] = frozenset()
        if kind == "MappingStartEvent":
            parts = self._entries(inside, locked)
            span = self._close(style, content, parts)
            node, merged = self._mapping(span, parts, locked)
        else:
            items, parts = self._items(inside, locked)
            span = self._close(style, content, parts)
            node = Sequence(span, tuple(items), locked)
        self.places[node] = NodeContext(style, head, tag, tuple(parts), merged, outer)
        if self.targets:
            self._measure(node)
        return node, start if has_properties else span.start, span.end

    def _close(self, style: Style, content: int, parts: list[CollectionItem]) -> Span:
        """Consume the end event; the span is that of the brackets, or of the real tokens."""
        end = self.events[self.cursor].end_mark.index
        self.cursor += 1
        if style == "flow":
            return Span(content, end)
        if not parts:
            return Span(content, content)
        return Span(parts[0].start, parts[-1].end)

    def _entries(self, inside: int, locked: str | None) -> list[CollectionItem]:
        parts: list[CollectionItem] = []
        offset = inside
        text = self.text
        while self.kinds[self.cursor] not in COLLECTION_ENDS:
            start = self._next_token(offset)
            key, key_span, editable = self._key(start)
            colon = key_span.end
            if not text.startswith(":", colon):
                colon = skip(text, colon)
            has_colon = text.startswith(":", colon)
            head = colon + 1 if has_colon else key_span.end
            is_merge = key == "<<" and key_span.end - key_span.start == 2
            reason = "it comes from a merge key (<<)" if is_merge else None
            node, _, end = self._node(head, locked or reason, outer=start)
            if not has_colon and node in self.places:
                self.places[node] = replace(self.places[node], lacks_colon=True)
            offset = end if end > head else head
            entry = Entry(key, key_span, node, Span(start, offset))
            parts.append(CollectionItem(start, offset, entry, editable and not is_merge))
        return parts

    def _items(self, inside: int, locked: str | None) -> tuple[list[Node], list[CollectionItem]]:
        items: list[Node] = []
        parts: list[CollectionItem] = []
        offset = inside
        while self.kinds[self.cursor] not in COLLECTION_ENDS:
            start = head = self._next_token(offset)
            if self.text[start : start + 1] == "-" and self._is_dash(start):
                head = start + 1
            node, _, end = self._node(head, locked)
            offset = max(end, head)
            items.append(node)
            parts.append(CollectionItem(start, offset))
        return items, parts

    def _is_dash(self, offset: int) -> bool:
        """Whether the dash at ``offset`` opens an item of a block sequence."""
        return bool(self.events[self.cursor].start_mark.index != offset)

    def _key(self, start: int) -> tuple[str, Span, bool]:
        """The key as text, where it stands, and whether it can be renamed."""
        event, kind = self.events[self.cursor], self.kinds[self.cursor]
        if kind == "ScalarEvent":
            if _is_simple_key(event):
                self.cursor += 1
                return event.value, Span(event.start_mark.index, event.end_mark.index), True
            node, _, _ = self._node(start, None)
            assert isinstance(node, Scalar)
            if self.places[node].style == "empty":
                is_marked = self.text[start : start + 1] == "?"
                return str(event.value), Span(start, start + is_marked), False
            return str(event.value), node.span, self.places[node].tag is None
        node, first, last = self._node(start, None)
        if kind == "AliasEvent" and isinstance(node, Scalar):
            return str(node.value), Span(first, last), False
        return self.text[first:last], Span(first, last), False

    def _mapping(
        self, span: Span, parts: list[CollectionItem], locked: str | None
    ) -> tuple[Mapping, frozenset[str]]:
        """Apply merge keys as YAML 1.1 says: what is written here wins over what is merged."""
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        duplicates: list[Entry] = []
        for part in parts:
            entry = part.entry
            assert entry is not None
            sources = self._merge_sources(entry) if entry.key == "<<" else None
            if sources is not None:
                for source in reversed(sources):
                    merged.update(source.entries)
                continue
            if entry.key in own:
                duplicates.append(own.pop(entry.key))
            own[entry.key] = entry
        self.merged_entries += len(merged)
        if self.merged_entries > _MAX_EXPANDED_VALUES:
            fail(self.source, span.start, "its merge keys expand to more than a million entries")
        entries = {key: entry for key, entry in merged.items() if key not in own} | own
        return Mapping(span, entries, tuple(duplicates), locked), frozenset(merged)

    def _merge_sources(self, entry: Entry) -> list[Mapping] | None:
        """The mappings that a ``<<`` entry merges, first wins; ``None`` if it is a key like others."""
        if entry.key_span.end - entry.key_span.start != 2:
            return None
        if isinstance(entry.value, Mapping):
            return [entry.value]
        if isinstance(entry.value, Sequence):
            sources = [item for item in entry.value.items if isinstance(item, Mapping)]
            return sources if len(sources) == len(entry.value.items) else None
        return None

    def _template(self, content: int, start: int) -> tuple[Node, int, int]:
        """``{{ name }}`` without quotes: YAML sees nested mappings, people mean a template."""
        depth = 0
        while True:
            event, kind = self.events[self.cursor], self.kinds[self.cursor]
            depth += (kind in COLLECTION_STARTS) - (kind in COLLECTION_ENDS)
            self.cursor += 1
            if depth == 0:
                break
        end = event.end_mark.index
        node = Scalar(Span(content, end), UNKNOWN, locked="it is filled in by a template")
        self.places[node] = NodeContext("template", content)
        return node, start, end

    # -- tokens -------------------------------------------------------------------

    def _next_token(self, offset: int) -> int:
        """The first token of the next part: past blanks, comments and a comma."""
        match = _TRIVIA.match(self.text, offset)
        offset = match.end() if match else offset
        if self.text.startswith(",", offset):
            offset = skip(self.text, offset + 1)
        return offset

    def _after_properties(self, event: Any, start: int) -> tuple[int, int]:
        """Where anchor and tag end, and where the value behind them starts."""
        end = offset = start
        for _ in range((event.anchor is not None) + (event.tag is not None)):
            if self.text.startswith("&", offset):
                # Not up to the next blank: libyaml begins a value right behind the name in &a:b.
                end = offset + 1 + len(event.anchor)
            else:
                tag = _TAG.match(self.text, offset)
                if tag is None:
                    break
                end = tag.end()
            offset = skip(self.text, end)
        return end, offset

    # -- guards -------------------------------------------------------------------

    def _size(self, node: Node) -> tuple[int, int]:
        return self.sizes.get(node, (1, 0))

    def _measure(self, node: Mapping | Sequence) -> None:
        """Bound what a walk over the tree would meet, aliases counted each time."""
        if isinstance(node, Mapping):
            children = [entry.value for entry in node.entries.values()]
            children += [entry.value for entry in node.duplicates]
        else:
            children = list(node.items)
        sizes = [self._size(child) for child in children]
        count = 1 + sum(size for size, _ in sizes)
        height = 1 + max((height for _, height in sizes), default=0)
        if count > _MAX_EXPANDED_VALUES:
            fail(self.source, node.span.start, "its aliases expand to more than a million values")
        if height > MAX_DEPTH:
            fail(
                self.source, node.span.start, f"its aliases nest more than {MAX_DEPTH} levels deep"
            )
        self.sizes[node] = (count, height)


def skip(text: str, offset: int) -> int:
    """The offset of the next token: past blanks, line breaks and comments."""
    if text[offset : offset + 1] not in _TRIVIA_STARTS:
        return offset
    match = _TRIVIA.match(text, offset)
    return match.end() if match else offset


def _is_simple_key(event: Any) -> bool:
    return (
        event.value != ""
        and event.tag is None
        and event.anchor is None
        and event.style not in ("|", ">")
    )


def short_tag(tag: str) -> str:
    return "!!" + tag.removeprefix(CORE_TAG) if tag.startswith(CORE_TAG) else tag


def _tagged(tag: str, text: str) -> tuple[Any, str | None]:
    """The value of a scalar under its tag, and why it is locked if the tag is not a core one."""
    if tag in ("!", CORE_TAG + "str"):
        return text, None
    kind = tag.removeprefix(CORE_TAG)
    value = resolve(text, "pyyaml")
    if kind == "null" or (kind == "bool" and isinstance(value, bool)):
        return (value if kind == "bool" else None), None
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value, None
    if kind == "float":
        number = resolve(text, "omegaconf")
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return float(number), None
    return UNKNOWN, f"it has the tag {short_tag(tag)}, which only its own loader understands"
