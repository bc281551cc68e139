"""What is written of a state: its highest line, whatever stands there."""

from anchorline.application.request import Decision, Finished
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.domain.write_guard import WriteCause
from anchorline.simulation.box import GRID, Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def after_two_turns(box: Box) -> tuple[list[int], list[int]]:
    """The tokens at the ends of a conversation's first and second answer."""
    box.server.ask(ids(0, 30))
    (slot,) = box.server.scheduler.slots
    first = slot.resident.ids.tolist()
    box.server.ask([*first, *ids(50, 20)])
    return first, slot.resident.ids.tolist()


def test_an_earlier_end_that_a_kept_state_was_cut_to_is_an_end_on_the_medium() -> None:
    box = Box(ram_bytes_max=1 << 20)
    first, _ = after_two_turns(box)
    (slot,) = box.server.scheduler.slots
    ram = box.server.scheduler.ram
    assert ram is not None
    entry = ram.keep(slot.index, slot.resident, len(first), Role.PIN, None)

    assert box.disk.conversations.save_entry(entry, WriteCause.EVICTION) is not None
    box.settle()

    (stored,) = box.disk.tier.entries()
    assert (stored.anchors[-1].line, stored.anchors[-1].kind) == (len(first), AnchorKind.END)
    assert stored.end is not None
    assert stored.end.line == len(first)
    box.kill()
    finished: Finished = box.server.ask([*first, 5])
    decision = finished.decision
    assert (decision.tier, decision.source) == (Tier.DISK, Source.CONVERSATION)
    assert (decision.cached, decision.gate) == (len(first), Gate.PRESERVED)


def resumed_after_a_kill(box: Box, sequence: list[int]) -> Decision:
    box.kill()
    return box.server.ask([*sequence, 5]).decision


def test_an_earlier_end_that_a_slot_was_cut_to_is_durable() -> None:
    box = Box()
    first, _ = after_two_turns(box)
    (slot,) = box.server.scheduler.slots
    helper = box.server.submit([*first, *ids(70, 30)])
    while slot.running is None:
        box.server.step()
    box.server.cancel(helper)
    assert (slot.resident.highest, slot.resident.end) == (len(first), None)

    assert box.flush().durable

    decision = resumed_after_a_kill(box, first)
    assert (decision.tier, decision.cached) == (Tier.DISK, len(first))
    assert decision.gate is Gate.PRESERVED


def test_where_any_line_will_do_the_end_of_a_prompt_is_durable_without_that_of_its_answer() -> None:
    box = Box(row_invariant=True)
    prompt = ids(0, 3 * GRID + 2)
    box.server.ask(prompt)
    (slot,) = box.server.scheduler.slots
    slot.resident.drop_end()
    assert slot.resident.highest == len(prompt)

    assert box.flush().durable

    decision = resumed_after_a_kill(box, prompt)
    assert (decision.tier, decision.cached) == (Tier.DISK, len(prompt))
    assert decision.gate is Gate.BITWISE


def test_memory_writes_the_end_of_a_prompt_too() -> None:
    box = Box(row_invariant=True, ram_bytes_max=1 << 20)
    prompt = ids(0, 3 * GRID + 2)
    box.server.ask(prompt)
    (slot,) = box.server.scheduler.slots
    ram = box.server.scheduler.ram
    assert ram is not None
    entry = ram.keep(slot.index, slot.resident, len(prompt), Role.PIN, None)

    assert box.disk.conversations.save_entry(entry, WriteCause.EVICTION) is not None
    box.settle()

    (stored,) = box.disk.tier.entries()
    assert (stored.anchors[-1].line, stored.anchors[-1].kind) == (len(prompt), AnchorKind.END)
    decision = resumed_after_a_kill(box, prompt)
    assert (decision.tier, decision.gate) == (Tier.DISK, Gate.BITWISE)
