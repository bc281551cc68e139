"""The memory of a CUDA device."""

import torch

from ...ports.memory import MemoryUse
from .loading import usable_device


class DeviceMemory:
    """Implements `ports.memory.Memory` for one CUDA device, over torch's allocator.

    Calls wait for no kernel, but for `give_back`.
    """

    def __init__(self, device: torch.device) -> None:
        """Takes a device that exists."""
        self._device = device
        self._noted: int | None = None
        self._highest = 0

    def use(self) -> MemoryUse:
        free, total = torch.cuda.mem_get_info(self._device)
        return MemoryUse(
            allocated=torch.cuda.memory_allocated(self._device),
            reserved=torch.cuda.memory_reserved(self._device),
            available=free,
            total=total,
            highest=max(self._highest, torch.cuda.max_memory_reserved(self._device)),
        )

    def give_back(self) -> int:
        before = torch.cuda.memory_reserved(self._device)
        torch.cuda.empty_cache()
        return max(before - torch.cuda.memory_reserved(self._device), 0)

    def rose(self) -> int:
        most, before = torch.cuda.max_memory_allocated(self._device), self._noted
        # What loading took before the first call is over.
        reserved = torch.cuda.max_memory_reserved(self._device)
        self._highest = max(self._highest, reserved) if before is not None else 0
        torch.cuda.reset_peak_memory_stats(self._device)
        self._noted = torch.cuda.memory_allocated(self._device)
        return 0 if before is None else max(most - before, 0)


def device_memory(device: str) -> tuple[str, DeviceMemory] | None:
    """The memory of the device that a setting names, with its name; None where it is the host's.

    Raises:
        SettingsError: there is no such device.
    """
    place = usable_device(device)
    return None if place.type == "cpu" else (str(place), DeviceMemory(place))
