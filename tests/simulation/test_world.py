"""The world itself: its seeds pass, repeat, and show what is broken."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine, cold_state
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application import disk_tier
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import StoredEntry
from anchorline.domain.taint_line import Gate, TaintLine, Writer
from anchorline.domain.tokens import token_ids
from anchorline.ports.engine import DecodeInput
from anchorline.simulation.action import Action, Crash, Kind
from anchorline.simulation.minimise import minimise
from anchorline.simulation.oracle import Oracle, Realm
from anchorline.simulation.run import replay, simulate
from anchorline.simulation.tier_watch import is_continued
from anchorline.simulation.traits import Traits
from anchorline.simulation.worlds import Worlds, failure_of, line_of
from support.planted.patching import two_lives_without_rows

ROOT = Path(__file__).resolve().parents[2]
HERE = Realm("one", Namespace())

SLICE = range(20)
"""Seeds of which every run of the tests lives through `SLICE_STEPS` actions."""

SLICE_STEPS = 250

LISTED = [
    (1, 200),  # a write counted on an object that was moved aside meanwhile
    (5, 300),  # the state to be brought in left for the one to be saved
    (30034, 900),  # damaged objects freed less room than their entries said
    (90071, 1002),  # what the medium gave up during a request was to be written once more
    (92025, 626),  # what a request resumed from had to make room for it, unwritten
    (90112, 494),  # an anchor below rows that stood in memory was taken for damage
    (90161, 60),  # copies of sections were thought to change places as rows do
]
"""Seeds that once showed a fault, and how far."""


@pytest.mark.parametrize("seed", SLICE)
def test_nothing_goes_wrong_in_the_world_of_a_seed(seed: int) -> None:
    report = simulate(seed, SLICE_STEPS)

    assert report.violations is None, report.violations
    assert report.requests > SLICE_STEPS // 2


@pytest.mark.parametrize(("seed", "steps"), LISTED)
def test_a_seed_that_once_failed_passes(seed: int, steps: int) -> None:
    assert simulate(seed, steps).violations is None


def test_who_is_worth_more_stays_while_the_catalog_does_not_let_the_others_go() -> None:
    rough = replace(Traits.draw(20129), disk=True, cache=True, share_bytes=1 << 19, damage=4.0)

    report = simulate(20129, 60, traits=rough)

    assert report.violations is None, report.violations


def test_an_anchor_of_another_history_of_equal_rows_is_not_kept_under_what_is_brought_in() -> None:
    plan = (Kind.BURST, Kind.BURST, Kind.BURST, Kind.FLUSH, Kind.KILL)
    traits = two_lives_without_rows(Traits.draw(1005))

    report = simulate(1005, 105, traits=replace(traits, slots=2, anchors=4, plan=plan))

    assert report.violations is None, report.violations


def test_a_flush_may_miss_what_a_displaced_longer_conversation_took_the_place_of() -> None:
    traits = two_lives_without_rows(Traits.draw(1002))

    report = simulate(1002, 130, traits=traits)

    assert report.violations is None, report.violations


def test_a_flush_may_not_miss_what_gave_way_to_a_conversation_of_other_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def continues(entry: StoredEntry, older: StoredEntry, chain: PromptChain) -> bool:
        """As it is, but that the tokens of the last block are not compared."""
        del chain
        return older.id != entry.id and is_continued(older, [entry])

    monkeypatch.setattr(disk_tier, "continues", continues)

    failure = simulate(3, 5, traits=two_lives_without_rows(Traits.draw(3))).violations

    assert failure is not None
    assert failure.message.startswith("nothing went wrong, and a flush is not durable")


def test_the_same_seed_has_the_same_history_and_the_same_figures() -> None:
    assert simulate(3, 80) == simulate(3, 80)


@pytest.mark.parametrize("hash_seed", ["0", "7"])
def test_a_history_does_not_depend_on_how_strings_are_hashed(hash_seed: str) -> None:
    code = "from anchorline.simulation.run import simulate; print(simulate(6, 60))"

    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / ".path")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    assert said == str(simulate(6, 60))


def always_bitwise(self: TaintLine, line: int, kind: AnchorKind, row_invariant: bool) -> Gate:
    """What a server would tell that does not follow who wrote a row."""
    del self, line, kind, row_invariant
    return Gate.BITWISE


def test_a_broken_rule_is_caught_and_its_short_history_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(TaintLine, "gate", always_bitwise)
        failure = simulate(2, 300).violations
        assert failure is not None
        longer = [*[Action(Kind.IDLE, seed=at) for at in range(6)], *failure.history]
        short = minimise(2, longer, rule="gate", runs_max=80)
        again = replay(2, short)

    assert failure.rule == "gate"
    assert again is not None
    assert again.rule == "gate"
    assert len(short) <= len(failure.history)
    assert replay(2, short) is None, "the same history passes over the rule as it is"


def test_a_failure_can_be_written_down_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaintLine, "gate", always_bitwise)
    line, failure = Worlds().live(2, 300, lambda _: None)
    assert failure is not None

    read = json.loads(json.dumps(failure))

    assert failure_of(read).as_json() == failure
    assert line.startswith("seed 2: ")
    assert Worlds().replay(read) == f"step {failure['step']}: gate: {failure['message']}"
    assert len(Worlds().told(read)) == len(failure["history"])


def test_a_history_that_breaks_nothing_is_not_minimised() -> None:
    with pytest.raises(ValueError, match="does not break any rule"):
        minimise(0, [Action(Kind.IDLE)])


def test_something_else_is_no_recorded_history() -> None:
    with pytest.raises(ValueError, match="no recorded history"):
        failure_of({"seed": 1})


@pytest.mark.parametrize(
    "action",
    [
        Action(Kind.IDLE),
        Action(Kind.TURN, 2, 17, 4, 99, Crash.POWER, 12, within_put=True),
    ],
)
def test_an_action_is_the_same_after_a_round_trip(action: Action) -> None:
    assert Action.from_json(json.loads(json.dumps(action.as_json()))) == action


def test_the_figures_of_a_world_are_told_in_a_line() -> None:
    report = simulate(1, 5, traits=Traits(damage=0.0, crashes=0.0))

    assert line_of(report).startswith(f"seed 1: 5 steps, {report.requests} requests, ")


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_the_oracle_knows_every_state_of_a_cold_prefill(parts: Parts, row_invariant: bool) -> None:
    oracle, grid = Oracle(parts, row_invariant=row_invariant), Grid(8)
    ids = token_ids([(7 * at) % 97 for at in range(37)])

    node = oracle.cold(HERE, ids, grid)

    state = cold_state(ids, 8, parts=parts, row_invariant=row_invariant)
    assert node.line == len(ids)
    if state.sections:
        assert int(np.frombuffer(state.sections["bits_after"], np.uint64)[0]) == node.bits_after
        assert int(np.frombuffer(state.sections["tokens"], np.uint64)[0]) == node.tokens
    if state.rows:
        assert state.rows["bits"][-8 * len(node.bits) :] == node.bits.tobytes()
        assert state.rows["prefix"][-8 * len(node.bits) :] == node.prefix.tobytes()


@pytest.mark.parametrize("parts", list(Parts))
def test_the_oracle_tells_decoded_rows_from_prefilled_ones(parts: Parts) -> None:
    oracle, rng = Oracle(parts), random.Random(1)
    engine = CheckableEngine(window=64, grid=8, parts=parts)
    ids = token_ids([rng.randrange(97) for _ in range(21)])
    node = oracle.root(HERE)
    for chunk in engine.profile.grid.chunks(0, 16):
        engine.prefill(0, ids[chunk.start : chunk.end])
        node = oracle.child(node, ids[chunk.start : chunk.end], Writer.PREFILL)

    for token in ids[16:]:
        engine.decode([DecodeInput(0, int(token))])
        node = oracle.child(node, token_ids([int(token)]), Writer.DECODE)

    cold = oracle.cold(HERE, ids, engine.profile.grid)
    assert node.key != cold.key
    assert node.tokens == cold.tokens
    if engine.slots[0].layout.sections:
        sections = {
            section.name: np.empty(section.nbytes, np.uint8)
            for section in engine.slots[0].layout.sections
        }
        engine.slots[0].export_sections(sections)
        assert int(sections["bits_after"].view(np.uint64)[0]) == node.bits_after
