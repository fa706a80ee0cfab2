"""Which library versions a project pins: requirements, project files, locks, images.

A pin is a version as far as the file tells it: ``==4.57.1`` is one, ``<5`` is the last release
before, and ``>=4.40`` alone is none, because an installation takes the newest there is on its day;
it is a floor, below which no release comes into question. An address with a commit pins too, yet
of which release that commit is, only its repository tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

# Packages whose version decides a default or the memory of a step.
PACKAGES = frozenset(
    {
        "transformers", "trl", "accelerate", "peft", "deepspeed", "torch", "bitsandbytes",
        "torchtune", "torchao", "ms-swift", "llamafactory", "axolotl", "liger-kernel", "prime-rl",
        "flash-attn", "litgpt", "llm-foundry", "composer", "openrlhf", "verl", "vllm", "unsloth",
        "megatron-core", "torchtitan", "xformers", "llama-recipes",
    }
)  # fmt: skip

_PYTHON = "python"
# What decides which releases of these an installation gets.
_READ = PACKAGES | {_PYTHON}

# Whose repositories on GitHub they come from, former names of these included (looked up 2026-11-29).
_HOMES = {
    "transformers": "huggingface", "trl": "huggingface", "accelerate": "huggingface", "peft": "huggingface",
    "deepspeed": "microsoft deepspeedai", "torch": "pytorch", "torchtitan": "pytorch",
    "bitsandbytes": "timdettmers bitsandbytes-foundation", "torchtune": "pytorch meta-pytorch",
    "torchao": "pytorch", "ms-swift": "modelscope", "llamafactory": "hiyouga",
    "axolotl": "axolotl-ai-cloud openaccess-ai-collective", "liger-kernel": "linkedin",
    "prime-rl": "primeintellect-ai", "flash-attn": "dao-ailab hazyresearch", "litgpt": "lightning-ai",
    "llm-foundry": "mosaicml", "composer": "mosaicml", "openrlhf": "openrlhf openllmai",
    "verl": "volcengine verl-project", "vllm": "vllm-project", "unsloth": "unslothai",
    "megatron-core": "nvidia", "xformers": "facebookresearch", "llama-recipes": "facebookresearch meta-llama",
}  # fmt: skip

# The last release of a major version: what `<5` or `^4.40` leads to (their changelogs).
_LAST_MINOR = {
    ("transformers", 4): 57, ("torch", 1): 13, ("accelerate", 0): 34, ("trl", 0): 29,
    ("torchtune", 0): 6, ("ms-swift", 3): 12, ("ms-swift", 2): 6,
}  # fmt: skip

_REQUIREMENT = r"(?a)^\s*[\"']?(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s*(?P<rest>[^#;]*)"
_CLAUSE = r"(===?|~=|<=|>=|<|>|!=|\^|~)\s*v?(\d{1,9}(?:\.(?:\d{1,9}|\*))*)(?!\d)((?:\.?(?:dev|rc|a|b)\d{1,9})?)"
# Clauses that one release meets, or the patches of one; and the oldest of a range that has no floor.
_OF_ONE = frozenset({"==", "===", "~"})
_EARLIEST = "0"
# What stands behind the first `@`: an address.
_TAG = r"\s*(?:git\+)?\S*?@v?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)(?!\d)"
# One without a name before it: the repository has the package's.
_ADDRESS = r"""^\s*["']?(?:(?:-e|--editable)[ =])?\s*(git\+\S*/([\w.-]+)(?:@[\w./-]+)?)"""
_COMMIT = r"\s*git\+\S*?@(?=[0-9a-f]*[0-9])([0-9a-f]{7,40})(?![\w.])"
_AT_COMMIT, _OF_FORK = "commit ", "github.com/"
NEWEST = "the newest"
"""In place of the oldest version: it is installed from its repository as that is on the day (pip 25.0, "VCS Support")."""
_HEAD = r"\s*git\+\S*?github\.com[/:]([\w.-]+)/[\w.-]+?(?:\.git)?/?(?:@(?:main|master))?(?:#\S*)?[\"']?\s*$"
_GITHUB = r"\s*git\+\S*?github\.com[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?(?:[@?#/]|\s|$)"
_WHEEL = r"\s*\S*/[\w.]+-(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)[-+]"
_IMAGE = r"(?mi)^[ \t]*FROM\s+\S*pytorch/pytorch:(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)(?!\d)"
# Which Python an environment is made with (conda, "conda create"; uv, "uv venv").
_ENVIRONMENT = (
    r"(?m)^[^\n#]*?\b(?:(?:conda|mamba)\s+create\b[^\n;&|`]*?\bpython\s*={1,2}"
    r"|uv\s+venv\b[^\n;&|`]*?(?:--python|-p)[ =](?:python)?)[ \t]*(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\d])"
)
_PYTHON_IMAGE = r"(?mi)^[ \t]*FROM\s+(?:\S*/)?python:(\d\.\d{1,2}(?:\.\d{1,2})?)(?!\d)"
_INCLUDE = r"(?m)^[ \t]*(?:-r|--requirement|-c|--constraint)(?:[ \t]+|=|(?=[\w./]))([^\s#]+)"
_INSTALL = r"\b(?:pip3?|uv pip)\s+install\s+([^\n;&|]+)"
# Where a README's line begins with the command, not one that is commented out or spoken of in a sentence.
_GUIDE_LINE = (
    r"(?m)^[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?`{0,3}[ \t]*(?:[$!%][ \t]*)?(?:[^#`\n]*&&[ \t]*)?"
    r"((?:sudo[ \t]+)?(?:python3?[ \t]+-m[ \t]+)?(?:pip3?|uv pip)[ \t]+install[ \t][^\n`]*)"
)
# A script that somebody runs once, before any training.
_SETS_UP = r"(?:[\w-]*[_-])?(?:setup|install|env|environment)(?:[_-][\w-]*)?\.sh"
# Extras, as pyproject.toml, setup.cfg and setup.py list them, and what uv is told of them.
_EXTRAS = (
    r"(?ms)^\[(?:project\.optional-dependencies|dependency-groups|options\.extras_require|tool\.uv\b[^\]\n]*"
    r"|tool\.poetry\.(?:extras|group\b[^\]\n]*))\].*?(?=^\[[a-z]|\Z)"
    r"|\bextras?_requires?\b[^=\n{]*=\s*\{.*?^[ \t]*\}"
)
# With clauses about the version, or an address with a commit. What is taken from a branch is not read here.
_QUOTED = (
    r"""["']([A-Za-z][\w.-]*(?:\[[\w,-]*\])?\s*"""
    r"""(?:[=<>~!^][^"'\n]*|@\s*git\+[^\s"'@]+@[0-9a-f]{7,40}))["']"""
)
_CONDA = r"(?m)^[ \t]*-[ \t]*[\"']?(?:[\w-]+::)?([A-Za-z][\w.-]*)\s*([=<>~!][^\"'#\n]*)"


def pins(name: str, text: str) -> dict[str, str]:
    """Package → version or commit (see :func:`is_commit`), as far as a project's file of that name pins
    packages we know.

    The text of any file is fine; what cannot be read pins nothing.
    """
    return _versions(_requirements(name, text), _pin)


def floors(name: str, text: str) -> dict[str, str]:
    """Package → the oldest version that a project's file of that name allows, where it says so."""
    return _versions(_requirements(name, text), _oldest)


def ranges(name: str, text: str) -> dict[str, str]:
    """Package → the oldest version that a project's file of that name allows (``0`` where it names none), of those for
    which :func:`pins` has only the newest of several releases."""
    return _versions(_requirements(name, text), _range)


def installed_names(name: str, text: str) -> frozenset[str]:
    """The packages that a guide of that name tells its reader to install, or that a text of another name installs itself,
    whatever their versions."""
    is_told = is_guide(name.rpartition("/")[2])
    found = _requirements(name, text) if is_told else _installed(text)
    return frozenset(package for package, _ in found)


def set_up_floors(name: str, text: str) -> dict[str, str]:
    """The same of what a script of that name installs that sets the project up, none of another file."""
    return floors(name, text) if sets_up(name) else {}


def sets_up(name: str) -> bool:
    """Whether a script of that name sets a project up."""
    return re.fullmatch(_SETS_UP, name.rpartition("/")[2].lower()) is not None


def _requirements(name: str, text: str) -> list[tuple[str, str]]:
    """Packages and the clauses about their versions, of a file that may pin them."""
    base = name.rpartition("/")[2].lower()
    for fits, read in _READERS:
        if fits(base):
            try:
                return list(read(text))
            except (ValueError, RecursionError, AttributeError, TypeError):
                return []
    return []


def _versions(
    required: Iterable[tuple[str, str]], version_of: Callable[[str, str], str | None]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for package, clauses in required:
        version = version_of(package, clauses) if package in _READ else None
        if version is not None:
            found[package] = version
    return found


def is_commit(version: str) -> bool:
    """Whether a pin is one to a commit, or to somebody's copy of the repository, of which no file tells the release."""
    return version.startswith((_AT_COMMIT, _OF_FORK))


def is_early(version: str) -> bool:
    """Whether a version is one before its release (``0.4.0.dev0``, ``4.50.0rc1``; PEP 440, "Pre-releases"): it may still have
    what the release has no more."""
    return re.search(r"\d\.?(?:dev|rc|a|b)\d", version) is not None and not is_commit(version)


def submodules(text: str) -> dict[str, str]:
    """Package → the folder in which a ``.gitmodules`` has it checked out."""
    found: dict[str, str] = {}
    for section in re.split(r"(?m)^[ \t]*\[submodule\b", text)[1:]:
        said = dict(re.findall(r"(?m)^[ \t]*(path|url)[ \t]*=[ \t]*(\S+)", section))
        name = re.split(r"[/:]", said.get("url", "").rstrip("/"))[-1].removesuffix(".git").lower()
        package = _PACKAGE_OF.get(name.replace("-", "").replace("_", ""))
        if package is not None and "path" in said:
            found[package] = said["path"]
    return found


# Repositories part words otherwise than packages do: LLaMA-Factory, llamafactory.
_PACKAGE_OF = {package.replace("-", ""): package for package in sorted(PACKAGES)}


def without_extras(text: str) -> str:
    """What a project's file says that it needs, less what only who asks for it installs as well (``.[torch,metrics]``)."""
    return re.sub(_EXTRAS, "", text)


def is_guide(name: str) -> bool:
    """Whether files of that name (without folders) tell people how a project is set up."""
    stem, _, suffix = name.lower().partition(".")
    return stem in ("readme", "install") and suffix in ("", "md", "rst", "txt")


def is_requirements(name: str) -> bool:
    """Whether files of that name (without folders) are lists of requirements for pip."""
    lower = name.lower()
    return lower.startswith("requirements") and lower.endswith((".txt", ".in"))


@lru_cache(maxsize=4096)  # each batch of files asks it of all that lie beside them
def is_pin_file(name: str) -> bool:
    """Whether files of that name (without folders) may pin versions."""
    return any(fits(name.lower()) for fits, _ in _READERS)


def _normal(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pin(package: str, rest: str) -> str | None:
    """The version that a requirement's clauses lead to, if they lead to one."""
    _, _, address = rest.partition("@")
    for pattern in (_TAG, _WHEEL):
        if (found := re.match(pattern, address)) is not None:
            return found[1]
    home = re.match(_GITHUB, address)
    if home is not None and home[1].lower() not in _HOMES[package].split():
        return f"{_OF_FORK}{home[1]}/{home[2]}"
    commit = re.match(_COMMIT, address)
    if commit is not None:
        return _AT_COMMIT + commit[1][:7]
    below: str | None = None
    for sign, version, early in re.findall(_CLAUSE, rest):
        if sign in ("==", "===", "~", "<="):
            return f"{version.replace('.*', '')}{early}"
        if sign == "~=":
            return (
                str(version) if version.count(".") > 1 else _before(package, _next_major(version))
            )
        if sign == "^":
            below = below or _before(package, _next_breaking(version))
        elif sign == "<":
            below = below or _before(package, version)
    return below


def _oldest(package: str, rest: str) -> str | None:
    """The oldest version that a requirement allows: its clauses' floor, or the newest of what comes from its repository."""
    _, _, address = rest.partition("@")
    home = re.match(_HEAD, address)
    is_head = home is not None and home[1].lower() in _HOMES[package].split()
    return NEWEST if is_head else _floor(rest)


def _range(package: str, rest: str) -> str | None:
    """The oldest version that clauses allow which lead to a pin, and no single release."""
    signs = {sign for sign, _, _ in re.findall(_CLAUSE, rest)}
    if "@" in rest or not signs.isdisjoint(_OF_ONE) or _pin(package, rest) is None:
        return None
    return _floor(rest) or _EARLIEST


def _floor(rest: str) -> str | None:
    """The oldest version that a requirement's clauses allow, if they name one."""
    lower = (
        version for sign, version, _ in re.findall(_CLAUSE, rest) if sign in (">=", ">", "~=", "^")
    )
    return next((str(version).replace(".*", "") for version in lower), None)


def _next_major(version: str) -> str:
    return str(int(version.split(".")[0]) + 1)


def _next_breaking(version: str) -> str:
    """Where a caret ends: the first number that is not zero is kept (Poetry's documentation, "Caret requirements")."""
    numbers = [int(part) for part in version.split(".")]
    kept = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    return ".".join(map(str, (*numbers[:kept], numbers[kept] + 1)))


def _before(package: str, version: str) -> str | None:
    """The last release before a version, by major and minor."""
    major, minor, patch = ([int(p) for p in version.split(".") if p.isdigit()] + [0, 0, 0])[:3]
    if patch:
        return f"{major}.{minor}"
    if minor:
        return f"{major}.{minor - 1}"
    last = _LAST_MINOR.get((package, major - 1))
    return None if last is None else f"{major - 1}.{last}"


def _requirement(line: str) -> Iterator[tuple[str, str]]:
    address = re.match(_ADDRESS, line)
    match = re.match(_REQUIREMENT, line)
    if address is not None:
        yield _normal(address[2].removesuffix(".git")), f"@ {address[1]}"
    elif match is not None:
        yield _normal(match["name"]), match["rest"]


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        yield from _requirement(line)


def _quoted(text: str) -> Iterator[tuple[str, str]]:
    """``setup.py``: requirements are texts in quotes."""
    for requirement in re.findall(_QUOTED, text):
        yield from _requirement(requirement)


def _pyproject(text: str) -> Iterator[tuple[str, str]]:
    from oomlint.validation.toml import loads

    data = loads(text)
    project = data.get("project", {})
    yield _PYTHON, str(project.get("requires-python", ""))
    optional = project.get("optional-dependencies", {}).values()
    for group in (*optional, *data.get("dependency-groups", {}).values()):
        for line in group:
            yield from _requirement(str(line))
    tools = data.get("tool", {})
    poetry = tools.get("poetry", {}).get("dependencies", {})
    for name, given in poetry.items():
        version = given.get("version", "") if isinstance(given, dict) else str(given)
        # A bare version is an exact one in Poetry.
        rest = f"=={version}" if version[:1].isdigit() else version
        yield from _requirement(f"{name} {rest}")
    for line in project.get("dependencies", ()):
        yield from _requirement(str(line))
    # Where uv takes a package from, whatever release is asked for.
    for name, source in tools.get("uv", {}).get("sources", {}).items():
        if isinstance(source, dict) and "git" in source:
            at = source.get("rev") or source.get("tag") or ""
            yield _normal(name), f"@ git+{source['git']}" + (f"@{at}" if at else "")


def _lock(text: str) -> Iterator[tuple[str, str]]:
    """uv.lock, poetry.lock and pdm.lock: ``[[package]]`` with ``name`` and ``version``."""
    # By lines: such files have tens of thousands, and few of them matter.
    name = last = ""
    for line in text.splitlines():
        if line.startswith("[["):
            name = last = ""
        elif line.startswith('name = "'):
            name = _normal(line[8:].rstrip('" '))
        elif name in PACKAGES and line.startswith('version = "'):
            yield name, "==" + line[11:].rstrip('" ').partition("+")[0]
            name, last = "", name
        elif last and line.startswith('source = { git = "'):
            yield last, "@ git+" + line[18:].partition('"')[0]
            last = ""


def _pipfile_lock(text: str) -> Iterator[tuple[str, str]]:
    import json

    data = json.loads(text)
    for group in ("develop", "default"):
        for name, entry in data.get(group, {}).items():
            yield from _requirement(f"{name} {entry.get('version', '')}")


def _conda(text: str) -> Iterator[tuple[str, str]]:
    for name, rest in re.findall(_CONDA, text):
        single = re.sub(r"^=(?=[\d])", "==", rest.strip()).partition(" ")[0]
        without_build = re.sub(r"(?<=[\d.])=.*", "", single)  # `pkg=1.2=build`
        yield from _requirement(f"{name} {without_build}")


def _dockerfile(text: str) -> Iterator[tuple[str, str]]:
    joined = re.sub(r"\\\r?\n", " ", text)
    image = re.search(_IMAGE, joined)
    if image is not None:
        yield "torch", f"=={image[1]}"
    python = re.search(_PYTHON_IMAGE, joined)
    if python is not None:
        yield _PYTHON, f"=={python[1]}"
    yield from _environments(joined)
    yield from _installs(joined)


def _environments(text: str) -> Iterator[tuple[str, str]]:
    """``conda create -n llm python=3.10``: of more than one nobody knows which is meant."""
    is_made = " create" in text or "uv venv" in text
    pythons = set(re.findall(_ENVIRONMENT, text)) if is_made else set()
    if len(pythons) == 1:
        yield _PYTHON, f"=={pythons.pop()}"


def _installs(text: str) -> Iterator[tuple[str, str]]:
    """``pip install transformers==4.57.1`` in whatever file."""
    for words in re.findall(_INSTALL, text):
        for word in re.findall(r"""["'][^"']+["']|\S+""", words):
            if not word.startswith("-"):
                yield from _requirement(word)


def _guide(text: str) -> Iterator[tuple[str, str]]:
    """What a README tells its reader to install, on lines of their own; of a package of which it tells two things, either
    may be there."""
    joined = re.sub(r"\\\r?\n", " ", text)
    told: dict[str, set[str]] = {}
    for line in re.findall(_GUIDE_LINE, joined):
        for package, rest in _installs(line):
            told.setdefault(package, set()).add(rest.strip("\"'` "))
    yield from _environments(joined)
    yield from ((package, next(iter(said))) for package, said in told.items() if len(said) == 1)


def installed(text: str) -> dict[str, str]:
    """What a script installs itself with ``pip install name==version``, or from a commit."""
    return _versions(_installed(text), _pin)


def chosen_anew(text: str) -> dict[str, str | None]:
    """The packages that a notebook installs into the fresh machine that it runs on, and the oldest
    version that it allows: what the project around it pins is not what is there."""
    # As its JSON has them: a quote ends what is a line of the cell, or some cells.
    code = (part.replace('"', "\n") for part in text.replace("\\n", "\n").split('\\"'))
    lines = '"'.join(code)
    return {
        package: _oldest(package, rest)
        for package, rest in _installed(lines)
        if package in PACKAGES
    }


def _installed(text: str) -> Iterator[tuple[str, str]]:
    joined = re.sub(r"\\\r?\n", " ", text)
    yield from _environments(joined)
    if "install" in text:
        yield from _installs(joined)


def included(text: str) -> Iterator[str]:
    """The files that a requirements file takes in (pip 25.0, "Requirements File Format")."""
    for found in re.finditer(_INCLUDE, text):
        yield found[1]


_READERS: tuple[
    tuple[Callable[[str], bool], Callable[[str], Iterator[tuple[str, str]]]], ...
] = (
    # In rising precedence: what was really resolved counts most.
    (is_guide, _guide),
    (lambda name: name.endswith(".sh") and re.fullmatch(_SETS_UP, name) is not None, _installed),
    (lambda name: name.startswith("dockerfile") or name.endswith(".dockerfile"), _dockerfile),
    (lambda name: name == "setup.py", _quoted),
    (lambda name: name == "setup.cfg", _lines),
    (lambda name: name == "pyproject.toml", _pyproject),
    (lambda name: name in ("environment.yml", "environment.yaml", "conda.yaml", "conda.yml"), _conda),
    (is_requirements, _lines),
    (lambda name: name in ("uv.lock", "poetry.lock", "pdm.lock"), _lock),
    (lambda name: name == "pipfile.lock", _pipfile_lock),
)  # fmt: skip


def rank(name: str) -> int:
    """The higher, the more a file's pins count beside others in its folder; requirements for a
    special purpose (``requirements-dev.txt``) count less than the plain ones."""
    base = name.lower()
    place = next((n for n, (fits, _) in enumerate(_READERS) if fits(base)), -1)
    return 2 * place + (base == "requirements.txt" or not base.startswith("requirements"))


def merged(found: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    """Package → version and the file that pins it, of the files of one folder."""
    out: dict[str, tuple[str, str]] = {}
    for name in sorted(found, key=lambda n: (rank(n.rpartition("/")[2]), n)):
        out |= {package: (version, name) for package, version in found[name].items()}
    return out
