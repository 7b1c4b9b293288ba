"""Every error the controller raises on purpose.

SplitplaneError                 one line for the operator: names the thing and the remedy
├── SpecError                   the YAML is wrong: file, line, what
├── Conflict                    a name, port, VLAN or id is taken, or still in use
├── NoSuch                      a tenant, router, interface, plane or port that does not exist
├── PlaneError
│   └── PlaneUnreachable        not connected, or it stopped answering
├── GuestError                  a guest cannot be started, or a program it needs is missing
├── SessionRefused              a VRC said something that is not its to say
└── StoreError                  the state directory cannot be used
"""


class SplitplaneError(Exception):
    """Base of the tree; ``str()`` is the one line shown to the operator."""


class SpecError(SplitplaneError):
    """A document that apply cannot take."""

    def __init__(self, source: str, line: int | None, problem: str) -> None:
        self.source, self.line, self.problem = source, line, problem
        place = source if line is None else f"{source}:{line}"
        words = f"{place}: {problem}"
        super().__init__("".join(c if c.isprintable() else "?" for c in words))  # it may quote what is no line


class Conflict(SplitplaneError):
    """Two things want the same name, port, VLAN or id."""


class NoSuch(SplitplaneError):
    """A thing of some kind does not exist."""

    def __init__(self, kind: str, name: str, remedy: str = "") -> None:
        self.kind, self.name = kind, name
        super().__init__(f"no {kind} {name!r}" + (f"; {remedy}" if remedy else ""))


class PlaneError(SplitplaneError):
    """A plane did not do what it was asked."""


class PlaneUnreachable(PlaneError):
    """The plane is not connected or stopped answering."""

    def __init__(self, plane: str, reason: str) -> None:
        self.plane, self.reason = plane, reason
        super().__init__(f"plane {plane} is not reachable: {reason}")


class GuestError(SplitplaneError):
    """A guest cannot run."""


class SessionRefused(SplitplaneError):
    """A VRC's message is refused; nothing of it was applied."""


class StoreError(SplitplaneError):
    """The state directory cannot be read or written."""
