"""Every test that docs/security.md names for a promise is there, and every promise names one."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text()
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = sorted(set(_NAMED.findall(TEXT)))


def names_of(path: Path) -> set[str]:
    """Return the names of a file's tests."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)}


def test_some_are_named() -> None:
    assert len(NAMED) > 50
    assert TEXT.count("`tests/") == len(_NAMED.findall(TEXT))  # none is spelled in another way


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_is_there(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in names_of(ROOT / file)


def test_each_promise_is_followed_by_its_tests() -> None:
    promises, _, _ = TEXT.partition("## What is not promised")
    sections = promises.split("\n## ")[1:]
    assert len(sections) == 4
    for section in sections:
        assert _NAMED.search(section), section.splitlines()[0]
        for promise in re.split(r"^(?=\*\*)", section, flags=re.MULTILINE)[1:]:
            assert _NAMED.search(promise), promise.splitlines()[0]
