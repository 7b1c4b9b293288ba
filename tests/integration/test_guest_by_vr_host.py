"""A guest made by vr-host for somebody who could not: a user with the controller's capabilities for files alone."""

import os
import signal
import subprocess

import pytest
from guest_net import alive
from vr_hosts import LIMIT_S, vr_host

from controller.guests import pidfile

pytestmark = pytest.mark.root


def test_a_user_with_capabilities_for_files_alone_has_a_guest_which_outlives_vr_host() -> None:
    with vr_host("netns") as host:
        started = host.asked("start")
        assert started["running"]
        pid = pidfile.find(host.base / "state/guests/1")
        assert started["pid"] == pid != 0
        inside = subprocess.run(started["exec"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert inside.stdout.strip() == "red-r1", inside.stderr
        identity = host.base / "state/guests/1/identity"
        assert (identity / "key.pem").read_text() == "key.pem"
        assert identity.stat().st_uid not in (0, os.getuid())
        host.end(signal.SIGKILL)
        assert alive(pid)
        host.start()
        assert host.asked("start")["pid"] == pid
        assert not host.asked("stop")["running"]
        assert not alive(pid)
