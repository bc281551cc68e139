"""A flush in traffic: whom it waits for, and what it may say of what went on meanwhile."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from anchorline.application.durability import TURNS_MAX, FlushReport
from anchorline.domain.entry import Role
from anchorline.domain.errors import StorageUnavailable
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import token_ids
from anchorline.domain.write_guard import WriteCause
from anchorline.simulation.box import GRID, Box

STEPS_MAX = 2_000


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def begin_flush(box: Box) -> list[FlushReport]:
    """Ask for a flush; its answer comes into the list."""
    answers: list[FlushReport] = []
    box.server.scheduler.flush(answers.append)
    return answers


def go_on(box: Box, until: Callable[[], object]) -> None:
    for _ in range(STEPS_MAX):
        if until():
            return
        box.jobs.step()
        box.server.step()
    raise AssertionError("it never comes")


def converse(box: Box, prompt: list[int], **how: object) -> list[int]:
    """One turn, its writes not waited for; all tokens up to its end."""
    request = box.server.submit(prompt, **how)  # type: ignore[arg-type]
    box.server.step()
    go_on(box, lambda: box.server.finished(request))
    return box.server.sequences[request].tolist()


def resumed_after_a_kill(box: Box, sequence: list[int]) -> int:
    box.kill()
    return box.server.ask([*sequence, 1]).decision.cached


def no_write_is_pending(box: Box) -> Callable[[], bool]:
    return lambda: box.disk.writes.pending == 0


@dataclass
class Open:
    """A flush that cannot answer yet: a request runs since before it was asked.

    The other slot's conversation has been saved by it, and is continued by `turn`.
    """

    box: Box = field(default_factory=lambda: Box(slots=2))

    def __post_init__(self) -> None:
        self.mine = converse(self.box, ids(0, 5 * GRID + 3))
        self.long = self.box.server.submit(ids(50, 3 * GRID), max_tokens=150)
        self.box.server.step()
        self.answers = begin_flush(self.box)
        go_on(self.box, no_write_is_pending(self.box))
        assert not self.answers

    def turn(self) -> list[int]:
        return converse(self.box, [*self.mine, *ids(31, GRID)])

    def answered(self) -> FlushReport:
        go_on(self.box, lambda: self.answers)
        return self.answers[0]


def test_a_flush_does_not_wait_for_a_write_that_begins_after_it() -> None:
    box = Box(slots=2)
    mine = converse(box, ids(0, 5 * GRID + 3))
    answers = begin_flush(box)
    # The first long prompt of a session becomes a head, written once all of it has been read.
    box.server.submit(ids(50, 25 * GRID), session="one", last_user=24 * GRID)

    go_on(box, lambda: answers)

    assert box.disk.writes.pending == 1
    assert (answers[0].durable, answers[0].saved, answers[0].pending) == (True, 1, 0)
    assert resumed_after_a_kill(box, mine) == len(mine)


def test_a_flush_waits_for_what_was_being_written_when_it_was_asked() -> None:
    box = Box()
    displaced = converse(box, ids(0, 8 * GRID + 3))
    request = box.server.submit(ids(50, 3 * GRID))
    while box.server.finished(request) is None:
        box.server.step()
    assert box.disk.writes.pending == 1

    answers = begin_flush(box)
    go_on(box, lambda: answers)

    assert (answers[0].durable, answers[0].saved) == (True, 2)
    assert resumed_after_a_kill(box, displaced) == len(displaced)


def test_what_goes_on_before_it_was_copied_is_saved_after_its_next_turn() -> None:
    box = Box()
    mine = converse(box, ids(0, 5 * GRID))
    answers = begin_flush(box)
    request = box.server.submit([*mine, *ids(31, GRID)])

    go_on(box, lambda: answers)

    assert box.disk.writes.counts.dropped == 1
    assert (answers[0].durable, answers[0].saved, answers[0].dropped) == (True, 1, 0)
    later = box.server.sequences[request].tolist()
    assert resumed_after_a_kill(box, later) == len(later)


def test_a_conversation_that_never_pauses_is_told_as_dropped_in_the_end() -> None:
    box = Box()
    end = converse(box, ids(0, 5 * GRID))
    answers = begin_flush(box)

    while not answers:
        # It comes as soon as the last one has ended, and nothing has been copied by then.
        end = converse(box, [*end, 31], max_tokens=2)

    assert box.disk.writes.counts.dropped == TURNS_MAX
    assert not answers[0].durable
    assert answers[0].dropped > 0


def test_a_flush_whose_rows_are_overwritten_before_they_are_copied_is_not_durable() -> None:
    box = Box()
    converse(box, ids(0, 8 * GRID), session="one")
    answers = begin_flush(box)
    # The same session has gone on without it: nobody holds the next request up for it.
    box.server.submit(ids(50, 8 * GRID), session="one")

    go_on(box, lambda: answers)

    assert not answers[0].durable
    assert answers[0].dropped > 0
    assert answers[0].missing == 1


def test_the_next_turn_of_what_a_flush_has_saved_is_not_missing() -> None:
    flush = Open()
    later = flush.turn()

    report = flush.answered()

    assert (report.durable, report.saved, report.missing) == (True, 2, 0)
    assert flush.box.server.scheduler.slots[0].resident.length == len(later)
    assert resumed_after_a_kill(flush.box, flush.mine) == len(flush.mine)


def test_what_gave_its_place_to_its_own_next_turn_is_not_missing() -> None:
    flush = Open()
    box = flush.box
    (before,) = box.disk.tier.entries()
    later = flush.turn()
    slot = box.server.scheduler.slots[0]
    box.disk.conversations.save(0, slot.resident, None, WriteCause.EVICTION)
    go_on(box, no_write_is_pending(box))
    assert before.id not in {entry.id for entry in box.disk.tier.entries()}

    report = flush.answered()

    assert report.durable
    assert resumed_after_a_kill(box, later) == len(later)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_has_left_again_before_a_flush_can_answer_is_missing(*, goes_on: bool) -> None:
    flush = Open()
    if goes_on:
        flush.turn()
    flush.box.disk.tier.clear()

    report = flush.answered()

    assert (report.durable, report.missing) == (False, 1)


def test_what_was_damaged_before_a_flush_can_answer_is_missing() -> None:
    flush = Open()
    flush.turn()
    (entry,) = flush.box.disk.tier.entries()
    flush.box.disk.tier.distrust(entry.anchors[-1].name, "planted")

    report = flush.answered()

    assert (report.durable, report.missing) == (False, 1)


def test_a_later_write_that_fails_is_no_fault_of_the_flush() -> None:
    flush = Open()
    box = flush.box
    flush.turn()
    box.storage.on_step = _refuse
    box.disk.conversations.save(
        0, box.server.scheduler.slots[0].resident, None, WriteCause.EVICTION
    )
    go_on(box, no_write_is_pending(box))
    box.storage.on_step = _pass

    report = flush.answered()

    assert box.disk.writes.counts.failed == 1
    assert (report.durable, report.failed) == (True, 0)


def test_a_head_that_could_not_be_written_is_told() -> None:
    box = Box()
    request = box.server.submit(ids(50, 10 * GRID), session="one", last_user=9 * GRID)
    while box.server.finished(request) is None:
        box.server.step()
    (head,) = box.disk.writes.of_slot(0)
    assert head.work.snapshot.role is Role.HEAD
    box.storage.on_step = _refuse_until(lambda: not box.disk.writes.is_pending(head))

    answers = begin_flush(box)
    go_on(box, lambda: answers)

    assert answers[0].failed >= 1
    assert not answers[0].durable


def _refuse(_: str) -> None:
    raise StorageUnavailable("the drive failed")


def _pass(_: str) -> None:
    """The medium works again."""


def _refuse_until(over: Callable[[], bool]) -> Callable[[str], None]:
    def on_step(step: str) -> None:
        if not over():
            _refuse(step)

    return on_step


# --- any traffic ----------------------------------------------------------------------------------


@dataclass
class Traffic:
    """Clients of two slots whose conversations grow, part and displace each other."""

    seed: int

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.box = Box(slots=2, seed=self.seed, staging_count=self.rng.choice([1, 3]))
        self.ends: list[list[int]] = []
        self._running: list[str] = []

    def step(self, jobs_share: float) -> None:
        server = self.box.server
        if server.scheduler.idle or (len(self._running) < 3 and self.rng.random() < 0.05):
            self._running.append(server.submit(self._prompt(), max_tokens=self.rng.randint(2, 20)))
        if self.rng.random() < jobs_share:
            self.box.jobs.step()
        server.step()
        for request in [one for one in self._running if server.finished(one) is not None]:
            self._running.remove(request)
            self.ends.append(server.sequences[request].tolist())

    def _prompt(self) -> list[int]:
        known = [end for end in self.ends if len(end) < 180]
        if not known or self.rng.random() < 0.3:
            return ids(self.rng.randrange(97), self.rng.randint(1, 60))
        end = self.rng.choice(known[-4:])
        parted = end[: self.rng.randint(1, len(end))] if self.rng.random() < 0.2 else end
        return [*parted, *ids(self.rng.randrange(97), self.rng.randint(1, 20))]

    def standing(self) -> list[list[int]]:
        """What can be resumed in slots where nothing runs."""
        residents = [slot.resident for slot in self.box.server.scheduler.slots if slot.idle]
        return [one.ids[: one.highest].tolist() for one in residents if one.highest]

    def is_durable(self, sequence: list[int]) -> bool:
        """Whether a process that starts now resumes it, or one that goes on with it, at its end."""
        longer = [end for end in self.ends if end[: len(sequence)] == sequence]
        return any(self._line(one) >= len(sequence) for one in [sequence, *longer])

    def _line(self, sequence: list[int]) -> int:
        chain = PromptChain(token_ids(sequence), Namespace(), Grid(GRID))
        found = self.box.disk.tier.index.continuations(chain, len(sequence))
        return max((one.line for one in found), default=0)


@pytest.mark.parametrize("jobs_share", [0.3, 0.9])
def test_what_could_be_resumed_when_a_flush_was_asked_is_there_after_a_kill_if_it_says_so(
    jobs_share: float,
) -> None:
    said = {True: 0, False: 0}
    for seed in range(25):
        traffic = Traffic(seed)
        for _ in range(traffic.rng.randint(20, 300)):
            traffic.step(jobs_share)
        stood = traffic.standing()
        answers = begin_flush(traffic.box)
        for _ in range(STEPS_MAX):
            if answers:
                break
            traffic.step(jobs_share)
        (report,) = answers
        said[report.durable] += 1
        traffic.box.kill()
        if report.durable:
            assert all(traffic.is_durable(sequence) for sequence in stood), seed

    assert said[True] > 10, said
