"""What scripts/setup finds missing on a machine that has never heard of a package."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup"


def test_a_package_that_dpkg_has_never_heard_of_is_missing(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    function = text[text.index("missing_packages() {") :].split("\n}\n")[0] + "\n}\n"
    program = f"set -euo pipefail\nhave={tmp_path}/have\n{function}missing_packages bash splitplane-none"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "splitplane-none\n"
