"""What an engine's slot holds, read out through the port so that two states can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from anchorline.domain.anchor import RowsHandle, SectionsHandle
from anchorline.domain.grid import Span
from anchorline.domain.layout import Layout
from anchorline.domain.sampling import Logits
from anchorline.domain.sums import Sums, sums_of
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.engine import DecodeInput, Engine
from anchorline.ports.gpu_state import SlotState


@dataclass(frozen=True)
class Reading:
    """A state at one line: what "equal, bit for bit" compares.

    Attributes:
        length: the line.
        rows: bytes of rows [0, length), by view.
        sections: bytes of the sections in place, by name.
        logits: bytes of the logits that the forward to `length` returned; None where there were
            none.
    """

    length: int
    rows: dict[str, bytes]
    sections: dict[str, bytes]
    logits: bytes | None = None


@dataclass
class Seen:
    """What a copy was looked at as it passed, by part; its `look` may be called on any thread."""

    parts: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def look(self, name: str, data: npt.NDArray[np.uint8]) -> None:
        self.parts[name] = self.parts.get(name, b"") + data.tobytes()


def row_buffers(layout: Layout, span: Span) -> dict[str, npt.NDArray[np.uint8]]:
    """Buffers for the rows of `span`, filled with a byte that no test expects."""
    return {
        view.name: np.full(len(span) * view.row_bytes, 0xA5, dtype=np.uint8)
        for view in layout.views
    }


def section_buffers(layout: Layout) -> dict[str, npt.NDArray[np.uint8]]:
    """Buffers for all sections, filled with a byte that no test expects."""
    return {
        section.name: np.full(section.nbytes, 0xA5, dtype=np.uint8) for section in layout.sections
    }


def exported_rows(state: SlotState, span: Span) -> dict[str, npt.NDArray[np.uint8]]:
    """The rows of `span` as the port gives them."""
    buffers = row_buffers(state.layout, span)
    state.settle()
    state.export_rows(span, buffers)
    return buffers


def exported_sections(state: SlotState) -> dict[str, npt.NDArray[np.uint8]]:
    """The sections in place as the port gives them."""
    buffers = section_buffers(state.layout)
    state.settle()
    state.export_sections(buffers)
    return buffers


def copied_rows(engine: Engine, handle: RowsHandle) -> dict[str, npt.NDArray[np.uint8]]:
    """The rows of a copy as the port gives them."""
    buffers = row_buffers(engine.profile.layout, engine.copies.rows_span(handle))
    engine.copies.export_rows(handle, buffers)
    return buffers


def copied_sections(engine: Engine, handle: SectionsHandle) -> dict[str, npt.NDArray[np.uint8]]:
    """The sections of a copy as the port gives them."""
    buffers = section_buffers(engine.profile.layout)
    engine.copies.export_sections(handle, buffers)
    return buffers


def read(state: SlotState, logits: Logits | None = None) -> Reading:
    """The whole state of a slot, with the logits of the forward that led to it."""
    return Reading(
        length=state.length,
        rows={
            name: data.tobytes()
            for name, data in exported_rows(state, Span(0, state.length)).items()
        },
        sections={name: data.tobytes() for name, data in exported_sections(state).items()},
        logits=None if logits is None else logits.tobytes(),
    )


def differences(one: Reading, other: Reading) -> list[str]:
    """The parts in which two readings differ: short, where a diff of bytes would be pages."""
    found: list[str] = []
    if one.length != other.length:
        found.append(f"length: {one.length} and {other.length}")
    if one.logits != other.logits:
        found.append("logits")
    for kind, ours, theirs in (
        ("view", one.rows, other.rows),
        ("section", one.sections, other.sections),
    ):
        names = sorted(ours.keys() | theirs.keys())
        found += [f"{kind} {name}" for name in names if ours.get(name) != theirs.get(name)]
    return found


def some_ids(count: int, *, seed: int, vocabulary: int) -> TokenIds:
    """Ids that look random and are the same for the same arguments."""
    return token_ids(np.random.default_rng(seed).integers(0, vocabulary, count))


def prefill_to(engine: Engine, slot: int, ids: TokenIds, line: int | None = None) -> Logits:
    """Prefill `ids` on the grid from the slot's length up to `line` (all of them by default)."""
    state = engine.slots[slot]
    logits: Logits | None = None
    for chunk in engine.profile.grid.chunks(state.length, len(ids) if line is None else line):
        logits = engine.prefill(slot, ids[chunk.start : chunk.end])
    assert logits is not None, "at least one token is always forwarded"
    return logits


def decode_all(engine: Engine, slot: int, tokens: TokenIds) -> Logits:
    """Decode `tokens` one by one; the last one's logits."""
    logits: Logits | None = None
    for token in tokens:
        (logits,) = engine.decode([DecodeInput(slot, int(token))])
    assert logits is not None, "there was nothing to decode"
    return logits


def move_rows(source: SlotState, target: SlotState, span: Span) -> None:
    """Carry rows from slot to slot through bytes."""
    target.import_rows(span, exported_rows(source, span))


def move_state(source: SlotState, target: SlotState) -> None:
    """Carry a whole state from slot to slot through bytes, and make it the target's."""
    line = source.length
    move_rows(source, target, Span(0, line))
    target.import_sections(line, exported_sections(source))
    target.resume_at(line)


def as_bytes(buffers: Mapping[str, npt.NDArray[np.uint8]]) -> dict[str, bytes]:
    """Buffers as values that can be compared."""
    return {name: data.tobytes() for name, data in buffers.items()}


def without_logits(reading: Reading) -> Reading:
    """The state alone."""
    return Reading(reading.length, reading.rows, reading.sections)


def summed(buffers: Mapping[str, npt.NDArray[np.uint8]]) -> dict[str, Sums]:
    """The sums of each buffer."""
    return {name: sums_of(data) for name, data in buffers.items()}


def parted(ours: Mapping[str, Sums], theirs: Mapping[str, Sums]) -> list[str]:
    """The names whose sums differ."""
    return [name for name, sums in theirs.items() if ours[name] != sums]
