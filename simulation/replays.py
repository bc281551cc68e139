"""Replays of agent traces as the command line asks for them: plain values in, plain values out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..adapters.memory.checkable_engine import CheckableEngine, Forward
from ..adapters.memory.checkable_state import CheckableState, expected_prefix_hash
from ..adapters.memory.manual_clock import ManualClock
from ..adapters.memory.recording_telemetry import RecordingTelemetry
from ..adapters.memory.toy_tokenizer import ToyTokenizer
from ..application.limits import Limits
from ..application.scheduler import Scheduler
from ..domain.anchor_budget import AnchorBudget
from ..domain.byte_size import GIB
from ..domain.errors import StateError
from ..domain.layout import Layout, Section, View
from ..domain.ram_retention import Retention
from ..domain.tokens import TokenIds
from .agent_trace import Turn, interleaved, trace_of, turns_of, unavoidable
from .scripted_answers import ScriptedAnswers
from .trace_replay import Served, TraceReplay, reread_of, worst
from .violation import Violation

VOCABULARY: Final = 256
"""The bytes: no mark that begins or ends anything is among them."""

TOKEN_S: Final = 0.001
"""What forwarding a token takes on the replay's clock."""

ANCHOR_BYTES_MAX: Final = 5 * GIB // 2
"""Of a slot's anchors: what a server takes by default."""

WORST: Final = 20
"""Turns that are told of."""


class Replays:
    """Implements `adapters.cli.replay_command.Replays`."""

    def read(self, traces: Mapping[str, object], window: int) -> "Replay":
        """Take traces by their names, as their files' JSON values have them."""
        sessions: list[list[Turn]] = []
        for name, values in traces.items():
            try:
                sessions.append(turns_of(trace_of(name, values), window=window, below=VOCABULARY))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return Replay(interleaved(sessions), window)


class Replay:
    """Implements `adapters.cli.replay_command.Replay`: the same turns under any policy."""

    def __init__(self, turns: Sequence[Turn], window: int) -> None:
        """Takes turns in the order in which they come."""
        self._turns = turns
        self._window = window
        self._unavoidable = unavoidable(turns)

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self._turns)

    def run(
        self,
        retention: str,
        *,
        slots: int,
        grid: int,
        ram_bytes: int,
        row_bytes: int,
        section_bytes: int,
        shown: Callable[[], None],
    ) -> Mapping[str, Any]:
        """Serve all turns under a policy; what they read, and what was moved for it."""
        box = _Box(
            retention=Retention(retention),
            slots=slots,
            window=self._window,
            grid=grid,
            ram_bytes=ram_bytes,
            layout=_layout(row_bytes, section_bytes),
        )
        served: list[Served] = []
        for turn, must in zip(self._turns, self._unavoidable, strict=True):
            served.append(box.serve(turn, must))
            shown()
        return {"retention": retention, **_told(served), **box.moved(grid * row_bytes)}


class _Box:
    """A scheduler over the checkable engine, on a clock that goes by the turns' times."""

    def __init__(
        self,
        *,
        retention: Retention,
        slots: int,
        window: int,
        grid: int,
        ram_bytes: int,
        layout: Layout,
    ) -> None:
        self._clock = ManualClock()
        self._checkable = CheckableEngine(
            slots=slots,
            window=window,
            grid=grid,
            vocabulary=VOCABULARY,
            prefill_tokens_per_s=1 / TOKEN_S,
            on_forward=self._passes,
        )
        engine = ScriptedAnswers(self._checkable, layout)
        self._scheduler = Scheduler(
            engine,
            ToyTokenizer(),
            self._clock,
            RecordingTelemetry(),
            Limits(
                queue_max=1,
                anchors=AnchorBudget(ANCHOR_BYTES_MAX),
                cache_enabled=True,
                ram_bytes_max=ram_bytes or None,
                retention=retention,
            ),
        )
        self._replay = TraceReplay(self._scheduler, engine)

    def serve(self, turn: Turn, must: int) -> Served:
        """Serve a turn at its time, or as soon after it as those before it have ended."""
        self._clock.advance(max(turn.at_s - self._clock.monotonic(), 0.0))
        try:
            served = self._replay.serve(turn, must, self._clock.monotonic())
        except Violation as violation:
            raise StateError(str(violation)) from violation
        _check(self._checkable.slots[served.decision.slot], turn.forwarded)
        return served

    def moved(self, block_bytes: int) -> Mapping[str, int]:
        """What went between slots and memory, short blocks counted as whole ones."""
        ram = self._scheduler.stats().ram
        if ram is None:
            return dict.fromkeys(("kept", "evicted", "cut", "bytes_out", "bytes_in"), 0)
        return {
            "kept": ram.kept,
            "evicted": ram.evicted,
            "cut": ram.cut,
            "bytes_out": (ram.blocks_captured + ram.blocks_swapped) * block_bytes,
            "bytes_in": (ram.blocks_restored + ram.blocks_swapped) * block_bytes,
        }

    def _passes(self, forward: Forward) -> None:
        self._clock.advance(len(forward.span) * TOKEN_S)


def _check(state: CheckableState, forwarded: TokenIds) -> None:
    """What a turn leaves is the state of its tokens: each forward reads all rows below it."""
    words = {section.name: np.empty(section.nbytes, np.uint8) for section in state.layout.sections}
    state.export_sections(words)
    if int(words["tokens"].view(np.uint64)[0]) != expected_prefix_hash(forwarded):
        raise StateError(f"a wrong state at line {len(forwarded)}: it is not that of its tokens")


def _layout(row_bytes: int, section_bytes: int) -> Layout:
    """Of a model whose state has such a size."""
    return Layout(
        views=(View("rows", "uint8", (row_bytes,), "kv:plain"),),
        sections=(Section("sections", "uint8", (section_bytes,), "recurrent:state"),),
    )


def _told(served: Sequence[Served]) -> dict[str, Any]:
    sums = reread_of(served)
    return {
        "requests": len(served),
        "prompt_tokens": sums.prompts,
        "unavoidable": sums.unavoidable,
        "reread": sums.reread,
        "ratio": sums.ratio,
        "hits": sums.hits,
        "cached": sums.cached,
        "worst": [
            {
                "session": one.turn.session,
                "request": one.turn.number,
                "prompt": len(one.turn.prompt),
                "reread": one.decision.reread,
                "unavoidable": one.unavoidable,
                "source": one.decision.source.value,
            }
            for one in worst(served, WORST)
        ],
    }
