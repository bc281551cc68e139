"""Tokens that replayed sessions of agents read, against those that no request before had read.

Real models, one slot, sessions interleaved by their times, memory for all of them. The sessions'
tokens are made up from the traces' block ids and shortened to a window; answers are told to the
engine. Counted are tokens: the figures are the same however busy the machine is.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from report import ROOT, Figure, Options
from served import parts_of

from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.application.limits import Limits
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.byte_size import GIB
from anchorline.settings import ServeSettings
from anchorline.simulation.agent_trace import Turn, interleaved, trace_of, turns_of, unavoidable
from anchorline.simulation.scripted_answers import ScriptedAnswers
from anchorline.simulation.trace_replay import Served, TraceReplay, reread_of, worst

TRACES: Final = ROOT.parent / "shared" / "data" / "agent-traces"
WINDOW_MAX: Final = 4096
REQUESTS_MAX: Final = 16
ANSWER_MAX: Final = 8
"""Of each session, and tokens of an answer that are written; the next prompt brings the rest."""

TRACES_QUICK: Final = 3
REQUESTS_QUICK: Final = 5
RAM_BYTES: Final = 6 * GIB
SHOWN_S: Final = 20.0
"""From one line of progress to the next."""

TARGET: Final = "at most 1.05"


def figures(options: Options) -> Iterator[Figure]:
    """All sessions of the directory, on each model."""
    paths = sorted(TRACES.glob("*.json"))
    if not paths:
        options.progress(f"traces: none are in {TRACES}, so there is nothing to replay")
        return
    for model in options.models:
        yield _figure(options, model, paths[:TRACES_QUICK] if options.quick else paths)


def _figure(options: Options, model: str, paths: list[Path]) -> Figure:
    parts = parts_of(model)
    engine, clock = ScriptedAnswers(parts.engine()), parts.clock()
    window = min(engine.profile.window, WINDOW_MAX)
    count = REQUESTS_QUICK if options.quick else REQUESTS_MAX
    turns = interleaved([_session(path, window, count, engine) for path in paths])
    scheduler = Scheduler(
        engine,
        parts.tokenizer(),
        clock,
        PrometheusTelemetry(),
        Limits(
            queue_max=1,
            anchors=AnchorBudget(ServeSettings().anchor_bytes_max),
            cache_enabled=True,
            ram_bytes_max=RAM_BYTES,
        ),
    )
    replay, served, shown_s = TraceReplay(scheduler, engine), list[Served](), 0.0
    for turn, must in zip(turns, unavoidable(turns), strict=True):
        if time.monotonic() - shown_s > SHOWN_S:
            options.progress(f"traces: {model}, {len(served)} of {len(turns)} requests")
            shown_s = time.monotonic()
        served.append(replay.serve(turn, must, clock.monotonic()))
    scheduler.clear_ram()  # the next benchmark uses the same engine
    for one in worst(served, 5):
        options.progress(
            f"traces: {model}, request {one.turn.number} of {one.turn.session} read "
            f"{one.decision.reread} of {len(one.turn.prompt)}, {one.unavoidable} unavoidable, "
            f"from {one.decision.source.value}"
        )
    sums = reread_of(served)
    hits = ", ".join(f"{source} {hits}" for source, hits in sorted(sums.hits.items()))
    return Figure(
        model,
        f"tokens read / unavoidable ones, {len(served)} requests of {len(paths)} sessions, "
        f"{sums.prompts:,} prompt tokens in a window of {window:,}",
        [float(sums.reread)],
        [float(sums.unavoidable)],
        f"{sums.reread:,} against {sums.unavoidable:,}; resumed from {hits}",
        TARGET,
    )


def _session(path: Path, window: int, count: int, engine: ScriptedAnswers) -> list[Turn]:
    trace = trace_of(path.stem, json.loads(path.read_bytes())).first(count)
    turns = turns_of(trace, window=window, below=engine.profile.vocabulary)
    return [
        Turn(turn.session, turn.number, turn.at_s, turn.prompt, turn.answer[:ANSWER_MAX])
        for turn in turns
    ]
