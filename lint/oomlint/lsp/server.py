"""The protocol: which question of a client is answered by what."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.io_ import run_async
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.uris import to_fs_path

from oomlint import __version__
from oomlint.documents import SUFFIXES
from oomlint.errors import CannotEdit, UsageError, in_words
from oomlint.lsp import commands
from oomlint.lsp.actions import APPLY, EXPLAIN, FIT, KINDS, actions, fix_all
from oomlint.lsp.commands import CommandPage
from oomlint.lsp.completion import complete, describe
from oomlint.lsp.diagnostics import SOURCE, diagnostics
from oomlint.lsp.hints import ESTIMATE, code_lenses, inlay_hints, status
from oomlint.lsp.hover import hover
from oomlint.lsp.naming import definitions, links, references
from oomlint.lsp.notebooks import OpenCell, as_file
from oomlint.lsp.options import (
    SECTION,
    ClientSettings,
    CommandArgument,
    asked,
    completed_at,
    options,
    plain,
    section,
)
from oomlint.lsp.project import Analysis, Project
from oomlint.lsp.session import Session, by_uri
from oomlint.lsp.symbols import symbols
from oomlint.lsp.view import Client, View
from oomlint.lsp.wire import BoundedConnection, BoundedStream
from oomlint.runs.run import Run

STATUS = "oomlint/status"
"""Notification to clients that ask for it (``"status": true``): the verdicts on a document."""

# A list of completions that is as long as this may not be all of them.
_MANY = 39

_NOTEBOOK = "jupyter-notebook"
_PYTHON_CELLS = [types.NotebookCellLanguage("python")]
_ALL_FILES = f"**/*.{{{','.join(suffix[1:] for suffix in SUFFIXES)}}}"
_FILE = types.FileOperationPatternKind.File
_HARDWARE = "oomlint.hardware"
_STATUS_OF = "oomlint.status"

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Protocol(LanguageServerProtocol):
    """Gives a question that cannot be read an error for an answer, so that nobody waits for one."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise


class Server(LanguageServer):
    """A server for one client."""

    def __init__(self) -> None:
        # The session keeps texts itself: pygls breaks lines where the protocol has none.
        super().__init__(
            "oomlint",
            __version__,
            types.TextDocumentSyncKind.Incremental,
            types.NotebookDocumentSyncOptions(
                [types.NotebookDocumentFilterWithNotebook(_NOTEBOOK, _PYTHON_CELLS)]
            ),
            protocol_cls=_Protocol,
        )
        self.session = Session(_Outlet(self))
        self.shows_documents = False
        self.wants_status = False
        self.problems: list[str] = []
        """What is wrong with the options that came first; a client hears of it once it listens."""
        _register(self)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """What a client got wrong, or we did, goes to the log and into nobody's face."""
        log.error("%s", in_words(error))

    def start_io(self, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> None:
        bounded = cast("BinaryIO", BoundedStream(stdin or sys.stdin.buffer))
        super().start_io(bounded, stdout)

    def start_tcp(self, host: str, port: int) -> None:
        """Serve one client there; pygls' own way, but for how much of a message is read."""
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve(host, port))

    async def _serve(self, host: str, port: int) -> None:
        stop = self._stop_event = Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.protocol.set_writer(writer)
            await run_async(
                stop, BoundedConnection(reader), self.protocol, log, self.report_server_error
            )
            self.shutdown()

        self._server = await asyncio.start_server(talk, host, port)
        async with self._server:
            await self._server.serve_forever()

    def shutdown(self) -> None:
        self.session.end()
        self.session.pages.clear()
        super().shutdown()  # type: ignore[no-untyped-call]

    def can(self, *path: str) -> bool:
        """Whether the client has a capability, by its attributes in order."""
        found: Any = self.client_capabilities
        for name in path:
            found = getattr(found, name, None)
        return bool(found)


class _Outlet:
    """What the session sends, as notifications."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def publish(self, uri: str, version: int | None, found: list[types.Diagnostic]) -> None:
        params = types.PublishDiagnosticsParams(uri, found, version)
        self._server.text_document_publish_diagnostics(params)

    def show_status(self, uri: str, value: Mapping[str, object]) -> None:
        if self._server.wants_status:
            self._server.protocol.notify(STATUS, {"uri": uri, **value})

    def refresh(self, *, diagnostics: bool) -> None:
        server = self._server
        if server.can("workspace", "inlay_hint", "refresh_support"):
            server.workspace_inlay_hint_refresh(None)
        if server.can("workspace", "code_lens", "refresh_support"):
            server.workspace_code_lens_refresh(None)
        if diagnostics and server.can("workspace", "diagnostics", "refresh_support"):
            server.workspace_diagnostic_refresh(None)

    def complain(self, message: str) -> None:
        params = types.ShowMessageParams(types.MessageType.Warning, f"oomlint: {message}")
        self._server.window_show_message(params)


def _register(server: Server) -> None:
    for features in (
        _register_life,
        _register_changes_around,
        _register_texts,
        _register_notebooks,
        _register_diagnostics,
        _register_actions,
        _register_words_beside_code,
        _register_places,
        _register_completion,
        _register_commands,
        _register_questions,
    ):
        features(server)


def _register_life(server: Server) -> None:
    session = server.session

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        session.client = _client(server)
        roots = [folder.uri for folder in params.workspace_folders or ()]
        roots = roots or [uri for uri in (params.root_uri,) if uri]
        session.folders = _paths(roots)
        sent = plain(params.initialization_options)
        if isinstance(sent, Mapping):
            session.options, problems = options(section(sent) or sent)
            server.problems.extend(problems)
            server.wants_status = session.options.status
        server.shows_documents = server.can("window", "show_document", "support")

    @server.feature(types.INITIALIZED)
    async def initialized(_params: types.InitializedParams) -> None:
        for problem in server.problems:
            session.complain(problem)
        if server.can("workspace", "did_change_watched_files", "dynamic_registration"):
            watcher = types.FileSystemWatcher(_ALL_FILES)
            wanted = types.DidChangeWatchedFilesRegistrationOptions([watcher])
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            await _quietly(
                server.client_register_capability_async(
                    types.RegistrationParams([types.Registration("oomlint-files", method, wanted)])
                )
            )
        await _pull_settings(server)


async def _pull_settings(server: Server) -> None:
    session = server.session
    if not server.can("workspace", "configuration"):
        return
    scopes = [None, *(folder.as_uri() for folder in session.folders)]
    items = [types.ConfigurationItem(scope, SECTION) for scope in scopes]
    found = await _quietly(server.workspace_configuration_async(types.ConfigurationParams(items)))
    sent = [plain(one) for one in found] if isinstance(found, (list, tuple)) else []
    read = [options(one) if isinstance(one, Mapping) else None for one in sent]
    if any(one is not None for one in read):
        said, problems = read[0] or (ClientSettings(), [])
        general = said.over(session.options)
        pairs = zip(session.folders, read[1:], strict=False)
        of_folders = {folder: one[0].over(general) for folder, one in pairs if one is not None}
        session.configure(general, problems, of_folders)


def _register_changes_around(server: Server) -> None:
    """Settings, folders and files that change outside of what is edited."""
    session = server.session

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        settings = section(params.settings)
        if settings is not None:
            session.configure(*options(settings))
        else:
            await _pull_settings(server)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = set(_paths(folder.uri for folder in params.event.removed))
        kept = [folder for folder in session.folders if folder not in gone]
        session.set_folders([*kept, *_paths(folder.uri for folder in params.event.added)])

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_params: types.DidChangeWatchedFilesParams) -> None:
        session.files_changed()


def _register_texts(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        session.open(document.uri, document.version, document.text, document.language_id)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        session.change(document.uri, document.version, params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        session.saved(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        session.close(params.text_document.uri)


def _register_notebooks(server: Server) -> None:
    session = server.session

    def cells_of(uri: str) -> list[OpenCell]:
        book = server.workspace.get_notebook_document(notebook_uri=uri)
        return [] if book is None else [opened_cell(cell) for cell in book.cells]

    def opened_cell(cell: types.NotebookCell) -> OpenCell:
        if cell.kind is not types.NotebookCellKind.Code:
            return OpenCell(cell.document, None)
        # Cells in other languages are not sent. The workspace keeps texts by URIs that are unquoted.
        known = unquote(cell.document) in server.workspace.text_documents
        text = server.workspace.get_text_document(cell.document).source if known else ""
        return OpenCell(cell.document, text)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenNotebookDocumentParams) -> None:
        book = params.notebook_document
        cells = cells_of(book.uri)
        uris = tuple(cell.uri for cell in cells)
        session.open(book.uri, book.version, as_file(cells), cells=uris)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeNotebookDocumentParams) -> None:
        book = params.notebook_document
        cells = cells_of(book.uri)
        uris = tuple(cell.uri for cell in cells)
        session.replace(book.uri, book.version, as_file(cells), uris)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseNotebookDocumentParams) -> None:
        session.close(params.notebook_document.uri)


def _register_diagnostics(server: Server) -> None:
    session = server.session

    @server.feature(
        types.TEXT_DOCUMENT_DIAGNOSTIC,
        types.DiagnosticOptions(
            inter_file_dependencies=True, workspace_diagnostics=False, identifier=SOURCE
        ),
    )
    async def pulled(params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
        session.start_pulling()
        uri = params.text_document.uri
        book = session.notebook_of(uri)
        whole, cells = (uri, ()) if book is None else (book.uri, book.cells)
        if book is not None:
            session.start_pulling_cells()

        def found(_project: Project, view: View) -> dict[str, list[types.Diagnostic]]:
            return by_uri(view, diagnostics(view.analysis, view), cells)

        told = await session.ask(whole, found) or {}
        if server.wants_status:
            session.outlet.show_status(whole, await _status(session, whole) or {})
        own = told.pop(uri, [])
        others = {u: items for u, items in told.items() if u not in (*session.documents, *cells)}
        return types.RelatedFullDocumentDiagnosticReport(
            own,
            related_documents={
                u: types.FullDocumentDiagnosticReport(items) for u, items in others.items()
            }
            or None,
        )


async def _status(session: Session, uri: str) -> dict[str, object] | None:
    return await session.ask(uri, lambda _project, view: status(view.analysis))


def _register_actions(server: Server) -> None:
    session = server.session

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=list(KINDS), resolve_provider=True),
    )
    async def acted(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        return await session.ask(uri, lambda p, view: actions(p, view, params)) or []

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolved(action: types.CodeAction) -> types.CodeAction:
        if action.edit is None and action.data is not None:
            action.edit = types.WorkspaceEdit(changes={})
            try:
                uri = asked([action.data]).uri
                action.edit = await session.ask(uri, fix_all) or action.edit
            except (UsageError, CannotEdit) as error:
                session.outlet.complain(f"nothing was fixed: {error}")
        return action


def _register_words_beside_code(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(params: types.HoverParams) -> types.Hover | None:
        uri, position = params.text_document.uri, params.position
        return await session.ask(uri, lambda _project, view: hover(view, position))

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def hinted(params: types.InlayHintParams) -> list[types.InlayHint]:
        uri = params.text_document.uri
        return await session.ask(uri, lambda _p, view: inlay_hints(view, params.range)) or []

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    async def lensed(params: types.CodeLensParams) -> list[types.CodeLens]:
        return await session.ask(params.text_document.uri, lambda _p, view: code_lenses(view)) or []


def _register_places(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_LINK)
    async def linked(params: types.DocumentLinkParams) -> list[types.DocumentLink]:
        return await session.ask(params.text_document.uri, lambda _p, view: links(view)) or []

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def defined(params: types.DefinitionParams) -> list[types.Location]:
        uri, position = params.text_document.uri, params.position
        return await session.ask(uri, lambda _p, view: definitions(view, position)) or []

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    async def referred(params: types.ReferenceParams) -> list[types.Location]:
        return await session.ask(params.text_document.uri, lambda _p, view: references(view)) or []

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def outlined(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        return await session.ask(params.text_document.uri, lambda _p, view: symbols(view)) or []

    @server.feature(
        types.WORKSPACE_WILL_RENAME_FILES,
        types.FileOperationRegistrationOptions(
            [types.FileOperationFilter(types.FileOperationPattern(_ALL_FILES, _FILE), "file")]
        ),
    )
    async def will_rename(params: types.RenameFilesParams) -> types.WorkspaceEdit | None:
        changes = await session.rename((file.old_uri, file.new_uri) for file in params.files)
        if session.client.takes_document_changes:
            return types.WorkspaceEdit(document_changes=changes) if changes else None
        edits = {change.text_document.uri: _only_edits(change) for change in changes}
        return types.WorkspaceEdit(changes=edits) if edits else None


def _register_completion(server: Server) -> None:
    session = server.session

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(
            trigger_characters=['"', "[", "-", ".", ":", " ", "/", "="], resolve_provider=True
        ),
    )
    async def completed(params: types.CompletionParams) -> types.CompletionList:
        position = params.position

        def items(project: Project, view: View) -> list[types.CompletionItem]:
            return complete(view, project.blocks(view.analysis.name), position)

        found = await session.ask(params.text_document.uri, items) or []
        # Ids of models and cards are too many to send: with more typed there are others.
        return types.CompletionList(is_incomplete=len(found) > _MANY, items=found)

    @server.feature(types.COMPLETION_ITEM_RESOLVE)
    async def resolved_item(item: types.CompletionItem) -> types.CompletionItem:
        sent = plain(item.data)
        if isinstance(sent, Mapping) and (place := completed_at(sent)) is not None:
            uri, key, position = place

            def told(project: Project, view: View) -> types.MarkupContent | None:
                return describe(view, project.blocks(view.analysis.name), position, key)

            item.documentation = await session.ask(uri, told) or item.documentation
        return item


async def _complaining(session: Session, answer: Awaitable[T]) -> T | None:
    """An answer, or ``None`` and a message that says why there is none."""
    try:
        return await answer
    except (UsageError, CannotEdit) as error:
        session.outlet.complain(str(error))
        return None


async def _about_run(
    session: Session,
    arguments: tuple[object, ...],
    answer: Callable[[View, Run, CommandArgument], T],
) -> T | None:
    """The answer about the run that a command's argument names."""
    wanted = asked(arguments)

    def found(_project: Project, view: View) -> T:
        return answer(view, commands.run_named(view.analysis, wanted.run), wanted)

    return await session.ask(wanted.uri, found)


def _register_commands(server: Server) -> None:
    """Commands about a run."""
    session = server.session

    async def page(
        arguments: tuple[object, ...], told: Callable[[Analysis, Run], CommandPage]
    ) -> dict[str, Any] | None:
        def answer(view: View, run: Run, _wanted: CommandArgument) -> CommandPage:
            return told(view.analysis, run)

        found = await _complaining(session, _about_run(session, arguments, answer))
        return await _show(server, found, arguments)

    @server.command(ESTIMATE)
    async def estimate(ls: Server, *arguments: object) -> dict[str, Any] | None:
        return await page(arguments, commands.estimate)

    @server.command(FIT)
    async def fit(ls: Server, *arguments: object) -> dict[str, Any] | None:
        return await page(arguments, commands.fit)

    @server.command(APPLY)
    async def apply_way(ls: Server, *arguments: object) -> bool:
        def answer(view: View, run: Run, wanted: CommandArgument) -> types.WorkspaceEdit:
            return view.workspace_edit(commands.taking(view.analysis, run, wanted.number))

        edit = await _complaining(session, _about_run(session, arguments, answer))
        if edit is None:
            return False
        params = types.ApplyWorkspaceEditParams(edit, "Make the run fit")
        result = await _quietly(server.workspace_apply_edit_async(params))
        return bool(getattr(result, "applied", False))


def _register_questions(server: Server) -> None:
    """Commands that ask for what is known."""
    session = server.session

    @server.command(EXPLAIN)
    async def explain(ls: Server, *arguments: object) -> dict[str, Any] | None:
        def answer() -> CommandPage:
            return commands.explain(asked(arguments).rule)

        return await _show(server, await _complaining(session, session.work(answer)))

    @server.command(_HARDWARE)
    async def hardware(ls: Server, *_arguments: object) -> list[Mapping[str, Any]]:
        return commands.hardware()

    @server.command(_STATUS_OF)
    async def status_of(ls: Server, *arguments: object) -> dict[str, object] | None:
        async def found() -> dict[str, object] | None:
            uri = asked(arguments).uri
            return await session.ask(uri, lambda _project, view: status(view.analysis))

        return await _complaining(session, found())


async def _show(
    server: Server, answer: CommandPage | None, arguments: tuple[object, ...] = ()
) -> dict[str, Any] | None:
    """Open an answer in the client, where it can, and give it back for those that show it
    themselves."""
    if answer is None:
        return None
    if server.shows_documents and not server.wants_status:
        session = server.session
        uri = await session.work(lambda: session.pages.put(answer.title, answer.markdown))
        params = types.ShowDocumentParams(uri, take_focus=True)
        await _quietly(server.window_show_document_async(params))
    return {
        "title": answer.title,
        "markdown": answer.markdown,
        "html": answer.html,
        "uri": asked(arguments).uri or None,
        "run": answer.run,
    }


def _only_edits(change: types.TextDocumentEdit) -> list[types.TextEdit]:
    return [edit for edit in change.edits if isinstance(edit, types.TextEdit)]


async def _quietly(request: Any) -> Any:
    """The client's answer; ``None`` where it has none for us."""
    try:
        return await request
    except Exception as error:  # whatever a client makes of a question, the session goes on
        log.warning("the client did not answer: %s", error)
        return None


def _client(server: Server) -> Client:
    encoding = server.workspace.position_encoding
    resolvable = getattr(
        getattr(
            getattr(server.client_capabilities.text_document, "code_action", None),
            "resolve_support",
            None,
        ),
        "properties",
        (),
    )
    operations = getattr(
        getattr(server.client_capabilities.workspace, "workspace_edit", None),
        "resource_operations",
        (),
    )
    return Client(
        encoding=encoding or types.PositionEncodingKind.Utf16,
        takes_document_changes=server.can("workspace", "workspace_edit", "document_changes"),
        creates_files=types.ResourceOperationKind.Create in (operations or ()),
        resolves_edits="edit" in resolvable,
        takes_disabled=server.can("text_document", "code_action", "disabled_support"),
    )


def _paths(uris: Any) -> list[Path]:
    paths = (to_fs_path(uri) for uri in uris)
    return [Path(path) for path in paths if path]
