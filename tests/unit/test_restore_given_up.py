"""A client that leaves while its state is brought in: what the slot still holds can be kept."""

from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def test_a_restore_given_up_at_any_step_leaves_a_slot_that_can_be_saved_and_resumed() -> None:
    tried = 0
    while True:
        tried += 1
        box = Box(slots=1)
        slot = box.server.scheduler.slots[0]
        box.server.ask(ids(0, 48))
        box.server.ask([*slot.resident.ids.tolist(), *ids(9, 60)])
        longer = slot.resident.ids.tolist()
        assert box.flush().durable
        box.server.scheduler.clear(ram=True, disk=False)
        box.server.ask(ids(0, 48))

        request = box.server.submit([*longer, 5])
        for _ in range(tried):
            box.server.step()
        if slot.preparing is None:
            break
        box.server.scheduler.cancel(request)

        assert box.flush().durable
        assert box.server.ask([*ids(0, 48), 5]).decision.gate is not Gate.COLD

    assert tried > 4
