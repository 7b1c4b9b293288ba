"""The limits of machines on control groups of version 2, in a machine with a kernel and a hierarchy of its own.

Most hosts have version 2, and this suite has to run on hosts that do not.
"""

import io
import json
import zipfile

import pytest
from limits_guest import LIMITS, PROCESSOR
from machine_bed import APP, machine_bed
from machines import ROOT

pytestmark = pytest.mark.root

MODULES = ("__init__", "errors", "guests/__init__", "guests/shutdown", "guests/limits", "guests/pidfile")
UNPACK = f"cat >/tmp/sent.zip && PYTHONPATH=/tmp/sent.zip:{APP} exec python3 -m limits_guest"


def sent() -> bytes:
    """The modules that the program needs, as Python imports them."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.write(ROOT / "tests/integration/limits_guest.py", "limits_guest.py")
        for name in MODULES:
            file.write(ROOT / f"controller/{name}.py", f"controller/{name}.py")
    return archive.getvalue()


async def test_memory_processors_processes_and_disks_are_limited_and_nothing_is_left() -> None:
    async with machine_bed() as bed:
        await bed.boot(b"", 256, PROCESSOR + 1)  # without a seed there is no guest
        done = await bed.run("sh", "-c", UNPACK, stdin=sent(), where="machine", limit_s=120)
        assert done["status"] == 0, done
        found = json.loads(done["stdout"])
    assert (found["missing"], found["procs"]) == ([], True)
    assert found["processors"] == [PROCESSOR]
    assert found["read_s"] > 1.5 > found["unlimited_read_s"]
    assert found["greedy"] == -9
    assert found["killed"] == found["oom_kills"]
    assert found["oom_kills"] >= 1
    assert found["throttled"] > 0
    assert found["cpus"] < 2 * LIMITS.cpus
    assert 0 < found["forked"] < LIMITS.pids
    assert found["changed"] == [str(64 << 20), "150000 100000", "16"]
    assert found["kept_while_used"]
    assert found["ended"] == -9
    assert not found["left"]
