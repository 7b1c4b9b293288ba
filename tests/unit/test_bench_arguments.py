"""Benchmarks that only compute refuse what they could not end with."""

import pytest

from bench import aggregate, cache


@pytest.mark.parametrize(
    ("bench", "arguments"),
    [
        (aggregate, ["--routes", "4"]),  # of IPv6 none would be left, and a table of none is never complete
        (aggregate, ["--changes", "0"]),
        (cache, ["--routes", "99"]),
        (cache, ["--warm-s", "0"]),
        (cache, ["--packets-per-s", "0"]),
        (cache, ["--one-in", "0"]),
    ],
)
def test_less_than_can_be_measured_is_refused(
    bench, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    monkeypatch.setattr(aggregate, "cases", lambda _: pytest.fail("it begins"))
    monkeypatch.setattr(cache, "program", lambda _: pytest.fail("it begins"))
    with pytest.raises(SystemExit, match="2"):
        bench.main()
    assert arguments[0] in capsys.readouterr().err.splitlines()[-1]
