"""Options made from a settings struct: one for each field, under the heading of its group."""

from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, cast, get_args, get_origin

import click
import msgspec
from msgspec.structs import FieldInfo

_NAMES_WIDTH: Final = 29
"""Columns for the options' names, the same in all sections; longer ones take a line more."""

_GIB: Final = 1 << 30
_GB: Final = 10**9
_MIB: Final = 1 << 20
_METAVARS: Final[dict[object, str]] = {int: "N", float: "SECONDS", str: "TEXT", Path: "PATH"}


class SettingOption(click.Option):
    """The option of one setting; its value is the text as given, which the settings check.

    They check what other sources give in the same way, so a mistake reads the same everywhere.
    """

    def __init__(self, field: FieldInfo) -> None:
        about = _metadata(field)
        super().__init__(
            [f"--{field.name.replace('_', '-')}", field.name],
            metavar=str(about.get("metavar") or _metavar(field, about)),
            help=f"{_sentence(about['description'])}{_default_shown(field, about)}",
        )
        self.group: Final = str(about["group"])


class SettingsCommand(click.Command):
    """A command whose help lists the options of settings by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group, in the settings' order, and one for the rest."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if isinstance(option, click.Option) and record is not None:
                group = option.group if isinstance(option, SettingOption) else "Other"
                names, text = record
                sections.setdefault(group, []).append((names.ljust(_NAMES_WIDTH), text))
        for group, records in sections.items():
            with formatter.section(group):
                formatter.write_dl(records, col_max=_NAMES_WIDTH)


def setting_options(
    settings: type[msgspec.Struct], only: Sequence[str] | None = None, but: Sequence[str] = ()
) -> list[click.Parameter]:
    """An option for each field of `settings`, or for those named, in the struct's order."""
    return [
        SettingOption(field)
        for field in msgspec.structs.fields(settings)
        if (only is None or field.name in only) and field.name not in but
    ]


def _metadata(field: FieldInfo) -> dict[str, Any]:
    """The description of a field and all that the metadata of its type says."""
    metadata: dict[str, Any] = {}
    for kind in (_inside(field), field.type):
        for meta in cast("tuple[object, ...]", get_args(kind)):
            if isinstance(meta, msgspec.Meta):
                metadata |= meta.extra or {}
                metadata["description"] = meta.description
    return metadata


def _inside(field: FieldInfo) -> object:
    """A field's type without its metadata, and without None."""
    kind: object = get_args(field.type)[0]
    members = [member for member in get_args(kind) if member is not NoneType]
    return members[0] if NoneType in get_args(kind) else kind


def _sentence(description: str) -> str:
    return f"{description[0].upper()}{description[1:]}"


def _metavar(field: FieldInfo, about: dict[str, Any]) -> str:
    kind = _inside(field)
    if get_origin(kind) is Literal:
        return f"[{'|'.join(get_args(kind))}]"
    if about.get("unit") == "bytes":
        return "BYTES"
    return _METAVARS[get_args(kind)[0] if get_args(kind) else kind]


def _default_shown(field: FieldInfo, about: dict[str, Any]) -> str:
    default: object = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    match default:
        case None:
            return ""
        case int() if default and about.get("unit") == "bytes":
            if default >= _GB and default % _GB == 0:
                return f" [{default // _GB}GB]"
            whole = default % _GIB == 0 or default > _GIB
            return f" [{default / _GIB:g}GiB]" if whole else f" [{default / _MIB:g}MiB]"
        case float():
            return f" [{default:g}]"
        case Path() if default.is_relative_to(Path.home()):
            return f" [~/{default.relative_to(Path.home())}]"
        case _:
            return f" [{default}]"


def config_option() -> click.Option:
    """The option that names the configuration file, for every command that reads settings."""
    return click.Option(
        ["--config"],
        envvar="ANCHORLINE_CONFIG",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Settings, in place of ./anchorline.toml",
    )
