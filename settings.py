"""Every setting of the server, and where it may come from.

A flag goes before the environment, that before `anchorline.toml`, and that before the default.
Descriptions, limits and defaults stand in `ServeSettings` alone: the command line is generated
from it.
"""

import difflib
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Final, Literal, TypeAlias, cast, get_args

import msgspec
import platformdirs
from msgspec import Meta
from msgspec.inspect import CustomType, FloatType, IntType, LiteralType, Metadata, type_info
from msgspec.structs import FieldInfo

from .domain.byte_size import GIB, KIB, MIB, bytes_from
from .domain.errors import SettingsError

CONFIG_NAME: Final = "anchorline.toml"
CONFIG_TABLE: Final = "serve"
ENVIRONMENT_PREFIX: Final = "ANCHORLINE_"

Text: TypeAlias = Annotated[str, Meta(min_length=1, extra={"allowed": "a text, not empty"})]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 31)]
ByteSize: TypeAlias = Annotated[int, Meta(le=1 << 62, extra={"unit": "bytes"})]
Device: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)\Z",
        extra={"allowed": "auto, cpu, cuda, or one of several as cuda:1", "metavar": "DEVICE"},
    ),
]


def _about(group: str, description: str, *, secret: bool = False) -> Meta:
    """What the help says about a setting, and under which heading."""
    extra = {"group": group, "secret": True, "metavar": "KEY"} if secret else {"group": group}
    return Meta(description=description, extra=extra)


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of `anchorline serve`. What is None is chosen from the model."""

    model: Annotated[
        Text, _about("Model", "built-in name, directory, GGUF file or Hugging Face id")
    ] = "toy"
    models_dir: Annotated[Path | None, _about("Model", "downloaded models [CACHE_DIR/models]")] = (
        None
    )
    device: Annotated[Device, _about("Model", "such as cpu, cuda or cuda:1")] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], _about("Model", "of the weights and the state")
    ] = "auto"
    arith: Annotated[
        Literal["auto", "exact", "grid"], _about("Model", "row-invariant or the model's own")
    ] = "grid"
    window: Annotated[
        Annotated[int, Meta(ge=16, le=1 << 31)] | None,
        _about("Model", "most tokens of a conversation"),
    ] = None
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, _about("Model", "CPU threads of a forward pass")
    ] = None

    host: Annotated[Text, _about("Server", "address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535), _about("Server", "port to listen on, or 0 for a free one")
    ] = 8000
    api_key: Annotated[
        Text | None, _about("Server", "callers must know it; /health is open", secret=True)
    ] = None
    admin_key: Annotated[
        Text | None,
        _about("Server", "callers of admin routes must know it", secret=True),
    ] = None
    slots: Annotated[
        int, Meta(ge=1, le=256), _about("Server", "conversations that can go on at once")
    ] = 1
    queue_max: Annotated[
        int, Meta(ge=0, le=65536), _about("Server", "requests that may wait for a slot")
    ] = 16
    max_tokens_default: Annotated[
        Count | None, _about("Server", "of an answer whose request says nothing")
    ] = None
    body_bytes_max: Annotated[
        ByteSize, Meta(ge=KIB), _about("Server", "largest body of a request")
    ] = 32 * MIB
    shutdown_s: Annotated[
        float, Meta(ge=0, le=3600), _about("Server", "time that a stop may take")
    ] = 120.0
    progress_interval_s: Annotated[
        float, Meta(ge=0.01, le=60), _about("Server", "between the comments of a long prefill")
    ] = 1.0

    cache: Annotated[Literal["on", "off"], _about("Cache", "resume from state that was kept")] = (
        "on"
    )
    cache_dir: Annotated[Path, _about("Cache", "files that can be remade")] = msgspec.field(
        default_factory=lambda: platformdirs.user_cache_path("anchorline")
    )
    grid: Annotated[Count | None, _about("Cache", "tokens from one line to the next")] = None
    anchor_bytes_max: Annotated[
        ByteSize, Meta(ge=0), _about("Cache", "for the anchors of one slot")
    ] = 5 * GIB // 2
    anchors_newest: Annotated[
        int, Meta(ge=1, le=2048), _about("Cache", "newest anchors, which are never dropped")
    ] = 4
    anchors_min: Annotated[
        int, Meta(ge=2, le=4096), _about("Cache", "anchors that are kept in any case")
    ] = 5
    response_cache_bytes: Annotated[
        ByteSize, Meta(ge=0), _about("Cache", "answers to give again; 0 is none")
    ] = 0
    response_cache_ttl: Annotated[
        float, Meta(ge=0, le=604_800), _about("Cache", "that an answer is given again")
    ] = 3600.0

    mem_ceiling: Annotated[
        ByteSize | None, _about("Cache", "of memory between requests [computed]")
    ] = None
    mem_peak: Annotated[
        ByteSize | None, _about("Cache", "of memory during a prefill [computed]")
    ] = None
    mem_slack: Annotated[
        ByteSize | None, _about("Cache", "of free blocks that are kept [computed]")
    ] = None
    ram_bytes_max: Annotated[
        ByteSize | None, _about("Cache", "for state outside slots [11 GiB, or less]")
    ] = None

    ram_idle_s: Annotated[
        float, Meta(ge=0, le=604_800), _about("Cache", "unused, to be on disk alone; 0 is never")
    ] = 300.0
    heal_idle_s: Annotated[
        float, Meta(ge=0, le=86400), _about("Cache", "idle before rows are healed; 0 is never")
    ] = 0.0
    ram_retention: Annotated[
        Literal["value", "lru", "cost-size"], _about("Cache", "what is kept longest in memory")
    ] = "value"

    verify: Annotated[
        Literal["off", "on", "strict"], _about("Cache", "recompute kept state when idle")
    ] = "off"
    verify_idle_s: Annotated[
        float, Meta(ge=0, le=86400), _about("Cache", "idle before that; 0 when asked")
    ] = 30.0

    disk: Annotated[Literal["on", "off"], _about("Disk", "Keep state over restarts")] = "on"
    disk_heads_bytes_max: Annotated[
        ByteSize | None, _about("Disk", "For shared heads [16 GB, or less]")
    ] = None
    disk_conversations_bytes_max: Annotated[
        ByteSize | None, _about("Disk", "For conversations [64 GB, or less]")
    ] = None
    disk_free_min: Annotated[
        ByteSize | None, _about("Disk", "That stays free [50 GB or a tenth]")
    ] = None
    disk_day_bytes_max: Annotated[ByteSize, Meta(ge=0), _about("Disk", "That a day may write")] = (
        200 * 10**9
    )
    disk_admit_after: Annotated[
        int, Meta(ge=1, le=1000), _about("Disk", "Cold reads that make a head")
    ] = 2
    disk_save_tokens_min: Annotated[
        Count | None, _about("Disk", "Of a talk to save [16 grid steps]")
    ] = None
    disk_idle_s: Annotated[
        float, Meta(ge=0, le=86400), _about("Disk", "Idle before a save; 0 is never")
    ] = 30.0
    disk_codec: Annotated[
        Literal["auto", "on", "off"], _about("Disk", "Compress what is stored")
    ] = "auto"
    disk_read_back: Annotated[
        Literal["on", "off"], _about("Disk", "The last conversation, at start")
    ] = "on"

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _about("Log", "least urgent lines that are shown"),
    ] = "info"
    log_format: Annotated[Literal["plain", "json"], _about("Log", "form of the lines")] = "plain"

    @property
    def models_path(self) -> Path:
        """The directory of models that were got."""
        return self.models_dir or self.cache_dir / "models"

    @property
    def state_path(self) -> Path:
        """The directory of stored state."""
        return self.cache_dir / "state"

    @property
    def verifies(self) -> bool:
        """Whether what is kept is verified, for which there is one slot more."""
        return self.verify != "off" and self.cache == "on"

    @property
    def verdicts_path(self) -> Path:
        """The directory of what was found about models' exact arithmetic."""
        return self.cache_dir / "arith"

    def shown(self) -> dict[str, object]:
        """Every setting by name, secrets masked: for logs."""
        return {
            field.name: "***" if _extra(field)["secret"] and value is not None else value
            for field in msgspec.structs.fields(self)
            for value in (cast("object", getattr(self, field.name)),)
        }

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.shown().items())
        return f"{type(self).__name__}({inside})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """In place of msgspec's own, which would show secrets in rich's tracebacks."""
        return list(self.shown().items())


@dataclass(frozen=True, slots=True)
class _Source:
    """One place that settings come from; `where` ends the sentence "port is 'x' ..."."""

    where: str
    values: Mapping[str, object]


def load(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str],
    config: Path | None = None,
    directory: Path = Path(),
) -> ServeSettings:
    """The settings from all their sources.

    Args:
        flags: by setting; None stands for a flag that was not given.
        environ: the process's environment.
        config: a configuration file that must exist.
        directory: where `anchorline.toml` is read if it is there; `config` goes before it.

    Raises:
        SettingsError: a value or a key that cannot be used, or a file that cannot be read.
    """
    known = {field.name: field for field in msgspec.structs.fields(ServeSettings)}
    given = {name: value for name, value in flags.items() if value is not None}
    file = _file_source(config, directory)
    for source in (_Source("on the command line", given), file):
        _refuse_unknown(source, known)
    values: dict[str, object] = {}
    for name, field in known.items():
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
        if name in given:
            values[name] = _value(field, given[name], "on the command line")
        elif variable in environ:
            # An empty variable is a value as well: a key that came out empty must not open routes.
            values[name] = _value(field, environ[variable], f"in {variable}")
        elif name in file.values:
            values[name] = _value(field, file.values[name], file.where)
    settings = msgspec.convert(values, ServeSettings, dec_hook=_path)
    if settings.anchors_min <= settings.anchors_newest:
        raise SettingsError(
            f"anchors_min is {settings.anchors_min} and anchors_newest {settings.anchors_newest}; "
            "anchors_min must be the larger one"
        )
    return settings


def exposed_keys(config: Path | None = None, directory: Path = Path()) -> str | None:
    """What to tell a person whose configuration file shows its keys to everybody; else None.

    Args:
        config, directory: as of `load`, which has read the file.
    """
    path = config or directory / CONFIG_NAME
    fields = msgspec.structs.fields(ServeSettings)
    secret = {field.name for field in fields if _extra(field)["secret"]}
    held = sorted(secret.intersection(_file_source(config, directory).values))
    if not held or not stat.S_IMODE(path.stat().st_mode) & stat.S_IROTH:
        return None
    return f"{path} holds {' and '.join(held)}, and everybody can read it; chmod o-r it"


def _file_source(config: Path | None, directory: Path) -> _Source:
    path = config or directory / CONFIG_NAME
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if config is None:
            return _Source(f"in {path}", {})
        raise SettingsError(f"there is no configuration file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the configuration file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not in the TOML format: {error}") from error
    strays = sorted(set(tables) - {CONFIG_TABLE})
    table = cast("object", tables.get(CONFIG_TABLE, {}))
    if strays or not isinstance(table, dict):
        stray = strays[0] if strays else CONFIG_TABLE
        raise SettingsError(
            f"{path}: {stray!r} is not known there; settings stand in a table [{CONFIG_TABLE}]"
        )
    return _Source(f"in {path}", cast("dict[str, object]", table))


def _refuse_unknown(source: _Source, known: Iterable[str]) -> None:
    names = list(known)
    for name in source.values:
        if name not in names:
            (nearest,) = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            raise SettingsError(
                f"there is no setting {name!r}, as given {source.where}; the nearest is {nearest!r}"
            )


def _value(field: FieldInfo, given: object, where: str) -> object:
    """A given value in its setting's type.

    Raises:
        SettingsError: names the setting, where the value came from and what is allowed.
    """
    extra = _extra(field)
    kind = _given_type(field)
    try:
        plain = bytes_from(given) if extra["unit"] == "bytes" and isinstance(given, str) else given
        # A text is parsed, from a file too; a number for a text is refused.
        return msgspec.convert(plain, kind, strict=not isinstance(given, str), dec_hook=_path)
    except (msgspec.ValidationError, ValueError):
        shown = "not usable as given" if extra["secret"] else repr(given)
        # Not chained: the cause repeats the value, and the value may be a secret.
        raise SettingsError(
            f"{field.name} is {shown} {where}; it must be {_allowed(kind, extra)}"
        ) from None


def _given_type(field: FieldInfo) -> type[object]:
    """The type a given value must have: `T` for a setting of type `T | None`.

    None is the absence of a value, so nothing given may become None: msgspec would read the text
    "null" so.
    """
    members = cast("tuple[type[object], ...]", get_args(get_args(field.type)[0]))
    others = [member for member in members if member is not NoneType]
    return cast("type[object]", field.type) if len(others) == len(members) else others[0]


def _extra(field: FieldInfo) -> Mapping[str, object]:
    """Everything that the metadata of a setting and of its type say beside limits."""
    extra: dict[str, object] = {"unit": None, "secret": False, "allowed": None}
    for kind in (_given_type(field), field.type):
        for meta in cast("tuple[object, ...]", get_args(kind)):
            if isinstance(meta, Meta):
                extra |= meta.extra or {}
    return extra


def _allowed(kind: type[object], extra: Mapping[str, object]) -> str:
    """What values a type takes, in words."""
    info = type_info(kind)
    while isinstance(info, Metadata):
        info = info.type
    match info:
        case _ if extra["allowed"]:
            return str(extra["allowed"])
        case LiteralType():
            *most, last = get_args(get_args(kind)[0])  # as written; `info` has them sorted
            return f"{', '.join(most)} or {last}"
        case IntType(ge=low) if extra["unit"] == "bytes":
            return f"a size as 512MiB or 2.5GiB, of at least {low} bytes"
        case IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case FloatType(ge=low, le=high):
            return f"a number from {low:g} to {high:g}"
        case CustomType():
            return "a path, not empty"
        case _:
            raise AssertionError(f"a setting of type {kind} has no description")


def _path(kind: type[object], value: object) -> object:
    """Decode what msgspec does not know: paths, where `~` is the user's home."""
    if kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value).expanduser()
    raise ValueError(f"{value!r} is no path")
