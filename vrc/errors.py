"""Every error the VRC raises on purpose.

VrcError                        one line for the log: names the thing and the remedy
├── BadIdentity                 certificate, key or CA cannot be read
├── FramesLost                  the connection of frames ended, and the session with it
├── MalformedNetlink            bytes that are no rtnetlink message
│   └── MalformedFrame          bytes that are no FPM frame: the connection is lost with them
├── KernelRefused               the kernel answered a netlink request with an errno
├── DumpInterrupted             the kernel's table changed while it was dumped: ask again
└── TapError                    a TAP cannot be opened or set up
"""

import os


class VrcError(Exception):
    """Base of the tree; ``str()`` is one line."""


class BadIdentity(VrcError):
    """The files that say who this router is cannot be used."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"identity {path}: {problem}; the controller issues it when the router is created")


class FramesLost(VrcError):
    """The connection of frames ended."""


class MalformedNetlink(VrcError):
    """Bytes that do not decode as rtnetlink."""


class MalformedFrame(MalformedNetlink):
    """Bytes that are no FPM frame; where the next one starts is unknown."""


class KernelRefused(VrcError):
    """The kernel refused a netlink request."""

    def __init__(self, what: str, errno: int) -> None:
        self.what, self.errno = what, errno
        super().__init__(f"{what}: {os.strerror(errno)}")


class DumpInterrupted(VrcError):
    """A dump is not a consistent picture (NLM_F_DUMP_INTR)."""


class TapError(VrcError):
    """A TAP interface cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"TAP {name}: {problem}")
