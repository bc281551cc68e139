"""The Makefile, with small programs in place of pip, the server and the tools."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree whose environment is made, and whose programs only write what they were given."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = ("anchorline", "python", "ruff", "basedpyright", "lint-imports", "coverage", "pytest")
    for name in tools:
        program(tmp_path / ".venv/bin" / name, f'echo "{name} $*"')
    for name in (".runtime-installed", ".tools-installed"):
        (tmp_path / ".venv" / name).touch()
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
    )


def test_make_alone_lists_the_targets(checkout: Path) -> None:
    output = make(checkout).stdout
    for target in ("serve", "test", "format", "bench", "soak", "mutants", "clean", "help"):
        assert f"  make {target} " in output


def test_serve_in_a_made_environment_installs_nothing(checkout: Path) -> None:
    result = make(checkout, "serve")
    assert result.stdout == "anchorline serve\n"
    assert result.returncode == 0


def test_serve_hands_on_its_variables(checkout: Path) -> None:
    given = ("MODEL=./a model", "PORT=81", "CACHE_DIR=/c d", "ARGS=--slots 2")
    assert make(checkout, "serve", *given).stdout == (
        "anchorline serve ./a model --port 81 --cache-dir /c d --slots 2\n"
    )


def test_serve_installs_again_after_the_requirements_changed(checkout: Path) -> None:
    stamp = checkout / ".venv/.runtime-installed"
    newer_ns = stamp.stat().st_mtime_ns + 10**9
    os.utime(checkout / "constraints.txt", ns=(newer_ns, newer_ns))
    program(checkout / "python3", "exit 0")

    result = make(checkout, "serve", f"PYTHON={checkout / 'python3'}")

    assert "python -m pip install --quiet --constraint constraints.txt pip\n" in result.stdout
    assert "--editable .\n" in result.stdout
    assert result.stdout.endswith("anchorline serve\n")


def test_an_old_python_is_refused_by_name(checkout: Path) -> None:
    (checkout / ".venv/.runtime-installed").unlink()
    old = program(checkout / "python3.9", "exit 1")
    result = make(checkout, "serve", f"PYTHON={old}")
    assert result.returncode != 0
    assert f"anchorline needs Python 3.11 or newer, and '{old}' is no such one" in result.stderr
    assert not (checkout / ".venv/.runtime-installed").exists()


def test_test_announces_each_step(checkout: Path) -> None:
    result = make(checkout, "test")
    announced = [line for line in result.stdout.splitlines() if line.startswith("== ")]
    assert result.returncode == 0
    beside = "== tests beside: pytest"  # at whatever time
    assert beside in announced
    assert [line for line in announced if line != beside] == [
        "== format: ruff",
        "== lint: ruff",
        "== layers: lint-imports",
        "== types: basedpyright",
        "== tests: coverage",
        "== served tests: pytest",
        "== percent of domain/ covered: coverage",
        "== percent of application/ covered: coverage",
        "== all is well",
    ]


def test_test_with_arguments_runs_those_tests_alone_and_traces_nothing(checkout: Path) -> None:
    result = make(checkout, "test", "ARGS=-x tests/unit")
    assert result.returncode == 0
    assert "\npytest -x tests/unit\n" in result.stdout
    assert "coverage" not in result.stdout


def test_every_folder_of_tests_is_run_by_test(checkout: Path) -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders: list[str] = configured["tool"]["pytest"]["ini_options"]["testpaths"]
    run = make(checkout, "test").stdout.replace("\n", " ").split(" ")
    assert [folder for folder in folders if run.count(folder) != 1] == []


def test_soak_runs_for_the_minutes_it_is_given(checkout: Path) -> None:
    assert make(checkout, "soak", "MINUTES=5", "ARGS=--seed 1").stdout == (
        "python -m soak --minutes 5 --seed 1\n"
    )


def test_test_stops_at_the_first_step_that_fails_and_says_what_to_do(checkout: Path) -> None:
    program(checkout / ".venv/bin/basedpyright", "exit 3")
    result = make(checkout, "test")
    assert result.returncode != 0
    assert "== types failed. Next: mend what is listed" in result.stderr
    assert "pytest" not in result.stdout


@pytest.mark.parametrize("failing", ["tests/unit", "tests/http", "tests/engine"])
def test_no_test_fails_beside_others_that_pass_and_is_not_told(
    checkout: Path, failing: str
) -> None:
    for name in ("coverage", "pytest"):
        fails = f'case "$*" in *{failing}*) echo broken; exit 1;; esac; echo "{name} $*"'
        program(checkout / ".venv/bin" / name, fails)

    result = make(checkout, "test")

    assert result.returncode != 0
    assert "broken" in result.stdout
    assert "failed. Next: mend it" in result.stdout + result.stderr
    assert "== all is well" not in result.stdout
