"""An editor: a client of the real server process, with one folder as its workspace."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("pytest_lsp", reason="the language server's tests need pytest-lsp")
pytest.importorskip("pytest_asyncio", reason="the language server's tests need pytest-asyncio")

import pytest_asyncio
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities
from tests.configs import AXOLOTL

SERVER = [sys.executable, "-m", "oomlint", "lsp"]

# Seconds after which a server hangs; a machine that does much else is none.
PATIENCE = 600.0

Answer = TypeVar("Answer")


async def asked(ask: Callable[[], Awaitable[Answer]], wanted: Callable[[Answer], Any]) -> Answer:
    """The answer to a question that is asked until it is as wanted."""

    async def asking() -> Answer:
        while not wanted(found := await ask()):
            await asyncio.sleep(0.05)
        return found

    return await asyncio.wait_for(asking(), PATIENCE)


class Editor:
    """A client with a folder; documents go by their names in it."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.versions: dict[str, int] = {}

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def document(self, name: str) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri(name))

    def open(self, name: str, text: str | None = None) -> None:
        file = self.folder / name
        if text is None:
            text = file.read_bytes().decode()
        self.versions[name] = 1
        item = types.TextDocumentItem(self.uri(name), "yaml", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, name: str, text: str) -> None:
        self.versions[name] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[name], self.uri(name))
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def close(self, name: str) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(self.document(name)))

    async def told(
        self, name: str, wanted: Callable[[list[types.Diagnostic]], Any] = bool
    ) -> list[types.Diagnostic]:
        """The diagnostics pushed for a document, once they are as wanted."""
        return await self.pushed(self.uri(name), wanted)

    async def pushed(
        self, uri: str, wanted: Callable[[list[types.Diagnostic]], Any] = bool
    ) -> list[types.Diagnostic]:
        """The same by what the client calls the document: asked for again and again, since the client is told of a
        notification before or after it keeps what that says."""

        async def kept() -> list[types.Diagnostic] | None:
            found = self.client.diagnostics.get(uri)
            return None if found is None else list(found)

        found = await asked(kept, lambda f: f is not None and wanted(f))
        assert found is not None
        return found

    async def actions(
        self, name: str, at: types.Range | None = None, only: list[str] | None = None
    ) -> list[types.CodeAction]:
        found = await self._actions(name, at, only)
        return [action for action in found if isinstance(action, types.CodeAction)]

    async def titles(self, name: str) -> list[str]:
        return [action.title for action in await self._actions(name, None, None)]

    async def _actions(
        self, name: str, at: types.Range | None, only: list[str] | None
    ) -> list[Any]:
        whole = types.Range(types.Position(0, 0), types.Position(10_000, 0))
        context = types.CodeActionContext([], only)
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(self.document(name), at or whole, context)
        )
        return list(found or ())

    async def hover(self, name: str, line: int, character: int = 2) -> str:
        found = await self.client.text_document_hover_async(
            types.HoverParams(self.document(name), types.Position(line, character))
        )
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def completions(self, name: str, line: int, character: int) -> dict[str, Any]:
        found = await self.client.text_document_completion_async(
            types.CompletionParams(self.document(name), types.Position(line, character))
        )
        assert isinstance(found, types.CompletionList)
        return {item.label: item for item in found.items}


class Editors:
    """Starts editors and stops them all."""

    def __init__(self) -> None:
        self._started: list[LanguageClient] = []

    async def __call__(
        self,
        folder: Path,
        *,
        profile: str = "visual_studio_code",
        options: Any = None,
        encodings: list[types.PositionEncodingKind] | None = None,
        folders: list[Path] | None = None,
    ) -> Editor:
        client = await ClientServerConfig(SERVER).start()
        assert isinstance(client, LanguageClient)
        self._started.append(client)
        capabilities = client_capabilities(profile)
        if encodings is not None:
            capabilities.general = types.GeneralClientCapabilities(position_encodings=encodings)
        roots = [folder] if folders is None else folders
        await client.initialize_session(
            types.InitializeParams(
                capabilities=capabilities,
                workspace_folders=[types.WorkspaceFolder(f.as_uri(), f.name) for f in roots],
                initialization_options={"hardware": "8xA100-80GB"} if options is None else options,
            )
        )
        return Editor(client, folder)

    async def stop(self) -> None:
        for client in self._started:
            await client.shutdown_session()
            await client.stop()


@pytest_asyncio.fixture
async def editors():
    found = Editors()
    yield found
    await found.stop()


@pytest_asyncio.fixture
async def editor(editors, tmp_path):
    """An editor on a folder with one Axolotl config that does not fit its cards."""
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    return await editors(tmp_path)
