"""Answers given again: the very events of a greedy request, for one that is equal to it.

An answer that is replayed forwards nothing and touches no slot. Off unless a budget is set, so that
no benchmark measures a dictionary by accident.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, fields, replace
from typing import Final

from ..domain.entry import Source, Tier
from ..domain.response_key import ResponseKey, greedy_form
from ..ports import telemetry as names
from ..ports.clock import Clock
from ..ports.telemetry import Telemetry
from .held_bytes import held_bytes
from .request import (
    NO_SLOT,
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Queued,
    Timings,
    Written,
)
from .stats import ResponseStats

ENTRY_BYTES: Final = 1024
"""Of what keeps one answer in order, beside the answer and its key; rounded up."""

EVENT_BYTES: Final = 16
"""Of what keeps one event in order, beside the event."""

ANSWERS_AT_LEAST: Final = 4
"""How many answers of the largest size the budget holds: one alone must not push out all others,
which it would do before it is known to be too large."""

_TELLS_APART: Final = frozenset({"id", "session", "arrived_s"})
"""Fields of a request that tell requests apart and change no answer. `session` is a hint."""

_IN_THE_KEY: Final = frozenset({"prompt", "namespace", "sampling"})
"""Fields that have a place of their own in the key."""


def key_of(request: GenerationRequest) -> ResponseKey | None:
    """What decides a request's answer; None where answers to it are not kept.

    Fields of a request that are not named above belong to it, those that are added one day too: a
    field too many costs a miss, one that is missing a wrong answer.
    """
    sampling = greedy_form(request.sampling)
    # With 0 tokens nothing is asked for but that the prompt is read.
    if sampling is None or request.max_tokens == 0:
        return None
    others = tuple(
        getattr(request, one.name)
        for one in fields(request)
        if one.name not in _TELLS_APART | _IN_THE_KEY
    )
    prompt = request.prompt
    return ResponseKey(prompt.ids, prompt.key_ids, request.namespace, sampling, others)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that is kept.

    Attributes:
        finished: as it was told first.
        nbytes: of all of it, its key and its place in the cache included.
        kept_s: since when, on the monotonic clock.
    """

    written: tuple[Written, ...]
    finished: Finished
    nbytes: int
    kept_s: float


@dataclass(slots=True, eq=False)
class _Recording:
    """An answer that is being written.

    Attributes:
        key: None once it is given up.
        nbytes: of what was written so far.
    """

    key: ResponseKey | None
    written: list[Written] = field(default_factory=list[Written])
    nbytes: int = 0


class ResponseCache:
    """Keeps answers in memory, the least recently used ones first out. On the engine thread.

    Whatever it keeps, answers that are still being written included, is counted before it is kept
    and never exceeds the budget. Can give it back: implements `reclaimable.Reclaimable`.
    """

    name = "responses"

    def __init__(self, clock: Clock, telemetry: Telemetry, *, bytes_max: int, ttl_s: float) -> None:
        """Keeps nothing yet.

        Args:
            bytes_max: of all answers together, their keys included.
            ttl_s: how long an answer is given again, from when it was first given.
        """
        self._clock = clock
        self._telemetry = telemetry
        self._bytes_max = bytes_max
        self._answer_bytes_max = bytes_max // ANSWERS_AT_LEAST
        self._ttl_s = ttl_s
        self._by_use: OrderedDict[ResponseKey, _Answer] = OrderedDict()
        self._by_age: OrderedDict[ResponseKey, None] = OrderedDict()
        self._under_way: dict[int, _Recording] = {}
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._dropped: Counter[str] = Counter()

    def answer(self, request: GenerationRequest, sink: EventSink) -> Finished | None:
        """Replay the answer to an equal request, if there is one.

        What was written comes as it was; the usage too, with all of the prompt cached. The gate is
        that of the answer's first time: replaying it makes it equal to nothing more.

        Returns:
            The last event sent; None where nothing was sent.
        """
        key = key_of(request)
        if key is None:
            return None
        now_s = self._clock.monotonic()
        self._expire(now_s)
        answer = self._by_use.get(key)
        if answer is None:
            self._misses += 1
            return None
        self._by_use.move_to_end(key)
        self._hits += 1
        finished = _again(answer.finished, now_s - request.arrived_s)
        for event in (Queued(ahead=0), *answer.written, finished):
            sink(event)
        return finished

    def known(self, request: GenerationRequest) -> Finished | None:
        """The last event that `answer` would send, if any; nothing is counted or forgotten."""
        key = key_of(request)
        answer = None if key is None else self._by_use.get(key)
        now_s = self._clock.monotonic()
        if answer is None or now_s - answer.kept_s >= self._ttl_s:
            return None
        return _again(answer.finished, 0.0)

    def watched(self, request: GenerationRequest, sink: EventSink) -> EventSink:
        """A sink that hands every event on and keeps the answer once it is complete.

        For a request that is accepted: its last event is awaited.
        """
        key = key_of(request)
        if key is None:
            return sink
        recording = _Recording(key)
        self._under_way[id(recording)] = recording

        def record(event: Event) -> None:
            sink(event)
            self._record(recording, event)

        return record

    def clear(self) -> int:
        """Forget all answers, those that are being written too; how many bytes that were."""
        freed = self._bytes
        for recording in self._under_way.values():
            self._give_up(recording)
        self._forget("cleared", freed)
        return freed

    def held(self) -> int:
        """Bytes of all that is kept, answers that are still being written included."""
        return self._bytes

    def give_back(self, wanted: int) -> int:
        """Forget the least recently used answers until that frees `wanted` bytes, or all of them.

        Returns:
            How many bytes that were.
        """
        return self._forget("given_back", wanted)

    def stats(self) -> ResponseStats:
        """The figures of this moment."""
        self._expire(self._clock.monotonic())
        return ResponseStats(
            answers=len(self._by_use),
            bytes_held=self._bytes,
            bytes_max=self._bytes_max,
            hits=self._hits,
            misses=self._misses,
            dropped=dict(sorted(self._dropped.items())),
        )

    # --- what is being written --------------------------------------------------------------------

    def _record(self, recording: _Recording, event: Event) -> None:
        match event:
            case Written():
                self._note(recording, event)
            case Finished():
                self._finish(recording, event)
                self._report()
            case Failed():
                self._end(recording)
                self._report()
            case _:
                pass

    def _note(self, recording: _Recording, event: Written) -> None:
        """Take a piece of an answer, if there is room for it."""
        if recording.key is None:
            return
        nbytes = held_bytes(event) + EVENT_BYTES
        refused = self._refused(recording.nbytes + nbytes, nbytes)
        if refused is not None:
            self._give_up(recording)
            self._count(refused, 1)
            return
        recording.written.append(event)
        recording.nbytes += nbytes
        self._bytes += nbytes

    def _finish(self, recording: _Recording, event: Finished) -> None:
        """Keep an answer that ended as it should, unless an equal request's is there already."""
        key, written, noted = recording.key, tuple(recording.written), recording.nbytes
        self._end(recording)
        now_s = self._clock.monotonic()
        self._expire(now_s)
        if key is None or event.reason is FinishReason.CANCELLED or key in self._by_use:
            return
        nbytes = noted + held_bytes(key) + held_bytes(event) + ENTRY_BYTES
        refused = self._refused(nbytes, nbytes)
        if refused is not None:
            self._count(refused, 1)
            return
        self._by_use[key] = _Answer(written, event, nbytes, now_s)
        self._by_age[key] = None
        self._bytes += nbytes

    def _end(self, recording: _Recording) -> None:
        """Nothing more will be written."""
        self._give_up(recording)
        self._under_way.pop(id(recording), None)

    def _give_up(self, recording: _Recording) -> None:
        """Let go of what was written, and take no more."""
        self._bytes -= recording.nbytes
        recording.key, recording.nbytes = None, 0
        recording.written.clear()

    # --- what is kept -----------------------------------------------------------------------------

    def _refused(self, answer_bytes: int, more_bytes: int) -> str | None:
        """Make room for an answer to grow; why it may not, or None if it may."""
        if answer_bytes > self._answer_bytes_max:
            return "too_large"
        self._forget("evicted", self._bytes + more_bytes - self._bytes_max)
        return None if self._bytes + more_bytes <= self._bytes_max else "no_room"

    def _expire(self, now_s: float) -> None:
        """Forget what is too old: all are given the same time, so the oldest one goes first."""
        expired = 0
        while self._by_age:
            oldest = next(iter(self._by_age))
            if now_s - self._by_use[oldest].kept_s < self._ttl_s:
                break
            self._drop(oldest)
            expired += 1
        self._count("expired", expired)

    def _forget(self, reason: str, wanted: int) -> int:
        """Drop the least recently used answers until that frees so much; the bytes it freed."""
        before, kept = self._bytes, len(self._by_use)
        while self._by_use and before - self._bytes < wanted:
            self._drop(next(iter(self._by_use)))
        self._count(reason, kept - len(self._by_use))
        return before - self._bytes

    def _drop(self, key: ResponseKey) -> None:
        self._bytes -= self._by_use.pop(key).nbytes
        del self._by_age[key]

    def _count(self, reason: str, answers: int) -> None:
        """So many answers are not given again."""
        if answers:
            self._dropped[reason] += answers
            self._telemetry.count(names.RESPONSES_DROPPED, answers, {"reason": reason})
            self._report()

    def _report(self) -> None:
        self._telemetry.gauge(names.RESPONSE_BYTES, self._bytes)


def _again(first: Finished, waited_s: float) -> Finished:
    """The last event of an answer that is given again after so long: nothing was forwarded."""
    return replace(
        first,
        decision=replace(
            first.decision,
            tier=Tier.RAM,
            source=Source.RESPONSE,
            cached=first.usage.prompt,
            reread=0,
            restore_s=0.0,
            slot=NO_SLOT,
            shared=0,
            resident=0,
            nearest=0,
            refused=(),
            quarantined=0,
        ),
        timings=Timings(queue_s=waited_s, prompt_s=0.0, predicted_s=0.0, ttft_s=waited_s),
    )
