"""The checks of scripts/gpu-check: what of the device side only a device can show.

It needs nothing of the package but domain, ports and adapters.gpu, and of others only torch,
transformers and numpy: machines with a GPU may hold no more. Gates are equalities of bytes. Rates
are told and never judged.
"""

import importlib
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from gpu_check_exact import kernel_invariance, model_invariance

from anchorline.adapters.gpu.kernels.planes import join_planes, split_planes
from anchorline.adapters.gpu.kernels.sums import device_sums
from anchorline.adapters.gpu.libraries import tensor_over
from anchorline.adapters.gpu.staging import CopyStream, StagingPool
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.grid import Span
from anchorline.domain.sums import Sums, sums_of
from contract.readings import (
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    move_rows,
    parted,
    prefill_to,
    read,
    some_ids,
    summed,
)
from support.tiny_models import VOCABULARY, tiny_model

ARCHITECTURES = ("qwen3_5_text", "bamba", "llama")
DTYPES = (torch.float32, torch.bfloat16)
GRID = 16
PROMPT = 4 * GRID + 5
LINE = 3 * GRID
TRIES = 7


@dataclass(frozen=True)
class Row:
    """One line of the table; `passed` is None for a rate, or for what could not be run."""

    check: str
    passed: bool | None
    figure: str


@dataclass(frozen=True)
class Sizes:
    """Bytes that rates are measured over.

    Attributes:
        kernel: of a part that kernels work on; several times a GPU's cache.
        copy: of a copy between host and device.
        matrix: the side of the matrices that are multiplied beside copies.
    """

    kernel: int
    copy: int
    matrix: int


def main(device_name: str, *, quick: bool = False) -> int:
    """Run all checks and print the table; the exit status."""
    device = torch.device(device_name)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no CUDA device; --device cpu is a smoke test")
        return 1
    rows = [*machine(device), *all_rows(device, quick=quick)]
    print_table(rows)
    failed = [row.check for row in rows if row.passed is False]
    print(f"\n{len(failed)} gates failed: {', '.join(failed)}" if failed else "\nall gates passed")
    return 1 if failed else 0


def all_rows(device: torch.device, *, quick: bool) -> Iterator[Row]:
    """Every check, each guarded: one that raises is a failed gate and ends nothing else."""
    large = device.type == "cuda" and not quick
    sizes = Sizes(1 << 30, 1 << 28, 4096) if large else Sizes(1 << 22, 1 << 22, 256)
    for architecture in ARCHITECTURES:
        for dtype in DTYPES[:1] if quick else DTYPES:
            name = f"{architecture} {str(dtype).removeprefix('torch.')}"
            yield from guarded(name, lambda a=architecture, d=dtype: model_gates(a, d, device))
            yield from guarded(
                name, lambda a=architecture, d=dtype: told(model_invariance(a, d, device))
            )
    yield from guarded("kernels", lambda: kernel_gates(device))
    yield from guarded(
        "exact kernels", lambda: told(kernel_invariance(device, seconds, large=large))
    )
    yield from guarded("kernel rates", lambda: kernel_rates(device, sizes.kernel))
    yield from guarded("copies", lambda: copies(device, sizes.copy))
    yield from guarded("side stream", lambda: copies_beside_forwards(device, sizes))
    yield from guarded("graph capture", lambda: copies_beside_a_capture(device))


def guarded(name: str, checks: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows of some checks; an exception in them is a failed row."""
    try:
        yield from checks()
    except Exception as error:  # whatever a device raises belongs in the table
        yield Row(name, False, f"{type(error).__name__}: {error}".splitlines()[0][:120])


# --- models ---------------------------------------------------------------------------------------


def model_gates(architecture: str, dtype: torch.dtype, device: torch.device) -> Iterator[Row]:
    """Resuming equals a cold prefill, in place and in another slot; sums are those of bytes."""
    name = f"{architecture} {str(dtype).removeprefix('torch.')}"
    model = tiny_model(architecture, dtype).to(device)
    engine = TorchEngine(model, window=8 * GRID, grid=GRID, slots=2)
    ids, tokens = (some_ids(n, seed=n, vocabulary=VOCABULARY) for n in (PROMPT, 4))
    first, second = engine.slots
    prefill_to(engine, 0, ids, LINE)
    anchor = first.capture_sections()
    prefill_to(engine, 0, ids)
    cold = read(first, decode_all(engine, 0, tokens))

    first.restore_sections(anchor)
    first.resume_at(LINE)
    prefill_to(engine, 0, ids)
    yield equal(f"{name}: in place", differences(read(first, decode_all(engine, 0, tokens)), cold))

    # Dirty the other slot first: what stood there must leave no trace.
    prefill_to(engine, 1, some_ids(PROMPT, seed=99, vocabulary=VOCABULARY))
    first.restore_sections(anchor)
    first.resume_at(LINE)
    move_rows(first, second, Span(0, LINE))
    second.import_sections(LINE, exported_sections(first))
    second.resume_at(LINE)
    prefill_to(engine, 1, ids)
    again = read(second, decode_all(engine, 1, tokens))
    yield equal(f"{name}: through bytes", differences(again, cold))

    # And once more through copies: of the blocks that another state stands in, one is overwritten
    # and the others are exchanged.
    second.resume_at(0)
    prefill_to(engine, 1, some_ids(PROMPT, seed=98, vocabulary=VOCABULARY))
    low, *rest = [first.capture_rows(span) for span in engine.profile.grid.chunks(0, LINE)]
    went = [second.row_sums(engine.copies.rows_span(block)) for block in rest]
    second.restore_rows(low)
    for block in rest:
        second.swap_rows(block)
    second.restore_sections(anchor)
    second.resume_at(LINE)
    prefill_to(engine, 1, ids)
    wrong = differences(read(second, decode_all(engine, 1, tokens)), cold)
    for block, sums in zip(rest, went, strict=True):
        wrong += parted(engine.copies.row_sums(block), sums)
    yield equal(f"{name}: through copies", wrong)

    span = Span(1, second.length - 1)
    wrong = parted(second.row_sums(span), summed(exported_rows(second, span)))
    wrong += parted(second.section_sums(), summed(exported_sections(second)))
    yield equal(f"{name}: sums", wrong)


def told(found: Iterable[tuple[str, bool | None, str]]) -> Iterator[Row]:
    """What another module found, as rows."""
    return (Row(*each) for each in found)


def equal(check: str, differing: list[str]) -> Row:
    """A gate that passes where nothing differs."""
    return Row(check, not differing, ", ".join(differing)[:80] or "equal")


# --- kernels --------------------------------------------------------------------------------------


def kernel_gates(device: torch.device) -> Iterator[Row]:
    """Kernels against numpy; on a CPU in Triton's interpreter, where that is installed."""
    small = device.type == "cpu"
    lengths = [0, 8, 8 * 999, 8 * 4096, 8 * 10_000 + 3] + ([] if small else [(64 << 20) + 8])
    host = [some_bytes(length, seed) for seed, length in enumerate(lengths)]
    expected = [sums_of(data) for data in host]
    parts = [tensor_over(data).to(device) for data in host]
    yield Row("sums: as dispatched", device_sums(parts) == expected, f"{len(parts)} parts")
    odd = tensor_over(host[-1]).to(device)[1:]
    yield Row("sums: odd address", device_sums([odd]) == [sums_of(host[-1][1:])], "one part")
    for width in (2, 4, 8):
        items = 30_001 if small else (8 << 20) + 1
        data = some_bytes(items * width, width)
        part = tensor_over(data).to(device)
        planes = torch.empty((width, items), dtype=torch.uint8, device=device)
        back = torch.empty_like(part)
        split_planes(part, width, planes)
        join_planes(planes, back)
        same = np.array_equal(planes.cpu().numpy(), data.reshape(items, width).T)
        yield Row(f"planes of {width} bytes", same and torch.equal(back, part), f"{items} items")
    if small:
        yield from interpreted_gates(host[:-1], expected[:-1])


def interpreted_gates(host: list[np.ndarray], expected: list[Sums]) -> Iterator[Row]:
    """What a CPU does not dispatch to."""
    try:
        kernels = importlib.import_module("anchorline.adapters.gpu.kernels.triton_kernels")
    except ImportError as error:
        yield Row("Triton's kernels", None, f"skipped: {error}")
        return
    sums = importlib.import_module("anchorline.adapters.gpu.kernels.sums")
    words = [sums.words_of(tensor_over(data)) for data in host]
    found = sums.reduced(*kernels.partial_sums(words, block=1 << 14))
    yield Row("Triton's sums, interpreted", found == expected, f"{len(host)} parts")
    part = tensor_over(some_bytes(60_002, 1))
    planes, back = torch.empty((2, 30_001), dtype=torch.uint8), torch.empty_like(part)
    kernels.split(part, 2, planes, block=1 << 14)
    kernels.join(planes, back, block=1 << 14)
    same = torch.equal(planes, part.view(-1, 2).T) and torch.equal(back, part)
    yield Row("Triton's planes, interpreted", same, "30001 items")


def kernel_rates(device: torch.device, nbytes: int) -> Iterator[Row]:
    """Bytes of a part a second."""
    part = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=device)
    into = torch.empty_like(part)
    for width in (2, 4):
        planes = into.view(width, -1)
        split_s = seconds(device, lambda w=width, p=planes: split_planes(part, w, p))
        yield rate(f"split, {width} bytes an item", nbytes, split_s)
        join_s = seconds(device, lambda p=planes: join_planes(p, part))
        yield rate(f"join, {width} bytes an item", nbytes, join_s)
    yield rate("sums, one part", nbytes, seconds(device, lambda: device_sums([part])))
    pieces = list(part.view(64, -1))
    yield rate("sums, 64 parts", nbytes, seconds(device, lambda: device_sums(pieces)))


# --- copies ---------------------------------------------------------------------------------------


def copies(device: torch.device, nbytes: int) -> Iterator[Row]:
    """Through a staging buffer, both ways; what arrives is what was sent."""
    pool = StagingPool(nbytes, 1, pinned=device.type == "cuda")
    stream = CopyStream(device)
    buffer = pool.take()
    assert buffer is not None
    part = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=device)
    back = torch.zeros_like(part)
    yield rate(
        "device to host, staged", nbytes, seconds(device, lambda: stream.copy(part, buffer).wait())
    )
    yield rate(
        "host to device, staged", nbytes, seconds(device, lambda: stream.copy(buffer, back).wait())
    )
    yield Row("copies there and back", torch.equal(part, back), f"{nbytes >> 20} MiB")
    aligned = buffer.data_ptr() % 4096 == 0
    pinned = buffer.is_pinned() if device.type == "cuda" else False
    yield Row("staging buffers", aligned, f"whole pages, {'' if pinned else 'not '}page-locked")
    pool.give_back(buffer)


def copies_beside_forwards(device: torch.device, sizes: Sizes) -> Iterator[Row]:
    """A copy on the side stream while the main one multiplies."""
    if device.type != "cuda":
        yield Row("copy beside forwards", None, "skipped: a CPU has one stream")
        return
    pool, stream = StagingPool(sizes.copy, 1, pinned=True), CopyStream(device)
    buffer = pool.take()
    assert buffer is not None
    part = torch.randint(0, 256, (sizes.copy,), dtype=torch.uint8, device=device)
    side = torch.randn((sizes.matrix, sizes.matrix), dtype=torch.bfloat16, device=device)

    def multiply() -> None:
        for _ in range(50):
            torch.mm(side, side)

    def both() -> None:
        ticket = stream.copy(part, buffer)
        multiply()
        ticket.wait()

    alone_s, both_s = seconds(device, multiply), seconds(device, both)
    copy_s = seconds(device, lambda: stream.copy(part, buffer).wait())
    hidden = 1 - max(both_s - alone_s, 0) / copy_s
    yield Row("copy beside forwards", None, f"{hidden:.0%} of its time hidden")
    # What is issued after the copy and `join` must not reach what the copy still reads.
    expected = part.cpu()
    ticket = stream.copy(part, buffer)
    stream.join()
    part.zero_()
    ticket.wait()
    yield Row("a joined source may be written", torch.equal(buffer, expected), "equal")


def copies_beside_a_capture(device: torch.device) -> Iterator[Row]:
    """Copies of another thread and a graph capture share a lock, so neither breaks the other."""
    if device.type != "cuda":
        yield Row("copies beside a graph capture", None, "skipped: no graphs on a CPU")
        return
    stream = CopyStream(device)
    pool = StagingPool(1 << 20, 1, pinned=True)
    buffer = pool.take()
    assert buffer is not None
    part = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device=device)
    numbers = torch.zeros(1024, device=device)
    errors: list[Exception] = []
    stop = threading.Event()
    copied = 0

    def copy_on() -> None:
        nonlocal copied
        try:
            while not stop.is_set():
                stream.copy(part, buffer).wait()
                copied += 1
        except Exception as error:  # told below
            errors.append(error)

    thread = threading.Thread(target=copy_on)
    thread.start()
    graphs = 10
    try:
        for _ in range(graphs):
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            with stream.capturing(), torch.cuda.graph(graph):
                for _ in range(200):
                    numbers.add_(1)
            graph.replay()
    finally:
        stop.set()
        thread.join()
    right = bool((numbers == graphs * 200).all()) and torch.equal(buffer, part.cpu())
    figure = f"{graphs} captures, {copied} copies" if not errors else str(errors[0])[:80]
    yield Row("copies beside a graph capture", right and not errors and copied > 0, figure)


# --- figures --------------------------------------------------------------------------------------


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    """The median time of `work` and of what it issued, after one run that is not counted."""
    times: list[float] = []
    # A CPU only shows that the check runs: its figures are an interpreter's.
    for _ in range((TRIES if device.type == "cuda" else 1) + 1):
        settle(device)
        start_s = time.perf_counter()
        work()
        settle(device)
        times.append(time.perf_counter() - start_s)
    return statistics.median(times[1:])


def settle(device: torch.device) -> None:
    """Wait for everything on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(check: str, nbytes: int, taken_s: float) -> Row:
    """A rate in bytes a second: told, not judged."""
    return Row(check, None, f"{nbytes / taken_s / 1e9:.1f} GB/s over {nbytes >> 20} MiB")


def some_bytes(count: int, seed: int) -> np.ndarray:
    """Noise, the same for the same arguments."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def machine(device: torch.device) -> Iterator[Row]:
    """What is checked, with what."""
    name = f"{device} {platform.machine()}, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        name = f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}"
    yield Row("device", None, name)
    yield Row("Python", None, platform.python_version())
    yield Row("torch", None, torch.__version__)
    yield Row("transformers", None, transformers.__version__)
    yield Row("triton", None, version_of("triton"))
    yield Row("numpy", None, np.__version__)


def version_of(module: str) -> str:
    """A module's version, or that it is absent."""
    try:
        return str(importlib.import_module(module).__version__)
    except ImportError:
        return "absent"


def print_table(rows: list[Row]) -> None:
    """The table, in Markdown."""
    words = {True: "pass", False: "FAIL", None: "-"}
    cells = [("check", "gate", "figure")]
    cells += [(row.check, words[row.passed], row.figure.replace("|", "/")) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    for number, line in enumerate(cells):
        print("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


if __name__ == "__main__":
    sys.exit("run scripts/gpu-check, which sets the paths")
