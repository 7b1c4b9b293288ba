"""Claims about a running topology: each returns its evidence or is refuted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from lab.network import NetworkError
from lab.topology import Lab, Progress, spinner


class Refuted(Exception):
    """A claim does not hold; one line that says what was seen instead."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that must hold, with what shows it."""

    title: str
    prove: Callable[[Lab, Progress], list[str]]  # the evidence, in lines; Refuted where there is none


def expect(holds: bool, seen: str) -> None:
    """Refute the claim being proved, with what was seen, unless ``holds``."""
    if not holds:
        raise Refuted(seen)


def verdict(claim: Claim, lab: Lab, progress: Progress) -> tuple[bool, list[str]]:
    """Prove a claim; a part of the network that does not answer refutes it as well."""
    try:
        return True, claim.prove(lab, progress)
    except Refuted as reason:
        return False, [str(reason), *lab.happened()]
    except NetworkError as reason:
        return False, [str(reason), *reason.last_lines()]


def run_checks(lab: Lab, claims: Iterable[Claim], console: Console) -> bool:
    """Prove claims one after the other, with one line each; True when all hold."""
    every = True
    for claim in claims:
        with spinner(console, claim.title) as progress:
            held, evidence = verdict(claim, lab, progress)
        mark = "[green]ok  [/green]" if held else "[red]FAIL[/red]"
        shown = escape(("; " if held else "\n").join(evidence))
        console.print(f"{mark} {escape(claim.title)}: {shown}", soft_wrap=True, highlight=False)
        every = every and held
    return every
