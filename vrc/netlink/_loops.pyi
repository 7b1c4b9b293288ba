from vrc.netlink.route_messages import Change
from vrc.routes.nexthops import Binding

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
