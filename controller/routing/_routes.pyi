from array import array
from collections.abc import Callable

from controller.planes.base import Op
from controller.routing.rib import NexthopSet

_Columns = tuple[list[Op], list[bytes], list[int]]

def replace(
    keys: list[bytes], ids: array[int], names: dict[int, NexthopSet], routes: dict[bytes, NexthopSet]
) -> tuple[list[bytes], int, list[NexthopSet]]: ...
def take(
    keys: list[bytes],
    desired: tuple[dict[bytes, int], dict[bytes, NexthopSet], Callable[[bytes], int | None]],
    installed: tuple[dict[bytes, int], dict[int, int], dict[bytes, str], list[int]],
    admission: tuple[int, int, Callable[[bytes], bool]],
    ops: tuple[Op, Op, Op],
    ipv4: _Columns,
    ipv6: _Columns,
) -> tuple[int, int]: ...
