"""What becomes of a conversation whose slot another request takes.

    rows   0 . . . . . a . . . . . . . . b . . . . . . top . . length
           in place    kept elsewhere    in place          given up

Every row has one fate, and no other. Rows below `a` are those that the request resumes from, and
rows from `b` on are those that it cannot reach; between the two a copy is made of each block before
it is overwritten. Nothing above the highest line that can be resumed is worth a byte.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .entry import Role
from .grid import Grid, Span

GUEST_STEPS_MAX: Final = 8
"""Grid steps of a prompt that is a guest beside a long conversation."""

GUEST_PART: Final = 4
"""A guest is shorter than this part of the conversation."""

SNAPSHOT_STEPS_MAX: Final = 8
"""Grid steps of a conversation that is kept as a short one."""

PIN_STEPS_MIN: Final = 4
PIN_STEPS_MAX: Final = 32
"""Grid steps of a head that is kept where the whole conversation cannot be."""

LOST_STEPS_MIN: Final = 1
"""Grid steps that must be at stake: less is read again sooner than it is kept."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """The request that takes the slot.

    Attributes:
        prompt: tokens.
        line: it goes on from here on rows that stand in the slot; 0 where it needs none of them.
        reach: rows from here on it cannot write.
        same_session: it says that it continues the conversation, and has parted from it.
    """

    prompt: int
    line: int
    reach: int
    same_session: bool = False


@dataclass(frozen=True, slots=True)
class Displacement:
    """The fate of each row of the conversation; the four spans follow each other.

    Attributes:
        role: of the entry that keeps it; None where nothing is kept as one.
    """

    role: Role | None
    in_place_below: Span
    elsewhere: Span
    in_place_above: Span
    given_up: Span

    @property
    def top(self) -> int:
        """The line up to which it can be resumed from what is kept as an entry; 0 for none."""
        return 0 if self.role is None else self.in_place_above.end


def displace(
    length: int,
    lines: Sequence[int],
    incoming: Incoming,
    grid: Grid,
    *,
    room: int,
    spare: int,
) -> Displacement:
    """Decide for a conversation of `length` rows.

    Args:
        lines: where it can be resumed, ascending; none above `length`.
        room: rows that can be kept elsewhere once everything less valuable is given up.
        spare: rows that can be kept elsewhere with nothing given up.
    """
    top = lines[-1] if lines else 0
    if top <= incoming.line:
        return _stays(top, length)
    below = grid.floor(incoming.line)
    if top - below < LOST_STEPS_MIN * grid.step:
        return _stays(min(incoming.line, length), length)
    reach = min(grid.ceil(incoming.reach), top)
    whole = _kept(_role(top, incoming, grid), below, reach, top, length)
    # A branch that its own session has left is worth no other conversation.
    enough = spare if incoming.same_session and whole.role is not Role.STASH else room
    if len(whole.elsewhere) <= enough:
        return whole
    # But for its head, where it goes on from none of its rows, as after a compaction.
    spared = enough if incoming.line else room
    return _pinned(lines, below, reach, spared, length, grid) or _stays(
        min(incoming.line, length), length
    )


def _role(top: int, incoming: Incoming, grid: Grid) -> Role:
    if incoming.prompt <= GUEST_STEPS_MAX * grid.step and incoming.prompt * GUEST_PART < top:
        return Role.STASH
    return Role.SNAPSHOT if top <= SNAPSHOT_STEPS_MAX * grid.step else Role.PARK


def _kept(role: Role, below: int, reach: int, top: int, length: int) -> Displacement:
    middle = max(min(reach, top), below)
    return Displacement(
        role,
        in_place_below=Span(0, below),
        elsewhere=Span(below, middle),
        in_place_above=Span(middle, top),
        given_up=Span(top, length),
    )


def _stays(line: int, length: int) -> Displacement:
    """What the request resumes from stays in place, and nothing is kept of the rest."""
    return Displacement(
        None,
        in_place_below=Span(0, line),
        elsewhere=Span(line, line),
        in_place_above=Span(line, line),
        given_up=Span(line, length),
    )


def _pinned(
    lines: Sequence[int], below: int, reach: int, room: int, length: int, grid: Grid
) -> Displacement | None:
    """The highest head that there is room for, if there is one."""
    heads = [
        line
        for line in lines
        if PIN_STEPS_MIN * grid.step <= line - below
        and line <= PIN_STEPS_MAX * grid.step
        and min(reach, line) - below <= room
    ]
    return _kept(Role.PIN, below, reach, heads[-1], length) if heads else None
