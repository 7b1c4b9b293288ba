"""guest.json: what vr-guest (vrc/guest/supervisor.py) is started with, on this host or inside a machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controller.guests.base import GuestSpec
from controller.guests.suites.choice import SUITES, suite_of
from controller.guests.users import guest_id_base, vrc_uid
from controller.model import GuestKind

SESSION_IN_GUEST = "/run/splitplane/session"
IDENTITY_IN_GUEST = "/run/splitplane/identity"

START_LIMIT_S = {GuestKind.NETNS: 20.0, GuestKind.KVM: 60.0}
"""How long a daemon may take for its first answer before it is killed and started again.

An emulated machine on a busy host is some ten times slower: zebra was seen to take more than 20 s in one.
"""

JOB_LIMIT_S = {GuestKind.NETNS: 100.0, GuestKind.KVM: 250.0}
"""How long a program may take that gives daemons their text, before it is killed and the former text put back.

frr-reload.py was seen to be at work for more than 100 s in one of several emulated machines on two cores.
"""

RELOAD_LIMIT_S = {kind: limit_s + 20.0 for kind, limit_s in JOB_LIMIT_S.items()}
"""How long the controller waits for a guest to take a change."""

_MAX_HOSTNAME_BYTES = 64  # __NEW_UTS_LEN of Linux

Command = Callable[[GuestSpec, str], Sequence[str]]
"""Makes the VRC's command from the spec and the path of the Python interpreter inside the guest."""

Bind = tuple[str, str]
"""Where a directory lies, and where the guest sees it, read-only."""


def vrc_command(spec: GuestSpec, python: str) -> list[str]:
    """The command of Splitplane's own VRC."""
    return [
        *(python, "-s", "-P", "-m", "vrc.agent", "--router", spec.router, "--source", spec.source.value),
        *("--session", f"unix:{SESSION_IN_GUEST}/session.sock", "--identity", IDENTITY_IN_GUEST),
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a guest is to run: paths as they are there, on this host or inside a machine."""

    directory: str  # vr-guest's: of its log and its control socket
    session: str  # has session.sock
    identity: str
    code: tuple[Bind, ...]  # what the VRC needs besides, to be bind-mounted
    hidden: tuple[str, ...]  # directories that are to be empty
    app: str  # PYTHONPATH in the guest
    ids: list[int] | None  # of the suite: user, group, further groups; None where they are not known here


def guest_config(spec: GuestSpec, place: Place, argv: Sequence[str]) -> dict[str, Any]:
    """Return guest.json for a guest; ``argv`` is its VRC's command."""
    suite, hostname = SUITES[spec.routing.suite], hostname_of(spec)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
    environment |= {"PYTHONPATH": place.app, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "router": spec.router,
        "hostname": hostname,
        "directory": place.directory,
        "binds": [
            [place.session, SESSION_IN_GUEST],
            [place.identity, IDENTITY_IN_GUEST],
            *map(list, place.code),
        ],
        "folders": {"etc": suite.ETC, "run": suite.RUN},
        "id_base": guest_id_base(spec.vrf_id),
        "hidden": list(place.hidden),
        "interfaces": [
            {
                "name": interface.name,
                "mac": interface.mac.hex(),
                "mtu": interface.mtu,
                "addresses": list(interface.addresses),
                "admin_up": interface.admin_up,
            }
            for interface in spec.interfaces
        ],
        "vrc": {"uid": vrc_uid(spec.vrf_id), "argv": list(argv), "environment": environment},
        spec.routing.suite.value: {
            "ids": place.ids,
            "start_limit_s": START_LIMIT_S[spec.guest.kind],
            "job_limit_s": JOB_LIMIT_S[spec.guest.kind],
        }
        | suite.section(spec, hostname),
    }


def hostname_of(spec: GuestSpec) -> str:
    """The guest's own name of itself: what its text says, else the router's."""
    given = SUITES[spec.routing.suite].hostname(spec.routing.text)
    return (given or spec.router.replace("/", "-")).encode()[:_MAX_HOSTNAME_BYTES].decode(errors="ignore")


def enclosure_of(config: dict[str, Any]) -> list[Any]:
    """The part of guest.json that only a restart of the whole guest changes.

    A guest of a version that did not make its interfaces itself starts anew, too. One of a version whose folders were
    among its binds and whose ids were the host's runs on as it is until it ends.
    """
    suite = suite_of(config)
    places = (SUITES[suite].ETC, SUITES[suite].RUN)
    binds = [bind[:2] for bind in config.get("binds", ()) if bind[1] not in places]
    fields = [config.get(name) for name in ("router", "directory", "hidden")]
    return [*fields, binds, "interfaces" in config, config["vrc"]["uid"], suite, config[suite]["ids"]]


def section_changed(former: dict[str, Any] | None, config: dict[str, Any]) -> bool:
    """Tell whether the suite is to run with another text or other options, if there was a guest at all."""
    suite = suite_of(config)
    return former is None or former.get(suite) != config[suite]
