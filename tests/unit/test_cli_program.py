import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.models_command import Flags, GetModel, ListModels, Progress, ProveModel
from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.domain.errors import EngineError, ModelNotFound, RequestError, SettingsError
from anchorline.settings import ServeSettings

SETTINGS = [field.name for field in msgspec.structs.fields(ServeSettings)]
ROOT = Path(__file__).resolve().parents[2]


def unused(*_: object) -> NoReturn:
    raise AssertionError("this command was not asked for")


def run(
    *arguments: str,
    serve: Callable[[Flags, Path | None], None] = unused,
    list_models: ListModels = unused,
    get_model: GetModel = unused,
    prove_model: ProveModel | None = None,
    environ: dict[str, str] | None = None,
) -> Result:
    parts = CliParts("1.2.3", ServeSettings, serve, list_models, get_model, prove_model=prove_model)
    clean = dict.fromkeys(("ANCHORLINE_DEBUG", "ANCHORLINE_CONFIG"))
    runner = CliRunner(env={**clean, "COLUMNS": "80", **(environ or {})})
    return runner.invoke(build_cli(parts), arguments, prog_name="anchorline")


def raising(error: BaseException) -> Callable[[Flags, Path | None], None]:
    def work(flags: Flags, config: Path | None) -> None:
        del flags, config
        raise error

    return work


@pytest.mark.parametrize(
    ("command", "lines_max"),
    [((), 24), (("serve",), 70), (("chat",), 24), (("models",), 24), (("models", "get"), 24)],
)
def test_help_fits_a_screen(command: tuple[str, ...], lines_max: int) -> None:
    result = run(*command, "--help")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert len(lines) <= lines_max
    assert max(len(line) for line in lines) <= 80


def test_the_version_is_shown() -> None:
    assert run("--version").output == "anchorline, version 1.2.3\n"


def test_every_setting_is_an_option_or_the_model() -> None:
    output = run("serve", "--help").output
    options = [f"--{name.replace('_', '-')} " for name in SETTINGS if name != "model"]
    assert [option for option in options if option not in output] == []
    assert "serve [OPTIONS] [MODEL]" in output


@pytest.mark.parametrize(
    "shown",
    [
        "[8000]",
        "[32MiB]",
        "[2.5GiB]",
        "[120]",
        "[on|off]",
        "[~/.cache/anchorline]",
        "--api-key KEY",
    ],
)
def test_help_shows_defaults_and_choices_as_people_write_them(
    shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert shown in run("serve", "--help").output


def test_help_shows_no_key_that_is_set() -> None:
    environ = {"ANCHORLINE_API_KEY": "hunter2", "ANCHORLINE_ADMIN_KEY": "hunter2"}
    for command in ("serve", "chat"):
        assert "hunter2" not in run(command, "--help", environ=environ).output


def test_serve_hands_on_what_was_given_as_it_was_given() -> None:
    served: list[tuple[Flags, Path | None]] = []
    options = ["--port", "x", "--anchor-bytes-max", "2GiB", "--config", "a.toml"]

    def serve(flags: Flags, config: Path | None) -> None:
        served.append((flags, config))

    result = run("serve", "toy", *options, serve=serve)

    assert result.exit_code == 0
    ((flags, config),) = served
    given = {name: value for name, value in flags.items() if value is not None}
    assert given == {"model": "toy", "port": "x", "anchor_bytes_max": "2GiB"}
    assert set(flags) == set(SETTINGS)
    assert config == Path("a.toml")


def test_the_configuration_file_can_be_named_in_the_environment() -> None:
    files: list[Path | None] = []

    def serve(_: Flags, config: Path | None) -> None:
        files.append(config)

    run("serve", serve=serve, environ={"ANCHORLINE_CONFIG": "b.toml"})
    assert files == [Path("b.toml")]


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (SettingsError("port is odd"), 2),
        (RequestError("no such thing"), 2),
        (ModelNotFound("no model here"), 1),
        (EngineError("it failed"), 1),
        (OSError("address in use"), 1),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error: Exception, exit_code: int) -> None:
    result = run("serve", serve=raising(error))
    assert result.exit_code == exit_code
    assert result.stderr == f"anchorline: {error}\n"
    assert result.stdout == ""


def test_debug_lets_an_error_through_with_its_traceback() -> None:
    error = EngineError("it failed")
    assert run("--debug", "serve", serve=raising(error)).exception is error
    environ = {"ANCHORLINE_DEBUG": "1"}
    assert run("serve", serve=raising(error), environ=environ).exception is error


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    error = ZeroDivisionError()
    assert run("serve", serve=raising(error)).exception is error


def test_ctrl_c_ends_quietly() -> None:
    result = run("serve", serve=raising(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.output == ""


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    result = run("serve", "--prot", "1")
    assert result.exit_code == 2
    assert "--port" in result.stderr


@dataclass(frozen=True)
class Model:
    name: str
    description: str
    path: Path
    size: int
    present: bool
    fetch: str = "anchorline models get larger --models-dir=/m"


def test_models_that_are_here_are_proved_one_by_one() -> None:
    models = [
        Model("small", "a small one", Path("/m/small"), 5, present=True),
        Model("larger", "a larger one", Path("/m/larger"), 0, present=False),
    ]

    def prove(name: str, flags: Flags, config: Path | None) -> str:
        assert (name, flags["dtype"], config) == ("small", "bfloat16", None)
        return "exact: proved"

    result = run(
        "models",
        "--prove",
        "--dtype=bfloat16",
        list_models=lambda _flags, _config: models,
        prove_model=prove,
    )

    assert result.output == "small: exact: proved\n"


def test_models_are_listed_with_where_they_are_or_how_to_get_them() -> None:
    models = [
        Model("toy", "a small one", Path("/a/toy"), 12_345_678, present=True),
        Model("larger", "another", Path("/m/larger"), 0, present=False),
    ]
    asked: list[Flags] = []

    def list_models(flags: Flags, config: Path | None) -> list[Model]:
        asked.append(flags)
        assert config is None
        return models

    result = run("models", "--models-dir", "/m", list_models=list_models)

    assert result.exit_code == 0
    assert result.output == (
        "NAME       SIZE  WHERE\n"
        "toy     12.3 MB  /a/toy\n"
        "                 a small one\n"
        "larger        -  not here; get it with: anchorline models get larger --models-dir=/m\n"
        "                 another\n"
    )
    assert asked == [{"models_dir": "/m", "cache_dir": None}]


@pytest.mark.parametrize(
    "arguments",
    [
        ("models", "get", "m", "--models-dir", "/m", "--config", "c.toml"),
        ("models", "--models-dir", "/m", "--config", "c.toml", "get", "m"),
        (
            "models",
            "--models-dir",
            "/other",
            "get",
            "m",
            "--models-dir",
            "/m",
            "--config",
            "c.toml",
        ),
    ],
)
def test_models_get_shows_its_steps(arguments: tuple[str, ...]) -> None:
    def get_model(name: str, flags: Flags, config: Path | None, progress: Progress) -> None:
        assert (name, dict(flags)) == ("m", {"models_dir": "/m", "cache_dir": None})
        assert config == Path("c.toml")
        progress("downloading")
        progress("converting")

    result = run(*arguments, get_model=get_model)

    assert result.exit_code == 0
    assert result.output == (
        "downloading\nconverting\nserve it with: anchorline serve m --models-dir /m\n"
    )


def test_a_model_that_cannot_be_got_is_one_line() -> None:
    def get_model(name: str, *_: object) -> None:
        raise ModelNotFound(f"there is no model {name}")

    result = run("models", "get", "m", get_model=get_model)
    assert result.exit_code == 1
    assert result.stderr == "anchorline: there is no model m\n"


def anchorline(
    directory: Path, *arguments: str, code: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the real program in a process of its own."""
    command = ["-c", code] if code else ["-m", "anchorline", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / ".path"), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str, tmp_path: Path) -> None:
    code = (
        "import sys; from anchorline.__main__ import main\n"
        f"sys.argv = ['anchorline', {option!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'litestar', 'httpx', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = anchorline(tmp_path, code=code)
    assert result.returncode == 0, result.stderr


def test_a_setting_that_cannot_be_used_is_refused_before_anything_heavy_is_imported(
    tmp_path: Path,
) -> None:
    result = anchorline(tmp_path, "serve", "--port", "70000")
    assert result.returncode == 2
    assert result.stderr == (
        "anchorline: port is '70000' on the command line; it must be a whole number from 0 to "
        "65535\n"
    )


def test_the_real_program_lists_the_embedded_model_and_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from anchorline.__main__ import main\n"
        "sys.argv = ['anchorline', 'models', '--cache-dir', 'kept']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = anchorline(tmp_path, code=code)
    assert result.returncode == 0, result.stderr
    assert str(Path("models/toy")) in result.stdout


def test_the_real_program_refuses_a_model_it_does_not_know(tmp_path: Path) -> None:
    result = anchorline(tmp_path, "models", "get", "nonesuch", "--cache-dir", "kept")
    assert result.returncode == 1
    assert result.stderr.startswith("anchorline: ")
    assert "nonesuch" in result.stderr
    assert not (tmp_path / "kept").exists()
