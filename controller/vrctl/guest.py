"""Where vrctl runs a command of the controller's.

The controller says how it would run the command; it is run from here, inside the controller's own mount, network
and pid namespaces where those are not ours.
"""

import os

from controller.guests.nsenter import entering

_NAMESPACES = {"mnt": "--mount", "net": "--net", "pid": "--pid"}


def command_for(controller_pid: int, argv: list[str]) -> list[str]:
    """Return the command that runs the controller's ``argv`` from this process."""
    flags = [flag for name, flag in _NAMESPACES.items() if _differs(controller_pid, name)]
    if not flags:
        return argv
    return entering(controller_pid, flags, argv)


def _differs(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return True
