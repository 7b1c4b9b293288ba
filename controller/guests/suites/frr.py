"""FRR's configuration text: which daemons it asks for, what is added to it, and whether FRR's grammar takes it."""

import grp
import pwd
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests.base import GuestSpec
from controller.guests.suites import frr_commands
from controller.guests.suites.config_text import CHECK_LIMIT_S, FILE, dry_run, refuse_unfit
from controller.guests.suites.taken_texts import TakenTexts, identity
from controller.model import RouteSource

ETC, RUN, LOGS = "/etc/frr", "/run/frr", "/var/log/frr"
BINARIES = Path("/usr/lib/frr")
VTYSH = "/usr/bin/vtysh"
FPM_LINE = "fpm address 127.0.0.1"
"""As `show running-config` writes it: any other spelling would make each reload reconnect, and so replay, FPM."""

NEXTHOP_KEEP_LINE = "zebra nexthop-group keep 1"
"""FRR 8.4 does not see that the kernel takes a member out of a nexthop group when its link goes down.

When the link is back it uses that group again, and the kernel lacks a path, unless FRR has forgotten the group in
between: by default after 180 s.
"""

# What makes a daemon needed, matched at the start of a line whatever its context. Too many is harmless, too few not.
_ASKS_FOR = {
    "bgpd": r"router bgp\b|rpki\b",
    "ospfd": r"router ospf\b|ip ospf\b",
    "ospf6d": r"router ospf6\b|ipv6 ospf6\b",
    "isisd": r"router isis\b|isis\b|ip router isis\b|ipv6 router isis\b",
    "ripd": r"router rip\b|ip rip\b",
    "ripngd": r"router ripng\b|ipv6 ripng\b",
    "eigrpd": r"router eigrp\b",
    "babeld": r"router babel\b|babel\b",
    "fabricd": r"router openfabric\b|openfabric\b|ip router openfabric\b|ipv6 router openfabric\b",
    "pimd": r"ip (pim|igmp|msdp)\b|router pim\b",
    "pim6d": r"ipv6 (pim|mld)\b|router pim6\b",
    "ldpd": r"mpls ldp\b",
    "nhrpd": r"ip nhrp\b|ipv6 nhrp\b|nhrp\b",
    "pbrd": r"pbr-map\b|pbr-policy\b",
    "vrrpd": r"vrrp\b",
    "pathd": r"segment-routing\b",
    "bfdd": r"bfd\b|(neighbor|ip|ipv6|isis)\b.*\bbfd\b",
}
_DAEMONS = {name: re.compile(pattern) for name, pattern in _ASKS_FOR.items()}

# Lines FRR would take and Splitplane does not.
_REFUSED = {
    re.compile(r"(no )?fpm\b"): "fpm is Splitplane's own; choose the route source with `source:`",
    re.compile(r"(do|find|list|show)\b"): "a configuration holds no commands to execute",
    # The dry run would make that file on the host; and vtysh takes it cut short, which shows after that only.
    re.compile(r"(no )?o(u|ut|utp|utpu|utput)? f(i|il|ile)?\b"): "what vtysh says goes to no file; leave it out",
    re.compile(r"router ospf \d"): "several OSPF instances are not supported",
    re.compile(r"no service integrated-vtysh-config\b"): "the configuration is always integrated",
}
TRIED = ((8, 4), (10, 3))
"""The versions of FRR that Splitplane's tests ran with, oldest first (docs/frr.md)."""

_HOSTNAME = re.compile(r"hostname \S")
_RELATIVE_LOG = re.compile(
    r"^([^\S\n]*log[^\S\n]+(?:filtered-)?file[^\S\n]+)(?:[^/\s]+/+)*([^/\s]+)(?=\s|$)", re.MULTILINE
)
# Packets that are gleaned go through the guest's kernel, which drops them by such a line: FRR writes it into the
# text of every host that is no router.
_NO_FORWARDING = r"no (?:ip|ipv6) forwarding"
# What there is no such file for in a guest, and where the text is checked. FRR calls that an unknown command.
_GREETING = r"banner motd file \S+"
# Zebra then says of its routes by FPM the ids of their nexthops, and never what these are.
_NO_NEXTHOPS = r"no zebra nexthop kernel enable|zebra nexthop proto only"
_BLANKS = r"[^\S\n]"


def _lines_with(commands: str) -> re.Pattern[str]:
    """Return what matches where a line begins that is one of these commands."""
    return re.compile(rf"^(?={_BLANKS}*(?:{commands}){_BLANKS}*$)".replace(" ", f"{_BLANKS}+"), re.MULTILINE)


_LEFT_OUT = {
    False: _lines_with(f"{_NO_FORWARDING}|{_GREETING}"),
    True: _lines_with(f"{_NO_FORWARDING}|{_GREETING}|{_NO_NEXTHOPS}"),
}
"""What becomes a comment, without and with FPM."""

_VERSION = re.compile(r"version (\d+\.\d+(?:\.\d+)?)")
_OBJECTION = re.compile(r"line (\d+): % ([^\[]+)\[\d+\]: (.*)")

_taken = TakenTexts()
_versions: dict[tuple[int, ...], tuple[int, ...]] = {}
"""Of the zebra that was asked last, by its identity."""


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.split("\n")]


def daemons_for(text: str) -> tuple[str, ...]:
    """Return the daemons that a configuration asks for, zebra and staticd always and first."""
    return ("zebra", "staticd", *_asked(text))


def _asked(text: str) -> dict[str, tuple[int, str]]:
    """Return the further daemons that a configuration asks for, each with the first line that does: number, text."""
    lines = [(number, line) for number, line in enumerate(_lines(text), 1) if line and line[0] not in "!#"]
    found = {name: next((at for at in lines if pattern.match(at[1])), None) for name, pattern in _DAEMONS.items()}
    return {name: at for name, at in found.items() if at is not None}


def hostname(text: str) -> str:
    """Return the name that a configuration gives its router; empty where it gives none."""
    return next((line.split()[1] for line in reversed(_lines(text)) if _HOSTNAME.match(line)), "")


@dataclass(frozen=True, slots=True)
class Composed:
    """A whole frr.conf, and how many lines of it come before the operator's."""

    text: str
    before: int


def compose(text: str, name: str, fpm: bool) -> Composed:
    """Return the whole frr.conf: what Splitplane adds, then the operator's text.

    In this order an `exit` or `end` too many of the operator's moves nothing of Splitplane's into another context. A
    relative log file goes where the daemons may write, without the folders that only the operator's router has. What
    would take forwarding from the guest's kernel, or nexthops from FPM, becomes a comment; so does a greeting in a
    file.
    """
    added = [] if hostname(text) else [f"hostname {name}"]
    if not any(line.startswith("zebra nexthop-group keep ") for line in _lines(text)):
        added.append(NEXTHOP_KEEP_LINE)
    if fpm:
        added.append(FPM_LINE)
    added.append("!")
    placed = _LEFT_OUT[fpm].sub("!", _RELATIVE_LOG.sub(rf"\1{LOGS}/\2", text.rstrip("\n")))
    return Composed("\n".join([*added, placed, ""]), len(added))


def refuse_foreign(router: str, text: str) -> None:
    """Raise GuestError, with the line, for what FRR would take and Splitplane does not."""
    refuse_unfit(router, "frr", text)
    for number, line in enumerate(text.split("\n"), 1):
        squeezed = " ".join(line.split())
        for pattern, reason in _REFUSED.items():
            if pattern.match(squeezed):
                raise GuestError(f"{router}: frr line {number}: {reason}: {squeezed}")


async def check(router: str, text: str) -> None:
    """Raise GuestError, with the line, where FRR's grammar does not take a configuration; nothing is changed.

    This is vtysh's own dry run of all that a guest would be given. It knows every command of every daemon, but not
    what a daemon refuses when it sees the rest of its configuration (a neighbor without remote-as); that shows when
    the text is loaded. It takes words that are cut short, so these are looked for here.
    """
    refuse_foreign(router, text)
    require_installed(("zebra",))
    key = _taken.key(VTYSH, text)
    if key in _taken:
        return
    whole = compose(text, "router", fpm=True)
    try:
        command = (VTYSH, "--config_dir", "/nonexistent", "--dryrun", "--inputfile", FILE)
        status, output = await dry_run(command, f"{frr_commands.LIST}\n{whole.text}")
    except TimeoutError as error:
        raise GuestError(f"{router}: vtysh did not check the FRR configuration in {CHECK_LIMIT_S:.0f} s") from error
    listed, said = frr_commands.split(output)
    if status:
        raise GuestError(f"{router}: frr {_objection(said, whole.before + 1)}{_hint(text)}")
    if found := next(frr_commands.parse(listed).find_cut_short(text), None):
        number, word, line = found
        raise GuestError(f"{router}: frr line {number}: `{word}` is cut short; write the whole word: {line}")
    _taken.add(key)


async def version() -> tuple[int, ...]:
    """Return the version of this host's FRR, such as (10, 3) or (8, 4, 4); empty where it does not tell."""
    program = BINARIES / "zebra"
    asked = identity(program)
    if asked not in _versions:
        try:
            _, output = await dry_run((str(program), "--version"), "")
        except TimeoutError:
            return ()
        if not (found := _VERSION.search(output)):
            return ()
        _versions.clear()  # whatever was there before
        _versions[asked] = tuple(map(int, found[1].split(".")))
    return _versions[asked]


async def remarks() -> list[str]:
    """Return a line where this host's FRR is of a version that was never tried."""
    found = await version()
    return remarks_on(".".join(map(str, found))) if found else []


def remarks_on(text: str) -> list[str]:
    """Return a line where a version of FRR ("10.3") was never tried."""
    tried = " and ".join(".".join(map(str, one)) for one in TRIED)
    numbers = tuple(map(int, text.split(".")[:2]))
    return [] if numbers in TRIED else [f"FRR {text} was never tried, only {tried}"]


def _objection(output: str, before: int) -> str:
    found = _OBJECTION.findall(output)
    if not found:
        return f"configuration: {output.strip().splitlines()[-1] if output.strip() else 'refused by vtysh'}"
    number, reason, command = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"line {int(number) - before}: {reason.strip().lower()}: {command.strip()}{more}"


def _hint(text: str) -> str:
    """Return what may be wrong with a text of one line: YAML joins lines that nothing says are a text."""
    return "; if these are several lines, write `frr: |` before them" if "\n" not in text.rstrip("\n") else ""


def require_installed(daemons: tuple[str, ...]) -> None:
    """Raise GuestError naming the first program of FRR that is missing."""
    for name in daemons:
        if not (BINARIES / name).exists():
            raise GuestError(f"FRR is not installed: {BINARIES / name} not found; apt-get install frr")
    if not Path(VTYSH).exists():
        raise GuestError(f"FRR is not installed: {VTYSH} not found; apt-get install frr")
    reload = BINARIES / "frr-reload.py"
    if not reload.exists():
        raise GuestError(f"FRR cannot reload: {reload} not found; apt-get install frr-pythontools")


def can_check() -> bool:
    """Tell whether this host has what `check` needs."""
    try:
        require_installed(("zebra",))
    except GuestError:
        return False
    return True


def require_programs(router: str, text: str) -> None:
    """Raise GuestError naming the first program missing here that a text asks for, and the line that does."""
    require_installed(("zebra", "staticd"))
    for name, (number, line) in _asked(text).items():
        if not (BINARIES / name).exists():
            missing = f"{name} is not installed ({BINARIES / name}; apt-get install frr)"
            raise GuestError(f"{router}: frr line {number}: {missing}: {line}")


def find_ids(_router: str, _text: str) -> list[int]:
    """Return the user, the group and the vty group of FRR on this host."""
    try:
        user = pwd.getpwnam("frr")
        return [user.pw_uid, user.pw_gid, grp.getgrnam("frrvty").gr_gid]
    except KeyError as error:
        raise GuestError(f"FRR is not installed: {error.args[0]}; apt-get install frr") from error


def section(spec: GuestSpec, name: str) -> dict[str, Any]:
    """Return what the guest's supervisor is told (vrc/guest/suites/frr.py)."""
    fpm = spec.source is RouteSource.FPM
    composed = compose(spec.routing.text, name, fpm)
    return {
        "text": composed.text,
        "lines_before": composed.before,
        "daemons": list(daemons_for(spec.routing.text)),
        "hold_time_s": spec.hold_time_s,
        "fpm": fpm,
    }
