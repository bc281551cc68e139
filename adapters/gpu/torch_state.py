"""The state of one slot of a torch engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import torch
from torch import Tensor

from ...domain.anchor import RowsHandle, SectionsHandle
from ...domain.errors import StateError, WrongLine
from ...domain.grid import Span
from ...domain.layout import Layout, Section, View
from ...domain.sums import Sums
from ...ports.gpu_state import ByteBuffers, Look, SlotState
from .kernels.sums import device_sums
from .owned_layer import OwnedLayer
from .part_bytes import Bytes, PartBytes
from .rows_memory import untouched_bytes
from .rows_place import HostRows
from .section_arena import move_into_arena
from .state_copies import TorchCopies
from .summed_exports import Export, export_summed

Result = TypeVar("Result")

CopyAct: TypeAlias = Callable[[PartBytes, int, int, PartBytes], None]
"""What is done with bytes [start, end) of a view's rows, and a copy of theirs."""

UNDEFINED: Final = -1
"""The line of sections that are of none: a forward or an import of them did not reach its end."""


class TorchSlotState(SlotState):
    """Rows and sections of one slot, over the layers that a model writes.

    The sections' line is always known. `forwarding` marks the whole state broken until
    `forwarded`: a forward that fails anywhere, or is interrupted, leaves what only line 0 ends.
    """

    def __init__(
        self,
        layers: Sequence[OwnedLayer],
        window: int,
        device: torch.device,
        *,
        grid: int,
        copies: TorchCopies | None = None,
    ):
        """Take the layers over after their first forward, as empty.

        Args:
            layers: their sections are moved into one block of memory.
            window: rows that each row buffer has.
            device: where the layers' tensors are.
            grid: the step of the grid, in tokens.
            copies: those of the engine's other slots; None for its first slot, which makes them.
        """
        self._layers = tuple(layers)
        self._device = device
        self.window = window
        for index, layer in enumerate(layers):
            for rows in layer.row_buffers():
                if rows.tensor.shape[0] != window or not rows.tensor.is_contiguous():
                    raise StateError(
                        f"layer{index}.{rows.name} of shape {tuple(rows.tensor.shape)} is not "
                        f"{window} contiguous rows"
                    )
        self._arena = move_into_arena(layers, device)
        self._layout, self._rows, self._sections = _parts_of(layers)
        if copies is None:
            copies = TorchCopies(self._layout, window=window, block=grid, device=device)
        assert copies.layout == self._layout, "slots of one engine are of one layout"
        self.copies = copies
        self._length = 0
        self._sections_line = 0
        self._broken = False
        self.resume_at(0)

    # --- what a forward does to it --------------------------------------------------------------

    def require_room(self, count: int) -> None:
        """Check that a forward of `count` tokens may run now.

        Raises:
            WrongLine: sections were restored and nothing was resumed, or a forward failed.
            StateError: the tokens do not fit the window.
        """
        if self._broken or self._sections_line != self._length:
            raise WrongLine(self._mismatch(f"a forward at line {self._length}"))
        if self._length + count > self.window:
            raise StateError(
                f"{count} tokens do not fit beside {self._length} in a window of {self.window}"
            )

    def forwarding(self) -> None:
        """A forward is about to write: broken, until `forwarded` says that it ran to its end."""
        self._broken = True

    def forwarded(self, count: int) -> None:
        """A forward of `count` tokens ran to its end."""
        if self._length == 0:
            # Some models mark their states as begun and some leave it to the cache: all of them
            # go on from here as they would after a resume.
            self._start_layers_at(count)
        self._length += count
        self._sections_line = self._length
        self._broken = False

    def wipe(self, count: int) -> None:
        """Forget everything, and zero the first `count` rows: as if no forward had been.

        Not all rows: untouched buffers cost no memory until a forward reaches them.
        """
        for layer in self._layers:
            for rows in layer.row_buffers():
                rows.tensor[:count].zero_()
        self.resume_at(0)

    # --- GpuState -------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def length(self) -> int:
        return self._length

    def unwritten_bytes(self, line: int) -> int:
        return sum(
            untouched_bytes(self.window * view.row_bytes, line * view.row_bytes)
            for view in self._layout.views
        )

    def settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def trim(self, line: int) -> bool:
        if not 0 <= line <= self._length:
            raise StateError(f"a state of {self._length} tokens cannot be cut back to {line}")
        if self._broken:
            return False
        if not self._sections:
            self._sections_line = line
        if self._sections_line != line:
            return False
        self.resume_at(line)
        return True

    def resume_at(self, line: int) -> None:
        if line == 0:
            self._arena.zero_()
            self._sections_line = 0
            self._broken = False
        if self._broken or self._sections_line != line:
            raise WrongLine(self._mismatch(f"resuming at line {line}"))
        self._start_layers_at(line)
        self._length = line

    def capture_sections(self, into: SectionsHandle | None = None) -> SectionsHandle:
        self._require_defined_sections("a capture")
        return self.copies.capture_sections(self._arena, self._sections_line, into)

    def restore_sections(self, handle: SectionsHandle) -> None:
        self._sections_line = self.copies.restore_sections(self._arena, handle)

    def release_sections(self, handle: SectionsHandle) -> None:
        self.copies.release_sections(handle)

    # --- RowsKeeping ----------------------------------------------------------------------------

    def capture_rows(self, span: Span) -> RowsHandle:
        self._require_whole("a copy of rows")
        handle = self.copies.new_rows(span)
        try:
            self._with_copy(handle, PartBytes.copy_to)
        except BaseException:
            self.copies.release_rows(handle)
            raise
        return handle

    def restore_rows(self, handle: RowsHandle) -> None:
        self._require_whole("a restore of rows")
        self._with_copy(handle, PartBytes.copy_from)

    def swap_rows(self, handle: RowsHandle) -> None:
        self._require_whole("an exchange of rows")
        self._with_copy(handle, PartBytes.swap)

    # --- StateTransfer --------------------------------------------------------------------------

    def export_rows(self, span: Span, buffers: ByteBuffers) -> None:
        def export(parts: Sequence[tuple[View, PartBytes]]) -> Sequence[None]:
            for view, rows in parts:
                size = view.row_bytes
                rows.read(span.start * size, span.end * size, buffers[view.name])
            return ()

        self._share(span, export)

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        def export(parts: Sequence[tuple[View, PartBytes]]) -> Sequence[Sums]:
            exports: list[Export] = []
            for view, rows in parts:
                start, end = span.start * view.row_bytes, span.end * view.row_bytes
                exports.append(Export(rows, start, end, buffers[view.name]))
            return export_summed(exports, look)

        names = [view.name for view, _ in self._rows]
        return dict(zip(names, self._share(span, export), strict=True))

    def import_rows(self, span: Span, buffers: ByteBuffers) -> None:
        for view, rows in self._rows:
            size = view.row_bytes
            rows.write(span.start * size, span.end * size, buffers[view.name])

    def place_rows(self, span: Span) -> HostRows | None:
        places: dict[str, Bytes] = {}
        for view, rows in self._rows:
            place = rows.on_host(span.start * view.row_bytes, span.end * view.row_bytes)
            if place is None:
                return None
            places[view.name] = place
        return HostRows(places)

    def export_sections(self, buffers: ByteBuffers) -> None:
        self._require_defined_sections("an export")
        for section, data in self._sections:
            data.read(0, section.nbytes, buffers[section.name])

    def import_sections(self, line: int, buffers: ByteBuffers) -> None:
        if not 0 <= line <= self.window:
            raise StateError(f"there is no line {line} in a window of {self.window}")
        # Between the first and the last part the sections are of no line.
        self._sections_line = UNDEFINED
        for section, data in self._sections:
            data.write(0, section.nbytes, buffers[section.name])
        self._sections_line = line

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        def sums(parts: Sequence[tuple[View, PartBytes]]) -> Sequence[Sums]:
            return device_sums(
                [
                    rows.in_place(span.start * view.row_bytes, span.end * view.row_bytes)
                    for view, rows in parts
                ]
            )

        names = [view.name for view, _ in self._rows]
        return dict(zip(names, self._share(span, sums), strict=True))

    def section_sums(self) -> Mapping[str, Sums]:
        parts = [data.in_place(0, section.nbytes) for section, data in self._sections]
        names = [section.name for section, _ in self._sections]
        return dict(zip(names, device_sums(parts), strict=True))

    # --- private --------------------------------------------------------------------------------

    def _share(
        self, span: Span, act: Callable[[Sequence[tuple[View, PartBytes]]], Sequence[Result]]
    ) -> list[Result]:
        """Do something with all rows of a span; with many of them on several threads."""
        nbytes = len(span) * self._layout.row_bytes
        return self.copies.threads.share_bytes(nbytes, act, self._rows)

    def _with_copy(self, handle: RowsHandle, act: CopyAct) -> None:
        """Do something with all rows of a copy's span in place, and the copy's; until it is done.

        On a device as well: a copy's bytes are the host's, which nothing orders after a stream.
        """
        copy = self.copies.rows_copy(handle)
        start, end = copy.span.start, copy.span.end

        def act_on(pairs: Sequence[tuple[tuple[View, PartBytes], PartBytes]]) -> Sequence[None]:
            for (view, rows), held in pairs:
                act(rows, start * view.row_bytes, end * view.row_bytes, held)
            return ()

        pairs = list(zip(self._rows, copy.buffer.parts, strict=True))
        self.copies.threads.share_bytes(copy.buffer.nbytes, act_on, pairs)
        self.settle()

    def _start_layers_at(self, line: int) -> None:
        for layer in self._layers:
            layer.start_at(line)

    def _require_whole(self, what: str) -> None:
        if self._broken:
            raise WrongLine(self._mismatch(what))

    def _require_defined_sections(self, what: str) -> None:
        if self._broken or self._sections_line == UNDEFINED:
            raise WrongLine(self._mismatch(what))

    def _mismatch(self, what: str) -> str:
        if self._broken:
            return f"{what} after a failed forward: only line 0 can be resumed"
        if self._sections_line == UNDEFINED:
            return f"{what} after an import of sections that failed"
        return f"{what}, and the sections in place are of line {self._sections_line}"


def _parts_of(
    layers: Sequence[OwnedLayer],
) -> tuple[Layout, list[tuple[View, PartBytes]], list[tuple[Section, PartBytes]]]:
    rows: list[tuple[View, PartBytes]] = []
    sections: list[tuple[Section, PartBytes]] = []
    for index, layer in enumerate(layers):
        for part in layer.row_buffers():
            name, shape = f"layer{index}.{part.name}", tuple(part.tensor.shape[1:])
            view = View(name, _dtype_name(part.tensor), shape, part.signature)
            rows.append((view, PartBytes(name, part.tensor)))
        for part in layer.section_tensors():
            name, shape = f"layer{index}.{part.name}", tuple(part.tensor.shape)
            section = Section(name, _dtype_name(part.tensor), shape, part.signature)
            sections.append((section, PartBytes(name, part.tensor)))
    layout = Layout(tuple(view for view, _ in rows), tuple(section for section, _ in sections))
    return layout, rows, sections


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
