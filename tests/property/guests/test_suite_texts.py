"""Any configuration of a routing suite, and whatever the suite says to it."""

from hypothesis import given
from hypothesis import strategies as st

from controller.errors import GuestError
from controller.guests.suites import bird
from vrc.guest.suites.frr_objections import first_error


@given(st.text(max_size=200))
def test_any_text_of_bird_keeps_its_lines_and_makes_one_line_of_refusal(text: str) -> None:
    assert bird.bare(text).count("\n") == text.count("\n")
    refusal = ""
    try:
        bird.refuse_foreign("red/r1", text)
    except GuestError as problem:
        refusal = str(problem)
    assert "\n" not in refusal


@given(st.lists(st.text(max_size=60), max_size=8), st.text(max_size=100))
def test_any_output_of_frr_makes_one_line(lines: list[str], text: str) -> None:
    assert first_error([line for raw in lines for line in raw.splitlines()], text).count("\n") == 0
