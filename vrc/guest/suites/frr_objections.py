"""What vtysh and frr-reload.py object to in a text, in one line with its number there, and until when that holds."""

import re

# As vtysh says it, and as frr-reload.py does, which shows octets where vtysh has only checked the syntax.
_OBJECTION = re.compile(
    r"^(?:b')?line \d+: "
    r"(?:% (?P<syntax>[^\[:]+)(?:\[\d+\])?: |Failure to communicate\[\d+\] to (?P<daemon>\w+), line: )"
    r"(?P<command>.*?)(?:\\n.*)?$"
)
_NOISE = "vtysh_pam: Failed in account validation: Authentication failure(7)"


def refusals(before: dict[str, str], name: str, error: str) -> dict[str, str]:
    """Return what is refused after a load of one daemon's part of the text, or of all of it where ``name`` is empty.

    A daemon that starts again and takes its lines says nothing of those that another one refused.
    """
    kept = {of: why for of, why in before.items() if name and of != name and f"({name}): " not in why}
    return kept | ({name: error} if error else {})


def first_error(lines: list[str], text: str, before: int = 0) -> str:
    """Return in one line what vtysh or frr-reload.py objected to, with its line number in ``text`` but the first
    ``before`` lines.

    It names the daemon that refused the line; what vtysh objects to itself is the grammar. It is the objection that
    stands first in the text: from FRR 9 on daemons read it at the same time.
    """
    reason, objections = "", []
    for raw in lines:
        line = raw.replace(_NOISE, "").strip()
        if match := _OBJECTION.match(line):
            command = match["command"].strip()
            said = match["syntax"] or reason or "refused"
            why = f"{said} ({match['daemon']})" if match["daemon"] else said
            numbers = [number for number, given in enumerate(text.split("\n"), 1) if given.strip() == command]
            where = f"line {numbers[0] - before}: " if numbers and numbers[0] > before else ""
            objections.append((numbers[0] if numbers else len(text), f"{where}{why}: {command}"))
        elif line.startswith("%"):
            reason = line.lstrip("% ")
    if objections:
        return min(objections)[1]
    return reason or next((said for raw in lines if (said := raw.replace(_NOISE, "").strip())), "no reason given")
