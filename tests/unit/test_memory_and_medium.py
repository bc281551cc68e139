"""Memory and medium together: what is written while it is given up, or takes a slot's rows."""

from typing import Final

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Finished
from anchorline.domain.entry import Tier
from anchorline.domain.write_guard import WriteCause
from anchorline.simulation.box import GRID, Box
from support.builders import random_ids

PLENTY: Final = 1 << 20


def ids(seed: int, count: int) -> list[int]:
    return random_ids(count, seed=seed).tolist()


def memory(box: Box) -> RamTier:
    assert box.server.scheduler.ram is not None
    return box.server.scheduler.ram


def held(box: Box, prompt: list[int], answer: int = 4) -> list[int]:
    """All tokens that the slot holds when a request has ended and all is quiet again."""
    request = box.server.submit(prompt, max_tokens=answer)
    box.server.run()
    box.settle()
    return box.server.sequences[request].tolist()


def test_a_write_of_rows_that_are_lost_under_it_ends_without_them() -> None:
    """The only line of the entry is above the rows that are lost: nothing of it is worth a byte."""
    box = Box(ram_bytes_max=PLENTY, evicted_tokens_min=PLENTY, staging_count=1)
    held(box, ids(1, 5), answer=6 * GRID)
    guest = box.server.submit(ids(2, GRID + 2), max_tokens=9)
    while not memory(box).blocks.counts.captured:
        box.server.step()
    (entry,) = memory(box).entries
    assert box.disk.conversations.save_entry(entry, WriteCause.EVICTION) is not None

    box.server.engine.fail_next_forward()
    box.server.run()
    box.settle()

    assert box.server.failed(guest) is not None
    assert memory(box).entries == ()
    assert not box.disk.tier.entries()
    assert box.disk.pool.lent == 0


@pytest.mark.parametrize("parts", list(Parts))
def test_what_comes_from_the_medium_stands_in_the_place_of_what_is_kept(parts: Parts) -> None:
    """Also where a state has no rows at all: whose tokens a block is of must be told from it."""
    box = Box(parts=parts, ram_bytes_max=PLENTY)
    stored = held(box, ids(1, 5 * GRID))
    box.flush()
    box.kill()
    kept = held(box, ids(2, 5 * GRID))

    back: Finished = box.server.ask([*stored, 1])
    held(box, ids(3, 5 * GRID))

    assert back.decision.tier is Tier.DISK
    first, second = (entry.ids.tolist() for entry in memory(box).entries[:2])
    assert (first, second[: len(stored)]) == (kept, stored)
    for entry in memory(box).entries:
        whole = [token for block in entry.blocks for token in block.ids.tolist()]
        assert whole == entry.ids.tolist()
