"""Letting a world live with a planted fault."""

from anchorline.simulation.action import Action
from anchorline.simulation.run import Failure
from anchorline.simulation.violation import Violation
from anchorline.simulation.world import World

from .patching import Planted


def caught_in(fault: Planted, seed: int, steps: int) -> Failure | None:
    """What the seed's world breaks with a fault, within so many steps and its end."""
    with fault.plant():
        return lived(fault, seed, steps)


def lived(fault: Planted, seed: int, steps: int) -> Failure | None:
    """What the world in which a fault is shown breaks as the code is now; None if nothing."""
    world = World(seed, traits=fault.traits(seed))
    history: list[Action] = []
    for step in range(steps):
        history.append(world.draw())
        try:
            world.step(history[-1])
        except Violation as violation:
            if violation.rule not in fault.tolerated:
                return Failure(seed, step, violation.rule, violation.message, history)
    try:
        world.finish()
    except Violation as violation:
        if violation.rule not in fault.tolerated:
            return Failure(seed, steps, violation.rule, violation.message, history)
    return None
