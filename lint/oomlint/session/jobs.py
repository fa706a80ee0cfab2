"""From paths and options to lints: which files, under which settings, on which hardware."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oomlint.config.settings import ActiveSettings, Settings, discover, framework_named, load
from oomlint.documents import SUFFIXES
from oomlint.errors import UsageError
from oomlint.files import dependencies
from oomlint.files.disk import walk
from oomlint.files.ignored import Ignored
from oomlint.files.reference_index import leading_to
from oomlint.files.tracked import Tracked
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, Results, Selection, distinct_errors
from oomlint.plugins import PROFILE_FOLDER, rules_in_force
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.hardware import Hardware
    from oomlint.linting.baseline import Baseline

R = TypeVar("R", bound=Results)

# Of a checkout of more files it is not looked up what else leads to some of them.
_MOST_AROUND = 5000
# So many files are linted in less time than it takes to share them out.
FEW = 60


class Job(Struct, frozen=True):
    """Files (display paths) that share their settings, and how to lint them."""

    workspace: Workspace
    names: tuple[str, ...]
    explicit: frozenset[str]
    options: Options
    found: ActiveSettings
    others_train: bool = False
    """Whether files beside these, which are linted apart, have runs."""

    @property
    def baseline_file(self) -> Path | None:
        """The baseline that the settings name."""
        return _below(self.found, self.found.settings.baseline)


def make_jobs(
    given: CheckRequest,
    paths: Sequence[str],
    overlay: dict[str, bytes] | None = None,
    cwd: Path | None = None,
    *,
    looks_around: bool = True,
) -> list[Job]:
    """A job for each settings file that governs some of the ``paths``.

    ``overlay`` holds texts by path that stand for files on disk (standard input); ``cwd`` is
    the absolute folder that relative paths start in, the working directory if not given.
    A job ``looks_around`` if it takes along what else of the project leads to its files: how a run is started, and so
    what it needs, is mostly said in another file than the one that was named.

    Raises:
        UsageError: a path does not exist, or the settings or options are wrong.
    """
    cwd = cwd or Path.cwd()
    base = Workspace(cwd)
    texts = {base.name(path): data for path, data in (overlay or {}).items()}
    fixed = _fixed_settings(given)
    cache: dict[Path, ActiveSettings] = {}

    def settings_of(file: Path) -> ActiveSettings:
        if fixed is not None:
            return fixed
        return discover(file.parent, cache)

    groups: dict[Path | None, tuple[ActiveSettings, list[str], set[str]]] = {}
    for file, is_explicit in _files(base, paths, texts, settings_of):
        found = settings_of(file)
        if found.excludes(file):
            continue
        _, names, explicit = groups.setdefault(found.file, (found, [], set()))
        name = base.name(file)
        names.append(name)
        if is_explicit:
            explicit.add(name)
    if not groups:
        groups[None] = (fixed or discover(cwd), [], set())
    named = _named(base, paths)
    jobs = [
        _job(given, Workspace(cwd, texts, named=named), found, names, explicit)
        for found, names, explicit in groups.values()
    ]
    return [_with_surroundings(job, paths, settings_of) for job in jobs] if looks_around else jobs


def _with_surroundings(
    job: Job, paths: Sequence[str], settings_of: Callable[[Path], ActiveSettings]
) -> Job:
    """The job with the files of its project, governed by the same settings, that lead to its own."""
    space = job.workspace
    roots = dict.fromkeys(_around(space, space.file(space.name(path))) for path in paths)
    asked = {space.file(space.name(path)) for path in paths}
    outside = [root for root in roots if root not in asked and os.path.isdir(root)]
    if not outside:
        return job
    files = (
        file
        for file, _ in _files(space, [str(root) for root in outside], {}, settings_of)
        if settings_of(file).file == job.found.file and not job.found.excludes(file)
    )
    others = dict.fromkeys(map(space.name, islice(files, _MOST_AROUND)))
    leading = leading_to(space, job.names, others)
    if not leading:
        return job
    options = replace(job.options, about=frozenset(job.names))
    return replace(job, names=(*job.names, *leading), options=options)


def _around(workspace: Workspace, path: Path) -> Path:
    """The checkout that a file or folder belongs to; where there is none, the folder itself."""
    folder = path if os.path.isdir(path) else path.parent
    return workspace.checkout_of(folder) or folder


def settings_for(given: CheckRequest, paths: Sequence[str]) -> ActiveSettings:
    """The settings that decide about the report as a whole: those of the first path."""
    fixed = _fixed_settings(given)
    if fixed is not None:
        return fixed
    first = Path(paths[0] if paths and paths[0] != "-" else ".").absolute()
    return discover(first if os.path.isdir(first) else first.parent)


def _fixed_settings(given: CheckRequest) -> ActiveSettings | None:
    if given.isolated and given.config is not None:
        raise UsageError("--config and --isolated exclude one another")
    if given.isolated:
        return ActiveSettings(Settings())
    return load(given.config.absolute()) if given.config is not None else None


def _files(
    workspace: Workspace,
    paths: Sequence[str],
    texts: dict[str, bytes],
    settings_of: Callable[[Path], ActiveSettings],
) -> Iterator[tuple[Path, bool]]:
    """Absolute paths, and whether the user named that file itself."""
    ignored, tracked = Ignored(), Tracked()

    def leaves_out(path: str, is_folder: bool) -> bool:
        respects = settings_of(Path(path)).settings.respect_gitignore
        is_ignored = respects and ignored.covers(path, is_folder=is_folder)
        return is_ignored and not tracked.has(path, is_folder=is_folder)

    for path in paths:
        file = workspace.file(workspace.name(path))
        if workspace.name(path) in texts:
            yield file, True
        elif os.path.isdir(file):
            unusable: list[str] = []
            is_meant = ignored.covers(str(file), is_folder=True)  # it was named all the same
            skips = None if is_meant else leaves_out
            for found in walk(file, SUFFIXES, unusable.append, leaves_out=skips):
                yield found, False
            for name in unusable:  # an error, as is a file that cannot be read
                yield Path(name), True
        elif _is_there(file):
            yield file, True
        else:
            raise UsageError(f"{path} does not exist")


def _named(workspace: Workspace, paths: Sequence[str]) -> list[Path]:
    """The folders that the user named, the files, and the folders of the projects of these, each once: of many files
    that were named one by one there is mostly one project."""
    names = [workspace.name(path) for path in paths if path != "-"]
    files = [(name, workspace.file(name)) for name in names]
    projects = [workspace.project_around(name) for name, f in files if not os.path.isdir(f)]
    return list(dict.fromkeys((*(file for _, file in files), *projects)))


def _is_there(file: Path) -> bool:
    """Whether there is a file, if only one in a folder that we may not look into."""
    try:
        file.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _job(
    given: CheckRequest,
    workspace: Workspace,
    found: ActiveSettings,
    names: list[str],
    explicit: set[str],
) -> Job:
    settings = found.settings
    root = given.project_root
    if root is None and settings.project_root is not None and found.folder is not None:
        root = found.folder / settings.project_root
    if root is not None:
        if not root.is_dir():
            raise UsageError(f"the project root {root} is no folder")
        dependencies.saw_any(root, True)
    machine, values = machine_of(given, settings)
    plugins = plugin_folders(found)
    options = Options(
        selection=_selection(given, found, workspace.cwd, plugins),
        hardware=machine,
        framework=framework_named(
            given.framework or settings.framework, plugins, profile_folder(found)
        ),
        values={**values, **(given.values or {})},
        margin=settings.margin,
        baseline=_baseline(given, found, workspace.cwd),
        plugins=plugins,
        profiles=profile_folder(found),
    )
    rooted = Workspace(workspace.cwd, workspace.overlay, root, workspace.named)
    return Job(rooted, tuple(names), frozenset(explicit), options, found)


def _below(found: ActiveSettings, path: str | None) -> Path | None:
    """A path of the settings, relative to the folder of their file."""
    return found.folder / path if path is not None and found.folder is not None else None


def _baseline(given: CheckRequest, found: ActiveSettings, cwd: Path) -> Baseline | None:
    file = given.baseline or _below(found, found.settings.baseline)
    if file is None or given.without_baseline:
        return None
    from oomlint.linting.baseline import read_baseline

    return read_baseline(cwd / file, cwd)


def plugin_folders(found: ActiveSettings) -> tuple[str, ...]:
    """The folders of plug-ins that the settings name, absolute."""
    paths = (_below(found, name) for name in found.settings.plugins)
    return tuple(os.path.normpath(path) for path in paths if path is not None)


def profile_folder(found: ActiveSettings) -> str | None:
    """Where the project would keep profiles of its own: beside its settings file."""
    return None if found.folder is None else os.path.join(found.folder, PROFILE_FOLDER)


def _selection(
    given: CheckRequest, found: ActiveSettings, cwd: Path, plugins: Sequence[str]
) -> Selection:
    settings = found.settings
    chosen = given.select is not None
    selection = Selection(
        select=given.select if given.select is not None else settings.select,
        extend_select=(*(() if chosen else settings.extend_select), *given.extend_select),
        ignore=(*(() if chosen else settings.ignore), *given.ignore),
        per_file_ignores=found.per_file_ignores(cwd),
    )
    if selection != Selection():  # loading every rule to check no word would cost start-up
        _check_words(selection, found, plugins)
    return selection


def _check_words(selection: Selection, found: ActiveSettings, plugins: Sequence[str]) -> None:
    rules = rules_in_force(plugins)
    try:
        selection.check(rules.items)
    except UsageError as error:
        if rules.errors:  # the word may be a rule of the plug-in that is reported
            return
        where = f" (on the command line or in {found.file})" if found.file else ""
        raise UsageError(f"{error}{where}") from None


def machine_of(given: CheckRequest, settings: Settings) -> tuple[Hardware | None, dict[Any, Any]]:
    """The hardware that options and settings name, and plan values that follow from them."""
    spec = given.hardware or settings.hardware
    memory = given.host_memory
    machine = None
    if spec is not None:
        machine, profile_memory = _hardware(spec, settings)
        memory = memory or profile_memory
    gpus = given.gpus if given.gpus is not None else settings.gpus
    from oomlint.hardware.given import with_given

    return with_given(machine, memory or settings.host_memory, gpus)


def _hardware(spec: str, settings: Settings) -> tuple[Hardware, str | None]:
    from oomlint.hardware import parse_hardware

    profile = settings.profiles.get(spec)
    if profile is not None:
        return replace(parse_hardware(profile.hardware), name=spec), profile.host_memory
    if spec == "auto":
        from oomlint.hardware import detect

        found = detect()
        if found is None:
            raise UsageError("--hardware auto: this machine has no GPU that nvidia-smi lists")
        return found, None
    try:
        return parse_hardware(spec), None
    except UsageError as error:
        from difflib import get_close_matches

        near = get_close_matches(spec, settings.profiles, n=1)
        hint = f" (or did you mean the profile {near[0]}?)" if near else ""
        raise UsageError(f"{error}{hint}") from None


def merge(reports: Iterable[R]) -> R:
    """The reports of several jobs as one, in the order of paths."""
    first, *others = reports
    if not others:
        return first
    every = [first, *others]
    workspace = first.workspace
    for other in others:
        workspace = workspace.with_overlay(other.workspace.overlay)
    return replace(
        first,
        diagnoses=tuple(
            sorted(
                (d for report in every for d in report.diagnoses),
                key=lambda d: (d.finding.location.path, d.finding.location.span.start),
            )
        ),
        runs=tuple(run for report in every for run in report.runs),
        errors=distinct_errors(error for report in every for error in report.errors),
        files_read=sum(report.files_read for report in every),
        workspace=workspace,
        recognised={k: v for report in every for k, v in report.recognised.items()},
        fixed=sum(report.fixed for report in every),
        applied=tuple(d for report in every for d in report.applied),
        known=tuple(d for report in every for d in report.known),
    )
