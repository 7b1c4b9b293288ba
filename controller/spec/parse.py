"""Text of apply to checked documents; every error is one line that names file and line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from controller.errors import SpecError
from controller.model import Routing, Suite
from controller.spec.document import (
    PATTERN_WORDS,
    CommandSection,
    Document,
    PlaneSection,
    RouterSection,
    TenantSection,
)
from controller.spec.lines import Lines, Path, beginning, load, shortened


class KeyProblem(Exception):
    """What is wrong with a key of a section."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True, slots=True)
class Parsed:
    """The documents of one file, each value checked on its own, and the lines they stand on."""

    source: str
    documents: tuple[Document, ...]
    lines: tuple[Lines, ...]

    def planes(self) -> Iterator[tuple[PlaneSection, "Place"]]:
        """Walk over the planes with their places."""
        for document, lines in zip(self.documents, self.lines, strict=True):
            for index, plane in enumerate(document.planes):
                yield plane, Place(lines, ("planes", index))

    def tenants(self) -> Iterator[tuple[TenantSection, "Place"]]:
        """Walk over the tenants with their places."""
        for document, lines in zip(self.documents, self.lines, strict=True):
            for index, tenant in enumerate(document.tenants):
                yield tenant, Place(lines, ("tenants", index))

    def error(self, line: int | None, problem: str) -> SpecError:
        """Return the error to raise for something wrong on a line."""
        return SpecError(self.source, line, problem)

    def text_files(self) -> Iterator[tuple[str, str, int | None]]:
        """Walk over the files of suites' texts that the documents name: key, name and line."""
        for tenant, place in self.tenants():
            for index, router in enumerate(tenant.routers):
                for key in router.texts:
                    if key.endswith("_file"):
                        yield key, getattr(router, key), place.line("routers", index, key)


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a document that knows the lines of what is in it."""

    lines: Lines
    path: Path

    def line(self, *path: str | int) -> int | None:
        """Return the line of something inside, or of the nearest thing around it."""
        return nearest_line(self.lines, self.path + path)


def nearest_line(lines: Lines, path: Path) -> int | None:
    """Return the line of the innermost part of ``path`` that has one."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def parse(text: str, source: str) -> Parsed:
    """Parse and check the documents of one file; SpecError names the first thing that is wrong."""
    values, lines = load(text, source)
    kept = [(value, place) for value, place in zip(values, lines, strict=True) if value is not None]
    if not kept:
        raise SpecError(source, None, "the file is empty; a document starts with 'version: 1'")
    documents = tuple(_validate(value, place, source) for value, place in kept)
    return Parsed(source, documents, tuple(place for _, place in kept))


def _validate(value: Any, lines: Lines, source: str) -> Document:
    if not isinstance(value, dict):
        raise SpecError(source, lines.get(()), "a document is a mapping that starts with 'version: 1'")
    try:
        return Document.model_validate(value)
    except ValidationError as problems:
        found = [_Problem(problem, lines) for problem in problems.errors(include_url=False)]
    misspelt = {problem.loc[:-1] for problem in found if problem.kind == "extra_forbidden"}  # says more than a lack
    found = [problem for problem in found if problem.kind != "missing" or problem.loc[:-1] not in misspelt]
    around = {problem.loc[:depth] for problem in found for depth in range(len(problem.loc))}
    found = [problem for problem in found if problem.loc not in around]  # of a union, where another one came further
    first = min(found, key=lambda problem: (problem.line or 0, problem.rank))
    wanted = [problem.wanted for problem in found if problem.loc == first.loc and problem.wanted]
    words = " or ".join(dict.fromkeys(wanted)) if first.wanted else ""  # of a union each alternative complains
    raise SpecError(source, first.line, first.text + words)


_WANTED = {"model_type": "a mapping", "dict_type": "a mapping", "int_parsing_size": "a smaller number"}
"""Of some complaints, where pydantic's own words name the class, or Python's word."""


class _Problem:
    """One of pydantic's complaints in our words: ``text``, then what is ``wanted`` instead."""

    def __init__(self, problem: Mapping[str, Any], lines: Lines) -> None:
        self.kind = kind = problem["type"]
        loc: Path = ()
        for part in problem["loc"]:  # "[key]" and the alternatives of a union are no keys of the file
            if (*loc, part) in lines:
                loc = (*loc, part)
        if kind == "missing":
            loc = (*loc, problem["loc"][-1])
        self.loc = loc
        self.line = nearest_line(lines, loc)
        self.rank = 1 if kind.endswith("_type") else 0  # of a union's alternatives, the one that came further
        self.wanted = ""
        self.text = self._words(kind, loc, problem)

    def _words(self, kind: str, loc: Path, problem: Mapping[str, Any]) -> str:
        name = str(loc[-1]) if loc else "the document"
        if kind == "extra_forbidden":
            return f"unknown key {shortened(name)}; known here: {', '.join(_known_keys(loc[:-1]))}"
        if kind == "missing":
            return f"key {name!r} is missing"
        key = next((f"{beginning(part)}: " for part in reversed(loc) if isinstance(part, str)), "")
        if kind in ("value_error", "assertion_error"):
            words = str(problem["msg"]).removeprefix("Value error, ")
            value = problem["input"]
            for written in (repr(value), value) if isinstance(value, str) else ():
                words = words.replace(written, beginning(written))
            return key + words
        self.wanted = _WANTED.get(kind, str(problem["msg"]).removeprefix("Input should be "))
        if kind == "list_type":
            remedies = {dict: "; begin each of its entries with '- '", type(None): ""}  # a list of null is no better
            self.wanted = "a list" + remedies.get(type(problem["input"]), "; put it into [ ]")
        if kind in ("too_short", "too_long"):
            words, bound = ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
            self.wanted = f"{words} {problem['ctx'][bound]} long"
        if kind == "less_than_equal":  # its own words round what is more than a float holds
            self.wanted = f"less than or equal to {problem['ctx']['le']}"
        if kind == "string_type" and isinstance(problem["input"], int | float | date):
            pattern, alone = _pattern_at(loc), problem["loc"][-1] == loc[-1]  # or an alternative, beside numbers
            self.wanted = "a string; quote it"
            if pattern is not None and not (alone and re.match(pattern, _short(problem["input"]))):
                self.wanted = PATTERN_WORDS[pattern]
        if kind == "string_pattern_mismatch":
            self.wanted = PATTERN_WORDS[problem["ctx"]["pattern"]]
        return f"{key}{_short(problem['input'])} should be "


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]  # as YAML writes them
    if isinstance(value, date):
        return str(value)
    if isinstance(value, bytes):
        return "binary data"
    large = isinstance(value, int) and value.bit_length() > 14_000  # Python writes 4,300 decimal digits at most
    return f"{value:#x}"[:57] + "…" if large else shortened(value)


def _known_keys(path: Path) -> list[str]:
    """Return the keys that the mapping at ``path`` may have."""
    return list(_at(path)[1].model_fields)


def _pattern_at(path: Path) -> str | None:
    """Return what a text at ``path`` has to match, None where that is not known."""
    field, _ = _at(path)
    return None if field is None else next(_patterns((field, *_parts(field.annotation))), None)


def _at(path: Path) -> tuple[FieldInfo | None, type[BaseModel]]:
    """Return the last field on ``path``, if any, and the model that has what is below."""
    field: FieldInfo | None = None
    model: type[BaseModel] = Document
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            field = model.model_fields[part]
            model = _model_in(field.annotation) or model
    return field, model


def _parts(annotation: Any) -> Iterator[Any]:
    """Walk over what a type is made of, but for the keys of mappings."""
    parts = get_args(annotation)
    for part in parts[1:] if get_origin(annotation) is dict else parts:
        yield part
        yield from _parts(part)


def _patterns(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, FieldInfo):
            yield from (one.pattern for one in part.metadata if getattr(one, "pattern", None) is not None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def routing_of(router: RouterSection, files: Mapping[str, str]) -> Routing:
    """Return a router's suite and text; KeyProblem where its keys contradict each other or its file was not sent."""
    if len(router.texts) > 1:
        first, second, *_ = router.texts
        raise KeyProblem(second, f"give {first} or {second}, not both")
    if router.suite is not Suite.FRR and router.source == "fpm":
        raise KeyProblem("source", f"fpm is FRR's; leave source out, {router.suite} has netlink")
    if not router.texts:
        return Routing()
    (key,) = router.texts
    value = getattr(router, key)
    if isinstance(value, CommandSection):
        return Routing(router.suite, value.text)
    if not key.endswith("_file"):
        return Routing(router.suite, value)
    if value not in files:
        raise KeyProblem(key, f"{key} {value} was not sent along")
    return Routing(router.suite, files[value])
