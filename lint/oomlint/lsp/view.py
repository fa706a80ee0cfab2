"""How one client is to be told of places and edits: its encoding, its names of files, its versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lsprotocol import types
from msgspec import Struct, field

from oomlint.documents.text import Edit, Location, by_path
from oomlint.errors import CannotEdit
from oomlint.lsp.pages import Pages
from oomlint.lsp.positions import Encoding, Positions
from oomlint.lsp.project import Analysis


class Client(Struct, frozen=True):
    """What the client said of itself when it came."""

    encoding: Encoding = types.PositionEncodingKind.Utf16
    takes_document_changes: bool = False
    creates_files: bool = False
    resolves_edits: bool = False
    takes_disabled: bool = False


class Open(Struct, frozen=True):
    """A document that the client has open, under the URI that it uses."""

    uri: str
    version: int


class View(Struct, frozen=True):
    """One analysis as a client sees it; ``documents`` are the open ones, by display path."""

    analysis: Analysis
    client: Client
    documents: Mapping[str, Open]
    pages: Pages
    _positions: dict[str, Positions] = field(default_factory=dict)

    def uri(self, path: str) -> str:
        document = self.documents.get(path)
        return document.uri if document else self.analysis.workspace.file(path).as_uri()

    def positions(self, path: str) -> Positions:
        if path not in self._positions:
            source = self.analysis.source(path)
            self._positions[path] = Positions(source, self.client.encoding)
        return self._positions[path]

    def range(self, location: Location) -> types.Range:
        return self.positions(location.path).range(location.span)

    def location(self, location: Location) -> types.Location:
        return types.Location(self.uri(location.path), self.range(location))

    def refusal(self, edits: Sequence[Edit]) -> str | None:
        """Why the client cannot be sent edits, if it cannot."""
        added = sorted({edit.path for edit in edits if edit.creates})
        if not added or self.client.creates_files:
            return None
        return (
            f"it adds the file {', '.join(added)}, and this editor does not create files for a "
            "language server; `oomlint --fix` does"
        )

    def workspace_edit(self, edits: Sequence[Edit]) -> types.WorkspaceEdit:
        """Edits of any files, tied to the versions of the documents that they were made for.

        Raises:
            CannotEdit: they add a file, which the client cannot do.
        """
        refusal = self.refusal(edits)
        if refusal is not None:
            raise CannotEdit(refusal)
        groups = by_path(edits)
        if not self.client.takes_document_changes:
            return types.WorkspaceEdit(
                changes={self.uri(p): self._text_edits(p, group) for p, group in groups.items()}
            )
        # A new file has to be there before anything is written into it.
        new = [path for path, group in groups.items() if any(edit.creates for edit in group)]
        never_over = types.CreateFileOptions(overwrite=False, ignore_if_exists=False)
        return types.WorkspaceEdit(
            document_changes=[
                *(types.CreateFile(self.uri(path), options=never_over) for path in new),
                *(
                    types.TextDocumentEdit(
                        types.OptionalVersionedTextDocumentIdentifier(
                            self.uri(path),
                            self.documents[path].version if path in self.documents else None,
                        ),
                        [*self._text_edits(path, group)],
                    )
                    for path, group in groups.items()
                ),
            ]
        )

    def _text_edits(self, path: str, edits: Sequence[Edit]) -> list[types.TextEdit]:
        return [self.positions(path).text_edit(edit) for edit in sorted(edits)]
