"""HTTP over the controller's Unix socket, with nothing but the standard library: vrctl has to start quickly."""

import contextlib
import http.client
import json
import os
import socket
import struct
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from controller.vrctl.live import pipe_reader

DEFAULT_SOCKET = "/run/splitplane/api.sock"
CHUNK_BYTES = 1 << 16
ANSWER_LIMIT_S = 600.0
"""How long the controller may take for an answer, or for more of one; what it waits for itself has shorter limits."""


class Unreachable(Exception):
    """No controller answers at the socket."""

    def __init__(self, path: Path, reason: str = "", remedy: str = "start vr-controller or give --socket") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(f"no controller at {path}{why}; {remedy}")


class CutOff(Unreachable):
    """The controller went away in the middle of its answer."""

    def __init__(self, path: Path, reason: str = "it ended in the middle of its answer") -> None:
        super().__init__(path, f"it went away: {reason}")


class Refused(Exception):
    """The controller answered with an error; ``str()`` is its line."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


class _Socket(socket.socket):
    """A connection on which what is shown as it comes is waited for as long as somebody reads it, where told so."""

    shown = False

    def recv_into(self, *given: Any) -> int:
        """Receive; BrokenPipeError once nobody reads standard output any more."""
        if self.shown:
            pipe_reader.wait_for(self.fileno())
        return super().recv_into(*given)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("vr-controller")
        self._path = path

    def connect(self) -> None:
        self.sock = self.held = connect(self._path)


def connect(path: Path) -> _Socket:
    """Return a connection to the controller's socket; Unreachable where nobody answers."""
    found = _Socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(ANSWER_LIMIT_S)
    try:
        found.connect(str(path))
    except FileNotFoundError:
        found.close()
        raise Unreachable(path) from None
    except PermissionError as problem:
        found.close()
        raise Unreachable(path, _reason(problem), "run vrctl as root") from None
    except OSError as problem:
        found.close()
        raise Unreachable(path, _reason(problem)) from None
    return found


def _reason(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return f"it did not answer within {ANSWER_LIMIT_S:g} s; see its log"
    return (getattr(problem, "strerror", None) or str(problem)).lower()


def path_of(*parts: str, **query: object) -> str:
    """Return the path of a resource of the API; a query's None is left out. Refused where a part is empty."""
    if not all(parts):
        raise Refused("InvalidRequest", "a name is empty; vrctl get lists those there are")
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return "/v1/" + "/".join(quote(part, safe="") for part in parts) + (f"?{urlencode(given)}" if given else "")


class Client:
    """Asks one controller."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        kind: str,
        follow: bool = False,
        shown: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self.path)
        with contextlib.closing(connection), self._ask(connection, method, target, body, kind) as answer:
            if follow:
                connection.held.settimeout(None)
                connection.held.shown = shown
            yield answer

    def _ask(
        self, connection: _Connection, method: str, target: str, body: bytes | BinaryIO | None, kind: str
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": kind} if body is not None else {}
        try:
            connection.request(method, target, body, headers, encode_chunked=not isinstance(body, bytes | None))
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            raise Unreachable(self.path, _reason(problem)) from None
        if answer.status >= 400:
            with answer:
                raise self._refusal(answer)
        return answer

    def _refusal(self, answer: http.client.HTTPResponse) -> Exception:
        try:
            body = json.loads(answer.read())
            return Refused(body["kind"], body["error"])
        except (ValueError, KeyError, TypeError):
            return Refused("HTTPError", f"the controller answered {answer.status} {answer.reason}; see its log")

    def call(self, method: str, target: str, body: object = None) -> Any:
        """Return the JSON answer to a request; Refused or Unreachable."""
        content = None if body is None else json.dumps(body).encode()
        with self._open(method, target, content, "application/json") as answer:
            return json.loads(self._read(answer, -1))

    def get(self, *parts: str, **query: object) -> Any:
        """Return a resource."""
        return self.call("GET", path_of(*parts, **query))

    def lines(self, method: str, target: str, body: object = None, *, follow: bool = False) -> Iterator[Any]:
        """Walk over an answer of newline-delimited JSON as it comes; ``follow`` waits for more as long as somebody
        reads standard output."""
        content = None if body is None else json.dumps(body).encode()
        with self._open(method, target, content, "application/json", follow, shown=follow) as answer:
            held: list[bytes] = []
            for piece in self._pieces(answer):
                *whole, rest = piece.split(b"\n")
                if whole:
                    whole[0] = b"".join((*held, whole[0]))
                    held.clear()
                    yield from map(json.loads, whole)
                held.append(rest)
            if any(held):
                raise CutOff(self.path)

    def _pieces(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        # Not by readline, which takes the end of the connection for that of the answer.
        left = inf if answer.length is None else answer.length  # what comes in chunks tells its end itself
        while left and (piece := self._read(answer, CHUNK_BYTES)):
            left -= len(piece)
            yield piece
        if 0 < left < inf:
            raise CutOff(self.path)

    def _read(self, answer: http.client.HTTPResponse, size: int) -> bytes:
        try:
            return answer.read1(size) if size >= 0 else answer.read()
        except BrokenPipeError:  # of standard output
            raise
        except http.client.IncompleteRead:
            raise CutOff(self.path) from None
        except (OSError, http.client.HTTPException) as problem:
            raise CutOff(self.path, _reason(problem)) from None

    def pieces(self, method: str, target: str, *, follow: bool = False, shown: bool = False) -> Iterator[bytes]:
        """Walk over the octets of an answer as they come; ``follow`` waits for more for ever, or where they are
        ``shown`` as long as somebody reads standard output."""
        with self._open(method, target, None, "", follow, shown) as answer:
            yield from self._pieces(answer)

    def send_file(self, target: str, file: BinaryIO) -> Any:
        """Post a file; return the JSON answer."""
        with self._open("POST", target, file, "application/octet-stream") as answer:
            return json.loads(self._read(answer, -1))

    def controller_pid(self) -> int:
        """Return the controller's process id as this process sees it."""
        with connect(self.path) as found:
            credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])


def socket_path(given: Path | None) -> Path:
    """Return the socket to use: the option, else SPLITPLANE_SOCKET, else the default."""
    return given or Path(os.environ.get("SPLITPLANE_SOCKET") or DEFAULT_SOCKET)
