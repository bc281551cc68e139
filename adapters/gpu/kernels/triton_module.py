"""Whether the Triton kernels can be used."""

import importlib
from types import ModuleType

import torch


def triton_kernels(device: torch.device) -> ModuleType | None:
    """The module `triton_kernels`, or None.

    None on a CPU, where Triton is not installed, and where its interpreter is switched on.
    """
    return _module(device, ".triton_kernels")


def delta_kernels(device: torch.device) -> ModuleType | None:
    """The module `delta_kernels`, or None, likewise."""
    return _module(device, ".delta_kernels")


def _module(device: torch.device, name: str) -> ModuleType | None:
    if device.type != "cuda":
        return None
    try:
        kernels = importlib.import_module(name, __package__)
    except ImportError:
        return None
    return None if kernels.INTERPRETED else kernels
