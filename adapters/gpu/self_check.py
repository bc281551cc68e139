"""Whether a model's state is all in its parts: asked of a tiny random model of its class.

In fp32 only: honest bf16 arithmetic differs by as much as broken models do.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import nn
from transformers import PreTrainedConfig

from ...domain.anchor import SectionsHandle
from ...domain.errors import EngineError, ModelRefused
from ...domain.grid import Span
from ...domain.layout import Section
from ...domain.tokens import TokenIds, token_ids
from .cache_layers import LayerFactory
from .shrink import tiny_model
from .torch_engine import TorchEngine
from .torch_state import TorchSlotState

CHUNK: Final = 16
PIECES_DIFFER_MAX: Final = 2e-3
"""Of the logits' spread. Honest fp32 models stay below 1e-4; broken ones are off by the spread."""

HUGE: Final = 1e12
"""Seen through a decay of 1e-16 in fp32, and far from overflow when it is squared."""

Bytes = npt.NDArray[np.uint8]


def self_check(config: PreTrainedConfig) -> list[str]:
    """What is wrong with models of this config's class; nothing if the list is empty.

    Raises:
        ModelRefused: no tiny model of the class could be made.
    """
    return faults_of(tiny_model(config))


def faults_of(model: nn.Module, layers: LayerFactory | None = None) -> list[str]:
    """What is wrong with a small fp32 model, given as to `TorchEngine`.

    Four checks: a resume repeats; zeroing any section matters; a prompt in two chunks gives what
    it gives in one; a model that says it is stateful has sections.
    """
    try:
        chunked, whole = (
            TorchEngine(model, window=4 * CHUNK, grid=grid, layers=layers)
            for grid in (CHUNK, 2 * CHUNK)
        )
        return list(_faults(model, chunked, whole))
    except (EngineError, ModelRefused) as error:
        return [str(error)]


def _faults(model: nn.Module, chunked: TorchEngine, whole: TorchEngine) -> list[str]:
    vocabulary = chunked.profile.vocabulary
    ids = token_ids(np.random.default_rng(0).integers(0, vocabulary, 2 * CHUNK))
    state = chunked.slots[0]
    chunked.score(0, ids[:CHUNK])
    anchor = state.capture_sections()
    sections = _exported_sections(state)
    reference = _second_chunk(chunked, ids, anchor)
    faults: list[str] = []
    if _second_chunk(chunked, ids, anchor) != reference:
        faults.append("a repeated resume differs from the first, so it keeps state elsewhere")
    for section in state.layout.sections:
        others = [
            _second_chunk(chunked, ids, {**sections, section.name: other})
            for other in _other_contents(section)
        ]
        if all(other == reference for other in others):
            faults.append(f"forwards of several tokens ignore the state in {section.name}")
    state.restore_sections(anchor)
    state.resume_at(CHUNK)
    pieces, one = chunked.score(0, ids[CHUNK:]), whole.score(0, ids)[CHUNK:]
    difference = float(np.abs(pieces - one).max() / one.std())
    if not difference <= PIECES_DIFFER_MAX:  # a NaN is a difference
        faults.append(f"two chunks give other logits than one, by {difference:.1e} of their spread")
    if getattr(model, "_is_stateful", False) and not sections:
        faults.append("it says that it is stateful and no layer of it has a section")
    return faults


def _other_contents(section: Section) -> Iterator[Bytes]:
    """Contents that a model which reads the section cannot take for the honest ones.

    Zeros are not enough: a tiny layer of one head may forget so fast that what it had absorbed
    vanishes in rounding, so there is also something huge.
    """
    yield np.zeros(section.nbytes, dtype=np.uint8)
    if section.dtype == "float32":
        huge = np.random.default_rng(1).normal(scale=HUGE, size=section.nbytes // 4)
        yield huge.astype(np.float32).view(np.uint8)


def _second_chunk(
    engine: TorchEngine, ids: TokenIds, start: SectionsHandle | Mapping[str, Bytes]
) -> list[bytes]:
    """All that the second chunk leaves, forwarded from these sections."""
    state = engine.slots[0]
    if isinstance(start, Mapping):
        state.import_sections(CHUNK, start)
    else:
        state.restore_sections(start)
    state.resume_at(CHUNK)
    logits = engine.score(0, ids[CHUNK:])
    span = Span(0, 2 * CHUNK)
    rows = {
        view.name: np.empty(len(span) * view.row_bytes, dtype=np.uint8)
        for view in state.layout.views
    }
    state.export_rows(span, rows)
    parts = (*rows.values(), *_exported_sections(state).values())
    return [logits.tobytes(), *(data.tobytes() for data in parts)]


def _exported_sections(state: TorchSlotState) -> dict[str, Bytes]:
    sections = {
        section.name: np.empty(section.nbytes, dtype=np.uint8) for section in state.layout.sections
    }
    state.export_sections(sections)
    return sections
