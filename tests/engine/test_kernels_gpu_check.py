"""scripts/gpu-check on a CPU: it passes, it needs little, and its gates can fail."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from anchorline.adapters.gpu.section_arena import SectionCopies
from anchorline.domain.anchor import SectionsHandle

ROOT = Path(__file__).parents[2]

ABSENT = (
    "accelerate",
    "crc32c",
    "dependency_injector",
    "gguf",
    "hypothesis",
    "litestar",
    "msgspec",
    "platformdirs",
    "prometheus_client",
    "pytest",
    "uvicorn",
    "zstandard",
    "anchorline.__main__",
    "anchorline.application",
    "anchorline.container",
    "anchorline.settings",
    *(
        f"anchorline.adapters.{path.name}"
        for path in (ROOT / "adapters").iterdir()
        if path.is_dir() and path.name not in ("gpu", "__pycache__")
    ),
)
"""What a machine with a GPU may not have, and what of the package the check may not need."""

RUN_WITHOUT_THEM = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))  # None: importing it raises ImportError
sys.argv = ["gpu-check", "--device", "cpu", "--quick"]
runpy.run_path("scripts/gpu-check", run_name="__main__")
"""


def test_it_passes_on_a_cpu_with_nothing_but_torch_transformers_and_numpy() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", RUN_WITHOUT_THEM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "all gates passed" in done.stdout
    assert "FAIL" not in done.stdout
    for told in ("device", torch.__version__, "qwen3_5_text", "bamba", "llama", "sums", "GB/s"):
        assert told in done.stdout


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "scripts" / "gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    return module


CPU = torch.device("cpu")


def test_a_gate_that_fails_is_told_by_the_exit_status(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [gpu_check.Row("one", True, "equal"), gpu_check.Row("other", False, "rows")]

    def all_rows(device: torch.device, *, quick: bool) -> object:
        del device, quick
        return rows

    monkeypatch.setattr(gpu_check, "all_rows", all_rows)

    assert gpu_check.main("cpu") == 1
    assert "1 gates failed: other" in capsys.readouterr().out


def test_a_check_that_raises_is_a_failed_gate_and_ends_no_other(gpu_check: ModuleType) -> None:
    def checks() -> object:
        yield gpu_check.Row("one", True, "equal")
        raise RuntimeError("the device is gone")

    rows = list(gpu_check.guarded("some", checks))

    assert [row.passed for row in rows] == [True, False]
    assert "the device is gone" in rows[1].figure


def test_a_restore_that_restores_nothing_fails_the_gate_of_a_hybrid_model(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line_alone(copies: SectionCopies, arena: torch.Tensor, handle: SectionsHandle) -> int:
        del copies, arena, handle
        return gpu_check.LINE

    monkeypatch.setattr(SectionCopies, "restore", line_alone)

    rows = list(gpu_check.model_gates("qwen3_5_text", torch.float32, CPU))

    assert rows[0].passed is False


def test_planes_that_are_not_cut_fail_their_gates(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(part: torch.Tensor, width: int, into: torch.Tensor) -> None:
        del part, width
        into.zero_()

    monkeypatch.setattr(gpu_check, "split_planes", nothing)

    rows = {row.check: row.passed for row in gpu_check.kernel_gates(CPU)}

    assert rows["planes of 2 bytes"] is False
    assert rows["sums: as dispatched"] is True


def test_a_machine_without_the_device_is_told_so(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert gpu_check.main("cuda") == 1
    assert "no CUDA device" in capsys.readouterr().out
