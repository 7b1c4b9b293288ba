"""BIRD's configuration text: what is added to it, what is refused, and whether BIRD's parser takes it."""

import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests.base import GuestSpec
from controller.guests.suites.config_text import CHECK_LIMIT_S, FILE, dry_run, refuse_unfit
from controller.guests.suites.taken_texts import TakenTexts

ETC, RUN = "/etc/bird", "/run/bird"
BINARY = "/usr/sbin/bird"
LOG_LINE = "log stderr all;"

# Strings and comments, as BIRD's lexer has them.
_OPAQUE = re.compile(r'"[^"\n]*"|#[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_STATEMENT = r"(?:^|[;{}])\s*"
_REFUSED = {
    re.compile(r'\binclude\s*"'): "the text is the whole configuration; put what the file says here",
    re.compile(_STATEMENT + r"log\b(?!\s+stderr\b)"): f"a guest's log is its supervisor's; write `{LOG_LINE}`",
    re.compile(_STATEMENT + r'mrtdump\s*"'): "a guest has no place for dumps; leave it out",
    re.compile(r"\brouter\s+id\s+from\b"): "BIRD starts before its interfaces have addresses; give an address",
}
_ROUTER_ID = re.compile(_STATEMENT + r"router\s+id\b")
_LOG = re.compile(_STATEMENT + r"log\b")
_RESTART_WAIT = re.compile(_STATEMENT + r"graceful\s+restart\s+wait\b")
_KERNEL = re.compile(_STATEMENT + r"(?P<what>protocol|template)\s+kernel\b[^{};]*\{")
_DISABLED = re.compile(_STATEMENT + r"disabled\b(?!\s+(?:no|off|false)\b)")
_OBJECTION = re.compile(r"^bird: [^:]*:(?P<line>\d+):\d+ (?P<reason>.*)$", re.MULTILINE)

_taken = TakenTexts()


def bare(text: str) -> str:
    """Return the text without comments and what stands in strings, every line where it was."""

    def blank(match: re.Match[str]) -> str:
        return '""' if match[0].startswith('"') else " " + "\n" * match[0].count("\n")

    return _OPAQUE.sub(blank, text)


def disables_kernel(text: str) -> bool:
    """Tell whether a text wants a protocol down that would write BIRD's routes to the kernel."""
    uncommented, end = bare(text), 0
    for found in _KERNEL.finditer(uncommented):
        if found.end() <= end:  # inside of the one before, which has been looked at
            continue
        depth, end = 1, found.end()
        while depth and end < len(uncommented):
            depth += {"{": 1, "}": -1}.get(uncommented[end], 0)
            end += 1
        if _DISABLED.search(uncommented, found.end() - 1, end):
            return True
    return False


def kernel_protocols(text: str) -> int:
    """Return how many protocols of a text write to the kernel."""
    return sum(found["what"] == "protocol" for found in _KERNEL.finditer(bare(text)))


def compose(text: str, hold_time_s: int) -> str:
    """Return the whole bird.conf: the operator's text, so that line numbers are theirs, then what Splitplane adds.

    A BIRD that was killed leaves the kernel's routes alone for the hold time at most, where `protocol kernel` takes
    part in graceful restart (vrc/guest/suites/bird.py).
    """
    stripped = bare(text)
    added = [] if _LOG.search(stripped) else [LOG_LINE]
    if not _RESTART_WAIT.search(stripped):
        added.append(f"graceful restart wait {hold_time_s};")
    return "\n".join([text.rstrip("\n"), *added, ""])


def _foreign(bare: str) -> Iterator[tuple[int, str]]:
    """Walk over what is refused: its place and why."""
    for pattern, reason in _REFUSED.items():
        for found in pattern.finditer(bare):
            yield found.end() - 1, reason


def refuse_foreign(router: str, text: str) -> None:
    """Raise GuestError, with the line, for what BIRD would take and Splitplane does not."""
    refuse_unfit(router, "bird", text)
    stripped = bare(text)
    if found := min(_foreign(stripped), default=None):
        place, reason = found
        number = stripped.count("\n", 0, place) + 1
        raise GuestError(f"{router}: bird line {number}: {reason}: {_line(text, number)}")
    if not _ROUTER_ID.search(stripped):
        example = "add `router id 192.0.2.1;` or the like"
        raise GuestError(f"{router}: bird has no router id, and BIRD starts before its interfaces; {example}")


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return " ".join(lines[number - 1].split()) if 0 < number <= len(lines) else ""


def can_check() -> bool:
    """Tell whether this host has what `check` needs."""
    return Path(BINARY).exists()


async def check(router: str, text: str) -> None:
    """Raise GuestError, with the line, where BIRD's parser does not take a configuration; nothing is changed."""
    refuse_foreign(router, text)
    require_programs(router, text)
    key = _taken.key(BINARY, text)
    if key in _taken:
        return
    try:
        status, output = await dry_run((BINARY, "-d", "-p", "-c", FILE), compose(text, hold_time_s=1))
    except TimeoutError as error:
        raise GuestError(f"{router}: BIRD did not check its configuration in {CHECK_LIMIT_S:.0f} s") from error
    if status:
        raise GuestError(f"{router}: bird {_objection(output, text)}")
    _taken.add(key)


def _objection(output: str, text: str) -> str:
    found = _OBJECTION.search(output)
    if found is None:
        return f"configuration: {output.strip().splitlines()[-1] if output.strip() else 'refused by BIRD'}"
    number, reason = int(found["line"]), found["reason"].strip()
    command = _line(text, number)
    return f"line {number}: {reason}" + (f": {command}" if command else "")


async def remarks() -> list[str]:
    """Return nothing: its version does not matter."""
    return []


def require_programs(_router: str, _text: str) -> None:
    """Raise GuestError where BIRD is missing."""
    if not Path(BINARY).exists():
        raise GuestError(f"BIRD is not installed: {BINARY} not found; apt-get install bird2")


def find_ids(_router: str, _text: str) -> list[int]:
    """Return the user and the group of BIRD on this host."""
    try:
        user = pwd.getpwnam("bird")
    except KeyError as error:
        raise GuestError(f"BIRD is not installed: {error.args[0]}; apt-get install bird2") from error
    return [user.pw_uid, user.pw_gid]


def hostname(_text: str) -> str:
    """Return nothing: a text of this suite does not name its router."""
    return ""


def section(spec: GuestSpec, _name: str) -> dict[str, Any]:
    """Return what the guest's supervisor is told (vrc/guest/suites/bird.py)."""
    text = spec.routing.text
    return {
        "text": compose(text, spec.hold_time_s),
        "kernel_disabled": disables_kernel(text),
        "kernel_protocols": kernel_protocols(text),
    }
