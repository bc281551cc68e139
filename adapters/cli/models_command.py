"""`anchorline models`: what can be served by name, and getting it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import click
import msgspec

from .setting_options import config_option, setting_options

Flags: TypeAlias = Mapping[str, object]
"""Values by setting, as given on the command line; None for those that were not."""

Progress: TypeAlias = Callable[[str], None]
"""Shows, in a few words, what is done next."""


class ListedModel(Protocol):
    """A model that can be served by its name.

    Attributes:
        path: its directory, whether it is there or not.
        size: bytes of its files; 0 where it is not there.
        fetch: the command that brings it to `path`.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def fetch(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def size(self) -> int: ...
    @property
    def present(self) -> bool: ...


ListModels: TypeAlias = Callable[[Flags, Path | None], Sequence[ListedModel]]
GetModel: TypeAlias = Callable[[str, Flags, Path | None, Progress], None]

ProveModel: TypeAlias = Callable[[str, Flags, Path | None], str]
"""What is found about a model's exact arithmetic, in one line."""


def models_command(
    settings: type[msgspec.Struct],
    list_models: ListModels,
    get_model: GetModel,
    prove_model: ProveModel | None = None,
) -> click.Group:
    """The command, which lists when nothing else is asked of it."""

    def models(config: Path | None, prove: bool = False, **flags: object) -> None:
        if click.get_current_context().invoked_subcommand is not None:
            return
        listed = list_models(flags, config)
        if not prove or prove_model is None:
            show_models(listed)
            return
        for model in listed:
            if model.present:
                click.echo(f"{model.name}: {prove_model(model.name, flags, config)}")

    def get(name: str, config: Path | None, **flags: object) -> None:
        # The options may stand before `get` as well, where they are the outer command's.
        context = click.get_current_context()
        outer = context.parent.params if context.parent else {}
        given = {**outer, **{flag: value for flag, value in flags.items() if value is not None}}
        merged = {flag: given.get(flag) for flag in flags}
        get_model(name, merged, config or outer.get("config"), click.echo)
        again = "".join(
            f" --{flag.replace('_', '-')} {shlex.quote(str(value))}"
            for flag, value in merged.items()
            if value is not None
        )
        click.echo(f"serve it with: anchorline serve {name}{again}")

    def options() -> list[click.Parameter]:
        return [*setting_options(settings, only=("models_dir", "cache_dir")), config_option()]

    group = click.Group(
        "models",
        callback=models,
        invoke_without_command=True,
        params=[*options(), *_proof_options(settings, prove_model)],
        help="List the models that can be served by name.",
    )
    group.add_command(
        click.Command(
            "get",
            callback=get,
            params=[click.Argument(["name"]), *options()],
            help="Make the model NAME present, so that it can be served.",
        )
    )
    return group


def _proof_options(
    settings: type[msgspec.Struct], prove_model: ProveModel | None
) -> list[click.Parameter]:
    if prove_model is None:
        return []
    flag = click.Option(
        ["--prove"],
        is_flag=True,
        help="Say of each model that is here whether exact arithmetic can be proved of it.",
    )
    return [flag, *setting_options(settings, only=("device", "dtype", "threads"))]


def show_models(models: Sequence[ListedModel]) -> None:
    """Write the table: two lines a model, so that 80 columns are enough for most of it."""
    rows = [("NAME", "SIZE", "WHERE")]
    for model in models:
        if model.present:
            rows.append((model.name, f"{model.size / 1e6:.1f} MB", str(model.path)))
        else:
            rows.append((model.name, "-", f"not here; get it with: {model.fetch}"))
        rows.append(("", "", model.description))
    names = max(len(name) for name, _, _ in rows)
    sizes = max(len(size) for _, size, _ in rows)
    for name, size, where in rows:
        click.echo(f"{name:{names}}  {size:>{sizes}}  {where}")
