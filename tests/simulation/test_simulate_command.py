"""`anchorline simulate`: its figures, its exit code, and the file that replays."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.settings import ServeSettings
from anchorline.simulation.traits import Traits
from anchorline.simulation.worlds import Worlds
from support.planted import in_exact


def unused(*_: object) -> NoReturn:
    raise AssertionError("this command was not asked for")


def run(*arguments: str, worlds: Callable[[], Any] = Worlds) -> Result:
    parts = CliParts("1.2.3", ServeSettings, unused, unused, unused, worlds=worlds)
    runner = CliRunner(env={"COLUMNS": "80"})
    return runner.invoke(build_cli(parts), ["simulate", *arguments], prog_name="anchorline")


class BrokenWorlds:
    """Every world fails in its third step, of four actions that are one too many."""

    FAILURE: Mapping[str, Any] = {
        "seed": 4,
        "step": 2,
        "rule": "state",
        "message": "two rows are exchanged",
        "history": [{"kind": "begin"}, {"kind": "idle"}, {"kind": "turn", "tokens": 3}],
    }

    def live(
        self, seed: int, steps: int, shown: Callable[[int], None], *, exact: bool
    ) -> tuple[str, Mapping[str, Any] | None]:
        del exact
        shown(min(steps, 2))
        return f"seed {seed}: figures", {**self.FAILURE, "seed": seed}

    def shorten(
        self, failure: Mapping[str, Any], shown: Callable[[int, int], None]
    ) -> Mapping[str, Any]:
        shown(1, 2)
        return {**failure, "history": [failure["history"][0], failure["history"][2]]}

    def replay(self, failure: Mapping[str, Any]) -> str | None:
        return f"step 1: {failure['rule']}: {failure['message']}"

    def told(self, failure: Mapping[str, Any]) -> list[str]:
        return [str(action["kind"]) for action in failure["history"]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_fits_a_screen() -> None:
    lines = run("--help").output.splitlines()

    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80


def test_worlds_without_a_fault_tell_their_figures_and_exit_with_0() -> None:
    result = run("--seed", "3", "--seeds", "2", "--steps", "12")

    assert result.exit_code == 0
    assert "seed 3: 12 steps, " in result.output
    assert "seed 4: 12 steps, " in result.output


def test_a_violation_is_shown_with_its_short_history_and_exits_with_1(here: Path) -> None:
    result = run("--seed", "4", "--seeds", "9", worlds=BrokenWorlds)

    assert result.exit_code == 1
    assert "step 2: state: two rows are exchanged" in result.output
    assert "  begin\n  turn\n" in result.output
    assert "anchorline simulate --replay simulate-seed-4.json" in result.output
    written = json.loads((here / "simulate-seed-4.json").read_text())
    assert [action["kind"] for action in written["history"]] == ["begin", "turn"]


def test_every_world_is_exact_where_that_is_wanted() -> None:
    assert not any(Traits.draw(seed).row_invariant for seed in (5, 6))

    with fault("tail unpadded"):
        drawn = run("--seed", "5", "--seeds", "2", "--steps", "12")
    assert drawn.exit_code == 0


def test_a_violation_in_an_exact_world_is_shortened_and_replayed_in_one(here: Path) -> None:
    with fault("lone row unpadded"):
        found = run("--seed", "3", "--steps", "40", "--exact")
        again = run("--replay", str(here / "simulate-seed-3.json"))
    sound = run("--replay", str(here / "simulate-seed-3.json"))

    assert (found.exit_code, again.exit_code, sound.exit_code) == (1, 1, 0)
    assert ": state: " in again.output


def fault(name: str) -> AbstractContextManager[None]:
    return next(one for one in in_exact.FAULTS if one.name == name).plant()


def test_a_recorded_history_is_replayed(here: Path) -> None:
    path = here / "one.json"
    path.write_text(json.dumps(BrokenWorlds.FAILURE))

    broken = run("--replay", str(path), worlds=BrokenWorlds)
    whole = run("--replay", str(path))

    assert broken.exit_code == 1
    assert "step 1: state: two rows are exchanged" in broken.output
    assert whole.exit_code == 0
    assert "nothing went wrong" in whole.output


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"seed": 1}'])
def test_a_file_that_holds_no_history_is_the_callers_mistake(here: Path, content: str) -> None:
    path = here / "one.json"
    path.write_text(content)

    result = run("--replay", str(path))

    assert result.exit_code == 2
    assert str(path) in result.output
