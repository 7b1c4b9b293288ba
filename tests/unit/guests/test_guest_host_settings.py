"""Which of the settings beside a guest's own are read-only in it."""

from pathlib import Path

import pytest

from vrc.guest import kernel_views


@pytest.mark.parametrize(
    ("there", "read_only"),
    [("netfilter/one", "netfilter/one"), ("netfilter/other", "netfilter"), ("core/other", None)],
    ids=["it is there", "a module may bring it", "there is nothing of the kind"],
)
def test_a_setting_of_the_host_is_read_only_also_where_it_comes_after_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, read_only: str | None
) -> None:
    made: list[str] = []
    monkeypatch.setattr(kernel_views, "_make_read_only", made.append)
    monkeypatch.setattr(kernel_views, "HOSTS_SETTINGS", (str(tmp_path / "netfilter/one"),))
    (tmp_path / there).parent.mkdir()
    (tmp_path / there).touch()
    kernel_views._keep_hosts_settings()
    assert made == ([str(tmp_path / read_only)] if read_only else [])
