"""The committed P4Info and BMv2 program are what p4c makes of p4src today."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = "p4c-bm2-ss"
GOLDEN = ROOT / "p4src" / "golden"
REMEDY = "`make p4` makes them anew; p4src/README.md names the p4c of the committed files"

pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"{COMPILER} is not on PATH; p4lang documents how to install p4c"
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    subprocess.run([ROOT / "scripts" / "p4", folder], check=True)
    return folder


def test_the_committed_p4info_is_that_of_the_sources(compiled: Path) -> None:
    name = "v1model.p4info.txtpb"
    assert (compiled / name).read_text() == (GOLDEN / name).read_text(), REMEDY


def test_the_committed_program_is_that_of_the_sources(compiled: Path) -> None:
    name = "v1model.json"
    assert json.loads((compiled / name).read_text()) == json.loads((GOLDEN / name).read_text()), REMEDY
