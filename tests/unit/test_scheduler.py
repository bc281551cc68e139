"""Requests in, events out: queueing, fairness, cancelling, stopping."""

import pytest

from anchorline.application.request import (
    Failed,
    FinishReason,
    Prefilling,
    Queued,
    Written,
)
from anchorline.domain.errors import Cancelled, Draining, EngineError, QueueFull
from anchorline.domain.sampling import SamplingParams
from anchorline.ports import telemetry as names
from anchorline.simulation.history import History


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def test_events_come_in_order_and_the_last_one_is_the_end() -> None:
    history = History()
    request = history.submit(ids(0, 20), max_tokens=3)
    history.run()

    kinds = [type(event).__name__ for event in history.events[request]]

    assert kinds[0] == "Queued"
    assert kinds[1:4] == ["Prefilling"] * 3
    assert kinds[-1] == "Finished"
    assert kinds.count("Finished") == 1


def test_prefill_progress_counts_what_needed_no_forward() -> None:
    history = History()
    history.ask(ids(0, 40))
    request = history.submit([*ids(0, 30), 1, 2, 3, 4, 5])
    history.run()

    progress = [event for event in history.events[request] if isinstance(event, Prefilling)]

    assert progress == [Prefilling(32, 35), Prefilling(35, 35)]


def test_a_waiting_request_is_told_how_many_are_ahead() -> None:
    history = History()
    history.submit(ids(0, 30))
    history.step()
    history.submit(ids(1, 30))
    third = history.submit(ids(2, 30))

    assert history.events[third] == [Queued(ahead=1)]


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    history = History(queue_max=1)
    history.submit(ids(0, 30))
    history.step()
    history.submit(ids(1, 30))

    with pytest.raises(QueueFull) as refused:
        history.submit(ids(2, 30))

    assert refused.value.retry_after_s >= 1


def test_an_idle_server_takes_a_request_even_without_a_queue() -> None:
    history = History(queue_max=0)

    answer = history.ask(ids(0, 30))

    assert answer.usage.prompt == 30


def test_what_comes_between_two_steps_fills_the_idle_slots_and_the_queue_and_no_more() -> None:
    history = History(queue_max=2)
    for first in range(3):  # one for the slot, two to wait
        history.submit(ids(first, 30))

    with pytest.raises(QueueFull) as refused:
        history.submit(ids(3, 30))

    assert "2 requests wait already" in str(refused.value)


def test_a_draining_server_takes_nothing_new_and_finishes_what_it_has() -> None:
    history = History()
    request = history.submit(ids(0, 30))
    history.scheduler.drain()

    with pytest.raises(Draining):
        history.submit(ids(1, 30))
    history.run()

    assert history.finished(request) is not None


def test_a_client_that_leaves_stops_its_prefill_at_the_next_chunk() -> None:
    history = History()
    request = history.submit(ids(0, 200))
    history.step()
    history.step()
    history.scheduler.cancel(request)

    assert not history.step()
    finished = history.finished(request)
    assert finished is not None
    assert finished.reason is FinishReason.CANCELLED
    assert history.engine.tokens_forwarded == 16


def test_a_client_that_leaves_stops_its_generation_at_the_next_token() -> None:
    history = History()
    request = history.submit(ids(0, 8), max_tokens=100)
    for _ in range(5):
        history.step()
    history.scheduler.cancel(request)

    assert not history.step()
    finished = history.finished(request)
    assert finished is not None
    assert finished.usage.completion == 5


def test_a_client_that_leaves_the_queue_costs_nothing() -> None:
    history = History()
    history.submit(ids(0, 30))
    history.step()
    waiting = history.submit(ids(1, 30))
    history.scheduler.cancel(waiting)
    history.run()

    failed = history.failed(waiting)
    assert failed is not None
    assert isinstance(failed.error, Cancelled)
    assert history.engine.tokens_forwarded < 60


def test_cancelling_what_has_ended_changes_nothing() -> None:
    history = History()
    history.ask(ids(0, 30))
    before = len(history.events["r0"])

    history.scheduler.cancel("r0")
    history.scheduler.cancel("nobody")

    assert len(history.events["r0"]) == before


def test_prefill_chunks_and_decode_steps_take_turns() -> None:
    history = History(slots=2)
    talking = history.submit(ids(0, 8), max_tokens=60)
    history.step()
    history.step()
    history.submit(ids(1, 160))
    spoken = [len(history.events[talking])]
    for _ in range(10):
        history.step()
        spoken.append(len(history.events[talking]))

    longest_silence = max(
        sum(1 for later in spoken[at:] if later == spoken[at]) for at in range(len(spoken))
    )
    assert longest_silence <= 2


def test_a_request_goes_to_the_slot_that_continues_it() -> None:
    history = History(slots=2)
    first = history.submit(ids(0, 20), max_tokens=4)
    history.run()
    history.submit(ids(40, 20), max_tokens=4)
    history.run()

    answer = history.ask([*history.sequences[first].tolist(), 1, 2, 3])

    assert answer.decision.reread == 3


def test_a_request_that_nothing_continues_takes_the_least_recently_used_slot() -> None:
    history = History(slots=2)
    older = history.ask(ids(0, 20)).decision.slot
    newer = history.ask(ids(40, 20)).decision.slot

    answer = history.ask(ids(80, 20))

    assert older != newer
    assert answer.decision.slot == older


def test_an_abort_fails_everything_and_the_next_request_is_served_cold() -> None:
    history = History()
    running = history.submit(ids(0, 30))
    history.step()
    waiting = history.submit(ids(1, 30))
    history.scheduler.abort(EngineError("a fault of ours"))

    answer = history.ask(ids(0, 30))

    for request in (running, waiting):
        assert isinstance(history.events[request][-1], Failed)
    assert answer.decision.cached == 0


def test_draws_depend_on_seed_and_position_and_not_on_what_was_resumed() -> None:
    sampling = SamplingParams(temperature=1.0, seed=11)
    warm = History()
    warm.ask(ids(0, 30))
    cold = History()

    resumed = warm.submit([*ids(0, 30), 5], max_tokens=20, sampling=sampling)
    warm.run()
    fresh = cold.submit([*ids(0, 30), 5], max_tokens=20, sampling=sampling)
    cold.run()

    finished = warm.finished(resumed)
    assert finished is not None
    assert finished.decision.cached > 0
    assert warm.text(resumed) == cold.text(fresh)


def test_log_probabilities_come_with_every_token() -> None:
    history = History()
    request = history.submit(ids(0, 10), max_tokens=5, sampling=SamplingParams(top_logprobs=3))
    history.run()

    tokens = [
        token
        for event in history.events[request]
        if isinstance(event, Written)
        for token in event.tokens
    ]

    assert len(tokens) == 5
    assert all(len(token.top) == 3 and token.logprob is not None for token in tokens)


def test_counters_add_up() -> None:
    history = History()
    first = history.submit(ids(0, 20), max_tokens=4)
    history.run()
    history.ask([*history.sequences[first].tolist(), 1, 2, 3])
    stats = history.scheduler.stats()

    assert stats.requests == 2
    assert stats.misses == 1
    assert stats.hits == {"end": 1}
    assert stats.tokens_cached["end"] == 23
    assert stats.tokens_reread == 20 + 3
    assert [last.decision.cached for last in stats.last] == [0, 23]


def test_the_journal_has_one_line_per_request_that_explains_the_decision() -> None:
    history = History()
    history.ask(ids(0, 40))
    history.ask([*ids(0, 29), 96, 95, 94])

    rows = history.telemetry.records

    assert len(rows) == 2
    assert rows[1]["source"] == "resident"
    assert rows[1]["shared"] == 29
    assert any("parts at 29" in str(why) for why in rows[1]["refused"])  # type: ignore[union-attr]


def test_hits_and_misses_are_counted() -> None:
    history = History()
    history.ask(ids(0, 40))
    history.ask(ids(0, 40))

    assert history.telemetry.counted_in_all(names.MISSES) == 1
    assert history.telemetry.counted_in_all(names.HITS) == 1
