"""The simulated world can fail: faults that are planted in the real code are caught by it.

Each fault is planted in the world in which `make faults` found it soonest. The same worlds break
no rule without it. Where a change of the code or of the world moves a catch further away, that
command finds the new place.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from anchorline.simulation.run import simulate
from anchorline.simulation.traits import Traits
from support.planted.catalogue import CONTROLS, FAULTS
from support.planted.patching import Planted
from support.planted.seen import ESCAPED, SEEN
from support.planted.trial import caught_in

ROOT: Final = Path(__file__).resolve().parents[2]

TOO_SLOW: Final[frozenset[str]] = frozenset()
"""Faults that take too many steps for every day; `make faults` tries them too."""

SLACK: Final = 40
"""Steps by which a catch may come later than it was seen."""

QUICK: Final = [fault for fault in FAULTS if fault.name in SEEN and fault.name not in TOO_SLOW]


def worlds() -> list[tuple[int, Traits, int]]:
    """The worlds of all quick faults, each up to the last step at which one was caught in it."""
    last: defaultdict[tuple[int, Traits], int] = defaultdict(int)
    for fault in QUICK:
        _, seed, step = SEEN[fault.name]
        world = seed, fault.traits(seed)
        last[world] = max(last[world], step + 1)
    return [(seed, traits, steps) for (seed, traits), steps in last.items()]


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault: Planted) -> None:
    rule, seed, step = SEEN[fault.name]

    found = caught_in(fault, seed, step + SLACK)

    assert found is not None, "it escapes here; `make faults` looks for another world"
    assert found.rule == rule


@pytest.mark.parametrize(("seed", "traits", "steps"), worlds())
def test_without_a_fault_the_same_world_breaks_no_rule(
    seed: int, traits: Traits, steps: int
) -> None:
    assert simulate(seed, steps, traits=traits).violations is None


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_what_costs_misses_only_is_no_violation(control: Planted) -> None:
    assert caught_in(control, seed=0, steps=60) is None


def test_every_fault_is_listed_with_what_became_of_it() -> None:
    names = [fault.name for fault in FAULTS]

    assert len(set(names)) == len(names)
    assert set(names) == set(SEEN) | ESCAPED
    assert not ESCAPED & set(SEEN)
    assert set(SEEN) >= TOO_SLOW


def test_the_table_of_faults_in_the_documents_is_true() -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = [
        f"| {fault.name} | {fault.mistake} | `{fault.where}` | `{rule}` | {seed} | {step} |"
        for fault in FAULTS
        for rule, seed, step in [SEEN[fault.name]]
    ]

    assert "\n".join(rows) in text, "`make faults` prints it"


PLANTED_IN: Final = ("adapters.memory", "application", "domain", "simulation")


def the_code() -> dict[tuple[str, ...], int]:
    """Which object every name of the modules and classes stands for that faults are planted in."""
    prefixes = tuple(f"anchorline.{package}." for package in PLANTED_IN)
    found: dict[tuple[str, ...], int] = {}
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith(prefixes):
            continue
        for name, value in list(vars(module).items()):
            found[module_name, name] = id(value)
            if isinstance(value, type):
                inside = list(vars(value).items())
                found |= {(module_name, name, inner): id(one) for inner, one in inside}
    return found


def plant_and_stumble(fault: Planted, before: dict[tuple[str, ...], int]) -> None:
    with fault.plant():
        assert the_code() != before, "nothing was planted"
        raise ZeroDivisionError


def test_a_fault_is_taken_out_again_whatever_happens() -> None:
    before = the_code()

    for fault in (*FAULTS, *CONTROLS):
        with pytest.raises(ZeroDivisionError):
            plant_and_stumble(fault, before)

    assert the_code() == before
