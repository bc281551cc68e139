"""What decides the bits of a row: the engine's share of the fingerprint.

Contents only, never names, paths or times: a model that is moved or renamed keeps its state.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig

from ...domain.layout import Layout
from .part_bytes import flat_bytes

WHOLE_BYTES_MAX: Final = 64 << 20
SAMPLE_BYTES: Final = 1 << 20
SAMPLES: Final = 18
"""A file over `WHOLE_BYTES_MAX` is read at its start, its end, and sixteen places between."""

KERNEL_PACKAGES: Final = ("causal_conv1d", "fla", "kernels", "mamba_ssm")
"""transformers uses these wherever they can be imported, with other bits, and says nothing."""

ENVIRONMENT: Final = (
    "ATEN_CPU_CAPABILITY",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "FLA_CONV_BACKEND",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TRANSFORMERS_SDPA_FORCE_GQA",
    "USE_HUB_KERNELS",
)
"""Variables that choose kernels or their arithmetic. Listed one by one: families of names hold
paths of caches, too, and a fingerprint has none."""

CONFIG_IGNORED: Final = frozenset({"_name_or_path", "architectures", "transformers_version"})

OWN_SOURCES: Final = ("cache_layers.py", "owned_layer.py", "section_arena.py", "torch_engine.py")

EXACT: Final = "exact-1"
"""The name of row-invariant arithmetic. It says nothing of the sums' order: the sources do."""

EXACT_SOURCES: Final = (
    "activations.py",
    "attention.py",
    "binding.py",
    "convolution.py",
    "delta_rule.py",
    "linear.py",
    "mamba2.py",
    "operations.py",
    "row_counts.py",
    "stepping.py",
    "tile_rule.py",
)

EXACT_KERNELS: Final = ("delta_kernels.py", "delta_tiles.py")
"""Those of the sources under `kernels` that compute rows."""

PROOF_SOURCES: Final = ("arithmetic.py", "proof.py")


def engine_facts(
    model: nn.Module,
    config: PreTrainedConfig | None,
    layout: Layout,
    *,
    grid: int | None,
    weights: str | None = None,
) -> Mapping[str, str]:
    """Everything the engine knows of what decides a row's bits.

    Args:
        model: as it runs; its parameters are read where `weights` is None.
        config: the model's, or None where it has none.
        layout: of a slot's state.
        grid: the grid's step; None for row-invariant arithmetic, where it decides no bit.
        weights: a digest of the weights' content, of `weights_digest`.
    """
    device = next(model.parameters()).device
    return {
        "weights": weights or parameters_digest(model),
        "config": _config_facts(config),
        "dtype": ",".join(sorted({str(parameter.dtype) for parameter in model.parameters()})),
        "kv": "plain",
        "layout": layout.digest(),
        **({"arith": EXACT} if grid is None else {"grid": str(grid)}),
        "sources": sources_digest(model, exact=grid is None),
        "environment": _environment_facts(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "kernels": json.dumps({name: _version_of(name) for name in KERNEL_PACKAGES}),
        "device": _device_facts(device),
        "switches": _switches(),
        "threads": str(torch.get_num_threads()) if device.type == "cpu" else "any",
    }


def verdict_facts(model: nn.Module, config: PreTrainedConfig, weights: str) -> Mapping[str, str]:
    """What a proof of row invariance depends on: all that decides bits, and how it is proved."""
    here = Path(__file__).parent
    proof = weights_digest([here / "exact" / name for name in PROOF_SOURCES])
    facts = engine_facts(model, config, Layout((), ()), grid=None, weights=weights)
    return {**facts, "proof": proof}


def weights_digest(files: Iterable[Path]) -> str:
    """A digest of files' contents, whatever they are called.

    Up to 64 MiB a file is read whole; beyond, its first and last MiB and sixteen reads of one MiB
    spread between: enough to tell checkpoints apart at the cost of milliseconds.
    """
    digests = sorted(_file_digest(path) for path in files)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= WHOLE_BYTES_MAX:
            while block := file.read(SAMPLE_BYTES):
                digest.update(block)
        else:
            for sample in range(SAMPLES):
                file.seek((size - SAMPLE_BYTES) * sample // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def parameters_digest(model: nn.Module) -> str:
    """A digest of all parameters and buffers in memory, for models that came from no file."""
    digest = hashlib.sha256()
    for name, tensor in cast("Mapping[str, Tensor]", model.state_dict()).items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(flat_bytes(tensor.detach().cpu().contiguous()).numpy().tobytes())
    return digest.hexdigest()


def sources_digest(model: nn.Module, *, exact: bool = False) -> str:
    """A digest of the source files that compute rows: ours, and the model's own module."""
    here = Path(__file__).parent
    files = [here / name for name in OWN_SOURCES]
    if exact:
        files += [here / "exact" / name for name in EXACT_SOURCES]
        files += [here / "kernels" / name for name in EXACT_KERNELS]
    own = getattr(sys.modules.get(type(model).__module__), "__file__", None)
    if own is not None:
        files.append(Path(own))
    return weights_digest(files)


def _config_facts(config: PreTrainedConfig | None) -> str:
    if config is None:
        return "none"
    values: dict[str, Any] = _without_ignored(config.to_dict())
    # Private, but they choose the kernels and `to_dict` leaves them out.
    for switch in ("_attn_implementation", "_experts_implementation"):
        values[switch] = getattr(config, switch, None)
    return json.dumps(values, sort_keys=True, default=str)


def _without_ignored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config without names, at every depth: composed models hold configs in configs."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if key in CONFIG_IGNORED:
            continue
        nested = isinstance(value, dict)
        kept[key] = _without_ignored(cast("Mapping[str, Any]", value)) if nested else value
    return kept


def _environment_facts() -> str:
    return json.dumps({name: os.environ[name] for name in ENVIRONMENT if name in os.environ})


def _version_of(package: str) -> str:
    if importlib.util.find_spec(package) is None:
        return "absent"
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _device_facts(device: torch.device) -> str:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        name = torch.cuda.get_device_name(device)
        triton = _version_of("triton")  # its compiler orders the sums of our kernels
        return f"cuda {torch.version.cuda} sm_{major}{minor} {name} triton {triton}"
    return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_cpu_model()}"


def _cpu_model() -> str:
    """Vendor, family, model and features: libraries choose their kernels by these."""
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    pairs = [[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]
    known = {key: value for key, value in pairs if key in wanted}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _switches() -> str:
    return json.dumps(
        {
            "matmul": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        }
    )
