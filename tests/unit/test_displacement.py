"""A conversation that loses its slot: which of it is kept, why, and where."""

import pytest

from anchorline.domain.displacement import Displacement, Incoming, displace
from anchorline.domain.entry import Role
from anchorline.domain.grid import Grid, Span

GRID = Grid(8)
PLENTY = 10_000


def fate(
    length: int,
    lines: list[int],
    *,
    prompt: int,
    answer: int = 4,
    line: int = 0,
    same_session: bool = False,
    room: int = PLENTY,
    spare: int | None = None,
) -> Displacement:
    incoming = Incoming(prompt, line, prompt + answer, same_session)
    spare = room if spare is None else spare
    return displace(length, lines, incoming, GRID, room=room, spare=spare)


def test_a_title_request_leaves_the_upper_rows_of_a_long_conversation_where_they_are() -> None:
    found = fate(400, [200, 392, 397], prompt=30, answer=10)

    assert found.role is Role.STASH
    assert found.elsewhere == Span(0, 40)
    assert found.in_place_above == Span(40, 397)


def test_a_row_is_reached_by_the_longest_answer_that_was_asked_for() -> None:
    found = fate(400, [400], prompt=30, answer=100)

    assert found.elsewhere == Span(0, 136)


def test_a_long_prompt_of_another_session_parks_the_conversation() -> None:
    found = fate(400, [400], prompt=300)

    assert (found.role, found.elsewhere) == (Role.PARK, Span(0, 304))


def test_a_short_conversation_is_kept_as_a_snapshot() -> None:
    found = fate(64, [64], prompt=300)

    assert (found.role, found.elsewhere) == (Role.SNAPSHOT, Span(0, 64))


@pytest.mark.parametrize(
    ("prompt", "length", "role"),
    [
        (64, 257, Role.STASH),
        (64, 256, Role.PARK),  # it is no longer under a quarter
        (65, 400, Role.PARK),  # nor short
        (16, 65, Role.STASH),
        (17, 65, Role.PARK),
        (17, 64, Role.SNAPSHOT),
    ],
)
def test_a_guest_is_short_and_under_a_quarter_of_what_it_displaces(
    prompt: int, length: int, role: Role
) -> None:
    assert fate(length, [length], prompt=prompt).role is role


def test_a_prompt_that_goes_on_from_the_end_displaces_nothing() -> None:
    found = fate(405, [200, 400], prompt=420, line=400)

    assert found.role is None
    assert found.in_place_below == Span(0, 400)
    assert found.given_up == Span(400, 405)


def test_a_prompt_that_shares_a_head_leaves_the_head_where_it_is() -> None:
    found = fate(400, [200, 400], prompt=320, line=200)

    assert found.role is Role.PARK
    assert found.in_place_below == Span(0, 200)
    assert found.elsewhere == Span(200, 328)


def test_what_a_prompt_takes_from_the_middle_of_a_grid_step_is_moved_as_a_whole_step() -> None:
    found = fate(400, [203, 400], prompt=320, line=203)

    assert (found.in_place_below, found.elsewhere) == (Span(0, 200), Span(200, 328))


def test_less_than_a_grid_step_is_read_again_sooner_than_it_is_kept() -> None:
    assert fate(207, [200, 207], prompt=320, line=200).role is None
    assert fate(208, [200, 208], prompt=320, line=200).role is Role.PARK


def test_what_no_line_resumes_is_given_up() -> None:
    found = fate(399, [200, 392], prompt=300)

    assert found.given_up == Span(392, 399)
    assert found.top == 392


def test_a_conversation_that_cannot_be_resumed_anywhere_is_given_up() -> None:
    found = fate(30, [], prompt=300)

    assert (found.role, found.given_up) == (None, Span(0, 30))


def test_where_the_whole_does_not_fit_the_highest_head_that_does_is_pinned() -> None:
    found = fate(400, [64, 96, 128, 400], prompt=390, room=100)

    assert (found.role, found.top) == (Role.PIN, 96)
    assert (found.elsewhere, found.given_up) == (Span(0, 96), Span(96, 400))


@pytest.mark.parametrize("lines", [[24, 400], [272, 400]], ids=["too short", "too high"])
def test_a_head_that_is_worth_no_room_is_not_pinned(lines: list[int]) -> None:
    assert fate(400, lines, prompt=390, room=300).role is None


def test_a_branch_that_its_own_session_has_left_takes_no_others_room() -> None:
    lines = [16, 400]

    assert fate(400, lines, prompt=390, same_session=True, spare=300).role is None
    assert fate(400, lines, prompt=390, same_session=True, spare=400).role is Role.PARK
    assert fate(400, lines, prompt=390, spare=300).role is Role.PARK


def test_nor_does_its_head_but_after_a_compaction() -> None:
    lines = [16, 96, 400]

    edited = fate(400, lines, prompt=390, line=16, same_session=True, spare=50)
    compacted = fate(400, lines, prompt=390, same_session=True, spare=50)

    assert edited.role is None
    assert (compacted.role, compacted.top) == (Role.PIN, 96)


def test_its_own_sessions_title_request_stashes_it_in_others_room() -> None:
    assert fate(400, [400], prompt=30, same_session=True, spare=0).role is Role.STASH
