"""Any message to the TAP holder."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from holder_wire import Wire
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with contextlib.closing(Wire(str(tmp_path / "holder.sock"))) as made:
        yield made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    st.one_of(
        st.binary(min_size=1, max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["op", "name", "x"]), inner, max_size=3)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_message_gets_one_reply(wire: Wire, message: bytes) -> None:
    assert isinstance(wire.say(message)["ok"], bool)
