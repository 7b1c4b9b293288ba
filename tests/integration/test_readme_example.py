"""README's smallest example: its commands, run as they are printed, print what README says."""

import re
from pathlib import Path

import pytest
from printed_commands import ROOT, blurred, printed_commands, run_enclosed_page
from rig import until

from controller.guests import limits

pytestmark = pytest.mark.root

README = ROOT / "README.md"
GUEST = Path("/run/readme/state/guests/1")
RUNNING = """
export PATH=$PWD/.venv/bin:$PWD/build/forwarder/daemon:$PATH SPLITPLANE_SOCKET=/run/splitplane/api.sock
mkdir /run/readme
cd /run/readme
for port in eth1 eth2; do
    ip link add $port type veth peer name $port-far
    ip link set $port up
    ip link set $port-far up
done
touch controller.log
vr-forwarder --port 1=eth1 --port 2=eth2 >forwarder.log 2>&1 &
vr-controller --state /run/readme/state >>controller.log 2>&1 &
tail -f controller.log | grep -q serving
"""


LISTED = "$ vrctl get routers\n"
UNTIL_UP = "$ vrctl get routers --watch | grep -q 'red/r1 .* up  *3 '\n"
"""README only says that it takes some seconds."""


def test_the_smallest_example_prints_what_readme_says(tmp_path):
    text = README.read_text()
    (document,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    waiting = tmp_path / "README.md"
    waiting.write_text(text.replace(LISTED, UNTIL_UP + LISTED, 1))
    page = printed_commands(waiting.read_text())
    printing = [one.command for one in page if one.output]
    assert printing == ["vrctl apply -f red.yaml", "vrctl get routers", "vrctl fib red/r1"]
    try:
        done, _ = run_enclosed_page(waiting, f"{RUNNING}cat >red.yaml <<'END'\n{document}END\n")
    finally:  # the guest ended with its namespaces, and nobody was left to take its control groups away
        until("the guest's control groups are empty", lambda: limits.remove(GUEST))
    assert [blurred(one.output) for one in done] == [blurred(one.output) for one in page]
