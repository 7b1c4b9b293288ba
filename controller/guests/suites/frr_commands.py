"""The commands of FRR as vtysh lists them, and the words of a text that are cut short.

FRR reads `ro bgp 1` as `router bgp 1`. Whoever compares texts does not: no daemon is started for it, and with each
change of a text frr-reload.py deletes the running `router bgp 1`, which it does not find there.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

LIST = "find ."
"""The command that lists all commands of all contexts, also where the configuration is read."""

_LISTED = re.compile(r"  \([^)]*\)  (.+)")
_NOT_CONFIGURED = ("  (view)", "  (enable)")
_WORDS = r"[^][<>{} ]+"
_WORD = r"\([^() ]+\)|[^][<>{}() ]+"
_STEP = re.compile(rf"(?:<({_WORDS})>|!?\[({_WORDS})\]|({_WORD})(?=[ (]|$)) *")
# Spaces lack in `<ip|ipv6>nhrp` and in `startup-delay(0-3600)`.
_KEYWORD = re.compile(r"[a-z]")  # values are in capitals, such as WORD, or a range: (1-255)
_VALUE, _NUMBER = "", "("
_WRITTEN = ("debug eigrp packet", "install allow-broken-lsp")
"""What FRR itself writes, by `show running-config`, with a last word that is cut short."""


class Commands:
    """The beginnings of all commands, a word at a time, as far as they are plain words and values."""

    def __init__(self) -> None:
        self._next: dict[str, Commands] = {}
        self._open = False  # what follows is not known here

    def add(self, command: str) -> None:
        """Take in a command as FRR writes it: `[no] neighbor <A.B.C.D|WORD> bfd`."""
        ends, at = [self], 0
        while at < len(command):
            step = _STEP.match(command, at)
            if step is None or step[0].rstrip().endswith("..."):
                for end in ends:
                    end._open = True
                return
            one_of, optional, word = step.groups()
            keys = {_key(form) for form in (one_of or optional or word).split("|")}
            after = [end._next.setdefault(key, Commands()) for end in ends for key in keys]
            ends = [*ends, *after] if optional else after
            at = step.end()

    def _cut_short(self, words: list[str]) -> str:
        ends = [self]
        for word in words:
            keys = (word, _VALUE, _NUMBER) if word.isdecimal() else (word, _VALUE)
            known = [end._next[key] for end in ends for key in keys if key in end._next]
            if known:
                ends = known
            elif any(end._open for end in ends):
                return ""
            else:
                return word if any(key.startswith(word) for end in ends for key in end._next) else ""
        return ""

    def find_cut_short(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Walk over the lines of a text, which FRR takes, that have such a word: number, word and line."""
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split()
            if words and words[0][0] not in "!#" and (word := self._cut_short(words)):
                yield number, word, " ".join(words)


def _key(form: str) -> str:
    if _KEYWORD.search(form):
        return form
    return _NUMBER if form.startswith(_NUMBER) else _VALUE


def split(output: str) -> tuple[frozenset[str], str]:
    """Return the commands in what vtysh prints where LIST is run, and whatever else it says."""
    lines = output.splitlines()
    listed = {line: found[1] for line in lines if (found := _LISTED.fullmatch(line))}
    commands = frozenset(command for line, command in listed.items() if not line.startswith(_NOT_CONFIGURED))
    return commands, "\n".join(line for line in lines if line not in listed)


@lru_cache(maxsize=1)
def parse(listed: frozenset[str]) -> Commands:
    """Take commands as FRR writes them."""
    commands = Commands()
    for command in (*listed, *_WRITTEN):
        commands.add(command)
    return commands
