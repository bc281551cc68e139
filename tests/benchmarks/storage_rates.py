"""How fast state gets to the drive and back, against the drive itself.

Saves are durable: each object synced and renamed, their directories synced, the entry committed.
Restores are cold and verified: nothing of the state is in memory, checksums, tokens and the sums of
the bytes in place are compared. All of it around the page cache.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from report import Figure, Options
from served import parts_of, random_ids
from storage_drive import RawDrive, scratch
from storage_states import LARGE, Store, filled, made_state, profile_of

from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.adapters.gpu.torch_state import TorchSlotState
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import EngineProfile
from anchorline.ports.gpu_state import SlotState

TOKENS: Final = {"large": 16_384, "smollm2": 4_096}
TOKENS_QUICK: Final = 1_024
GRIDS: Final = (1_024, 256)
"""Objects of 64 MiB, as on a device, and of 16 MiB, as on a CPU."""

REPETITIONS: Final = 7
REPETITIONS_QUICK: Final = 2
SLOW_BYTES_PER_S: Final = 1e9
SAVE_TARGET: Final = "at least 0.90"
RESTORE_TARGET: Final = "at least 0.95"
CODED_TARGET: Final = "above 1"


@dataclass(slots=True)
class Rates:
    """Bytes of state a second, one figure a repetition."""

    save: list[float] = field(default_factory=list[float])
    restore: list[float] = field(default_factory=list[float])
    raw_write: list[float] = field(default_factory=list[float])
    raw_read: list[float] = field(default_factory=list[float])
    best_write: list[float] = field(default_factory=list[float])
    best_read: list[float] = field(default_factory=list[float])
    best_files: list[float] = field(default_factory=list[float])


def figures(options: Options) -> Iterator[Figure]:
    """A gigabyte of made state, a real model's, and what the codec gives on a slow drive."""
    tokens = TOKENS_QUICK if options.quick else TOKENS["large"]
    with scratch() as directory:
        for grid in GRIDS:
            state = made_state(LARGE, tokens)
            filled(state, tokens)
            profile = profile_of(state.layout, tokens, grid)
            rates = _measured(options, directory, state, profile, tokens)
            yield from _rows(LARGE.name, rates, state, tokens, grid)
        yield _coded(options, directory, tokens)
        if "smollm2" in options.models:
            yield from _of_model(options, directory, "smollm2")


def _of_model(options: Options, directory: Path, model: str) -> Iterator[Figure]:
    """The state that a prefill leaves."""
    engine = parts_of(model).engine()
    assert isinstance(engine, TorchEngine)
    profile, state = engine.profile, engine.slots[0]
    tokens = TOKENS_QUICK if options.quick else TOKENS[model]
    ids = random_ids(tokens, below=profile.vocabulary, seed=1)
    options.progress(f"rates: {model} reads {tokens} tokens")
    for chunk in profile.grid.chunks(0, tokens):
        engine.prefill(0, ids[chunk.start : chunk.end])
    rates = _measured(options, directory, state, profile, tokens)
    yield from _rows(model, rates, state, tokens, profile.grid.step)


def _measured(
    options: Options, directory: Path, state: TorchSlotState, profile: EngineProfile, tokens: int
) -> Rates:
    """The same state under other tokens each time, in turn with the bare drive."""
    drive, plain, rates = RawDrive(directory), RawDrive(directory, large_pages=False), Rates()
    store = Store(directory / "state", state, profile, compress=False)
    nbytes = _bytes_of(state, tokens)
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    for number in range(-1, repetitions):  # the first round makes buffers and directories
        options.progress(f"rates: grid {profile.grid.step}, {number + 1} of {repetitions}")
        ids = random_ids(tokens, below=profile.vocabulary, seed=number + 1)
        found = rates if number >= 0 else Rates()
        if number % 2:
            _raw(drive, plain, nbytes, found)
        _stored(store, ids, nbytes, found)
        found.best_files.append(nbytes / drive.read_files_s(store.files()))
        if not number % 2:
            _raw(drive, plain, nbytes, found)
        drive.delete()
        store.clear()
    store.close()
    return rates


def _raw(drive: RawDrive, plain: RawDrive, nbytes: int, into: Rates) -> None:
    into.raw_write.append(nbytes / plain.write_s(nbytes))
    into.raw_read.append(nbytes / plain.read_s(nbytes))
    into.best_write.append(nbytes / drive.write_s(nbytes))
    into.best_read.append(nbytes / drive.read_s(nbytes))


def _stored(store: Store, ids: TokenIds, nbytes: int, into: Rates) -> None:
    store.stands(ids)
    began_s = time.perf_counter()
    store.save()
    into.save.append(nbytes / (time.perf_counter() - began_s))
    store.empty()
    began_s = time.perf_counter()
    store.restore(ids)
    into.restore.append(nbytes / (time.perf_counter() - began_s))


def _coded(options: Options, directory: Path, tokens: int) -> Figure:
    """Restores with the codec and without it, of a drive that is held back."""
    state = made_state(LARGE, tokens)
    filled(state, tokens)
    profile = profile_of(state.layout, tokens, GRIDS[0])
    nbytes = _bytes_of(state, tokens)
    by_codec: dict[bool, list[float]] = {True: [], False: []}
    stores = {
        compress: Store(directory / f"coded-{compress}", state, profile, compress=compress)
        for compress in by_codec
    }
    ids = random_ids(tokens, below=profile.vocabulary, seed=0)
    for store in stores.values():
        store.stands(ids)
        store.save()
        store.storage.bytes_per_s = SLOW_BYTES_PER_S
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    for number in range(repetitions):
        options.progress(f"rates: codec, {number + 1} of {repetitions}")
        for compress in (True, False) if number % 2 else (False, True):
            stores[compress].empty()
            began_s = time.perf_counter()
            stores[compress].restore(ids)
            by_codec[compress].append(nbytes / (time.perf_counter() - began_s))
    for store in stores.values():
        store.close()
    what = f"restore with the codec / without, drive held at {SLOW_BYTES_PER_S / 1e9:g} GB/s"
    on, off = by_codec[True], by_codec[False]
    return Figure(LARGE.name, what, on, off, _rates(on, off), CODED_TARGET)


def _rows(model: str, rates: Rates, state: SlotState, tokens: int, grid: int) -> Iterator[Figure]:
    what = (
        f"of {_bytes_of(state, tokens) >> 20} MiB in objects of "
        f"{grid * state.layout.row_bytes / (1 << 20):.3g} MiB"
    )
    for name, ours, raw, target in (
        (f"durable save {what} / raw write", rates.save, rates.raw_write, SAVE_TARGET),
        ("the same / the drive at its best", rates.save, rates.best_write, ""),
        (f"verified restore {what} / raw read", rates.restore, rates.raw_read, RESTORE_TARGET),
        ("the same / the drive at its best", rates.restore, rates.best_read, ""),
        ("the same / the same files at its best", rates.restore, rates.best_files, ""),
    ):
        yield Figure(model, name, ours, raw, _rates(ours, raw), target)


def _rates(ours: Sequence[float], other: Sequence[float]) -> str:
    return f"{median(ours) / 1e9:.2f} against {median(other) / 1e9:.2f} GB/s"


def _bytes_of(state: SlotState, tokens: int) -> int:
    """Whole pages: what the drive's own loop can move."""
    return (state.layout.row_bytes * tokens + state.layout.section_bytes) // 4096 * 4096
