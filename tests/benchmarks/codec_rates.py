"""How much a model's state shrinks, and how fast, by several ways of compressing it.

    PYTHONPATH=.path:tests .venv/bin/python tests/benchmarks/codec_rates.py [MODEL] [--tokens N]

MODEL is a directory or a GGUF file. Rates are bytes of the part a second of one core's time, which
a busy machine disturbs less than the clock's; the best of several runs.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import zstandard
from transformers import AutoTokenizer

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.gpu.loading import load_engine
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.layout import ITEM_BYTES
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.block_storage import ByteArray
from contract.readings import exported_rows, exported_sections

ROOT = Path(__file__).parents[2]
TRIES = 7


@dataclass(frozen=True)
class Result:
    """Bytes in all, and the seconds of one pass over all parts."""

    stored: int
    encode_s: float
    decode_s: float


@dataclass(frozen=True)
class Parts:
    """Parts of one kind, with the width of their items."""

    name: str
    width: int
    data: Sequence[ByteArray]

    @property
    def nbytes(self) -> int:
        return sum(len(part) for part in self.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(ROOT / "models" / "toy"))
    parser.add_argument("--tokens", type=int, default=2048)
    arguments = parser.parse_args()
    ids = english(Path(arguments.model), arguments.tokens)
    print("| state | part | way | ratio | encode GB/s | decode GB/s |")
    print("|-|-|-|-|-|-|")
    for dtype in ("bfloat16", "float32"):
        engine = load_engine(arguments.model, dtype=dtype, window=len(ids))
        for parts in states_of(engine, ids):
            for way, result in ways(parts):
                print(
                    f"| {dtype} {parts.name} | {len(parts.data[0]) >> 10} KiB | {way} "
                    f"| {parts.nbytes / result.stored:.3f} "
                    f"| {parts.nbytes / result.encode_s / 1e9:.2f} "
                    f"| {parts.nbytes / result.decode_s / 1e9:.2f} |"
                )


def english(model: Path, tokens: int) -> TokenIds:
    """The repository's documents, as the model's tokenizer cuts them; the first `tokens` ids."""
    load = cast("Callable[..., Any]", AutoTokenizer.from_pretrained)
    tokenizer = load(model) if model.is_dir() else load(model.parent, gguf_file=model.name)
    text = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    return token_ids(cast("list[int]", tokenizer(text)["input_ids"])[:tokens])


def states_of(engine: TorchEngine, ids: TokenIds) -> Iterator[Parts]:
    """What a prefill leaves: rows, whole and in blocks of one grid step, and sections."""
    grid, state = engine.profile.grid, engine.slots[0]
    for chunk in grid.chunks(0, len(ids)):
        engine.prefill(0, ids[chunk.start : chunk.end])
    blocks: list[ByteArray] = []
    for chunk in grid.chunks(0, len(ids)):
        if len(chunk) == grid.step:
            blocks.extend(exported_rows(state, chunk).values())
    views = state.layout.views
    width = ITEM_BYTES[views[0].dtype]
    whole = [np.concatenate(blocks[number :: len(views)]) for number in range(len(views))]
    yield Parts("rows, whole", width, whole)
    yield Parts("rows, one block", width, blocks)
    exported = exported_sections(state)
    for signature in ("recurrent:state", "recurrent:conv"):
        these = [part for part in state.layout.sections if part.signature == signature]
        if these:
            data = [exported[section.name] for section in these]
            yield Parts(signature, ITEM_BYTES[these[0].dtype], data)


def ways(parts: Parts) -> Iterator[tuple[str, Result]]:
    """The codec, and what it was chosen over."""
    yield "the codec", by_codec(parts)
    settings = zstandard.ZstdCompressionParameters.from_level  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # its keywords have no types
    entropy, level_1 = settings(1, min_match=7, hash_log=6), settings(1)
    top, width = {parts.width - 1}, parts.width
    yield "top plane, entropy only", by_hand(parts, width, top, entropy)
    yield "top plane, level 1", by_hand(parts, width, top, level_1)
    yield "all planes, level 1", by_hand(parts, width, set(range(width)), level_1)
    yield "not split, level 1", by_hand(parts, 1, {0}, level_1)


def by_codec(parts: Parts) -> Result:
    codec = PlaneCodec()
    encoded = [codec.encode(part, parts.width) for part in parts.data]
    into = [np.empty_like(part) for part in parts.data]

    def encode() -> None:
        for part in parts.data:
            codec.encode(part, parts.width)

    def decode() -> None:
        for one, out in zip(encoded, into, strict=True):
            codec.decode(one.codec, one.data, out)

    stored = sum(len(one.data) for one in encoded)
    return Result(stored, cpu_seconds(encode), cpu_seconds(decode))


def by_hand(
    parts: Parts, width: int, packed: set[int], settings: zstandard.ZstdCompressionParameters
) -> Result:
    """The simplest code that could: strided copies, and one frame for each plane in `packed`."""
    compressor = zstandard.ZstdCompressor(compression_params=settings)
    decompressor = zstandard.ZstdDecompressor()

    def encode() -> list[list[ByteArray]]:
        found: list[list[ByteArray]] = []
        for part in parts.data:
            planes = [np.ascontiguousarray(part[number::width]) for number in range(width)]
            for number in packed:
                data = compressor.compress(planes[number].data)
                planes[number] = np.frombuffer(data, dtype=np.uint8)
            found.append(planes)
        return found

    encoded = encode()
    into = [np.empty_like(part) for part in parts.data]

    def decode() -> None:
        for planes, out in zip(encoded, into, strict=True):
            for number, plane in enumerate(planes):
                data = plane.data
                if number in packed:
                    data = decompressor.decompress(data)
                out[number::width] = np.frombuffer(data, dtype=np.uint8)

    stored = sum(len(plane) for planes in encoded for plane in planes)
    return Result(stored, cpu_seconds(encode), cpu_seconds(decode))


def cpu_seconds(work: Callable[[], object]) -> float:
    """This thread's own seconds for `work`; the best of `TRIES`."""
    times: list[float] = []
    for _ in range(TRIES):
        start_s = time.thread_time()
        work()
        times.append(time.thread_time() - start_s)
    return min(times)


if __name__ == "__main__":
    main()
