"""Whether the Triton kernels can be used."""

import importlib
from types import ModuleType

import torch


def triton_kernels(device: torch.device) -> ModuleType | None:
    """The module `triton_kernels`, or None: on a CPU, and where Triton is not installed."""
    if device.type != "cuda":
        return None
    try:
        return importlib.import_module(".triton_kernels", __package__)
    except ImportError:
        return None
