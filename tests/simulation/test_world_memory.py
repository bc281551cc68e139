"""Worlds whose servers keep conversations in memory: whoever came between, nothing is wrong."""

from dataclasses import replace

import pytest

from anchorline.simulation.run import simulate
from anchorline.simulation.traits import KEEPS_FROM, PLENTY_BYTES, Traits
from anchorline.simulation.world import World

SLICE = range(KEEPS_FROM, KEEPS_FROM + 12)
"""Seeds of which every run of the tests lives through `SLICE_STEPS` actions."""

SLICE_STEPS = 120

LISTED = [
    (60003, 100),  # a write went on reading rows that were given up; others took the room
    (60019, 90),  # a save from a slot went on while rows came back to it from memory
    (60023, 60),  # without views, a block of other tokens was found where a state came in
    (60024, 90),  # what stood in a slot from long before pushed out what was never written
    (60106, 80),  # what was kept took more than was free: who shared it had made the room
]
"""Seeds that once showed a fault, and how far."""


@pytest.mark.parametrize("seed", SLICE)
def test_nothing_goes_wrong_in_a_world_with_memory(seed: int) -> None:
    report = simulate(seed, SLICE_STEPS)

    assert report.violations is None, report.violations


@pytest.mark.parametrize(("seed", "steps"), LISTED)
def test_a_seed_that_once_failed_passes(seed: int, steps: int) -> None:
    assert simulate(seed, steps).violations is None


def test_where_memory_is_plenty_conversations_come_back_from_it_and_from_nowhere_else() -> None:
    drawn = replace(Traits.draw(60_002), damage=0.0, crashes=0.0, slots=1, disk=False, cache=True)
    world = World(60_002, traits=replace(drawn, ram_bytes=PLENTY_BYTES, heal_idle_s=None))

    for _ in range(150):
        world.step()
    world.finish()

    roles = {source for source in ("park", "snapshot", "stash") if world.counts[f"served {source}"]}
    assert roles == {"park", "snapshot", "stash"}
    assert world.counts["served conversation"] == 0


def test_some_worlds_keep_much_in_memory_some_little_and_the_known_ones_nothing() -> None:
    later = {Traits.draw(seed).ram_bytes for seed in range(KEEPS_FROM, KEEPS_FROM + 60)}

    assert not any(Traits.draw(seed).ram_bytes for seed in range(2000))
    assert min(later) == 0
    assert max(later) == PLENTY_BYTES
    assert len(later) == 7
