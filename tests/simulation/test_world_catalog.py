"""Worlds whose catalogs fail: nothing but what is kept on the medium may suffer from it."""

from dataclasses import replace

import pytest

from anchorline.simulation.traits import CATALOG_FAILS_FROM, Traits
from anchorline.simulation.world import World

STEPS = 150


def rough(seed: int) -> Traits:
    """The seed's own traits, with a tier, and with much that goes wrong."""
    return replace(Traits.draw(seed), disk=True, cache=True, damage=4.0, catalog_fails=True)


@pytest.mark.parametrize("seed", range(CATALOG_FAILS_FROM, CATALOG_FAILS_FROM + 4))
def test_nothing_goes_wrong_in_a_world_whose_catalog_fails(seed: int) -> None:
    world = World(seed, traits=rough(seed))

    for _ in range(STEPS):
        world.step()
    world.finish()

    assert world.counts["trouble"] > 0


def test_catalogs_fail_in_two_worlds_of_three_and_in_none_of_the_known_ones() -> None:
    assert not any(Traits.draw(seed).catalog_fails for seed in range(200))
    later = [Traits.draw(CATALOG_FAILS_FROM + number).catalog_fails for number in range(30)]
    assert sum(later) == 20
