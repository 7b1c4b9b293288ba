"""What tests find of machines on a host: also while QEMU opens and closes connections."""

import subprocess
import sys
from pathlib import Path

from machines import QEMU, machines_of

_RESTLESS = """
import os, sys
held = open(sys.argv[1], "w")
print(flush=True)
while True:
    for opened in [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]:
        os.close(opened)
"""


def test_a_machine_is_found_while_it_closes_other_files(tmp_path: Path) -> None:
    argv = [QEMU, "-c", _RESTLESS, str(tmp_path / "lock")]
    with subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # it holds its file
            assert all(machines_of(tmp_path) == [process.pid] for _ in range(100))
        finally:
            process.kill()
