"""Users of the host that guests run as: which ids are whose, and commands that run as one of them.

    0x40000000 + N * 65,536 …      the 65,536 users and groups of the guest of router N: its root is the first
    0x70000000 + N                 the VRC of router N, which its session socket knows it by
    0x71000000 + N                 QEMU of router N

N is the router's vrf_id, 8,000 at most (controller/model.py), so the three do not meet. Neither Debian nor useradd
(SUB_UID_MAX) gives these ids out; systemd keeps the first of the three for containers, and systemd-nspawn looks
whether a range is free only where it picks one itself (systemd, UIDS-GIDS). Users and groups have the same numbers.
"""

from collections.abc import Sequence

SETPRIV = "/usr/bin/setpriv"

GUEST_ID_BASE, IDS_OF_A_GUEST = 0x40000000, 0x10000
VRC_UID_BASE = 0x70000000
MACHINE_UID_BASE = 0x71000000


def guest_id_base(vrf_id: int) -> int:
    """The user and group that root of a router's guest is on the host; the guest's others follow."""
    return GUEST_ID_BASE + vrf_id * IDS_OF_A_GUEST


def vrc_uid(vrf_id: int) -> int:
    """The user and group that the VRC of a router runs as, on the host and in its guest."""
    return VRC_UID_BASE + vrf_id


def machine_uid(vrf_id: int) -> int:
    """The user and group that the QEMU of a router runs as."""
    return MACHINE_UID_BASE + vrf_id


def as_user(uid: int, groups: Sequence[int], argv: Sequence[str]) -> list[str]:
    """Return a command that runs another one as a user without a capability, and without a way to any."""
    extra = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return [
        *(SETPRIV, "--reuid", str(uid), "--regid", str(uid), *extra, "--no-new-privs"),
        *("--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all", "--", *argv),
    ]
