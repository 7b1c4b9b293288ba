from vrc.nexthops import Binding
from vrc.rtnetlink import Change

def messages(buffer: bytes, offset: int, end: int, changes: list[Change]) -> int: ...
def frames(buffer: bytes, offset: int, limit: int, changes: list[Change]) -> int: ...
def bind(
    changes: list[Change],
    start: int,
    bindings: dict[bytes, Binding],
    routes: dict[bytes, Binding],
    dirty4: dict[bytes, int],
    dirty6: dict[bytes, int],
    withdrawn: set[bytes] | None,
    limit: int,
) -> int: ...
