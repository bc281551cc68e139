"""The resident prefix of a slot: rows left in place, and anchors that make them resumable.

A conversation only grows: each prompt is the last prompt, plus the answer, plus a little more. So
its rows stay where the forward wrote them, and only the sections are copied, at grid lines while a
prefill passes them and once where a generation ends.

    rows      0 . . . . . . . . . . . . . . . . . . . . . length
    anchors       |       |       |       |                        grid, from prefill chunks
    end                                              |             one, from the last generation

Which anchors stand beside the end's is `application.slot_anchors`.
"""

from typing import Final

import numpy as np

from ..domain.anchor import Anchor, AnchorKind, SectionsHandle
from ..domain.anchor_budget import AnchorBudget
from ..domain.end import End
from ..domain.entry import Source, Tier
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.offers import Offer, usable_line
from ..domain.prompt import Prompt
from ..domain.taint_line import TaintLine, Writer
from ..domain.tokens import TokenIds, common_prefix
from ..ports.engine import EngineProfile
from ..ports.gpu_state import GpuState
from .held_sections import HeldSections
from .kept_state import AdoptedState, KeptState, Lasting, Survey, lasting
from .live_verify_seals import Seals
from .slot_anchors import SlotAnchors

KEPT_ANCHORS_MAX: Final = 12
"""Of an entry in memory, beside its end's: the newest four, and eight spread over the rest."""

PARTING_PART: Final = 8
"""Of a grid step: where two prompts part less than that above a grid line, no chunk ends there."""

REGIONS_MAX: Final = 256
"""Generations whose spans are remembered; the oldest go first."""


class ResidentPrefix:
    """Which tokens a slot's state has absorbed, and where it can be resumed.

    The only writer of its slot's state besides the forwards themselves, whose outcome it is told
    by `advanced` and `decoded`.

    Attributes:
        seals: of what is kept, where it is to be verified.
        changes: counts how often something of it was given up or replaced; while it is the same,
            tokens were at most added.
    """

    def __init__(
        self,
        state: GpuState,
        profile: EngineProfile,
        budget: AnchorBudget,
        sections: HeldSections,
        seals: Seals | None = None,
    ) -> None:
        """Takes an empty slot.

        Args:
            sections: of the engine: what entries hold of this slot's copies is not given back.
        """
        self._state = state
        self._sections = sections
        self.seals = seals
        self.changes = 0
        self._profile = profile
        self._grid = profile.grid
        self._anchors = SlotAnchors(state, profile, budget, sections)
        self._parting = 0
        self._ids = np.zeros(profile.window, dtype=np.uint32)
        self._key_ids = np.zeros(profile.window, dtype=np.uint32)
        self._length = 0
        self._taint = TaintLine()
        self._namespace = Namespace()
        self._end: End | None = None
        self._regions: tuple[Span, ...] = ()
        self._end_buffer: SectionsHandle | None = None

    @property
    def length(self) -> int:
        """How many tokens are resident."""
        return self._length

    @property
    def ids(self) -> TokenIds:
        """The resident tokens, as the model read them; a read-only view."""
        view = self._ids[: self._length]
        view.flags.writeable = False
        return view

    @property
    def taint(self) -> TaintLine:
        return self._taint

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The grid anchors, ascending by line."""
        return self._anchors.on_grid

    @property
    def kept(self) -> int:
        """How many anchors stand beside that of the newest end, off the grid too."""
        return len(self._anchors)

    @property
    def capacity(self) -> int:
        """How many of these may stand."""
        return self._anchors.capacity

    @property
    def parting(self) -> int:
        """A line at which the prefill that runs is to end a chunk, for an anchor there; or 0."""
        return self._parting

    @property
    def end(self) -> End | None:
        """The end of the last generation, if its state is kept."""
        return self._end

    @property
    def highest(self) -> int:
        """The highest line it can be resumed at; 0 if at none."""
        end = 0 if self._end is None else self._end.line
        return max([end, *(anchor.line for anchor in self._anchors.standing)])

    @property
    def lines(self) -> list[int]:
        """Where it can be resumed, ascending."""
        return sorted({anchor.line for anchor in self._all_anchors()})

    @property
    def resumable(self) -> tuple[Anchor, ...]:
        """All anchors: those beside the end's ascending, and then the end's."""
        return self._all_anchors()

    @property
    def lasting(self) -> Lasting:
        """What a medium keeps of it."""
        return lasting(self._all_anchors(), self._end, self._regions, self._grid)

    @property
    def key_ids(self) -> TokenIds:
        """The resident tokens, as caches compare them; a read-only view."""
        view = self._key_ids[: self._length]
        view.flags.writeable = False
        return view

    @property
    def namespace(self) -> Namespace:
        return self._namespace

    @property
    def end_anchor(self) -> Anchor | None:
        """The end's copy of the sections, if it is kept."""
        if self._end is None or self._end_buffer is None:
            return None
        return Anchor(self._end.line, AnchorKind.END, self._end_buffer)

    def survey(self, prompt: Prompt, namespace: Namespace) -> Survey:
        """How far this slot's state continues `prompt`; changes nothing.

        Token ids are compared one by one, over the whole shared prefix.
        """
        if namespace != self._namespace:
            return Survey(0, (), self._all_anchors())
        shared = common_prefix(self._key_ids[: self._length], prompt.key_ids)
        highest = min(shared, usable_line(len(prompt)))
        usable = [anchor for anchor in self._all_anchors() if anchor.line <= highest]
        unusable = tuple(anchor for anchor in self._all_anchors() if anchor.line > highest)
        # Moving nothing costs nothing, so of the grid anchors only the highest can ever win.
        grid = [anchor for anchor in usable if anchor.kind is AnchorKind.GRID][-1:]
        ends = [anchor for anchor in usable if anchor.kind is AnchorKind.END]
        return Survey(shared, tuple(self._offer(anchor) for anchor in (*grid, *ends)), unusable)

    def begin(self, prompt: Prompt, namespace: Namespace, offer: Offer) -> None:
        """Put the slot at the offer's line, before any row is written.

        Anchors above the line go: the rows they need are about to be overwritten.

        Args:
            offer: from this object's last `survey` of the same prompt, or the cold one.
        """
        shared = self.survey(prompt, namespace).shared
        assert offer.line <= min(shared, usable_line(len(prompt))), (offer.line, shared)
        parted = [shared] if shared < self._length else []
        self._anchors.note_junctions(shared, prompt.last_user, *parted)
        self._parting = self._parting_line(shared, offer.line)
        self._cut(offer.line)
        self._namespace = namespace
        if offer.anchor is not None:
            assert offer.anchor.line == offer.line
            self._state.restore_sections(offer.anchor.handle)
            self._anchors.resumed(offer.line)
        self._state.resume_at(offer.line)

    def cut_for_import(self, line: int, taint: int) -> None:
        """Rows from `line` on are about to be replaced by others; what needs them goes.

        Args:
            taint: of the state that comes. Equal rows do not make equal sections: an anchor that is
                tainted here, and would be clean there, is another history's, and goes too.
        """
        tainted = self._taint.line
        self._cut(line)
        self._anchors.cut(tainted, taint)

    def adopt(self, state: AdoptedState) -> None:
        """Rows and sections of `state` stand in place now, imported and verified.

        Follow with `begin` of the offer it was imported for, or leave it for the next request.
        Anchors that were kept by `cut_for_import` stay.
        """
        line = state.line
        self.changes += 1
        self._ids[:line] = state.ids
        self._key_ids[:line] = state.key_ids
        self._length = line
        self._taint = TaintLine(min(state.taint, line))
        self._namespace = state.namespace
        if state.end is None:
            if self._grid.has(line) and line not in self._anchors:
                self._seal(self._anchors.take(line))
        else:
            self._end_buffer = self._sections.capture(self._state, self._end_buffer)
            self._end, self._regions = state.end, state.end.regions
            self._seal(self.end_anchor)
        self._state.resume_at(line)

    def kept_state(self, line: int) -> KeptState:
        """What is known of the conversation up to a line at which it has an anchor.

        With the newest anchors, and from the rest those that are spread over it.
        """
        spread = self._anchors.spread(line, KEPT_ANCHORS_MAX)
        anchors = [
            anchor
            for anchor in self._all_anchors()
            if anchor.kind is AnchorKind.END or anchor.line in spread
        ]
        whole = KeptState(
            ids=self._ids[: self.highest].copy(),
            key_ids=self._key_ids[: self.highest].copy(),
            namespace=self._namespace,
            taint=min(self._taint.line, self.highest),
            anchors=tuple(sorted(anchors, key=lambda anchor: anchor.line)),
            end=None if self.end_anchor is None else self._end,
            regions=self._regions,
        )
        return whole.below(line)

    def take(self, kept: KeptState) -> None:
        """The rows of a kept state stand in place again, in a slot that has forgotten all else.

        Its copies of sections are shared with whoever keeps it. Follow with `begin`.
        """
        assert self._length == 0, "a slot that holds something else"
        self.changes += 1
        self._ids[: kept.line] = kept.ids
        self._key_ids[: kept.line] = kept.key_ids
        self._length = kept.line
        self._taint = TaintLine(kept.taint)
        self._namespace = kept.namespace
        self._regions = kept.regions
        for anchor in kept.anchors:
            self._share(anchor, kept)

    def _share(self, anchor: Anchor, kept: KeptState) -> None:
        handle = self._sections.hold(anchor.handle)
        is_end = anchor.kind is AnchorKind.END
        if is_end and kept.end is not None and anchor.line == kept.end.line:
            if self._end_buffer is not None:
                self._sections.release(self._end_buffer)
            self._end, self._end_buffer = kept.end, handle
        else:
            self._anchors.adopt(anchor)
        if self.seals is not None:
            self.seals.seal_rows(self._taint.line, anchor.line)

    def adopt_anchor(self, line: int) -> None:
        """The sections in place are of grid line `line`, below what will be adopted next."""
        assert self._grid.has(line)
        if line not in self._anchors:
            self._seal(self._anchors.take(line))

    def advanced(self, span: Span, prompt: Prompt) -> None:
        """A prefill chunk of `prompt` has run to its end and written the rows of `span`.

        Takes an anchor when the chunk ended on a grid line, and where arithmetic is row-invariant
        also where the prompt parted from the conversation before it, and at the prompt's end: a
        client that drops an answer's reasoning parts from it there.
        """
        self._absorb(span, prompt.ids[span.start : span.end], prompt.key_ids[span.start : span.end])
        self._taint = self._forwarded(span, Writer.PREFILL)
        if self._grid.has(span.end):
            self._seal(self._anchors.take(span.end))
        elif self._profile.row_invariant and span.end in {self._parting, len(prompt)}:
            self._seal(self._anchors.take_extra(span.end, boundary=True))

    def decoded(self, token: int) -> None:
        """One generated token has been forwarded.

        Takes an anchor on a grid line where arithmetic is row-invariant: there a prefill would
        have left the same.
        """
        span = Span(self._length, self._length + 1)
        ids = np.array([token], dtype=np.uint32)
        self._absorb(span, ids, ids)
        self._taint = self._forwarded(span, Writer.DECODE)
        if self._profile.row_invariant and self._grid.has(span.end):
            self._seal(self._anchors.take_extra(span.end, boundary=False))

    def keep_end(self, generated_from: int) -> bool:
        """Keep the state where the generation stopped; whether that was possible.

        It is not when the sections have absorbed tokens that do not belong to the conversation.

        Args:
            generated_from: the line where the generated tokens begin.
        """
        self._state.settle()
        self._anchors.turn_ended()
        if not self._state.trim(self._length):
            self._end = None
            return False
        self._keep_earlier_end()
        self._end_buffer = self._sections.capture(self._state, self._end_buffer)
        self._regions = (*self._regions, Span(min(generated_from, self._length), self._length))
        self._regions = self._regions[-REGIONS_MAX:]
        self._end = End(self._length, regions=self._regions)
        self._seal(self.end_anchor)
        return True

    def thin(self, count: int) -> int:
        """Give up to so many anchors back, but for the newest ones; how many went."""
        dropped = self._anchors.thin(count)
        self.changes += dropped > 0
        return dropped

    def drop_end(self) -> bool:
        """Give the copy of the newest end back: the next turn resumes below it."""
        if self._end_buffer is None:
            return False
        self._sections.release(self._end_buffer)
        self._end, self._end_buffer = None, None
        self.changes += 1
        return True

    def forget(self) -> None:
        """Drop everything: the state is no longer known. The next start is cold."""
        self._cut(0)
        self._anchors.forget()

    def _offer(self, anchor: Anchor) -> Offer:
        gate = self._taint.gate(anchor.line, anchor.kind, self._profile.row_invariant)
        source = Source.END if anchor.kind is AnchorKind.END else Source.RESIDENT
        return Offer(anchor.line, gate, Tier.SLOT, source, anchor)

    def _all_anchors(self) -> tuple[Anchor, ...]:
        end = self.end_anchor
        return self._anchors.standing if end is None else (*self._anchors.standing, end)

    def _absorb(self, span: Span, ids: TokenIds, key_ids: TokenIds) -> None:
        assert span.start == self._length == self._state.length - len(span), (span, self._length)
        self._ids[span.start : span.end] = ids
        self._key_ids[span.start : span.end] = key_ids
        self._length = span.end

    def _forwarded(self, span: Span, writer: Writer) -> TaintLine:
        return self._taint.forwarded(span, writer, self._grid, self._profile.row_invariant)

    def _parting_line(self, shared: int, line: int) -> int:
        """Where an anchor off the grid pays: what has parted from others there once does again.

        Args:
            line: where the prefill starts.
        """
        if not self._profile.row_invariant or shared >= self._length:
            return 0
        saved = shared - max(self._grid.floor(shared), line)
        return shared if saved * PARTING_PART >= self._grid.step else 0

    def _cut(self, line: int) -> None:
        """Give up everything above `line`."""
        self._anchors.cut(line)
        if self._end is not None and self._end.line > line:
            self._end = None
        self._regions = tuple(region for region in self._regions if region.end <= line)
        if self.seals is not None:
            self.seals.cut(line)
        self.changes += line < self._length
        self._length = line
        self._taint = self._taint.resumed(line)

    def _keep_earlier_end(self) -> None:
        """A new end is about to be kept: the one before stays beside it, as an anchor."""
        earlier = self.end_anchor
        if earlier is None or earlier.line in self._anchors or earlier.line == self._length:
            return
        self._anchors.keep_end(earlier)
        self._end_buffer = None

    def _seal(self, anchor: Anchor | None) -> None:
        """Take the sums of the anchor in place, and of the rows below it that are tainted."""
        if self.seals is not None and anchor is not None:
            self.seals.seal_sections(anchor)
            self.seals.seal_rows(self._taint.line, anchor.line)
