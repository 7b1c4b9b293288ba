"""FRR's configuration text: which daemons it asks for, what is added to it, and whether FRR's grammar takes it."""

import asyncio
import os
import re
from pathlib import Path

from controller.errors import GuestError

BINARIES = Path("/usr/lib/frr")
VTYSH = "/usr/bin/vtysh"
SETPRIV = "/usr/bin/setpriv"
FPM_LINE = "fpm address 127.0.0.1"
"""As `show running-config` writes it: any other spelling would make each reload reconnect, and so replay, FPM."""

NEXTHOP_KEEP_LINE = "zebra nexthop-group keep 1"
"""FRR 8.4 does not see that the kernel takes a member out of a nexthop group when its link goes down.

When the link is back it uses that group again, and the kernel lacks a path, unless FRR has forgotten the group in
between: by default after 180 s.
"""

MAX_TEXT_BYTES = 1 << 20
CHECK_LIMIT_S = 30.0
_NOBODY = "65534"

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
    "pimd": r"ip (pim|igmp|msdp)\b",
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
    re.compile(r"do\b"): "a configuration holds no commands to execute",
    re.compile(r"router ospf \d"): "several OSPF instances are not supported",
    re.compile(r"(no )?service integrated-vtysh-config\b"): "the configuration is always integrated",
}
_OBJECTION = re.compile(r"line (\d+): % ([^\[]+)\[\d+\]: (.*)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def daemons_for(text: str) -> tuple[str, ...]:
    """Return the daemons that a configuration asks for, zebra and staticd always and first."""
    lines = [line for line in _lines(text) if line and line[0] not in "!#"]
    asked = (name for name, pattern in _DAEMONS.items() if any(pattern.match(line) for line in lines))
    return ("zebra", "staticd", *asked)


def compose(text: str, hostname: str, fpm: bool) -> str:
    """Return the whole frr.conf: the operator's text, so that line numbers are theirs, then what Splitplane adds."""
    added = [] if any(line.startswith("hostname ") for line in _lines(text)) else [f"hostname {hostname}"]
    if not any(line.startswith("zebra nexthop-group keep ") for line in _lines(text)):
        added.append(NEXTHOP_KEEP_LINE)
    if fpm:
        added.append(FPM_LINE)
    return "\n".join([text.rstrip("\n"), "!", *added, "!", ""])


def refuse_foreign(router: str, text: str) -> None:
    """Raise GuestError, with the line, for what FRR would take and Splitplane does not."""
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        raise GuestError(f"{router}: the FRR configuration is longer than {MAX_TEXT_BYTES >> 20} MiB")
    for number, line in enumerate(text.splitlines(), 1):
        if _CONTROL.search(line):
            raise GuestError(f"{router}: frr line {number}: control character")
        squeezed = " ".join(line.split())
        for pattern, reason in _REFUSED.items():
            if pattern.match(squeezed):
                raise GuestError(f"{router}: frr line {number}: {reason}: {squeezed}")


async def check(router: str, text: str) -> None:
    """Raise GuestError, with the line, where FRR's grammar does not take a configuration; nothing is changed.

    This is vtysh's own dry run. It knows every command of every daemon, but not what a daemon refuses when it sees
    the rest of its configuration (a neighbor without remote-as); that shows when the text is loaded.
    """
    refuse_foreign(router, text)
    require_installed(("zebra",))
    # vtysh parses a text of somebody else's here: as nobody, without a capability, in an empty environment.
    file = os.memfd_create("frr.conf")
    argv = [
        *(SETPRIV, "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups", "--no-new-privs"),
        *("--bounding-set", "-all", "--inh-caps", "-all"),
        *(VTYSH, "--config_dir", "/nonexistent", "--dryrun", "--inputfile", f"/proc/self/fd/{file}"),
    ]
    try:
        os.write(file, text.encode() + b"\n")
        os.fchmod(file, 0o644)
        status, output = await _run(argv, file)
    except TimeoutError as error:
        raise GuestError(f"{router}: vtysh did not check the FRR configuration in {CHECK_LIMIT_S:.0f} s") from error
    finally:
        os.close(file)
    if status:
        raise GuestError(f"{router}: frr {_objection(output)}")


async def _run(argv: list[str], passed: int) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        cwd="/",
        pass_fds=(passed,),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output.decode(errors="replace")


def _objection(output: str) -> str:
    found = _OBJECTION.findall(output)
    if not found:
        return f"configuration: {output.strip().splitlines()[-1] if output.strip() else 'refused by vtysh'}"
    number, reason, command = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"line {number}: {reason.strip().lower()}: {command.strip()}{more}"


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
