"""Write down every mutant of `domain/`; runs where cosmic-ray is installed, apart from the project.

    python tests/mutants/generate.py ROOT OUT.json

Operators are those of cosmic-ray, less the ones that say the same thing again: of the twelve ways
to replace an arithmetic operator two are kept, and comparisons are not replaced by `is`. Nor are
lines mutated whose change no caller can see: decorators of data classes, type aliases, and the
`|` of types.
"""

# It has libraries of its own, which the project's environment does not.
# pyright: basic, reportMissingImports=false

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

_SECOND: Final = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "FloorDiv": "Mul", "Div": "Mul"}
"""By operator: what replaces it. The others (%, **, <<, >>, &, |, ^) become a sum."""


def main() -> None:
    """Generate for all modules."""
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    mutants = [
        mutant for path in sorted((root / "domain").glob("*.py")) for mutant in _of_module(path)
    ]
    out.write_text(json.dumps(mutants), encoding="utf-8")
    print(f"{len(mutants)} mutants")


def _of_module(path: Path) -> Iterator[dict[str, object]]:
    source = path.read_text(encoding="utf-8")
    if not source.strip():
        return
    tree, lines = get_ast(source), source.splitlines()
    silent = _silent_lines(source)
    seen: set[str] = set()
    for name in filter(_is_wanted, operator_names()):
        operator = get_operator(name)
        if operator.arguments():
            continue
        positions = [
            start for node in ast_nodes(tree) for start, _ in operator().mutation_positions(node)
        ]
        for occurrence, (line, column) in enumerate(positions):
            if line in silent:
                continue
            mutated = mutate_code(source, operator(), occurrence)
            if mutated is None or mutated in seen:
                continue
            seen.add(mutated)
            yield {
                "module": path.stem,
                "operator": name.removeprefix("core/"),
                "line": line,
                "column": column,
                "was": lines[line - 1].strip(),
                "is": _changed_line(source, mutated),
                "source": mutated,
            }


def _is_wanted(name: str) -> bool:
    kind = name.removeprefix("core/")
    if kind.startswith("ReplaceBinaryOperator_"):
        _, was, becomes = kind.split("_")
        return becomes == _SECOND.get(was, "Add")
    if kind.startswith("ReplaceUnaryOperator_USub_"):
        return False  # the one that deletes it says the same
    if kind.startswith("ReplaceComparisonOperator_"):
        _, was, becomes = kind.split("_")
        return "Is" not in (becomes[:2], was[:2]) or {was, becomes} == {"Is", "IsNot"}
    return True


def _silent_lines(source: str) -> set[int]:
    """Lines of decorators of data classes, of type aliases, of annotations and of docstrings."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            spots: list[ast.expr] = node.decorator_list
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            spots = [node.value] if node.value is not None else []
        else:
            continue
        for spot in spots:
            found.update(range(spot.lineno, (spot.end_lineno or spot.lineno) + 1))
    return found


def _changed_line(source: str, mutated: str) -> str:
    pairs = zip(source.splitlines(), mutated.splitlines(), strict=False)
    return next((new.strip() for old, new in pairs if old != new), "")


if __name__ == "__main__":
    main()
