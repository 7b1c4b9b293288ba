"""Privileges are given up wherever a guest is started from, and what the kernel refuses of it is told."""

import ctypes
import errno
import os
import subprocess

import pytest

from vrc.guest.privileges import _Filter, confining

NOBODY = 65534


def test_a_kernel_without_room_for_one_more_filter_is_told_with_its_setting() -> None:
    ctypes.set_errno(524)
    with pytest.raises(
        OSError, match=r"filter of system calls: the kernel holds no more; raise net\.core\.bpf_jit_limit"
    ):
        _Filter._check(-errno.ECANCELED)


def test_what_else_is_refused_is_told_as_the_library_has_it() -> None:
    ctypes.set_errno(errno.EINVAL)
    with pytest.raises(OSError, match=r"filter of system calls: Operation canceled$"):
        _Filter._check(-errno.ECANCELED)


def test_a_command_runs_where_its_limit_of_cores_is_nothing_for_good() -> None:
    command = ["/usr/bin/prlimit", "--core=0", "--", *confining(), "/bin/echo", "there"]
    user = NOBODY if os.geteuid() == 0 else None
    done = subprocess.run(command, user=user, extra_groups=[] if user else None, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("there\n", "")
