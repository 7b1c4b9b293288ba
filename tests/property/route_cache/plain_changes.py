"""What turns one route table into another, looked for in both."""

from collections.abc import Mapping

from controller.route_cache.write_order import Changes


def changes_between(before: Mapping[bytes, int], after: Mapping[bytes, int]) -> Changes:
    changes: Changes = {key: (old, after.get(key)) for key, old in before.items() if after.get(key) != old}
    changes.update((key, (None, new)) for key, new in after.items() if key not in before)
    return changes
