"""What memory keeps is written as what it is: an end that later turns went on from too."""

from anchorline.application.request import Finished
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.domain.write_guard import WriteCause
from anchorline.simulation.box import Box


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
