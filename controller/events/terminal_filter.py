"""What a guest writes to an operator's terminal, without what would do more there than draw.

Passed on: text, the controls of a typewriter, and the sequences of ECMA-48 and xterm that move the cursor, erase,
scroll and colour, and the modes that line editors and full-screen programs set. Not passed on: strings (OSC, DCS, APC
and the like, which set titles and the clipboard), what the terminal would answer as if the operator had typed it
(device attributes, reports, the answerback), what prints, resizes, programs keys or reports the mouse; 8-bit
controls; characters that are not printable, such as those that turn the direction of text.
"""

import codecs
import re

MAX_SEQUENCE, MAX_STRING = 64, 4096
"""Characters of a control sequence and of a string; what is longer is text from there on."""

_TYPEWRITER = frozenset("\a\b\t\n\v\f\r")
_FINALS = frozenset("@ABCDEFGHIJKLMPSTXZ`adefgmr")
_PARAMETERS = re.compile(r"[0-9;:]*")
_MODES = re.compile(r"4|\?(?:1|7|12|25|47|1047|1048|1049|2004)(?:;(?:1|7|12|25|47|1047|1048|1049|2004))*")
_ALONE = frozenset("78DEHM=>")
_CHARACTER_SETS = frozenset(("(0", "(B", ")0", ")B"))
_STRINGS = frozenset("]PX^_")
_ENDS = frozenset("\a\x18\x1a\x9c")

_ON = frozenset(("?7", "?25"))
"""Modes that a terminal has without being told: lines wrap, the cursor is seen."""


class TerminalFilter:
    """Filters one stream of octets in UTF-8, however it is cut."""

    def __init__(self) -> None:
        self.dropped = 0  # control characters and sequences that were not passed on
        self._modes: dict[str, bool] = {}  # as last set: "4", "?25", …
        self._undo: dict[str, str] = {}  # by what it undoes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""  # a sequence that is not whole, from its ESC on
        self._string: int | None = None  # how much of a string was skipped; None: not in one

    def feed(self, octets: bytes) -> bytes:
        """Return what is passed on of the next octets."""
        shown: list[str] = []
        for character in self._decoder.decode(octets):
            if self._string is not None:
                self._skip(character)
            elif self._pending:
                self._pending += character
                self._look(shown)
            elif character == "\x1b":
                self._pending = character
            elif character in _TYPEWRITER or character.isprintable():
                shown.append(character)
            else:
                self.dropped += 1
        return "".join(shown).encode()

    @property
    def restoring(self) -> bytes:
        """What puts back what was passed on and outlasts its program: modes, colours, the region that scrolls."""
        modes = (
            f"\x1b[{name}{'h' if name in _ON else 'l'}" for name, on in self._modes.items() if on != (name in _ON)
        )
        return "".join((*modes, *self._undo.values())).encode()

    def _skip(self, character: str) -> None:
        assert self._string is not None
        self._string += 1
        if character in _ENDS or self._string > MAX_STRING:
            self._string = None
        elif character == "\x1b":  # of ESC \, or of the next sequence
            self._string, self._pending = None, character

    def _look(self, shown: list[str]) -> None:
        """Decide on a sequence once it is whole."""
        begun, last = self._pending[1], self._pending[-1]
        if last in "\x18\x1a":  # cancelled
            self._end(False, shown)
        elif last == "\x1b":
            self.dropped += 1
            self._pending = last
        elif begun == "[":
            if len(self._pending) > 2 and "@" <= last <= "~":
                self._end(self._admits(self._pending[2:-1], last), shown)
            elif len(self._pending) > MAX_SEQUENCE or (len(self._pending) > 2 and not " " <= last <= "?"):
                self._end(False, shown)
        elif begun in _STRINGS:
            self._end(False, shown)
            self._string = 0
        elif " " <= last <= "/" and len(self._pending) < 4:
            pass  # an intermediate character: one more comes
        else:
            known = self._pending[1:]
            if known == "\\":
                self.dropped -= 1  # the end of a string that was counted
            self._end(known in _ALONE or known in _CHARACTER_SETS, shown)

    def _admits(self, parameters: str, final: str) -> bool:
        if final in "hl":
            return _MODES.fullmatch(parameters) is not None
        return final in _FINALS and _PARAMETERS.fullmatch(parameters) is not None

    def _end(self, admitted: bool, shown: list[str]) -> None:
        if admitted:
            shown.append(self._pending)
            self._note(self._pending[1:])
        else:
            self.dropped += 1
        self._pending = ""

    def _note(self, sequence: str) -> None:
        """Remember what a sequence that is passed on leaves behind."""
        final = sequence[-1]
        if sequence[0] != "[":
            undo = {"=": "\x1b>", "(0": "\x1b(B", ")0": "\x1b)B"}.get(sequence)
            if undo is not None:
                self._undo[undo] = undo
        elif final in "hl":
            numbers = sequence[1:-1].removeprefix("?").split(";")
            private = "?" if sequence[1] == "?" else ""
            self._modes.update((private + number, final == "h") for number in numbers)
        elif final == "m":
            self._undo["m"] = "\x1b[m"
        elif final == "r":
            self._undo["r"] = "\x1b7\x1b[r\x1b8"  # it moves the cursor


def shown_lines(octets: bytes) -> str:
    """Return whole lines of a log that a guest may have written: each character printable, the ends of lines kept."""
    lines = octets.decode(errors="replace").replace("\r\n", "\n").split("\n")
    return "\n".join("".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in lines)
