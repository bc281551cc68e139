"""Which prefixes of a prompt are worth keeping for every new session.

A line that was forwarded cold is work that a stored head would have saved. Lines are counted by
their prefix key each time a prefill forwards them cold, this pass included; resumed lines are not
counted. So with `admit_after` 2 the second prompt writes the head, and the third resumes from it.

What is stored already is not asked here: a head that can be resumed from is not passed cold, and
one that lost a block is, and is written again.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .grid import Grid

PROMPT_STEPS_MIN: Final = 4
"""Grid steps under which nothing is stored as a head."""

BRANCHES_MAX: Final = 4
"""Branches that a prompt gets beside the longest line that was counted enough."""

SESSION_LINES: Final = 4
"""Lines below its last user message that a session's first long prompt leaves behind."""


class HeadCause(enum.Enum):
    """Why a line gets an anchor on the medium."""

    COUNTED = "counted"
    SESSION = "session"
    BRANCH = "branch"


@dataclass(frozen=True, slots=True)
class PromptShape:
    """What head admission asks of a prompt.

    Attributes:
        length: in tokens.
        start: the line its prefill starts at.
        last_user: where its last user message starts.
        first_answer: where its first answer starts, or its length.
        first_of_session: the session is known and sent no long prompt before.
        clean: no row of it is tainted.
    """

    length: int
    start: int
    last_user: int
    first_answer: int
    first_of_session: bool
    clean: bool


def head_lines(
    shape: PromptShape, grid: Grid, counts: Mapping[int, int], admit_after: int
) -> dict[int, HeadCause]:
    """The lines of a prompt that get an anchor on the medium, ascending, with the reason.

    Only lines that this prefill passes: (start, length].

    Args:
        counts: by line, how often it was forwarded cold, this pass included.
        admit_after: the count from which a line is kept.
    """
    if not shape.clean or shape.length < PROMPT_STEPS_MIN * grid.step:
        return {}
    passed = [
        line
        for line in grid.lines(shape.start, shape.length)
        if line >= PROMPT_STEPS_MIN * grid.step
    ]
    chosen: dict[int, HeadCause] = {}
    counted = [line for line in passed if counts.get(line, 0) >= admit_after]
    # The last one always looks like a branch, whether or not prompts part there: it has a place of
    # its own.
    for line in _branches(counted[:-1], grid, counts, shape.first_answer):
        chosen[line] = HeadCause.BRANCH
    if shape.first_of_session:
        below_user = [line for line in passed if line <= shape.last_user]
        for line in below_user[-SESSION_LINES:]:
            chosen[line] = HeadCause.SESSION
    if counted:
        chosen[counted[-1]] = HeadCause.COUNTED
    return dict(sorted(chosen.items()))


def _branches(
    counted: list[int], grid: Grid, counts: Mapping[int, int], first_answer: int
) -> list[int]:
    """Lines after which prompts part: the count falls at the next line."""
    falls = [
        line
        for line in counted
        if line <= first_answer and counts.get(line + grid.step, 0) < counts[line]
    ]
    return falls[-BRANCHES_MAX:]
