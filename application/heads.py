"""Heads: prefixes that several sessions read cold are kept for every new session."""

from collections.abc import Callable, Sequence
from typing import Final

from ..domain.anchor import Anchor
from ..domain.entry import Role
from ..domain.grid import Grid
from ..domain.head_admission import PROMPT_STEPS_MIN, PromptShape, head_lines
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from .disk_tier import DiskTier
from .entry_write import EntryWrite, Snapshot
from .request import GenerationRequest
from .writes import Write, Writes

SESSIONS_KNOWN_MAX: Final = 4096
"""Session hints that are remembered to tell a session's first long request."""


class Heads:
    """Decides before a prefill what it leaves behind, and takes it along. On the engine thread."""

    def __init__(
        self,
        tier: DiskTier,
        writes: Writes,
        grid: Grid,
        start_write: Callable[[int, Snapshot, PromptChain], EntryWrite],
        may_write: Callable[[PromptChain, int], bool],
    ) -> None:
        """Takes where writes go.

        Args:
            start_write: makes the write of a slot's state; anchors are added on the way.
            may_write: whether a head up to a line may be written now, with room made for it.
        """
        self._tier = tier
        self._writes = writes
        self._grid = grid
        self._start_write = start_write
        self._may_write = may_write
        self._sessions: dict[str, None] = {}
        self._planned: dict[int, tuple[set[int], Write]] = {}

    def began(
        self, slot: int, request: GenerationRequest, chain: PromptChain, start: int, *, clean: bool
    ) -> None:
        """A prefill starts at `start`: count its cold lines, and plan which become heads.

        Args:
            clean: every row below `start` was written by a cold grid prefill.
        """
        self._planned.pop(slot, None)
        prompt = request.prompt
        is_long = len(prompt) >= PROMPT_STEPS_MIN * self._grid.step
        first = is_long and self._is_new(request.session)
        if not clean or not is_long:
            return
        counts = self._tier.count_cold(chain, list(self._grid.lines(start, len(prompt))))
        shape = PromptShape(
            length=len(prompt),
            start=start,
            last_user=prompt.last_user,
            first_answer=len(prompt) if prompt.first_answer is None else prompt.first_answer,
            first_of_session=first,
            clean=clean,
        )
        lines = list(head_lines(shape, self._grid, counts, self._tier.limits.admit_after))
        lines = [line for line in lines if not self._is_stored(chain, line)]
        if lines and self._may_write(chain, lines[-1]):
            self._planned[slot] = (set(lines), self._write(slot, request, chain, lines))

    def anchored(self, slot: int, anchor: Anchor) -> None:
        """A prefill chunk has ended at a line, and its sections stand in place."""
        lines, write = self._planned.get(slot, (set[int](), None))
        if write is not None and anchor.line in lines:
            write.work.add_anchor(anchor)

    def prefilled(self, slot: int) -> None:
        """The prefill has ended: its rows may be copied while the answer is generated."""
        planned = self._planned.pop(slot, None)
        if planned is not None:
            planned[1].ready = True

    def _write(
        self, slot: int, request: GenerationRequest, chain: PromptChain, lines: Sequence[int]
    ) -> Write:
        top = lines[-1]
        prompt: Prompt = request.prompt
        snapshot = Snapshot(
            fingerprint=self._tier.fingerprint,
            namespace=request.namespace,
            role=Role.HEAD,
            session=None,
            ids=prompt.ids[:top],
            key_ids=prompt.key_ids[:top],
            taint=top,
            end=None,
        )
        write = Write(slot, self._start_write(slot, snapshot, chain), ready=False)
        self._writes.add(write)
        return write

    def _is_stored(self, chain: PromptChain, line: int) -> bool:
        """Whether a clean anchor of this line can be resumed from the medium already."""
        return any(
            found.line == line and found.line <= found.entry.taint
            for found in self._tier.index.continuations(chain, line)
        )

    def _is_new(self, session: str | None) -> bool:
        if session is None or session in self._sessions:
            return False
        self._sessions[session] = None
        while len(self._sessions) > SESSIONS_KNOWN_MAX:
            del self._sessions[next(iter(self._sessions))]
        return True
