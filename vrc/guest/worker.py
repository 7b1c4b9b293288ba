"""A thread that does one thing after the other for another one, which waits for it."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Done = TypeVar("Done")


class Worker:
    """Does what `do` is given in a thread that began with this object.

    A thread has the namespaces and the filter of system calls that it began with: this one may still leave and enter
    network namespaces after the filter was put in force for the thread that made it, and for all that it starts.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def do(self, work: Callable[[], Done]) -> Done:
        """Return what ``work`` returns, or raise what it raises."""
        results: list[Done] = []
        self._work.put(lambda: results.append(work()))
        if (problem := self._done.get()) is not None:
            raise problem
        return results[0]

    def _run(self) -> None:
        while True:
            problem: BaseException | None = None
            try:
                self._work.get()()
            except BaseException as error:  # noqa: BLE001
                problem = error
            self._done.put(problem)
