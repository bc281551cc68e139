"""The state of one slot of the in-memory engine: integers that say what they are the state of.

`prefix[t]` is a running hash of tokens 0 .. t: it says *whose* row this is. `bits[t]` stands for
what arithmetic wrote: it depends also on *how* the row was computed. Every forward reads all rows
below it, as attention does, and what does not belong there is carried into all that it writes.

Row-invariant arithmetic is modelled as it is made: a forward computes `padded_rows` of its tokens,
so that a row's bits are its own, and sections are a state at a *tile line* with what came since
beside it, so that it does not matter in which pieces tokens came.
"""

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ...domain.anchor import RowsHandle, SectionsHandle
from ...domain.errors import WrongLine
from ...domain.grid import Span
from ...domain.layout import Layout, Section, View
from ...domain.sums import Sums
from ...domain.taint_line import Writer
from ...domain.tokens import TokenIds
from ...ports.gpu_state import ByteBuffers, Look
from .checkable_copies import CheckableCopies, PlacedRows, fill, pour, show, sums

Words: TypeAlias = npt.NDArray[np.uint64]

WRITER_MARKS: Final = {Writer.PREFILL: 1, Writer.DECODE: 2}
"""What the view `writer` holds; 0 where nothing was written yet."""

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST_INVERSE: Final = pow(_FIRST, -1, 1 << 64)
_SECOND_INVERSE: Final = pow(_SECOND, -1, 1 << 64)


class Parts(enum.Enum):
    """Which kinds of parts the state has."""

    HYBRID = "hybrid"
    """Views and sections."""

    ATTENTION = "attention"
    """Views alone: the state can be cut at any row."""

    RECURRENT = "recurrent"
    """Sections alone."""


_VIEWS: Final = (
    View("prefix", "uint64", (), "check:hash"),
    View("bits", "uint64", (), "check:hash"),
    View("writer", "uint8", (), "check:hash"),
)
_SECTIONS: Final = (
    Section("tokens", "uint64", (1,), "check:hash"),
    Section("bits_after", "uint64", (1,), "check:hash"),
    Section("count", "int64", (1,), "check:hash"),
)


PAD: Final = 4
"""Rows that a row-invariant forward computes at least, and a multiple of which it computes."""

TILE: Final = 4
"""Tokens that a row-invariant recurrence absorbs at one time."""

_TILE_SECTIONS: Final = (
    Section("tile", "uint64", (1,), "check:hash"),
    Section("open_rows", "uint64", (TILE,), "check:hash"),
)


def layout_of(parts: Parts, *, row_invariant: bool = False) -> Layout:
    """The layout of a state with such parts."""
    sections = (*_SECTIONS, *_TILE_SECTIONS) if row_invariant else _SECTIONS
    return Layout(
        views=() if parts is Parts.RECURRENT else _VIEWS,
        sections=() if parts is Parts.ATTENTION else sections,
    )


def padded_rows(count: int) -> int:
    """How many rows a row-invariant forward of so many tokens computes."""
    return -(-count // PAD) * PAD


def tile_line(line: int) -> int:
    """The line of the state that row-invariant sections of a line hold."""
    return line // TILE * TILE


def mixed(words: Words) -> Words:
    """The finaliser of splitmix64, a bijection of 64-bit words; a new array."""
    z = (words ^ (words >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def _unmixed(words: Words) -> Words:
    """The inverse of `mixed`."""
    z = words ^ (words >> np.uint64(31)) ^ (words >> np.uint64(62))
    z *= np.uint64(_SECOND_INVERSE)
    z ^= (z >> np.uint64(27)) ^ (z >> np.uint64(54))
    z *= np.uint64(_FIRST_INVERSE)
    return z ^ (z >> np.uint64(30)) ^ (z >> np.uint64(60))


def fold(*values: int) -> int:
    """One word that depends on every value and on their order."""
    word = 0
    for value in values:
        word = (word * _GOLDEN + value + 1) & _WORD
        word = ((word ^ (word >> 30)) * _FIRST) & _WORD
        word = ((word ^ (word >> 27)) * _SECOND) & _WORD
        word ^= word >> 31
    return word


def _steps(start: int, ids: TokenIds) -> Words:
    """What each token adds to the running hash: one word for each pair of position and id."""
    positions = np.arange(start, start + len(ids), dtype=np.uint64)
    return mixed((positions << np.uint64(32)) | ids.astype(np.uint64))


def expected_prefixes(ids: TokenIds) -> Words:
    """The view `prefix` of a state that has absorbed exactly `ids`; shape (tokens,)."""
    return np.cumsum(_steps(0, ids), dtype=np.uint64)


def expected_prefix_hash(ids: TokenIds) -> int:
    """The section `tokens` of a state that has absorbed exactly `ids`; 0 for none."""
    return int(expected_prefixes(ids)[-1]) if len(ids) else 0


class CheckableState:
    """Implements `ports.gpu_state.SlotState` over arrays of integers.

    Stricter than the port where the port leaves something to its caller: a forward between
    `restore_sections` and `resume_at`, and any use of a slot whose forward failed, are refused; so
    is whatever `CheckableCopies` refuses.

    Attributes:
        lanes_place: of all states: whether lanes bring rows in by themselves. Not by default, so
            that whoever watches an engine sees all of them come.
    """

    lanes_place: bool = False

    def __init__(
        self, *, layout: Layout, window: int, row_invariant: bool, copies: CheckableCopies
    ):
        """Allocates the rows.

        Args:
            layout: one of `layout_of`.
            copies: those of the engine.
        """
        self._layout = layout
        self._row_invariant = row_invariant
        self._copies = copies
        self._rows = {
            view.name: np.zeros((window, *view.row_shape), dtype=view.dtype) for view in _VIEWS
        }
        self._sections = _zero_sections(layout)
        self._length = 0
        self._sections_line: int = 0
        self._broken = False

    # --- GpuState -------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def length(self) -> int:
        return self._length

    def unwritten_bytes(self, line: int) -> int:
        return (self.window - line) * self._layout.row_bytes

    def settle(self) -> None:
        """Nothing is ever under way."""

    def trim(self, line: int) -> bool:
        self._assert_sound()
        assert 0 <= line <= self._length, f"line {line} is above the length {self._length}"
        if self._layout.sections and line != self._sections_line:
            return False
        self._length = self._sections_line = line
        return True

    def resume_at(self, line: int) -> None:
        assert 0 <= line <= self.window, f"line {line} lies outside a window of {self.window}"
        if line == 0:
            self._sections = _zero_sections(self._layout)
            self._broken = False
        else:
            self._assert_sound()
            if self._layout.sections and line != self._sections_line:
                raise WrongLine(f"the sections are of line {self._sections_line}, not of {line}")
        self._length = self._sections_line = line

    def capture_sections(self, into: SectionsHandle | None = None) -> SectionsHandle:
        self._assert_sound()
        return self._copies.hold_sections(self._sections_line, self._section_bytes(), into)

    def restore_sections(self, handle: SectionsHandle) -> None:
        self._assert_sound()
        copy = self._copies.sections_of(handle)
        fill(self._section_bytes(), copy.parts)
        self._sections_line = copy.line

    def release_sections(self, handle: SectionsHandle) -> None:
        self._copies.release_sections(handle)

    # --- RowsKeeping ----------------------------------------------------------------------------

    def capture_rows(self, span: Span) -> RowsHandle:
        self._assert_sound()
        return self._copies.hold_rows(span, self._row_bytes(span))

    def restore_rows(self, handle: RowsHandle) -> None:
        self._assert_sound()
        copy = self._copies.rows_of(handle)
        fill(self._row_bytes(copy.span), copy.views)

    def swap_rows(self, handle: RowsHandle) -> None:
        self._assert_sound()
        copy = self._copies.rows_of(handle)
        places = self._row_bytes(copy.span)
        came_in = {name: data.copy() for name, data in copy.views.items()}
        fill(copy.views, places)
        fill(places, came_in)

    # --- StateTransfer --------------------------------------------------------------------------

    def export_rows(self, span: Span, buffers: ByteBuffers) -> None:
        pour(self._row_bytes(span), buffers)

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        self.export_rows(span, buffers)
        show(buffers, self._layout, look)
        return self.row_sums(span)

    def import_rows(self, span: Span, buffers: ByteBuffers) -> None:
        fill(self._row_bytes(span), buffers)

    def place_rows(self, span: Span) -> PlacedRows | None:
        return PlacedRows(self._row_bytes(span)) if self.lanes_place else None

    def export_sections(self, buffers: ByteBuffers) -> None:
        pour(self._section_bytes(), buffers)

    def import_sections(self, line: int, buffers: ByteBuffers) -> None:
        self._assert_sound()
        assert 0 <= line <= self.window, f"line {line} lies outside a window of {self.window}"
        fill(self._section_bytes(), buffers)
        self._sections_line = line

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        return sums(self._row_bytes(span))

    def section_sums(self) -> Mapping[str, Sums]:
        return sums(self._section_bytes())

    # --- what the engine does with it -----------------------------------------------------------

    @property
    def window(self) -> int:
        """Rows there are."""
        return len(self._rows["prefix"])

    def forward(self, ids: TokenIds, writer: Writer) -> int:
        """Write the rows of `ids` at the length; the hash the logits are made of."""
        self._assert_sound()
        start, end = self._length, self._length + len(ids)
        assert len(ids), "an empty chunk has no last token to give logits of"
        assert end <= self.window, f"{end} tokens do not fit a window of {self.window}"
        if self._layout.sections and self._sections_line != start:
            raise WrongLine(f"the sections are of line {self._sections_line}, the rows of {start}")
        tokens, bits = self._state_below()
        departure = self._departure(tokens)
        prefixes = np.cumsum(_steps(start, ids), dtype=np.uint64)
        prefixes += np.uint64((tokens + departure) & _WORD)
        if self._row_invariant:
            made_by, mark = departure, WRITER_MARKS[Writer.PREFILL]
            if padded_rows(len(ids)) % PAD:
                made_by = fold(departure, start, len(ids))  # sums in an order that rows decide
        else:
            mark = WRITER_MARKS[writer]
            made_by = fold(bits, self._attended(start), departure, start, len(ids), mark)
        self._rows["prefix"][start:end] = prefixes
        self._rows["bits"][start:end] = mixed(prefixes + np.uint64(made_by))
        self._rows["writer"][start:end] = mark
        if self._layout.sections:
            self._absorb(start, prefixes)
            self._sections["tokens"][0] = prefixes[-1]
            self._sections["bits_after"][0] = fold(int(self._rows["bits"][end - 1]))
            self._sections["count"][0] = end
        self._length = self._sections_line = end
        return int(prefixes[-1])

    def spoil(self) -> None:
        """What a failed forward leaves: garbage everywhere, until line 0 is resumed."""
        for place in (*self._rows.values(), *self._sections.values()):
            place.view(np.uint8)[:] = 0xDB
        self._broken = True

    def _state_below(self) -> tuple[int, int]:
        """The running hashes that the next forward goes on from."""
        if self._layout.sections:
            return int(self._sections["tokens"][0]), int(self._sections["bits_after"][0])
        if self._length == 0:
            return 0, 0
        below = self._length - 1
        return int(self._rows["prefix"][below]), fold(int(self._rows["bits"][below]))

    def _absorb(self, start: int, prefixes: Words) -> None:
        """Take rows into the open tile, and close the tiles that they fill."""
        if "tile" not in self._sections:
            return
        closed, line = tile_line(start), tile_line(start + len(prefixes))
        rows = np.concatenate([self._sections["open_rows"][: start - closed], prefixes])
        if line > closed:
            self._sections["tile"][0] = rows[line - closed - 1]
        left = rows[line - closed :][:TILE]
        self._sections["open_rows"][:] = 0
        self._sections["open_rows"][: len(left)] = left

    def _tile_departure(self, tokens: int) -> int:
        """0 where tile and open rows lead, token by token, to what the sections have absorbed."""
        if "tile" not in self._sections:
            return 0
        count = self._length % TILE
        opened = self._sections["open_rows"]
        rows = np.concatenate([self._sections["tile"], opened[:count]])
        positions = np.arange(self._length - count, self._length, dtype=np.uint64)
        foreign = _unmixed(np.diff(rows)) >> np.uint64(32) != positions
        if int(rows[-1]) == tokens and not foreign.any() and not opened[count:].any():
            return 0
        return fold(*map(int, rows), *map(int, opened[count:]))

    def _departure(self, tokens: int) -> int:
        """0 where the rows below and the sections are one state; else a word that says how not.

        A row's step from the row below it must be the word of some token at just that position,
        and the last row must be that of the sections: together, every row is the sections' own.
        """
        found = 0
        if self._layout.sections and int(self._sections["count"][0]) != self._length:
            found = fold(found, int(self._sections["count"][0]))
        if tiles := self._tile_departure(tokens):
            found = fold(found, tiles)
        if not self._layout.views or self._length == 0:
            return found
        prefixes = self._rows["prefix"][: self._length]
        if int(prefixes[-1]) != tokens:
            found = fold(found, int(prefixes[-1]), tokens)
        steps = np.diff(prefixes, prepend=np.uint64(0))
        foreign = np.arange(self._length, dtype=np.uint64) != _unmixed(steps) >> np.uint64(32)
        if self._row_invariant:
            foreign |= self._rows["bits"][: self._length] != mixed(prefixes)
            foreign |= self._rows["writer"][: self._length] != WRITER_MARKS[Writer.PREFILL]
        for row in np.flatnonzero(foreign)[:16]:
            found = fold(found, int(row), int(prefixes[row]), int(self._rows["bits"][row]))
        return found

    def _attended(self, end: int) -> int:
        """A word of bits and writers of all rows below `end`, each at its own position."""
        if not self._layout.views:
            return 0
        positions = np.arange(1, end + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        words = (self._rows["bits"][:end] ^ positions) + self._rows["writer"][:end]
        return int(mixed(words).sum(dtype=np.uint64))

    def _row_bytes(self, span: Span) -> dict[str, npt.NDArray[np.uint8]]:
        """The rows of `span` where they stand, as flat bytes."""
        assert span.end <= self.window, f"{span} reaches outside a window of {self.window}"
        return {
            view.name: self._rows[view.name][span.start : span.end].view(np.uint8)
            for view in self._layout.views
        }

    def _section_bytes(self) -> dict[str, npt.NDArray[np.uint8]]:
        """The sections where they stand, as flat bytes."""
        return {
            section.name: self._sections[section.name].view(np.uint8)
            for section in self._layout.sections
        }

    def _assert_sound(self) -> None:
        assert not self._broken, "a forward failed here: resume at line 0 before anything else"


def _zero_sections(layout: Layout) -> dict[str, npt.NDArray[np.generic]]:
    return {
        section.name: np.zeros(section.shape, dtype=section.dtype) for section in layout.sections
    }
