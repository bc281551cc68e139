"""Healing: tainted rows are prefilled again while nobody asks for anything."""

from anchorline.domain.taint_line import Gate
from anchorline.simulation.history import History

GRID = 8
IDLE_S = 0.05


def conversation(start: int, tokens: int) -> list[int]:
    return [(start * 31 + at * 7) % 97 for at in range(tokens)]


def a_history(*, ram_bytes_max: int = 1 << 20, slots: int = 1, heals: bool = True) -> History:
    return History(
        slots=slots,
        window=512,
        grid=GRID,
        ram_bytes_max=ram_bytes_max,
        heal_idle_s=IDLE_S if heals else None,
    )


def told(history: History, prompt: list[int], tokens: int = 20) -> list[int]:
    """A conversation after an answer of many tokens, which decode has written."""
    request = history.submit(prompt, max_tokens=tokens)
    history.run()
    return history.sequences[request].tolist()


def idle(history: History, seconds: float = 1.0) -> None:
    """Let time pass; each step of the scheduler takes a millisecond."""
    for _ in range(int(seconds / 0.001)):
        history.step()


def test_a_healed_conversation_resumes_under_the_bitwise_gate() -> None:
    history = a_history()
    ids = told(history, conversation(0, 60))

    idle(history)
    answer = history.ask([*ids, 1, 2], max_tokens=2)

    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.cached == len(ids) // GRID * GRID
    assert answer.decision.reread <= 2 + GRID


def test_without_the_setting_nothing_is_healed() -> None:
    history = a_history(heals=False)
    ids = told(history, conversation(0, 60))

    idle(history)
    answer = history.ask([*ids, 1, 2], max_tokens=2)

    assert answer.decision.gate is Gate.PRESERVED
    assert answer.decision.cached == len(ids)


def test_a_request_that_comes_meanwhile_finds_the_conversation_as_it_was() -> None:
    history, undisturbed = a_history(), a_history(heals=False)
    ids = told(history, conversation(0, 60), tokens=160)
    assert told(undisturbed, conversation(0, 60), tokens=160) == ids
    idle(history, IDLE_S + 0.006)
    began = history.scheduler.slots[0].warming
    request = history.submit([*ids, 1, 2], max_tokens=8)
    history.run()
    other = undisturbed.submit([*ids, 1, 2], max_tokens=8)
    undisturbed.run()

    assert began is not None
    assert history.started[request].cached == len(ids)
    assert history.started[request].gate is Gate.PRESERVED
    assert history.sequences[request].tolist() == undisturbed.sequences[other].tolist()


def test_what_memory_keeps_is_healed_as_well() -> None:
    history = a_history(slots=2)
    first = told(history, conversation(0, 60))
    second = told(history, conversation(1, 60))
    third = told(history, conversation(2, 60))

    idle(history, 3.0)

    for ids in (first, second, third):
        assert history.ask([*ids, 3], max_tokens=1).decision.gate is Gate.BITWISE


def test_nothing_is_healed_where_it_could_not_be_kept_meanwhile() -> None:
    history = a_history(ram_bytes_max=200)
    ids = told(history, conversation(0, 60))

    idle(history)
    answer = history.ask([*ids, 1, 2], max_tokens=2)

    assert answer.decision.gate is Gate.PRESERVED
    assert answer.decision.cached == len(ids)


def test_a_healed_head_is_shared_with_what_others_have_prefilled() -> None:
    history = a_history()
    ids = told(history, conversation(0, 60))
    idle(history)
    history.ask([*ids, 1, 2], max_tokens=2)
    history.ask(conversation(5, 80), max_tokens=2)

    answer = history.ask([*ids[:72], 90, 91, 92], max_tokens=1)

    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.cached == 72


def test_a_conversation_that_cannot_be_healed_is_not_tried_for_ever() -> None:
    history = a_history()
    told(history, conversation(0, 60))

    idle(history, 2.0)
    steps = sum(history.scheduler.step() for _ in range(100))

    assert steps == 0
