"""Faults of what a slot believes of its own state: tokens, anchors, ends, gates."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from collections.abc import Sequence
from contextlib import AbstractContextManager

from anchorline.adapters.memory.checkable_copies import CheckableCopies, SectionsCopy
from anchorline.adapters.memory.checkable_state import CheckableState, Parts, layout_of
from anchorline.application import resident_prefix
from anchorline.application.endings import Endings
from anchorline.application.forwards import Forwards
from anchorline.application.generation import Generation
from anchorline.application.resident_prefix import ResidentPrefix, Survey
from anchorline.application.slot_anchors import SlotAnchors
from anchorline.application.slots import Slot
from anchorline.domain.anchor import Anchor, AnchorKind, SectionsHandle
from anchorline.domain.end import End
from anchorline.domain.errors import AnchorlineError, EngineError
from anchorline.domain.grid import Grid, Span
from anchorline.domain.layout import Layout
from anchorline.domain.namespace import Namespace
from anchorline.domain.offers import usable_line
from anchorline.domain.prompt import Prompt
from anchorline.domain.taint_line import Gate, TaintLine, Writer
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput
from anchorline.ports.gpu_state import ByteBuffers

from .patching import Planted, everywhere, many_slots, replaced, together


def _tokens_not_compared() -> AbstractContextManager[None]:
    def shortest(a: TokenIds, b: TokenIds) -> int:
        return min(len(a), len(b))

    return replaced(resident_prefix, "common_prefix", shortest)


def _anchor_before_forward() -> AbstractContextManager[None]:
    prefill = Forwards._prefill

    def faulty(self: Forwards, slot: Slot) -> None:
        assert slot.running is not None
        span, _ = slot.running.next_chunk(slot.resident.parting)
        resident, held = slot.resident, slot.resident._sections
        early = held.capture(self._engine.slots[slot.index])
        prefill(self, slot)
        taken = resident._anchors._anchors.get(span.end)
        if taken is None or taken.handle == early:
            held.release(early)
            return
        held.release(taken.handle)
        resident._anchors._anchors[span.end] = Anchor(span.end, AnchorKind.GRID, early)

    return replaced(Forwards, "_prefill", faulty)


def _failed_forward_kept() -> AbstractContextManager[None]:
    def faulty(self: Endings, slot: Slot, error: AnchorlineError) -> None:
        generation, slot.running = slot.running, None
        if generation is not None:
            self._recorder.failed(generation.request, error)
            generation.fail(error)

    return replaced(Endings, "fail", faulty)


def _one_slot_of_a_batch_fails() -> AbstractContextManager[None]:
    decode = Forwards._decode

    def faulty(self: Forwards, slots: Sequence[Slot]) -> None:
        fail = Endings.fail
        failed: list[Slot] = []

        def fail_once(endings: Endings, slot: Slot, error: AnchorlineError) -> None:
            if not failed:
                failed.append(slot)
                fail(endings, slot, error)

        with replaced(Endings, "fail", fail_once):
            decode(self, slots)

    return replaced(Forwards, "_decode", faulty)


def _sections_aliased() -> AbstractContextManager[None]:
    def faulty(self: CheckableState, into: SectionsHandle | None = None) -> SectionsHandle:
        self._assert_sound()
        copies = self._copies
        handle = SectionsHandle(next(copies._numbers)) if into is None else into
        copies._sections[handle] = SectionsCopy(self._sections_line, self._section_bytes())
        return handle

    return replaced(CheckableState, "capture_sections", faulty)


def _buffer_given_out_twice() -> AbstractContextManager[None]:
    hold = CheckableCopies.hold_sections

    def faulty(
        self: CheckableCopies,
        line: int,
        parts: ByteBuffers,
        into: SectionsHandle | None = None,
    ) -> SectionsHandle:
        again = self._free_sections[-1] if into is None and self._free_sections else None
        handle = hold(self, line, parts, into)
        if again is not None:
            self._free_sections.append(again)
        return handle

    return replaced(CheckableCopies, "hold_sections", faulty)


def _view_forgotten() -> AbstractContextManager[None]:
    def faulty(parts: Parts, *, row_invariant: bool = False) -> Layout:
        layout = layout_of(parts, row_invariant=row_invariant)
        return Layout(tuple(view for view in layout.views if view.name != "bits"), layout.sections)

    return everywhere("layout_of", layout_of, faulty)


def _taint_forgotten_by_a_resume() -> AbstractContextManager[None]:
    def faulty(self: TaintLine, line: int) -> TaintLine:
        del self
        return TaintLine(line)

    return replaced(TaintLine, "resumed", faulty)


def _written_over_clean_is_clean() -> AbstractContextManager[None]:
    def faulty(
        self: TaintLine, span: Span, writer: Writer, grid: Grid, row_invariant: bool
    ) -> TaintLine:
        del writer, grid, row_invariant
        return TaintLine(span.end) if self.line == span.start else self

    return replaced(TaintLine, "forwarded", faulty)


def _always_bitwise() -> AbstractContextManager[None]:
    def faulty(self: TaintLine, line: int, kind: AnchorKind, row_invariant: bool) -> Gate:
        del self, line, kind, row_invariant
        return Gate.BITWISE

    return replaced(TaintLine, "gate", faulty)


def _clean_end_is_bitwise() -> AbstractContextManager[None]:
    def faulty(self: TaintLine, line: int, kind: AnchorKind, row_invariant: bool) -> Gate:
        del kind, row_invariant
        return Gate.BITWISE if line <= self.line else Gate.PRESERVED

    return replaced(TaintLine, "gate", faulty)


def _end_of_a_state_that_went_on() -> AbstractContextManager[None]:
    keep = Endings._keep_end

    def one_more(self: Endings, slot: Slot, generation: Generation) -> None:
        # A token was drafted and forwarded, and nobody took it.
        if slot.resident.length < self._engine.profile.window:
            try:
                self._engine.decode([DecodeInput(slot.index, 0)])
            except EngineError:
                slot.resident.forget()
                return
        keep(self, slot, generation)

    def keep_end(self: ResidentPrefix, generated_from: int) -> bool:
        self._state.settle()
        self._state.trim(self._length)
        self._end_buffer = self._state.capture_sections(self._end_buffer)
        region = Span(min(generated_from, self._length), self._length)
        self._regions = (*self._regions, region)
        self._end = End(self._length, regions=self._regions)
        return True

    return together(
        replaced(Endings, "_keep_end", one_more), replaced(ResidentPrefix, "keep_end", keep_end)
    )


def _anchors_outlive_their_rows() -> AbstractContextManager[None]:
    take = SlotAnchors.take

    def cut(self: SlotAnchors, line: int, reach: int | None = None) -> None:
        del self, line, reach

    def take_once(self: SlotAnchors, line: int) -> Anchor:
        return self._anchors[line] if line in self else take(self, line)

    return together(replaced(SlotAnchors, "cut", cut), replaced(SlotAnchors, "take", take_once))


def _anchors_not_released() -> AbstractContextManager[None]:
    def faulty(self: SlotAnchors, line: int, reach: int | None = None) -> None:
        for above in [have for have in self._anchors if line < have <= (reach or have)]:
            self._extra.discard(above)
            del self._anchors[above]

    return replaced(SlotAnchors, "cut", faulty)


def _nothing_left_to_forward() -> AbstractContextManager[None]:
    def faulty(prompt_length: int) -> int:
        return prompt_length

    return everywhere("usable_line", usable_line, faulty)


def _grid_from_the_resume_point() -> AbstractContextManager[None]:
    def faulty(self: Grid, start: int, end: int) -> Span:
        return Span(start, min(start + self.step, end))

    return replaced(Grid, "chunk", faulty)


def _namespace_ignored() -> AbstractContextManager[None]:
    survey = ResidentPrefix.survey

    def faulty(self: ResidentPrefix, prompt: Prompt, namespace: Namespace) -> Survey:
        del namespace
        return survey(self, prompt, self._namespace)

    return replaced(ResidentPrefix, "survey", faulty)


FAULTS = (
    Planted(
        "tokens not compared",
        "believes that what comes to a slot goes on with what stands there",
        "application.resident_prefix.common_prefix",
        _tokens_not_compared,
    ),
    Planted(
        "anchor before the forward",
        "publishes a line's anchor when its chunk is handed out, not when it has run",
        "application.forwards.Forwards._prefill",
        _anchor_before_forward,
    ),
    Planted(
        "failed forward kept",
        "tells the client of a failed forward, and leaves the slot's record as it was",
        "application.endings.Endings.fail",
        _failed_forward_kept,
    ),
    Planted(
        "one slot of a failed batch",
        "takes a batch that failed for a failure of its first sequence",
        "application.forwards.Forwards._decode",
        _one_slot_of_a_batch_fails,
        world=many_slots,
    ),
    Planted(
        "sections aliased",
        "keeps a reference to the live sections as an anchor, to save a copy",
        "adapters.memory.checkable_state.CheckableState.capture_sections",
        _sections_aliased,
    ),
    Planted(
        "sections of another line",
        "reads the free list of section buffers without taking the buffer off it",
        "adapters.memory.checkable_copies.CheckableCopies.hold_sections",
        _buffer_given_out_twice,
    ),
    Planted(
        "view forgotten",
        "leaves a view out of the layout: it is neither saved, nor summed, nor restored",
        "adapters.memory.checkable_state.layout_of",
        _view_forgotten,
    ),
    Planted(
        "wrong taint after a resume",
        "sets the taint line to the line that was resumed at: what stands is taken for clean",
        "domain.taint_line.TaintLine.resumed",
        _taint_forgotten_by_a_resume,
    ),
    Planted(
        "written over clean rows",
        "takes whatever was written over clean rows for clean, whoever wrote it and from where",
        "domain.taint_line.TaintLine.forwarded",
        _written_over_clean_is_clean,
    ),
    Planted(
        "preserved told bitwise",
        "takes equal to what was held for equal to a cold prefill",
        "domain.taint_line.TaintLine.gate",
        _always_bitwise,
    ),
    Planted(
        "clean end told bitwise",
        "looks at the taint line only, though a short chunk has written up to the end",
        "domain.taint_line.TaintLine.gate",
        _clean_end_is_bitwise,
    ),
    Planted(
        "end of a state that went on",
        "keeps the end though a drafted token was forwarded that nobody took",
        "application.resident_prefix.ResidentPrefix.keep_end",
        _end_of_a_state_that_went_on,
    ),
    Planted(
        "anchors outlive their rows",
        "does not drop the anchors above the line that a prompt resumes at",
        "application.slot_anchors.SlotAnchors.cut",
        _anchors_outlive_their_rows,
    ),
    Planted(
        "anchors not released",
        "drops anchors from the record and leaves their copies with the engine",
        "application.slot_anchors.SlotAnchors.cut",
        _anchors_not_released,
    ),
    Planted(
        "nothing left to forward",
        "lets a prompt resume at its own length, where no logits come from",
        "domain.offers.usable_line",
        _nothing_left_to_forward,
    ),
    Planted(
        "grid from the resume point",
        "counts chunks from where the prefill starts",
        "domain.grid.Grid.chunk",
        _grid_from_the_resume_point,
    ),
    Planted(
        "namespace ignored",
        "compares the tokens of a slot and forgets for whom they were read",
        "application.resident_prefix.ResidentPrefix.survey",
        _namespace_ignored,
    ),
)
