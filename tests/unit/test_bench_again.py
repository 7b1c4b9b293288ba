"""A benchmark that runs another, or itself again, leaves nothing of it running."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bench.again import last_line

ROOT = Path(__file__).parents[2]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    (tmp_path / "says.py").write_text("import sys\nprint('told')\nprint(sys.argv[1:])\n")
    (tmp_path / "fails.py").write_text("import os, sys\nos.kill(os.getpid(), 15) if sys.argv[1:] else sys.exit(3)\n")
    (tmp_path / "runs.py").write_text("from bench.again import last_line\nlast_line('waits')\n")
    waits = "import os, signal, sys\nprint(os.getpid(), file=sys.stderr, flush=True)\nsignal.pause()\n"
    (tmp_path / "waits.py").write_text(waits)


@pytest.mark.usefixtures("modules")
def test_the_last_line_is_the_result() -> None:
    assert last_line("says", "--runs", "1") == "['--runs', '1']"


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(("arguments", "status"), [((), 3), (("by a signal",), 128 + signal.SIGTERM)])
def test_one_that_fails_fails_who_has_run_it(arguments: tuple[str, ...], status: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        last_line("fails", *arguments)
    assert ended.value.code == status
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_who_has_run_it(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-m", "runs"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waiting = os.pidfd_open(int(process.stderr.readline()))
        try:
            process.send_signal(number)
            assert select.select([waiting], [], [], 30)[0]
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(waiting, signal.SIGKILL)
            os.close(waiting)
            process.kill()
