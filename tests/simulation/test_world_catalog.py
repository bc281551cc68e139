"""Worlds whose catalogs fail: nothing but what is kept on the medium may suffer from it."""

from dataclasses import replace

import pytest

from anchorline.simulation.action import Action, Kind
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


def test_a_rebuild_that_could_not_read_everything_is_finished_before_strays_are_judged() -> None:
    world = World(20030, traits=replace(Traits.draw(20030), damage=0.0))
    world.step(Action(Kind.BEGIN, tokens=30, answer=4, seed=1))
    world.step(Action(Kind.FLUSH, seed=1))
    world.step(Action(Kind.TROUBLE))  # some reads fail, and the catalog works
    world.step(Action(Kind.LOSE_CATALOG, seed=1))
    was_unfinished = world.machine.box.catalog.needs_rebuild

    world.finish()

    assert was_unfinished
    assert not world.machine.box.catalog.needs_rebuild
