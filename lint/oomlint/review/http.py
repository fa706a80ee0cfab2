"""Talking to a forge over HTTPS: time limits, retries, pages, and a token that nobody gets to see.

The standard library's client, since what a client library would bring is least of it: which requests may be repeated after
what answer, how long a forge asks to wait, how large an answer may be, and that no error shows the token.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from oomlint import __version__
from oomlint.review.forge import ForgeError, Request
from oomlint.validation.received import Unexpected, read

T = TypeVar("T")

# Seconds without a byte, and tries of a request that may be repeated: GitHub answers within 10
# seconds or not at all (docs.github.com, REST API, "Timeouts").
_TIMEOUT = 30
_TRIES = 4
# A job waits so long for a limit on requests to be lifted, in seconds; more costs more than it
# brings. GitHub asks for a minute where it names no time ("Exceeding the rate limit").
_LONGEST_WAIT = 180
_USUAL_WAIT = 60
_MOST_BYTES = 64 * 2**20
_MOST_PAGES = 100
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Token:
    """A secret. Nothing prints it; :meth:`scrub` takes it out of what others say."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def scrub(self, text: str) -> str:
        return text.replace(self._text, "***") if self._text else text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


class Response(Struct, frozen=True):
    """What a server said: ``data`` is the JSON of its body, ``None`` where there is none."""

    request: Request
    status: int
    headers: Mapping[str, str]
    data: Any


class Refused(ForgeError):
    """The server answered with an error."""

    def __init__(self, host: str, message: str, answer: Response) -> None:
        super().__init__(host, message)
        self.status = answer.status
        self.data = answer.data


class TooOften(ForgeError):
    """The server takes no more requests for longer than anybody waits; about rights that says nothing."""


class Unanswered(ForgeError):
    """Nobody knows whether the request was carried out."""


class Transport:
    """Requests to one API.

    Args:
        api: its address, https unless it is on this machine.
        token: sent to that address only, never along a redirection to another.
        scheme: the header that carries the token, and what stands before it.
        headers: what else every request says.
        log: told of each request, for people.
    """

    def __init__(
        self,
        api: str,
        token: Token,
        *,
        scheme: tuple[str, str] = ("Authorization", "Bearer "),
        headers: Mapping[str, str] | None = None,
        log: Callable[[str], None] = lambda _text: None,
    ) -> None:
        address = urlsplit(api)
        self.host = address.hostname or api
        if address.scheme != "https" and self.host not in _LOCAL:
            raise ForgeError(self.host, f"{api} is not https: the token would be sent in the clear")
        self.api = api.rstrip("/")
        self._token = token
        self._scheme = scheme
        self._headers = {"User-Agent": f"oomlint/{__version__}", **(headers or {})}
        self._log = log
        self._open = urllib.request.build_opener(_SameOrigin()).open

    # -- asking ------------------------------------------------------------------------

    def get(self, path: str, kind: type[T]) -> T:
        """What is there, as a payload of that kind."""
        return self.read(self.send(Request("GET", path)), kind)

    def listed(self, path: str, kind: type[T]) -> Iterator[T]:
        """The items of a list, page by page, for as long as the ``Link`` header announces one more.

        Its addresses are not followed: a server behind a proxy may name itself otherwise.
        """
        for number in range(1, _MOST_PAGES + 1):
            answer = self.send(Request("GET", f"{path}&page={number}"))
            yield from self.read(answer, list[kind])  # type: ignore[valid-type]
            if 'rel="next"' not in answer.headers.get("link", ""):
                return

    def read(self, answer: Response, kind: type[T]) -> T:
        """An answer as what the API promises.

        Raises:
            ForgeError: it is something else; says what, and to which request.
        """
        try:
            return read(kind, answer.data)
        except Unexpected as error:
            asked = f"{answer.request.method} {urlsplit(answer.request.path).path}"
            problem = f"answered {asked} in another shape than its API has: {error}"
            raise ForgeError(self.host, self._token.scrub(problem)) from None

    def send(self, request: Request, *, is_repeatable: bool | None = None) -> Response:
        """Send a request, again where that may help.

        A request that creates something is not repeated after an answer that leaves open whether
        it did; after a refusal for coming too often it is.

        Raises:
            Refused: with the server's own words.
            TooOften: it asks to wait for too long.
            Unanswered: it was sent, and nobody knows what came of it.
            ForgeError: the server cannot be reached.
        """
        repeatable = request.method != "POST" if is_repeatable is None else is_repeatable
        waited = 0.0
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._once(request)
            except (OSError, http.client.HTTPException) as error:
                problem = self._token.scrub(_words(error))
                if not repeatable or attempt == _TRIES:
                    kind = ForgeError if repeatable else Unanswered
                    raise kind(self.host, f"could not be reached: {problem}") from None
                pause = 2.0 ** (attempt - 1)
                self._log(f"{problem}; trying again in {pause:.0f} s")
                time.sleep(pause)
                continue
            wait = _asked_to_wait(answer)
            if wait is not None:
                waited += wait
                if attempt == _TRIES or waited > _LONGEST_WAIT:
                    raise TooOften(self.host, _too_often(wait))
                self._log(f"asked to wait {wait:.0f} s")
                time.sleep(wait)
            elif answer.status < 400:
                return answer
            elif answer.status < 500:
                raise Refused(self.host, self._said(answer), answer)
            elif not repeatable:
                raise Unanswered(self.host, self._said(answer))
            elif attempt == _TRIES:
                raise Refused(self.host, self._said(answer), answer)
            else:
                time.sleep(2.0 ** (attempt - 1))
        raise AssertionError("the last try returns or raises")

    def download(self, path: str) -> IO[bytes]:
        """The body of an answer, as a stream."""
        request = Request("GET", path)
        try:
            stream: IO[bytes] = self._open(self._prepared(request), timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            answer = Response(request, error.code, _lower(error.headers), None)
            wait = _asked_to_wait(answer)
            if wait is not None:
                raise TooOften(self.host, _too_often(wait)) from None
            raise Refused(self.host, self._said(answer), answer) from None
        except (OSError, http.client.HTTPException) as error:
            problem = self._token.scrub(_words(error))
            raise ForgeError(self.host, f"could not be reached: {problem}") from None
        return stream

    # -- one request ---------------------------------------------------------------------

    def _once(self, request: Request) -> Response:
        prepared = self._prepared(request)
        try:
            response = self._open(prepared, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            body = response.read(_MOST_BYTES + 1)
            status, headers = int(response.status), _lower(response.headers)
        self._log(f"{request.method} {prepared.full_url}: {status}")
        if len(body) > _MOST_BYTES:
            raise ForgeError(self.host, "answered with more than 64 MiB")
        try:
            data = json.loads(body) if body.strip() else None
        except (ValueError, RecursionError):
            if status < 400:
                problem = (
                    "answered with something that is not JSON; is this the address of the API?"
                )
                raise ForgeError(self.host, problem) from None
            data = None  # an error page of some proxy on the way
        return Response(request, status, headers, data)

    def _prepared(self, request: Request) -> urllib.request.Request:
        is_whole = request.path.startswith(("https://", "http://"))
        url = request.path if is_whole else self.api + request.path
        data = None if request.body is None else json.dumps(request.body).encode()
        prepared = urllib.request.Request(url, data, dict(self._headers), method=request.method)
        if data is not None:
            prepared.add_header("Content-Type", "application/json")
        name, prefix = self._scheme
        prepared.add_unredirected_header(name, prefix + self._token.reveal())
        return prepared

    def _said(self, answer: Response) -> str:
        words = self._token.scrub(said(answer.data))
        path = urlsplit(answer.request.path).path
        return f"{answer.request.method} {path} was answered with {answer.status}" + (
            f": {words}" if words else ""
        )


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirections; only to the same server does the token come along."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, url: str) -> Any:  # fmt: skip
        found = super().redirect_request(req, fp, code, msg, headers, url)
        if found is not None and _origin(url) == _origin(req.full_url):
            for name, value in req.unredirected_hdrs.items():
                found.add_unredirected_header(name, value)
        return found


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def said(data: Any) -> str:
    """What an error says of itself: GitHub's ``message`` and ``errors``, GitLab's ``message``,
    which may be a text, a list or lists by field."""
    if isinstance(data, str):
        return " ".join(data.split())[:500]
    if isinstance(data, list):
        return "; ".join(filter(None, map(said, data)))[:500]
    if not isinstance(data, dict):
        return ""
    if "message" in data or "error" in data:
        parts = (data.get("message") or data.get("error"), data.get("errors"))
        return "; ".join(filter(None, map(said, parts)))
    return "; ".join(f"{key}: {said(value)}" for key, value in data.items() if said(value))[:500]


def _lower(headers: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in (headers or {}).items()}


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error) or type(error).__name__


def _asked_to_wait(answer: Response) -> float | None:
    """Seconds to wait before asking again; ``None`` where the answer is about something else.

    GitHub refuses with 403 or 429 and says ``retry-after``, or names the time at which there are
    requests left (docs.github.com, REST API, "Exceeding the rate limit"); GitLab with 429.
    """
    headers = answer.headers
    if answer.status not in (403, 429):
        return None
    after = headers.get("retry-after")
    if after is not None:
        return _seconds(after)
    if headers.get("x-ratelimit-remaining") == "0":
        try:
            return max(1.0, float(headers["x-ratelimit-reset"]) - time.time())
        except (KeyError, ValueError):
            return _USUAL_WAIT
    is_limit = answer.status == 429 or "rate limit" in said(answer.data).lower()
    return _USUAL_WAIT if is_limit else None


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return _USUAL_WAIT


def _too_often(wait: float) -> str:
    when = datetime.fromtimestamp(time.time() + wait, timezone.utc)
    return f"has had too many requests; it takes more from {when:%H:%M} UTC on"
