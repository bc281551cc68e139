"""Memory of rows: zeros, from a page on, and large pages where views are large."""

from pathlib import Path

import pytest
import torch

from anchorline.adapters.gpu.alignment import PAGE_BYTES
from anchorline.adapters.gpu.rows_memory import (
    LARGE_PAGE_BYTES,
    LARGE_PAGES_MIN,
    untouched_bytes,
    zeroed_rows,
)

CPU = torch.device("cpu")
SHAPES = pytest.mark.parametrize("shape", [(0, 4, 8), (1, 1, 1), (3, 5, 7), (4096, 2, 64)])


@SHAPES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_zeros_from_a_page_on(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = zeroed_rows(shape, dtype, CPU)

    assert (rows.shape, rows.dtype, rows.device) == (shape, dtype, CPU)
    assert rows.is_contiguous()
    assert not rows.any()
    assert rows.data_ptr() % PAGE_BYTES == 0


def test_rows_can_be_written_inside_and_outside_inference_mode() -> None:
    with torch.inference_mode():
        rows = zeroed_rows((2, 3), torch.float32, CPU)
        rows[0].fill_(1)
    rows[1].fill_(2)

    assert torch.equal(rows, torch.tensor([[1.0, 1, 1], [2, 2, 2]]))


def test_rows_live_as_long_as_a_view_of_them() -> None:
    view = zeroed_rows((64, 1024), torch.float32, CPU)[3:5]
    view.fill_(7)

    assert bool((view == 7).all())


@pytest.mark.parametrize("large", [True, False])
def test_large_views_ask_for_large_pages(large: bool) -> None:
    """Small ones do not: a short conversation touches at least one page of each view."""
    nbytes = LARGE_PAGES_MIN * LARGE_PAGE_BYTES - (0 if large else 1)
    rows = zeroed_rows((nbytes,), torch.uint8, CPU)

    assert ("hg" in flags_at(rows.data_ptr())) == large


@pytest.mark.parametrize(
    ("touched", "left"),
    [(0, 10 << 20), (1, 8 << 20), (2 << 20, 8 << 20), ((2 << 20) + 1, 6 << 20), (10 << 20, 0)],
)
def test_of_large_pages_the_one_that_was_touched_is_there_as_a_whole(
    touched: int, left: int
) -> None:
    assert untouched_bytes(10 << 20, touched) == left


@pytest.mark.parametrize(("touched", "left"), [(0, 10_000), (1, 5_904), (9_000, 0), (10_000, 0)])
def test_so_is_a_small_one(touched: int, left: int) -> None:
    assert untouched_bytes(10_000, touched) == left


def test_what_is_said_to_be_untouched_is() -> None:
    """The system counts what it has handed out."""
    nbytes = 8 * LARGE_PAGE_BYTES
    rows = zeroed_rows((nbytes,), torch.uint8, CPU)
    before = resident_bytes()

    rows[: LARGE_PAGE_BYTES + 1].fill_(1)

    taken = resident_bytes() - before
    assert taken <= nbytes - untouched_bytes(nbytes, LARGE_PAGE_BYTES + 1) + (1 << 20)


def resident_bytes() -> int:
    """What this process has of memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def flags_at(address: int) -> list[str]:
    """What the system notes of the mapping at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            start, end = (int(part, 16) for part in name.split("-"))
            inside = start <= address < end
        elif inside and name == "VmFlags:":
            return rest.split()
    raise AssertionError(f"nothing is mapped at {address:x}")
