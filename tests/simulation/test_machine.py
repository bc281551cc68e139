"""The machine of a world: what it holds against its server, and what against itself."""

import random

from anchorline.domain.disk_retention import Shares
from anchorline.simulation.machine import Machine
from anchorline.simulation.traits import Traits


def test_objects_that_a_broken_medium_makes_larger_are_no_fault_of_the_budget() -> None:
    machine = Machine(Traits(), seed=0)
    machine.server.ask([(7 * at) % 97 for at in range(100)])
    machine.box.flush()
    grown = 0

    for seed in range(200):
        machine.box.shares = Shares(machine.ledger.used, 0)
        machine.damage(random.Random(seed))
        machine.check()
        grown = max(grown, machine.ledger.used - machine.box.shares.pool)

    assert grown > 0
