"""The memory of a CUDA device, over a torch that says what a device would."""

from collections.abc import Callable

import pytest
import torch

from anchorline.adapters.gpu.device_memory import DeviceMemory, device_memory
from anchorline.ports.memory import Memory
from contract.memory_contract import MemoryContract


class FakeDevice:
    """What torch.cuda says of a device of 1,000 bytes."""

    def __init__(self) -> None:
        self.allocated, self.reserved, self.most = 300, 500, 300
        self.most_reserved = 500

    def hold(self, nbytes: int) -> None:
        self.allocated = nbytes
        self.most = max(self.most, nbytes)

    def forget_most(self) -> None:
        self.most, self.most_reserved = self.allocated, self.reserved

    def release(self) -> None:
        self.reserved = self.allocated


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    answers: dict[str, Callable[[], object]] = {
        "mem_get_info": lambda: (1000 - fake.reserved, 1000),
        "memory_allocated": lambda: fake.allocated,
        "memory_reserved": lambda: fake.reserved,
        "max_memory_allocated": lambda: fake.most,
        "max_memory_reserved": lambda: fake.most_reserved,
        "reset_peak_memory_stats": fake.forget_most,
        "empty_cache": fake.release,
    }

    def said(answer: Callable[[], object]) -> Callable[..., object]:
        def of_device(*device: torch.device) -> object:
            assert device in ((), (torch.device("cuda:0"),))
            return answer()

        return of_device

    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, said(answer))
    return fake


@pytest.mark.usefixtures("device")
class TestDeviceMemory(MemoryContract):
    def make_memory(self) -> Memory:
        return DeviceMemory(torch.device("cuda:0"))


def test_free_blocks_of_the_allocator_go_back_to_the_device(device: FakeDevice) -> None:
    memory = DeviceMemory(torch.device("cuda:0"))

    given = memory.give_back()

    assert given == 200
    assert (memory.use().reserved, memory.use().available) == (300, 700)
    assert device.allocated == 300


def test_what_a_forward_took_is_told_once(device: FakeDevice) -> None:
    memory = DeviceMemory(torch.device("cuda:0"))
    device.hold(300)
    memory.rose()

    device.hold(480)
    device.hold(320)

    assert memory.rose() == 180
    assert memory.rose() == 0


def test_where_the_model_runs_on_the_cpu_its_memory_is_the_hosts() -> None:
    assert device_memory("cpu") is None


def test_a_device_has_its_own_memory_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    found = device_memory("cuda:1")

    assert found is not None
    assert found[0] == "cuda:1"


def test_the_most_that_was_held_since_serving_began_is_remembered(device: FakeDevice) -> None:
    memory = DeviceMemory(torch.device("cuda:0"))
    device.most_reserved = 900  # while it was loaded
    memory.rose()
    device.most_reserved = 700
    memory.rose()
    memory.rose()

    assert memory.use().highest == 700
