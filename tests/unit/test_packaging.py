"""What a user installs is the package and nothing else."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"tests", "scripts", "docs", "build", "dist"}


def packages_there_are() -> set[str]:
    """Every folder with an `__init__.py`, as a dotted name; the root itself is `anchorline`."""
    found: set[str] = set()
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [name for name in inside if not name.startswith(".")]
        if Path(folder) == ROOT:
            inside[:] = [name for name in inside if name not in NOT_SHIPPED]
        if "__init__.py" in files:
            found.add(".".join(["anchorline", *Path(folder).relative_to(ROOT).parts]))
    return found


def not_copied(folder: str, names: Sequence[str]) -> set[str]:
    """What a clean checkout does not hold: hidden folders, caches, leftovers of builds."""
    hidden = {name for name in names if name.startswith(".") or name.endswith(".egg-info")}
    leftovers = {"build", "dist"} if Path(folder) == ROOT else set[str]()
    return hidden | {"__pycache__"} | leftovers


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel that was built from a copy of this checkout, so that no build is left behind."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, place / "copy", ignore=not_copied)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place / "out"],
        cwd=place / "copy",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (place / "out").glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_list_of_packages_is_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    listed = project["tool"]["setuptools"]["packages"]

    assert set(listed) == packages_there_are()
    assert listed == sorted(listed)


def test_the_checkout_is_what_tests_import() -> None:
    import anchorline  # noqa: PLC0415 - this very import is what is looked at

    assert Path(str(anchorline.__file__)).resolve() == ROOT / "__init__.py"


def test_a_wheel_holds_one_package(wheel: zipfile.ZipFile) -> None:
    (info,) = {name.split("/")[0] for name in wheel.namelist()} - {"anchorline"}

    assert info.startswith("anchorline-")
    assert info.endswith(".dist-info")


def test_a_wheel_holds_every_module_and_no_other_python(wheel: zipfile.ZipFile) -> None:
    modules = {name for name in wheel.namelist() if name.endswith(".py")}

    expected: set[str] = set()
    for package in packages_there_are():
        folder = ROOT.joinpath(*package.split(".")[1:])
        expected |= {f"anchorline/{path.relative_to(ROOT)}" for path in folder.glob("*.py")}
    assert modules == expected


def test_a_wheel_holds_the_toy_model_and_its_types(wheel: zipfile.ZipFile) -> None:
    shipped = set(wheel.namelist())
    toy = {f"anchorline/models/toy/{path.name}" for path in (ROOT / "models/toy").iterdir()}

    assert "anchorline/models/toy/config.json" in toy
    assert toy <= shipped
    assert "anchorline/py.typed" in shipped
    assert {name for name in shipped if name.startswith("anchorline/models/")} == toy


def test_a_wheel_holds_nothing_that_is_not_needed_to_run(wheel: zipfile.ZipFile) -> None:
    folders = {name.split("/")[1] for name in wheel.namelist() if name.count("/") > 1}

    assert not folders & {"tests", "scripts", "docs", ".ci", ".path", ".venv"}


def test_what_a_wheel_holds_can_be_imported(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import anchorline.domain.grid; print(anchorline.__file__, anchorline.__version__)"
    )

    said = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.split()

    assert said[0] == str(tmp_path / "anchorline/__init__.py")
    assert f"anchorline-{said[1]}.dist-info/METADATA" in wheel.namelist()
