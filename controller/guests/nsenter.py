"""The command that enters namespaces and runs another one there, so that the terminal's keys are that one's alone.

nsenter stays as the parent, because only its child is in the other PID namespace. It ignores the terminal's signals:
otherwise Ctrl-C would end it, and its child and the shell would both read from the terminal.
"""

from collections.abc import Sequence

_ENV, _NSENTER = "/usr/bin/env", "/usr/bin/nsenter"
_KEYS = "INT,QUIT"


def entering(pid: int, flags: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` in those namespaces of a process which nsenter's ``flags`` name."""
    return [
        *(_ENV, f"--ignore-signal={_KEYS}", _NSENTER, "--target", str(pid), *flags, "--"),
        *(_ENV, f"--default-signal={_KEYS}", "--", *argv),
    ]
