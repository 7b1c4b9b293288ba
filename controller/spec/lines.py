"""YAML text to plain values, and the line on which each of them stands.

ruamel.yaml parses into nodes; the nodes are turned into values here, because the file comes from outside: duplicate
keys are errors, and aliases may not multiply a small file into a big one.
"""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from controller.errors import SpecError

MAX_SIZE_BYTES = 1 << 20
MAX_NODES = 200_000
MAX_DEPTH = 32

Path = tuple[str | int, ...]
Lines = dict[Path, int]

_REMEDIES = {
    "'\\t' that cannot start any token": "use spaces, not tabs",
    "mapping values are not allowed here": "look there and above for a ':' without a space after it, "
    "or a line that is indented too far",
    "expected <block end>": "indent it as those beside it",
}
"""What to do about what ruamel says, by a part of its words."""

_SURROGATE = re.compile("[\\ud800-\\udfff]")


def check_characters(text: str, source: str, line: int | None) -> None:
    """SpecError where half of a surrogate pair is in a text: YAML and JSON can write it, and no file can hold it."""
    if (found := _SURROGATE.search(text)) is not None:
        raise SpecError(source, line, f"character U+{ord(found[0]):04X} is not allowed")


def shortened(value: object) -> str:
    """Return a value as Python writes it, or the beginning of that."""
    return beginning(repr(value))


def beginning(text: str) -> str:
    """Return a text that is short enough for a message, which is one line, or as much of it."""
    return text if len(text) <= 60 else text[:57] + "…"


class _Values:
    """Builds values from nodes and remembers lines."""

    def __init__(self, source: str, constructor: SafeConstructor) -> None:
        self.source, self.constructor = source, constructor
        self.lines: Lines = {}
        self.count = 0

    def build(self, node: Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.count += 1
        if self.count > MAX_NODES:
            raise SpecError(self.source, line, f"more than {MAX_NODES} values; split the file")
        if len(path) > MAX_DEPTH:
            raise SpecError(self.source, line, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                raise SpecError(self.source, line, "a key must be a plain word")
            key = str(key_node.value)
            check_characters(key, self.source, line)
            if key == "<<":
                raise SpecError(self.source, line, "merge keys (<<) are not supported; write out what they bring")
            if key in values:
                raise SpecError(self.source, line, f"key {shortened(key)} appears twice; keep one")
            self.lines[(*path, key)] = line
            values[key] = self.build(value_node, (*path, key))
        return values

    def _scalar(self, node: Node) -> Any:
        check_characters(node.value, self.source, node.start_mark.line + 1)
        try:
            return self.constructor.construct_object(node)
        except LookupError:  # ruamel's own, of a value that its tag does not have
            line = node.start_mark.line + 1
            raise SpecError(self.source, line, f"{shortened(node.value)} cannot be read as {node.tag}") from None
        except (ValueError, MarkedYAMLError) as problem:
            text = problem.problem if isinstance(problem, MarkedYAMLError) else problem
            line = node.start_mark.line + 1
            raise SpecError(self.source, line, f"{shortened(node.value)} cannot be read: {text}") from None


def load(text: str, source: str) -> tuple[list[Any], list[Lines]]:
    """Return the values of every document in ``text`` and their lines by path; SpecError names the line."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SIZE_BYTES:
        raise SpecError(source, None, f"larger than {MAX_SIZE_BYTES >> 20} MiB; split the file")
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # YAML lets an anchor be given anew
    documents: list[Any] = []
    lines: list[Lines] = []
    try:
        for node in yaml.compose_all(text):
            values = _Values(source, yaml.constructor)
            documents.append(None if node is None else values.build(node, ()))
            lines.append(values.lines)
    except RecursionError:
        raise SpecError(source, None, f"nested more than {MAX_DEPTH} levels deep") from None
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise SpecError(source, mark.line + 1 if mark else None, f"not YAML: {_words_of(problem)}") from None
    except ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise SpecError(source, line, f"not YAML: character U+{problem.character:04X} is not allowed") from None
    except YAMLError as problem:
        raise SpecError(source, None, f"not YAML: {' '.join(str(problem).split())}") from None
    return documents, lines


def _words_of(problem: MarkedYAMLError) -> str:
    """Return what is wrong, since which line where it only shows further down, and what to do where that is known."""
    words = " ".join(part for part in (problem.context, problem.problem) if part)
    begin, end = problem.context_mark, problem.problem_mark
    since = f" (it begins on line {begin.line + 1})" if begin and end and begin.line < end.line else ""
    remedy = next((f"; {remedy}" for part, remedy in _REMEDIES.items() if part in words), "")
    return f"{words}{since}{remedy}"
