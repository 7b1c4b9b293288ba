"""The thread that a guest's first process has for what it may not do itself any more."""

import threading

import pytest

from vrc.guest.worker import Worker


def test_work_is_done_in_one_other_thread_one_after_the_other() -> None:
    worker = Worker()
    threads = [worker.do(threading.get_ident) for _ in range(3)]
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_what_fails_fails_here_and_the_next_is_done() -> None:
    worker = Worker()

    def fail() -> None:
        raise FileNotFoundError("no such thing")

    with pytest.raises(FileNotFoundError, match="no such thing"):
        worker.do(fail)
    assert worker.do(lambda: 7) == 7
