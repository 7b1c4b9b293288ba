"""What the route table sends, applied to what it sent before, gives what was learned."""

from hypothesis import given, settings
from hypothesis import strategies as st
from netlink_bytes import by_gateway, route
from route_tables import changes, delete, empty_table, taken

from wire.columns import prefix_key

events = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from(["4", "6"])), max_size=40)


@settings(max_examples=60, deadline=None)
@given(events, st.integers(1, 5), st.integers(0, 3))
def test_sent_changes_give_the_table(stream: list[tuple[int, int, str]], limit: int, every: int) -> None:
    table = empty_table()
    scope = table.open_scope()
    told: dict[bytes, int] = {}
    learned: dict[bytes, int] = {}
    for number, (place, gateway, family) in enumerate(stream):
        prefix = f"10.{place}.0.0/16" if family == "4" else f"2001:db8:{place}::/48"
        if gateway:
            table.apply(changes(route(prefix, by_gateway(f"10.1.0.{gateway}", 2 if gateway < 4 else 9))), scope)
            learned[prefix_key(prefix)] = gateway
        else:
            table.apply(changes(delete(prefix)), scope)
            learned.pop(prefix_key(prefix), None)
        if every and number % every == 0:
            columns = table.take(limit)
            if columns is not None:
                told |= dict(zip(columns.keys, columns.ids, strict=True))
    told |= taken(table, limit)
    wanted = {key: gateway for key, gateway in learned.items() if gateway < 4}
    assert {key: table.sets.content(set_id)[1][0][1][3] for key, set_id in told.items() if set_id} == wanted
