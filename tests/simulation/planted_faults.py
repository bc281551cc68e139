"""Plant faults in the real code, one at a time, and let the simulated world find each of them.

    make faults ARGS="--only fence"

Prints a Markdown table, and its progress on stderr. Fails where a fault escapes, and where a world
breaks a rule without any. `test_planted_faults.py` beside this file runs the same faults in the
worlds where they were found soonest.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anchorline.simulation.minimise import minimise
from anchorline.simulation.run import Failure
from support.planted.catalogue import CONTROLS, FAULTS
from support.planted.patching import Planted
from support.planted.seen import SEEN
from support.planted.trial import caught_in, lived

STEPS_MAX: Final = 20_000
"""Steps of all worlds together in which a fault must be caught."""

WORLD_STEPS: Final = 1_000
"""Steps of one world, then comes the next seed: each is another machine with other clients."""

REPLAYS_MAX: Final = 60
"""Replays that are made to shorten a history."""


@dataclass(frozen=True, slots=True)
class Catch:
    """A fault that the world has found.

    Attributes:
        steps: of all worlds until then.
        actions: of the history, shortened where that was asked for.
    """

    failure: Failure
    steps: int
    seconds: float
    actions: int


def seeds_for(fault: Planted, first: int | None) -> Iterator[int]:
    """The worlds to try: where the fault was seen before, then one after the other."""
    if first is None and fault.name in SEEN:
        yield SEEN[fault.name].seed
    yield from itertools.count(first or 0)


def caught(fault: Planted, seeds: Iterable[int], steps_max: int, world_steps: int) -> Catch | None:
    """Let worlds live with a fault until a rule is broken; None if none is."""
    began_s, steps = time.monotonic(), 0
    for seed in seeds:
        here = min(world_steps, steps_max - steps)
        if here <= 0:
            break
        failure = caught_in(fault, seed, here)
        if failure is not None:
            seconds = time.monotonic() - began_s
            return Catch(failure, steps + failure.step + 1, seconds, len(failure.history))
        steps += here
    return None


def shortened(fault: Planted, catch: Catch) -> Catch:
    """The same catch, with its history's length after delta debugging."""
    failure = catch.failure
    with fault.plant():
        shorter = minimise(
            failure.seed,
            failure.history,
            rule=failure.rule,
            traits=fault.traits(failure.seed),
            runs_max=REPLAYS_MAX,
        )
    return Catch(failure, catch.steps, catch.seconds, len(shorter))


def is_clean(fault: Planted, failure: Failure) -> Failure | None:
    """What the same world breaks without the fault, up to the same step: nothing, one hopes."""
    return lived(fault, failure.seed, failure.step + 1)


def row(fault: Planted, catch: Catch | None) -> str:
    """A line of the table."""
    if catch is None:
        found = ("**escapes**", "", "", "", "")
    else:
        failure = catch.failure
        found = (
            f"`{failure.rule}`",
            str(failure.seed),
            str(failure.step),
            str(catch.actions),
            f"{catch.seconds:.1f}",
        )
    return " | ".join(("", fault.name, fault.mistake, f"`{fault.where}`", *found, "")).strip()


def lines(faults: Sequence[Planted], options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """The table's lines, each with whether all is as it should be."""
    yield "| fault | what was done | in | rule | seed | step | actions | s |", True
    yield "|-|-|-|-|-|-|-|-|", True
    for fault in faults:
        print(f"{fault.name} ...", file=sys.stderr, flush=True)
        seeds = seeds_for(fault, options.first_seed)
        catch = caught(fault, seeds, options.steps_max, options.world_steps)
        if catch is None:
            yield row(fault, None), False
            continue
        unprovoked = is_clean(fault, catch.failure)
        if unprovoked is not None:
            told = f"{unprovoked.rule} at step {unprovoked.step}: {unprovoked.message}"
            print(f"seed {unprovoked.seed} without any fault: {told}", file=sys.stderr)
        if options.shorten and not fault.tolerated:
            catch = shortened(fault, catch)
        yield row(fault, catch), unprovoked is None


def check_controls(options: argparse.Namespace) -> bool:
    """What is no fault must not be taken for one."""
    sound = True
    for control in CONTROLS:
        catch = caught(control, range(options.control_seeds), options.steps_max, 500)
        told = "no violation" if catch is None else f"{catch.failure.rule}: {catch.failure.message}"
        print(f"\nControl: {control.name} ({control.mistake}): {told}.")
        sound = sound and catch is None
    return sound


def main() -> int:
    """0 if every fault was caught and nothing else was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose name has it")
    parser.add_argument("--steps-max", type=int, default=STEPS_MAX, help="until it is caught")
    parser.add_argument("--world-steps", type=int, default=WORLD_STEPS, help="of each world")
    parser.add_argument(
        "--first-seed", type=int, help="instead of the one where a fault was seen before"
    )
    parser.add_argument("--control-seeds", type=int, default=4, help="worlds of each control")
    parser.add_argument("--shorten", action="store_true", help="minimise each history")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only in fault.name]
    sound = True
    for line, as_it_should_be in lines(chosen, options):
        print(line, flush=True)
        sound = sound and as_it_should_be
    if not options.only:
        sound = check_controls(options) and sound
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
