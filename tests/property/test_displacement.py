"""What becomes of a conversation that loses its slot: every row has one fate, and no other."""

import itertools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from anchorline.domain.displacement import (
    GUEST_PART,
    GUEST_STEPS_MAX,
    PIN_STEPS_MAX,
    PIN_STEPS_MIN,
    SNAPSHOT_STEPS_MAX,
    Displacement,
    Incoming,
    displace,
)
from anchorline.domain.entry import Role
from anchorline.domain.grid import Grid


@dataclass(frozen=True)
class Case:
    """A conversation, and the request that takes its slot."""

    grid: Grid
    length: int
    lines: tuple[int, ...]
    incoming: Incoming

    @property
    def top(self) -> int:
        return max(self.lines, default=0)

    def fate(self, room: int, spare: int) -> Displacement:
        return displace(
            self.length, self.lines, self.incoming, self.grid, room=room, spare=min(spare, room)
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Of few steps and of many; on the grid, and off it."""
    step = draw(st.sampled_from([1, 3, 8]))
    length = draw(st.integers(0, 45 * step))
    drawn = draw(st.sets(st.integers(1, max(length, 1)), max_size=12))
    steps = draw(st.sets(st.integers(1, 45), max_size=12))
    lines = tuple(sorted(line for line in drawn | {at * step for at in steps} if line <= length))
    line = draw(st.sampled_from([0, 0, *lines]))
    prompt = line + draw(st.integers(1, 12 * step))
    reach = prompt + draw(st.integers(0, 6 * step))
    return Case(Grid(step), length, lines, Incoming(prompt, line, reach, draw(st.booleans())))


ROOMS = st.integers(-5, 400)


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=500)
def test_every_row_has_exactly_one_fate(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    spans = (fate.in_place_below, fate.elsewhere, fate.in_place_above, fate.given_up)
    assert spans[0].start == 0
    assert all(one.end == other.start for one, other in itertools.pairwise(spans))
    assert spans[-1].end == case.length


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=300)
def test_no_row_that_the_request_resumes_from_is_given_up(
    case: Case, room: int, spare: int
) -> None:
    fate = case.fate(room, spare)

    assert fate.given_up.start >= case.incoming.line
    # The rest of its last grid step stands in one block with rows that it overwrites.
    assert fate.in_place_below.end >= case.grid.floor(case.incoming.line)


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=300)
def test_no_kept_row_stays_where_the_request_may_write(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    if fate.role is not None:
        assert fate.in_place_below.end <= case.incoming.line
        above = fate.in_place_above
        assert len(above) == 0 or above.start >= case.incoming.reach


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=300)
def test_no_row_is_moved_that_the_request_cannot_reach(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    if len(fate.elsewhere):
        assert fate.elsewhere.start == case.grid.floor(case.incoming.line)
        assert fate.elsewhere.end <= case.grid.ceil(case.incoming.reach)


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=300)
def test_what_is_kept_elsewhere_fits(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    if fate.role is not None:
        assert len(fate.elsewhere) <= room
    branch = fate.role is Role.PIN and case.incoming.line > 0
    if case.incoming.same_session and (fate.role in (Role.PARK, Role.SNAPSHOT) or branch):
        assert len(fate.elsewhere) <= min(spare, room)


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=300)
def test_it_has_no_role_exactly_where_nothing_is_kept(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    assert (fate.role is None) == (fate.top == 0)
    assert fate.top in (0, *case.lines)
    if fate.role is None:
        assert len(fate.elsewhere) == len(fate.in_place_above) == 0
    if fate.role not in (None, Role.PIN):
        assert fate.top == case.top


@given(cases(), ROOMS, ROOMS)
@settings(max_examples=500)
def test_the_role_says_why_it_is_kept(case: Case, room: int, spare: int) -> None:
    fate = case.fate(room, spare)

    step, prompt = case.grid.step, case.incoming.prompt
    short = prompt <= GUEST_STEPS_MAX * step and prompt * GUEST_PART < case.top
    match fate.role:
        case Role.STASH:
            assert short
        case Role.SNAPSHOT:
            assert not short
            assert case.top <= SNAPSHOT_STEPS_MAX * step
        case Role.PARK:
            assert not short
            assert case.top > SNAPSHOT_STEPS_MAX * step
        case Role.PIN:
            lost = fate.top - case.grid.floor(case.incoming.line)
            assert lost >= PIN_STEPS_MIN * step
            assert fate.top <= PIN_STEPS_MAX * step
        case _:
            assert fate.role is None


@given(cases(), ROOMS, ROOMS, st.integers(0, 200))
@settings(max_examples=500)
def test_more_room_never_keeps_less(case: Case, room: int, spare: int, more: int) -> None:
    fate = case.fate(room, spare)

    assert case.fate(room + more, spare).top >= fate.top
    assert case.fate(room + more, spare + more).top >= fate.top


@given(cases())
@settings(max_examples=300)
def test_with_room_for_all_of_it_nothing_of_a_grid_step_or_more_is_given_up(case: Case) -> None:
    fate = case.fate(room=case.length, spare=case.length)

    at_stake = case.top - case.grid.floor(case.incoming.line)
    goes_on = case.top <= case.incoming.line
    assert fate.top == (0 if goes_on or at_stake < case.grid.step else case.top)
