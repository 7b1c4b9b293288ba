"""The privileges nobody in a guest needs."""

import os

from vrc.guest.kernel import PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, EnclosureError, prctl

# What the supervisor and its children use; everything else leaves the bounding set.
_CAPABILITIES_KEPT = frozenset({0, 1, 3, 5, 6, 7, 8, 10, 12, 13, 21})
# chown, dac_override, fowner, kill, setgid, setuid, setpcap, net_bind_service, net_admin, net_raw, sys_admin


def give_up_privileges() -> None:
    """Drop from the bounding set what nobody in the guest needs, and forbid gaining privileges by exec."""
    for capability in range(64):
        if capability in _CAPABILITIES_KEPT:
            continue
        if not prctl(PR_CAPBSET_DROP, capability):
            break  # past the last capability this kernel knows
    if not prctl(PR_SET_NO_NEW_PRIVS, 1):
        raise EnclosureError("no_new_privs: refused")


def become_batch_work() -> None:
    """Be scheduled as guests are.

    The controller may run at a better priority than others (docs/bench.md), which guests do not inherit. They are
    batch work (sched(7)): one that wakes does not interrupt who runs, so daemons that hand routes on to each other
    do so in larger pieces.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
