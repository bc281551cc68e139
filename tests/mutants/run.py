"""Run each mutant's tests, and say which mutants no test sees.

    python tests/mutants/run.py MUTANTS.json RESULTS.jsonl [--only MODULE] [--share 0.3]

Nothing on the disk is changed: a process that has pytest, numpy and hypothesis loaded is forked for
each mutant, imports the mutant in place of its module, and runs the tests that concern it. What has
a result already is not run again. Exit code 1 if a mutant survived that docs/mutants.md does not
list.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, TypeAlias

Mutant: TypeAlias = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
JUDGED: Final = ROOT / "docs/mutants.md"
PATIENCE: Final = 10
"""Times as long as the first file takes without a mutant; one that takes longer does not end."""

_EDGES: Final = "unit/test_edges_of_values.py"
_OBJECTS: Final = (
    "unit/test_object_format.py",
    _EDGES,
    "unit/test_content_chain.py",
    "unit/test_object_store.py",
    "property/test_object_format.py",
)
_DISK: Final = ("unit/test_disk_tier.py", "property/test_disk_rules.py")

TESTS: Final[dict[str, Sequence[str]]] = {
    "anchor_budget": ("unit/test_anchor_budget.py", _EDGES, "property/test_anchor_spread.py"),
    "codec_choice": ("unit/test_codec_choice.py", _EDGES),
    "content_chain": _OBJECTS,
    "disk_index": ("unit/test_disk_index.py", "unit/test_lent_state.py", *_DISK),
    "disk_retention": ("unit/test_disk_retention.py", _EDGES, *_DISK),
    "end": ("unit/test_end.py", "unit/test_object_format.py"),
    "entry": ("unit/test_entry.py", "unit/test_disk_index.py"),
    "entry_remains": ("unit/test_entry_remains.py", *_DISK),
    "entry_succession": ("unit/test_entry_succession.py", *_DISK),
    "grid": ("unit/test_grid.py", _EDGES, "unit/test_prompt_chain.py", "unit/test_end.py"),
    "head_admission": ("unit/test_head_admission.py", *_DISK),
    "layout": ("unit/test_layout.py", _EDGES, "unit/test_object_store.py"),
    "measured_rate": ("unit/test_measured_rate.py", "property/test_disk_rules.py"),
    "mismatch": ("unit/test_live_verify.py",),
    "object_format": _OBJECTS,
    "object_header": _OBJECTS,
    "object_name": _OBJECTS,
    "offers": ("unit/test_offers.py", _EDGES, "property/test_choice.py"),
    "prefix_key": ("unit/test_prefix_key.py", "property/test_prefixes.py"),
    "prompt": ("unit/test_prompt.py", _EDGES),
    "prompt_chain": ("unit/test_prompt_chain.py", "unit/test_disk_index.py"),
    "stop": ("unit/test_stop.py", "property/test_stop_splits.py"),
    "sampling": ("unit/test_sampling.py", _EDGES),
    "sums": ("unit/test_sums.py", _EDGES, "property/test_sums_of_changed_bytes.py"),
    "taint_line": ("unit/test_taint_line.py", _EDGES, "property/test_taint_is_true.py"),
    "way_index": (
        "unit/test_way_index.py",
        "unit/test_disk_index.py",
        "property/test_way_index.py",
    ),
    "write_guard": ("unit/test_write_guard.py", _EDGES),
}
"""By module: the tests that concern it, quick ones first; others have those of their name."""


class _MutantImport(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports a given source in place of one module's own."""

    def __init__(self, module: str, source: str) -> None:
        self._name = f"anchorline.domain.{module}"
        self._path = str(ROOT / "domain" / f"{module}.py")
        self._source = source

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=self._path)
        if spec is not None:
            spec.has_location = True
        return spec

    def get_source(self, fullname: str) -> str:
        del fullname
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mutant may compare with a literal by `is`
            return compile(self._source, self._path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102, our own, changed


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("mutants", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", action="append", help="this module; may be given again")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of each module's, drawn by seed 0"
    )
    options = parser.parse_args()
    mutants: list[Mutant] = json.loads(options.mutants.read_text(encoding="utf-8"))
    drawn = {_name(mutant): random.Random(f"0 {_name(mutant)}").random() for mutant in mutants}
    # Drawn ones first: where a run is broken off, what it did is a fair sample all the same.
    chosen = sorted(
        (
            mutant
            for mutant in mutants
            if (not options.only or mutant["module"] in options.only)
            and drawn[_name(mutant)] < options.share
        ),
        key=lambda mutant: drawn[_name(mutant)],
    )
    _preload()
    known = _known(options.results)
    with options.results.open("a", encoding="utf-8") as results:
        for mutant, outcome in _run_all([one for one in chosen if _name(one) not in known]):
            known[_name(mutant)] = outcome
            results.write(json.dumps({"name": _name(mutant), "outcome": outcome}) + "\n")
            results.flush()
    sys.exit(_tell(chosen, known))


def _run_all(mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
    limits: dict[str, float] = {}
    for mutant in mutants:
        module = mutant["module"]
        if module not in limits:
            began_s = time.monotonic()
            path = ROOT / "domain" / f"{module}.py"
            clean = {**mutant, "source": path.read_text(encoding="utf-8")}
            passed = _outcome(clean, 3600, _tests(module)[:1]) == "survived"
            limits[module] = PATIENCE * (time.monotonic() - began_s) + 60 if passed else 0
            said = "" if passed else ": they fail without a mutant, which says nothing"
            print(f"{module}: {', '.join(_tests(module))}{said}", flush=True)
        if limits[module]:
            yield mutant, _outcome(mutant, limits[module], _tests(module))


def _outcome(mutant: Mutant, limit_s: float, files: Sequence[str]) -> str:
    """`killed`, `survived`, or `timeout`."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_test(mutant, files))
    until = time.monotonic() + limit_s
    pause_s = 0.005
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "survived" if status == 0 else "killed"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 0.2)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _test(mutant: Mutant, files: Sequence[str]) -> int:
    """In the child: 0 if all tests pass."""
    import pytest  # noqa: PLC0415, loaded before the fork

    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.chdir(ROOT)
    sys.meta_path.insert(0, _MutantImport(mutant["module"], mutant["source"]))
    loaded = "-Wignore::pytest.PytestAssertRewriteWarning"  # hypothesis is there before pytest
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # looking for plugins took most of the time
    plugins = ("-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider")
    arguments = ["-x", "-q", *plugins, "--hypothesis-profile=mutants", loaded]
    # One file after the other: most mutants fall in the first, and importing the rest takes longer.
    return next((1 for path in files if pytest.main([*arguments, path]) != 0), 0)


def _preload() -> None:
    """Load what every child needs; nothing of the project, which children import changed."""
    import hypothesis  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    import pytest  # noqa: PLC0415

    assert np.__version__
    assert pytest.__version__
    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, max_examples=30
    )
    assert not any(name.startswith("anchorline") for name in sys.modules)


def _tests(module: str) -> list[str]:
    return [f"tests/{path}" for path in TESTS.get(module, (f"unit/test_{module}.py",))]


def _name(mutant: Mutant) -> str:
    """The same for the same change, wherever the line has moved to."""
    return " ".join(str(mutant[key]) for key in ("module", "operator", "was", "column", "is"))


def _known(results: Path) -> dict[str, str]:
    if not results.exists():
        return {}
    lines = results.read_text(encoding="utf-8").splitlines()
    return {one["name"]: one["outcome"] for one in map(json.loads, lines)}


def _tell(mutants: Sequence[Mutant], known: dict[str, str]) -> int:
    judged = JUDGED.read_text(encoding="utf-8") if JUDGED.exists() else ""
    by_module: dict[str, Counter[str]] = {}
    survivors = 0
    for mutant in sorted(mutants, key=lambda one: (one["module"], one["line"])):
        outcome = known.get(_name(mutant), "not run")
        if outcome == "survived":
            listed = f"`{mutant['is']}`" in judged
            outcome = "equivalent" if listed else "survived"
            survivors += not listed
            print(
                f"{outcome}: domain/{mutant['module']}.py:{mutant['line']}  {mutant['was']}\n"
                f"    {mutant['is']}"
            )
        by_module.setdefault(mutant["module"], Counter())[outcome] += 1
    print("| module | run | killed | equivalent | survived | not run |\n|-|-|-|-|-|-|")
    for module, counts in sorted(by_module.items()):
        killed, left = counts["killed"] + counts["timeout"], counts["not run"]
        print(
            f"| {module} | {counts.total() - left} | {killed} | {counts['equivalent']} | "
            f"{counts['survived']} | {left} |"
        )
    return 1 if survivors else 0


if __name__ == "__main__":
    main()
