"""A text that FRR or BIRD has taken is parsed again by another program of theirs alone."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from controller.errors import GuestError
from controller.guests.suites import bird, frr, taken_texts
from controller.guests.suites.taken_texts import TakenTexts

TEXTS = {frr: "ip route 192.0.2.0/24 10.0.0.1\n", bird: "router id 192.0.2.1;\n"}


class Parser:
    """A suite's parser and what it was asked."""

    def __init__(self, suite: ModuleType, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.status, self.program = 0, program
        program.touch()
        monkeypatch.setattr(suite, "VTYSH" if suite is frr else "BINARY", str(program))
        monkeypatch.setattr(suite, "require_installed", lambda _: None, raising=False)
        monkeypatch.setattr(suite, "dry_run", self.dry_run)
        monkeypatch.setattr(suite, "_taken", TakenTexts())

    async def dry_run(self, _: Sequence[str], text: str) -> tuple[int, str]:
        self.asked.append(text)
        return self.status, ""


@pytest.fixture(params=TEXTS, ids=lambda suite: suite.__name__.rpartition(".")[2])
def suite(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture
def parser(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parser:
    return Parser(suite, tmp_path / "parser", monkeypatch)


async def test_it_is_parsed_once_for_all_routers(suite: ModuleType, parser: Parser) -> None:
    for router in ("red/r1", "red/r2"):
        await suite.check(router, TEXTS[suite])
    assert len(parser.asked) == 1
    await suite.check("red/r1", f"{TEXTS[suite]}\n")
    assert len(parser.asked) == 2


async def test_one_that_was_refused_is_parsed_again(suite: ModuleType, parser: Parser) -> None:
    parser.status = 1
    for _ in range(2):
        with pytest.raises(GuestError, match="configuration: refused by"):
            await suite.check("red/r1", TEXTS[suite])
    assert len(parser.asked) == 2


async def test_another_program_parses_it_again(suite: ModuleType, parser: Parser) -> None:
    await suite.check("red/r1", TEXTS[suite])
    newer = parser.program.with_name("newer")
    newer.write_text("of a later version")
    os.replace(newer, parser.program)
    parser.status = 1
    with pytest.raises(GuestError):
        await suite.check("red/r1", TEXTS[suite])


async def test_what_frr_calls_cut_short_is_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser(frr, tmp_path / "parser", monkeypatch)

    async def listed(_: Sequence[str], text: str) -> tuple[int, str]:
        await parser.dry_run(_, text)
        return 0, "  (config)  router bgp [(1-4294967295)]"

    monkeypatch.setattr(frr, "dry_run", listed)
    for _ in range(2):
        with pytest.raises(GuestError, match="`ro` is cut short"):
            await frr.check("red/r1", "ro bgp 1\n")
    assert len(parser.asked) == 2


def test_so_many_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken_texts, "MOST_TEXTS", 2)
    taken = TakenTexts()
    keys = [taken.key("/nowhere", text) for text in ("one", "two", "three")]
    for key in keys:
        taken.add(key)
    assert [key in taken for key in keys] == [False, True, True]


async def test_the_version_of_frr_is_asked_of_each_zebra_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["zebra version 10.3\n", "zebra version 11.0\n"]

    async def dry_run(_: Sequence[str], __: str) -> tuple[int, str]:
        return 0, said.pop(0)

    monkeypatch.setattr(frr, "BINARIES", tmp_path)
    monkeypatch.setattr(frr, "dry_run", dry_run)
    (tmp_path / "zebra").touch()
    assert (await frr.version(), await frr.version(), await frr.remarks()) == ((10, 3), (10, 3), [])
    (tmp_path / "zebra").write_text("of a later version")
    assert await frr.remarks() == ["FRR 11.0 was never tried, only 8.4 and 10.3"]
