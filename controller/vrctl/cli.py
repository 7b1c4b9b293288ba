"""vrctl: the operator's command line.

Exit status: 0 done, 1 the thing failed (verify: they differ), 2 wrong usage, 3 no controller, 130 interrupted.

The commands are imported inside `main`, where Ctrl-C is one of these: that is most of the time a short one takes.
"""

import functools
import importlib
import io
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from controller.errors import SplitplaneError
    from controller.vrctl.client import Refused


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point."""
    sys.stdin, sys.stdout = sys.stdin or _nothing("r"), sys.stdout or _nothing("w")
    _speak_utf_8()
    try:
        status = _status_of(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        _hush()
    except OSError as problem:
        status = _complain_of(problem)
    sys.exit(status)


_COMMANDS = ("audit", "backups", "certificates", "changes", "listings", "move", "live.streams", "live.top")
"""The modules whose import adds their commands to the application."""


@functools.cache
def commands() -> Callable[..., object]:
    """Return what runs a command line; to build it from the commands' functions takes most of a short one's time."""
    import typer.main

    from controller.vrctl.shell import app

    for name in _COMMANDS:
        importlib.import_module(f"controller.vrctl.{name}")
    return typer.main.get_command(app)


def _status_of(argv: list[str] | None) -> int:
    from controller.errors import SplitplaneError
    from controller.vrctl import output
    from controller.vrctl.client import Refused, Unreachable
    from controller.vrctl.shell import FAILED, UNREACHABLE, WRONG_USAGE

    for argument in sys.argv[1:] if argv is None else argv:
        if any("\ud800" <= character <= "\udfff" for character in argument):  # octets that could not be decoded
            output.complain(f"argument {argument!r} is not UTF-8 text")
            return WRONG_USAGE
    try:
        commands()(argv)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            return ended.code if isinstance(ended.code, int) else 0
        _hush()
    except BrokenPipeError:
        _hush()
    except Unreachable as problem:
        output.complain(str(problem))
        return UNREACHABLE
    except (Refused, SplitplaneError) as problem:
        output.complain(_words(problem))
        return FAILED
    except OSError as problem:
        return _complain_of(problem)
    return 0


def _words(problem: "Refused | SplitplaneError") -> str:
    """Return an error without where it was in HTTP, which is for who wrote the request."""
    from controller.vrctl.client import Refused

    asked = isinstance(problem, Refused) and problem.kind == "InvalidRequest"
    return re.sub(r"^(body|path|query)\.", "", str(problem)) if asked else str(problem)


def _nothing(mode: str) -> TextIO:
    return cast(TextIO, open(os.devnull, mode, encoding="utf-8"))


def _speak_utf_8() -> None:
    """Read UTF-8, as documents are, in every locale; what cannot be written in this one is written as an escape."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _complain_of(problem: OSError) -> int:
    from controller.vrctl import output
    from controller.vrctl.shell import FAILED

    _hush()
    output.complain(f"{problem.filename or 'standard output'}: {problem.strerror}")
    return FAILED


def _hush() -> None:
    """Write what is left to nobody: who reads our output has seen enough, or has no room for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
