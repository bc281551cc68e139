"""Models from directories of safetensors, from GGUF files, and from the Hugging Face hub."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import huggingface_hub
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedConfig
from transformers.utils import logging as transformers_logging

from ...domain.errors import ModelNotFound, ModelRefused, SettingsError
from .exact.arithmetic import ArithChoice, choose_arithmetic
from .exact.verdict import VerdictStore
from .facts import verdict_facts, weights_digest
from .libraries import config_from_files, model_from_files, text_config
from .support_matrix import admit
from .torch_engine import TorchEngine, align_weights

DtypeChoice: TypeAlias = Literal["auto", "float32", "bfloat16"]

HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
DEFAULT_WEIGHTS: Final = "model.safetensors"
INDEX_ENDING: Final = ".safetensors.index.json"
DEFAULT_INDEX: Final = f"model{INDEX_ENDING}"
HUB_FILES: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt")
WINDOW_DEFAULT_MAX: Final = {"cpu": 8_192, "cuda": 131_072}
TINY_PARAMETERS: Final = 20_000_000
GRID_TINY: Final = 64
GRID_CPU: Final = 256
GRID_CUDA: Final = 1_024
KERNEL_ADVICE_LOGGER: Final = "transformers.integrations.hub_kernels"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's files on this machine.

    Attributes:
        directory: where they stand.
        gguf: the name of the GGUF file in it, or None for safetensors.
    """

    directory: Path
    gguf: str | None = None

    def weights(self) -> Sequence[Path]:
        """The files that hold the weights."""
        if self.gguf is not None:
            return [self.directory / self.gguf]
        return sorted(self.directory.glob("*.safetensors"))

    def indices(self) -> Sequence[Path]:
        """The files that may say in which of those each weight stands."""
        return [] if self.gguf is not None else sorted(self.directory.glob(f"*{INDEX_ENDING}"))


def load_engine(
    model: str,
    *,
    device: str = "cpu",
    dtype: DtypeChoice = "auto",
    window: int | None = None,
    grid: int | None = None,
    slots: int = 1,
    threads: int | None = None,
    name: str | None = None,
    arith: ArithChoice = "grid",
    verdicts: Path | None = None,
) -> TorchEngine:
    """Load a model and make an engine of it.

    Args:
        model: a directory with `config.json` and safetensors, a GGUF file, or a Hugging Face id
            such as `Qwen/Qwen3-0.6B`.
        device: `auto`, `cpu`, `cuda` or `cuda:1`.
        dtype: of the weights as they run; `auto` is the checkpoint's own, and float32 for
            checkpoints in float16 (which bfloat16 cannot hold) and for GGUF on a CPU.
        window: tokens a slot holds; by default the model's maximum, or 8,192 on a CPU where that
            is less.
        grid: the step of the grid; by default 64 for models under 20 M parameters, else 256 on a
            CPU and 1,024 on a GPU.
        slots: sequences held at once.
        threads: for torch on a CPU, process-wide; None leaves torch's choice. Part of the
            fingerprint: some models' bits depend on it.
        name: what the model is served as; by default the last part of `model`.
        arith: `grid` is the model's own arithmetic; `exact` a row-invariant one wherever that is
            proved of this model here, `auto` where it is also fast enough.
        verdicts: a directory where what was found of arithmetics is kept; None keeps nothing.

    Raises:
        ModelNotFound: there is no such model here, and the message says how to get one.
        ModelRefused: its state could not be kept exactly, or it cannot be read.
        SettingsError: the device does not exist, or the window exceeds the model's maximum.
    """
    place = usable_device(device)
    _log_with_the_process(place)
    if threads is not None:
        if threads < 1:
            raise SettingsError(f"threads is {threads}, and at least 1 is needed")
        torch.set_num_threads(threads)
    files = find_model(model)
    config = read_config(files)
    admit(config)
    rows = window_of(config, window, place)
    loaded = load_model(files, config, place, dtype)
    align_weights(loaded)  # before weights are packed and measured
    weights = weights_digest([*files.weights(), *files.indices()])
    store = VerdictStore(verdicts, verdict_facts(loaded, config, weights))
    arithmetic = choose_arithmetic(loaded, config, arith, window=rows, verdicts=store)
    _log.info("arithmetic %s", arithmetic.report)
    return TorchEngine(
        loaded,
        window=rows,
        grid=grid or default_grid(loaded, place),
        name=name or Path(model).name.removesuffix(".gguf"),
        slots=slots,
        layers=arithmetic.layers,
        weights=weights,
        row_invariant=arithmetic.exact,
        arithmetic=arithmetic.report,
    )


def find_model(model: str) -> ModelFiles:
    """The files of a model, fetched from the hub where `model` is an id and they are not here."""
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelRefused(f"{path} is neither a directory nor a GGUF file")
        return ModelFiles(path.parent, path.name)
    if path.is_dir():
        files = ModelFiles(path)
    elif HUB_ID.fullmatch(model) and not model.startswith("."):
        files = ModelFiles(_snapshot(model))
    else:
        raise ModelNotFound(
            f"there is no model {model!r}: give a directory with config.json and safetensors, a "
            ".gguf file, or a Hugging Face id such as 'Qwen/Qwen3-0.6B'"
        )
    if not (files.directory / "config.json").is_file():
        raise ModelNotFound(f"{files.directory} holds no config.json, so it is no model directory")
    if not files.weights():
        raise ModelNotFound(
            f"{files.directory} holds no *.safetensors; convert the checkpoint with transformers' "
            "`save_pretrained` (pickled weights are not read: they can run code)"
        )
    return files


def _snapshot(repository: str) -> Path:
    try:
        fetch = cast("Callable[..., str]", cast("Any", huggingface_hub).snapshot_download)
        return Path(fetch(repository, allow_patterns=list(HUB_FILES)))
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{repository} is gated: accept its terms on huggingface.co and run `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"{repository} is not on huggingface.co, or is private and nobody is logged in"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelNotFound(
            f"{repository} is neither a directory nor in the Hugging Face cache, and the hub could "
            f"not be reached; on a connected machine run `hf download {repository}` and copy the "
            "cache, or give a directory"
        ) from error


def read_config(files: ModelFiles) -> PreTrainedConfig:
    """The model's config.

    Raises:
        ModelRefused: transformers does not know the type, or cannot read the file.
    """
    try:
        return config_from_files(files.directory, files.gguf)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelRefused(f"{files.directory}: transformers cannot read it: {error}") from error


def load_model(
    files: ModelFiles, config: PreTrainedConfig, device: torch.device, dtype: DtypeChoice
) -> nn.Module:
    """The model with its weights, on the device.

    Raises:
        ModelRefused: the weights cannot be read, or are of another model.
    """
    chosen = chosen_dtype(config, files, device, dtype)
    _check_places(files, config)
    try:
        with _quiet():
            model = model_from_files(files.directory, files.gguf, config, chosen)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise ModelRefused(f"{files.directory}: the weights cannot be read: {error}") from error
    return model.to(device).eval().requires_grad_(requires_grad=False)


def _check_places(files: ModelFiles, config: PreTrainedConfig) -> None:
    """Hold all weights to stand in files that the fingerprint covers, none of them pickled.

    Raises:
        ModelRefused: an index or the config names another file.
    """
    known = {path.name for path in (*files.weights(), *files.indices())}
    own = cast("object", getattr(config, "transformers_weights", None))
    named: set[str] = set() if own is None else {str(own)}
    for index in files.indices():
        # transformers looks at an index where there is no single file.
        if index.name != DEFAULT_INDEX or DEFAULT_WEIGHTS not in known:
            named |= _places_in(index)
    for stray in sorted(named - known):
        raise ModelRefused(
            f"{files.directory}: weights are to be read from {stray!r}, and only *.safetensors "
            "beside config.json are read"
        )


def _places_in(index: Path) -> set[str]:
    try:
        places = cast("object", json.loads(index.read_bytes())["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelRefused(f"{index} cannot be read: {error}") from error
    if not isinstance(places, dict):
        raise ModelRefused(f"{index} names no files")
    return {str(place) for place in cast("dict[object, object]", places).values()}


def chosen_dtype(
    config: PreTrainedConfig, files: ModelFiles, device: torch.device, dtype: DtypeChoice
) -> torch.dtype:
    """The dtype to run in."""
    if dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    if files.gguf is not None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    text = text_config(config)
    own = cast("torch.dtype | None", config.dtype or text.dtype)
    return torch.bfloat16 if own is torch.bfloat16 else torch.float32


def usable_device(device: str) -> torch.device:
    """The device of that name; `auto` is the first CUDA device, or the CPU where there is none.

    Raises:
        SettingsError: it does not exist here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise SettingsError(
            f"{device!r} is no device; it may be auto, cpu, cuda or cuda:N"
        ) from error
    if place.type not in {"cpu", "cuda"}:
        raise SettingsError(
            f"the device {device!r} is not supported; it may be auto, cpu, cuda or cuda:N"
        )
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise SettingsError(
            f"there is no {device!r}: torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} CUDA devices"
        )
    return place


def window_of(config: PreTrainedConfig, window: int | None, device: torch.device) -> int:
    """Tokens a slot holds.

    Raises:
        SettingsError: more than the model was made for.
    """
    text = text_config(config)
    maximum = cast("int | None", getattr(text, "max_position_embeddings", None))
    if window is None:
        default = WINDOW_DEFAULT_MAX[device.type]
        return default if maximum is None else min(maximum, default)
    if window < 1 or (maximum is not None and window > maximum):
        raise SettingsError(f"a window of {window} tokens is not between 1 and {maximum}")
    return window


def default_grid(model: nn.Module, device: torch.device) -> int:
    """The grid's step: long enough for a good rate, short enough for anchors to be frequent."""
    if sum(parameter.numel() for parameter in model.parameters()) < TINY_PARAMETERS:
        return GRID_TINY
    return GRID_CUDA if device.type == "cuda" else GRID_CPU


def _log_with_the_process(device: torch.device) -> None:
    """One log: what transformers says goes through the root logger, as everybody's records do.

    Left alone it writes to stderr in a format of its own, and both ways where the environment
    says `CI`. The advice to install faster kernels is kept from CPUs, for which there are none.
    """
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    if device.type == "cpu":
        logging.getLogger(KERNEL_ADVICE_LOGGER).setLevel(logging.ERROR)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """No progress bars: a server's log is not a terminal."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
