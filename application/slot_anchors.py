"""The anchors of a slot's conversation, beside that of its newest end: which stand, and which goes.

    rows      0 . . . . . . . . . . . . . . . . . . . . . length
    anchors       |       |       |       |                        grid, from prefill chunks
                                          :    :                   extras: few, the most valuable

The end before the newest one stays as an anchor: a helper's request that goes on from a
conversation and leaves it alone, or an edit of the last question, costs no answer again. Where
arithmetic is row-invariant any line will do, whoever wrote the rows: then there are anchors also
where decode passes a grid line, where a prompt ended, where one parted from the conversation before
it, and where some more generations ended. They never displace the newest anchors of a prefill.
"""

from collections.abc import Sequence

from ..domain.anchor import Anchor, AnchorKind
from ..domain.anchor_budget import AnchorBudget, line_to_drop, pin_lines, spread_lines
from ..domain.extra_anchors import ExtraAnchors
from ..ports.engine import EngineProfile
from ..ports.gpu_state import GpuState
from .held_sections import HeldSections


class SlotAnchors:
    """Anchors by line, under a budget. On the engine thread.

    Attributes:
        capacity: how many may stand.
    """

    def __init__(
        self,
        state: GpuState,
        profile: EngineProfile,
        budget: AnchorBudget,
        sections: HeldSections,
    ) -> None:
        """None stands.

        Args:
            sections: of the engine: what entries hold of this slot's copies is not given back.
        """
        self._state = state
        self._sections = sections
        self._grid = profile.grid
        self.capacity = budget.capacity(profile.layout.section_bytes)
        self._newest_kept = budget.newest_kept
        self._extras_max = self._most_extras(budget, profile)
        self._pinned = pin_lines(profile.grid)
        self._junctions: set[int] = set()
        self._anchors: dict[int, Anchor] = {}
        self._extra = ExtraAnchors()

    def __len__(self) -> int:
        return len(self._anchors)

    def __contains__(self, line: int) -> bool:
        return line in self._anchors

    @property
    def standing(self) -> tuple[Anchor, ...]:
        """All of them, ascending by line."""
        return tuple(self._anchors[line] for line in sorted(self._anchors))

    @property
    def on_grid(self) -> tuple[Anchor, ...]:
        """Those on grid lines that are no end, ascending by line."""
        return tuple(
            anchor
            for anchor in self.standing
            if anchor.kind is AnchorKind.GRID and self._grid.has(anchor.line)
        )

    def spread(self, line: int, count: int) -> tuple[int, ...]:
        """So many of the lines up to `line`: the newest, and of the others some, spread over it."""
        lines = tuple(anchor.line for anchor in self.standing if anchor.line <= line)
        junctions = frozenset(self._junctions)
        return spread_lines(lines, count, self._newest_kept, self._pinned, junctions)

    # --- taking ---------------------------------------------------------------------------------

    def take(self, line: int) -> Anchor:
        """Copy the sections in place, at a grid line that a prefill has come to."""
        if line in self._anchors:
            raise AssertionError(f"the anchor at {line} should have gone before its rows did")
        while len(self._anchors) >= self.capacity:
            self._drop(self._spare_extra() or self._line_to_drop(line))
        return self._captured(line)

    def take_extra(self, line: int, *, boundary: bool) -> Anchor:
        """Copy the sections in place, at a line where no chunk of a prefill has to end.

        Args:
            boundary: a prompt or a generation ended there, or a prompt parted.
        """
        self._make_room_for_extra()
        self._extra.add(line, boundary=boundary)
        return self._captured(line)

    def keep_end(self, earlier: Anchor) -> None:
        """The end before the one that is about to be kept stays: its copy is an anchor's now."""
        self._make_room_for_extra()
        self._anchors[earlier.line] = earlier
        self._extra.add(earlier.line, boundary=True)

    def adopt(self, anchor: Anchor) -> None:
        """One that stood with a conversation which has come back."""
        self._anchors[anchor.line] = anchor
        if anchor.kind is AnchorKind.END or not self._grid.has(anchor.line):
            self._extra.add(anchor.line, boundary=True)

    # --- use ------------------------------------------------------------------------------------

    def resumed(self, line: int) -> None:
        """A request has resumed from it."""
        self._extra.used(line)

    def turn_ended(self) -> None:
        """A generation has stopped."""
        self._extra.turn_ended()

    def note_junctions(self, shared: int, *lines: int) -> None:
        """Remember the grid lines where prompts part, or are likely to: edits come back there.

        Args:
            shared: tokens that the prompt shares with the conversation: what was above is gone.
        """
        self._junctions = {line for line in self._junctions if line <= shared}
        self._junctions.update(self._grid.floor(line) for line in lines)

    # --- giving up ------------------------------------------------------------------------------

    def cut(self, line: int, reach: int | None = None) -> None:
        """Give up those above `line`, up to `reach`."""
        for above in [have for have in self._anchors if have > line]:
            if reach is None or above <= reach:
                self._drop(above)

    def thin(self, count: int) -> int:
        """Give up to so many back, but for the newest ones; how many went."""
        dropped = 0
        while dropped < count and len(self._anchors) > self._newest_kept:
            self._drop(self._spare_extra() or self._line_to_drop())
            dropped += 1
        return dropped

    def forget(self) -> None:
        """Give all up, and what is known of lines."""
        self.cut(0)
        self._junctions.clear()

    # --- private --------------------------------------------------------------------------------

    def _captured(self, line: int) -> Anchor:
        self._anchors[line] = Anchor(line, AnchorKind.GRID, self._sections.capture(self._state))
        return self._anchors[line]

    def _make_room_for_extra(self) -> None:
        if len(self._extra) >= self._extras_max:
            self._drop(self._extra.least(self._anchors))
        while len(self._anchors) >= self.capacity:
            self._drop(self._spare_extra() or self._line_to_drop())

    def _spare_extra(self) -> int | None:
        """The extra that goes where the anchors of prefills are down to the newest ones."""
        if not self._extra or len(self._anchors) - len(self._extra) >= self._newest_kept + 1:
            return None
        return self._extra.least(self._anchors)

    def _line_to_drop(self, *taken: int) -> int:
        """The anchor of a prefill that goes; `taken` is one that is about to stand."""
        lines: Sequence[int] = [*sorted(set(self._anchors) - self._extra.lines), *taken]
        return line_to_drop(lines, self._newest_kept, self._pinned, self._junctions)

    def _drop(self, line: int) -> None:
        self._extra.discard(line)
        self._sections.release(self._anchors.pop(line).handle)

    @staticmethod
    def _most_extras(budget: AnchorBudget, profile: EngineProfile) -> int:
        if not profile.row_invariant:
            return 1
        # Without sections they take nothing.
        few = budget.newest_kept
        return few if profile.layout.sections else budget.capacity(profile.layout.section_bytes)
