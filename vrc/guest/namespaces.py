"""The namespaces of a guest, and the ids of its user namespace.

A guest has 65,536 users and groups, which on the host are a range of its own (controller/guests/users.py): its root
is nobody there, owns no file of the host, and is no user of another guest. One more is the same number inside and
outside: the VRC's, by which the controller knows who connects to the session socket.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from vrc.guest.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    EnclosureError,
    become_user,
    close_to_others,
    setns,
    unshare,
)

IDS = 0x10000
"""How many users, and groups, a guest has."""
_MAPS = ("uid_map", "gid_map")
_MAX_ID = (1 << 32) - 2  # (uid_t) -1 is no user


@dataclass(frozen=True, slots=True)
class GuestIds:
    """Which users and groups of the host those of a guest are."""

    base: int  # root of the guest
    vrc: int

    def __post_init__(self) -> None:
        if not (0 < self.base <= _MAX_ID - IDS and IDS <= self.vrc <= _MAX_ID):
            raise ValueError(f"ids from {self.base} on and {self.vrc} are none of a guest")

    @property
    def mapping(self) -> str:
        """The text for uid_map and gid_map (user_namespaces(7))."""
        return f"0 {self.base} {IDS}\n{self.vrc} {self.vrc} 1\n"

    def on_host(self, inside: int) -> int:
        """Return what a user or group of the guest is on the host; ValueError where the guest has none such."""
        if not 0 <= inside < IDS:
            raise ValueError(f"a guest has the ids 0 to {IDS - 1}, not {inside}")
        return self.base + inside


@contextlib.contextmanager
def other_network() -> Iterator[int]:
    """Be in a new network namespace for a while; yields a descriptor of the one left. EnclosureError.

    RuntimeError where there is no way back, which nobody should catch.
    """
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNET)
        try:
            yield own
        finally:
            try:
                setns(own, CLONE_NEWNET)
            except EnclosureError as error:
                raise RuntimeError(str(error)) from error
    finally:
        os.close(own)


def leave_users_and_network(ids: GuestIds) -> None:
    """As pid 1: have new user, network, ipc and uts namespaces. Ids are mapped by somebody outside (`map_ids`).

    What the kernel counts by user (/proc/sys/user, queued signals and messages) it counts for the user who makes a
    user namespace, too. That is the guest's own root: as the host's, one guest could use up what is all others'.
    """
    try:
        become_user(ids.on_host(0))
        unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
    except EnclosureError as error:
        remedy = "raise user.max_user_namespaces, or give the router a guest of kind kvm"
        raise EnclosureError(f"no user namespace: {error}; {remedy}") from error


def require_ids(ids: GuestIds) -> None:
    """EnclosureError where this process, in a container, does not have the ids itself that are to be the guest's."""
    for name in _MAPS:
        with open(f"/proc/self/{name}") as file:
            here = file.read()
        if not (has_ids(here, ids.base, IDS) and has_ids(here, ids.vrc, 1)):
            what = f"this container has not the ids from {ids.base} on and {ids.vrc} to give"
            raise EnclosureError(f"{what}; map them into it, or give the router a guest of kind kvm")


def has_ids(mapping: str, first: int, count: int) -> bool:
    """Tell whether one line of a uid_map or gid_map (user_namespaces(7)) has all of a range."""
    lines = [list(map(int, line.split())) for line in mapping.splitlines()]
    return any(inside <= first and first + count <= inside + length for inside, _, length in lines)


def map_ids(pid: int, ids: GuestIds) -> None:
    """Give a process's new user namespace its ids."""
    for name in _MAPS:
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(ids.mapping)


def enter_network(pid: int) -> None:
    """Enter the network namespace of a process."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(fd, CLONE_NEWNET)
    finally:
        os.close(fd)


def become_root() -> None:
    """As pid 1, with its ids mapped: have a mount namespace that is the guest's, and be its root.

    The mounts of that namespace come from one with more privileges, so they are locked (mount_namespaces(7)): not
    even a process with CAP_SYS_ADMIN in the guest lifts them. Nobody of the guest may look into this process: it has
    descriptors of files that are the host's (ptrace(2), "Ptrace access mode checking").
    """
    unshare(CLONE_NEWNS)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    close_to_others()
