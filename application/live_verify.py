"""Verifying a running server: what is kept is recomputed cold, while nobody asks for anything.

One piece of one entry a step: a few sums, an object that is read, or one chunk of a cold prefill in
a slot that no request gets. A request that comes waits for no more than the piece that runs; the
entry goes on from there once the server is idle again, unless it has been replaced meanwhile. Then
it is dropped and not judged.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from ..domain.anchor_budget import AnchorBudget
from ..domain.errors import EngineError, StateError
from ..domain.grid import Span
from ..domain.mismatch import Difference, Kind, Mismatch
from ..ports import telemetry as names
from ..ports.clock import Clock
from ..ports.engine import Engine
from ..ports.telemetry import Telemetry
from .disk_service import DiskService
from .distrust import Distrust
from .held_sections import HeldSections
from .live_verify_cold import Spare, exported_rows, first_row
from .live_verify_kept import KeptSubject
from .live_verify_report import (
    Found,
    LiveReport,
    Skipped,
    VerifyMode,
    VerifyPolicy,
    found_of,
    journal_row,
)
from .live_verify_subjects import ResidentSubject, StoredSubject, Subject
from .ram_tier import RamTier
from .read_queue import RestoreFailed
from .resident_prefix import ResidentPrefix
from .slots import Slot
from .stats import VerifyStats

SHARE_OF_IDLE: Final = 0.1
"""Of the time that nobody asks for anything, what samples may take."""

SLICE_S: Final = 0.1
"""Pieces that take this long together are followed by a rest, so that the machine sleeps well."""

AGAIN_S: Final = 3600.0
"""After so long an entry that has not changed is sampled again: memory and drives do change."""

SPARE_ANCHORS: Final = AnchorBudget(bytes_max=0, count_min=16)
"""For an entry that is read to be verified; none has more."""

SAMPLES_MAX: Final = 1000
"""Entries that one call may ask for."""

Answer: TypeAlias = Callable[[LiveReport], None]


@dataclass(slots=True)
class _Call:
    """Entries that somebody waits for.

    Attributes:
        left: how many are still to be taken.
        entry: the only one that is wanted; None takes what comes.
        taken: those that were judged or skipped.
    """

    left: int
    entry: str | None
    answer: Answer
    taken: set[str] = field(default_factory=set[str])
    samples: int = 0
    tokens: int = 0
    mismatches: list[Found] = field(default_factory=list[Found])
    skipped: list[Skipped] = field(default_factory=list[Skipped])

    def report(self, *, finished: bool) -> LiveReport:
        return LiveReport(
            finished, self.samples, self.tokens, tuple(self.mismatches), tuple(self.skipped)
        )


@dataclass(slots=True)
class _Sample:
    """An entry that is being verified, for a call or because nobody asks for anything."""

    subject: Subject
    pieces: Generator[Difference | None]
    call: _Call | None
    forwarded_before: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """When an entry was verified last, and as what."""

    version: Hashable
    at_s: float


class LiveVerifier:
    """Steps samples when nothing else is to be done. Called on the engine thread."""

    def __init__(
        self,
        engine: Engine,
        slots: Sequence[Slot],
        disk: DiskService | None,
        ram: RamTier | None,
        clock: Clock,
        telemetry: Telemetry,
        policy: VerifyPolicy,
        sections: HeldSections,
        forget: Callable[[Slot], object],
        found: Callable[[], None],
        serve_cold: Callable[[], None],
    ) -> None:
        """Takes what is to be verified, and an engine with one more slot than requests get.

        Args:
            slots: those that requests get.
            sections: of the engine.
            forget: makes an idle slot drop what it holds.
            found: told of every mismatch: answers may have come of that state.
            serve_cold: from then on no request resumes from anything.
        """
        self._engine = engine
        self._slots = slots
        spare = engine.slots[len(slots)]
        resident = ResidentPrefix(spare, engine.profile, SPARE_ANCHORS, sections)
        self._spare = Spare(len(slots), spare, resident)
        self._disk = disk
        self._ram = ram
        self._sections = sections
        self._distrust = Distrust(slots, ram, forget)
        self._clock = clock
        self._telemetry = telemetry
        self._policy = policy
        self._tell_found = found
        self._serve_cold = serve_cold
        self._calls: deque[_Call] = deque()
        self._sample: _Sample | None = None
        self._seen: dict[str, _Seen] = {}
        self._stopped = False
        self._active_s = clock.monotonic()
        self._resumes_s = clock.monotonic()
        self._spent_s = 0.0
        self._samples = 0
        self._skipped = 0
        self._cold = False
        self._mismatches: dict[str, int] = {}

    def stats(self) -> VerifyStats:
        """The figures of this moment."""
        return VerifyStats(
            mode=self._policy.mode.value,
            samples=self._samples,
            tokens=self._spare.forwarded,
            skipped=self._skipped,
            mismatches=dict(self._mismatches),
            serves_cold=self._cold,
        )

    def ask(self, samples: int, entry: str | None, answer: Answer) -> None:
        """Verify so many entries, or the one of this id; answered by a later step."""
        if self._stopped:
            answer(LiveReport(finished=False, samples=0, tokens=0, mismatches=(), skipped=()))
            return
        self._calls.append(_Call(1 if entry is not None else samples, entry, answer))

    def stop(self) -> None:
        """Answer all who wait with what was found so far, and begin nothing more."""
        self._stopped = True
        self._drop()
        while self._calls:
            call = self._calls.popleft()
            call.answer(call.report(finished=False))

    def give_way(self) -> None:
        """A request is there: hold nothing that it may need."""
        self._active_s = self._clock.monotonic()
        if self._sample is not None and self._sample.subject.borrows:
            self._drop()

    def failed(self, why: str) -> None:
        """A step has failed for a fault of ours: the same entry must not fail all others too."""
        if self._sample is not None:
            self._skip(self._sample, why)

    def step(self) -> bool:
        """One piece, when nothing else is to be done; whether there was one."""
        began_s = self._clock.monotonic()
        if self._sample is None:
            self._sample = self._next(began_s)
        sample = self._sample
        if sample is None or (not self._calls and self._rests(began_s)):
            return False
        self._advance(sample)
        now_s = self._clock.monotonic()
        self._spent_s += now_s - began_s
        if self._spent_s >= SLICE_S:
            self._resumes_s = now_s + self._spent_s * (1 / SHARE_OF_IDLE - 1)
            self._spent_s = 0.0
        return True

    # --- which ------------------------------------------------------------------------------------

    def _rests(self, now_s: float) -> bool:
        """Whether it is too early for a sample that nobody waits for."""
        idle_s = self._policy.idle_s
        early = idle_s is None or now_s - self._active_s < idle_s
        return self._stopped or early or now_s < self._resumes_s

    def _next(self, now_s: float) -> _Sample | None:
        """What is verified next: for those who wait, else what has not been for the longest."""
        while self._calls:
            call = self._calls[0]
            subject = self._for_call(call) if call.left else None
            if subject is not None:
                return self._begun(subject, call)
            self._calls.popleft()
            call.answer(call.report(finished=True))
        if self._rests(now_s):
            return None
        subjects = list(self._subjects())
        ids = {subject.id for subject in subjects}
        self._seen = {known: seen for known, seen in self._seen.items() if known in ids}
        due = [one for one in subjects if now_s - self._seen_s(one) >= AGAIN_S]
        return self._begun(min(due, key=self._seen_s), None) if due else None

    def _for_call(self, call: _Call) -> Subject | None:
        """What somebody waits for next; None where there is nothing left of it."""
        subjects = [one for one in self._subjects() if one.id not in call.taken]
        if call.entry is None:
            return min(subjects, key=self._seen_s, default=None)
        subject = next((one for one in subjects if one.id == call.entry), None)
        if subject is None:
            call.skipped.append(Skipped(call.entry, "nothing that can be resumed has this id"))
        return subject

    def _subjects(self) -> Iterator[Subject]:
        """All that a request may resume from: first what is near, then the last used."""
        profile = self._engine.profile
        for slot in self._slots:
            state = self._engine.slots[slot.index]
            # After a restore that was given up the sections in place are of another line.
            if slot.resident.highest and state.length == slot.resident.length:
                yield ResidentSubject(slot, state, profile, self._distrust)
        yield from self._kept()
        if self._disk is None:
            return
        for entry in sorted(self._disk.tier.index.entries(), key=lambda one: -one.last_used_s):
            if entry.anchors and entry.anchors[-1].line <= profile.window:
                yield StoredSubject(entry, self._disk, self._spare, profile)

    def _kept(self) -> Iterator[Subject]:
        """What memory keeps, the last used first."""
        if self._ram is None:
            return
        for entry in sorted(self._ram.entries, key=lambda one: -one.last_used_s):
            yield KeptSubject(
                entry, self._ram, self._sections, self._spare, self._engine, self._distrust
            )

    def _seen_s(self, subject: Subject) -> float:
        """When it was verified last as it is now."""
        seen = self._seen.get(subject.id)
        return -math.inf if seen is None or seen.version != subject.version else seen.at_s

    # --- one sample -------------------------------------------------------------------------------

    def _begun(self, subject: Subject, call: _Call | None) -> _Sample:
        self._spare.resident.forget()
        pieces = subject.pieces(self._engine, self._spare)
        return _Sample(subject, pieces, call, self._spare.forwarded)

    def _advance(self, sample: _Sample) -> None:
        if not sample.subject.is_current():
            self._skip(sample, "it was replaced meanwhile")
            return
        try:
            difference = next(sample.pieces)
        except StopIteration:
            self._ended(sample)
        except (RestoreFailed, EngineError, StateError) as error:
            self._skip(sample, str(error))
        else:
            if difference is not None:
                self._found(sample, difference)

    def _found(self, sample: _Sample, difference: Difference) -> None:
        """A kept state is wrong: write down how, and see that nobody resumes from it."""
        subject, policy = sample.subject, self._policy
        located = self._located(subject, difference)
        mismatch = Mismatch(
            entry=subject.id,
            tier=subject.tier,
            difference=located,
            fingerprint=policy.fingerprint,
            namespace=subject.namespace,
            ids=subject.ids[: located.line].copy(),
            grid=self._engine.profile.grid.step,
        )
        dump = policy.sink(mismatch)
        found = found_of(mismatch, dump)
        self._tell_found()
        subject.distrust(located, f"verified: {found.kind} of {found.part} at line {found.line}")
        self._mismatches[found.kind] = self._mismatches.get(found.kind, 0) + 1
        labels = {"tier": found.tier, "kind": found.kind}
        self._telemetry.count(names.VERIFY_MISMATCHES, labels=labels)
        self._telemetry.journal(journal_row(mismatch, dump))
        if sample.call is not None:
            sample.call.mismatches.append(found)
        self._ended(sample)
        if policy.mode is VerifyMode.STRICT and not self._cold:
            self._cold = True
            self._serve_cold()

    def _located(self, subject: Subject, difference: Difference) -> Difference:
        """The same with the very row, where the bytes of both sides can be had."""
        if difference.kind is not Kind.BITWISE_ROWS or difference.row is None:
            return difference
        views = self._engine.profile.layout.views
        span = Span(difference.row, difference.line)
        kept = subject.rows(span)
        cold = exported_rows(self._spare.state, views, span)
        first = None if kept is None else first_row(views, span, kept, cold)
        return difference if first is None else replace(difference, part=first[0], row=first[1])

    def _ended(self, sample: _Sample) -> None:
        """It was judged."""
        tokens = self._spare.forwarded - sample.forwarded_before
        self._samples += 1
        self._telemetry.count(names.VERIFY_SAMPLES, labels={"tier": sample.subject.tier.value})
        self._telemetry.count(names.VERIFY_TOKENS, tokens)
        if sample.call is not None:
            sample.call.samples += 1
            sample.call.tokens += tokens
        self._close(sample)

    def _skip(self, sample: _Sample, why: str) -> None:
        """It could not be judged."""
        self._skipped += 1
        if sample.call is not None:
            sample.call.skipped.append(Skipped(sample.subject.id, why))
        self._close(sample)

    def _close(self, sample: _Sample) -> None:
        subject = sample.subject
        self._seen[subject.id] = _Seen(subject.version, self._clock.monotonic())
        if sample.call is not None:
            sample.call.left -= 1
            sample.call.taken.add(subject.id)
        self._drop()

    def _drop(self) -> None:
        """Let go of what the sample holds, whether or not it came to its end."""
        if self._sample is not None:
            self._sample.pieces.close()
            self._sample = None
        self._spare.resident.forget()
