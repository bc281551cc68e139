"""The kernels go through Triton's compiler to machine code, which needs no device.

The interpreter takes more than the compiler does.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

ROOT = Path(__file__).parents[2]

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from anchorline.adapters.gpu.kernels import triton_kernels as kernels

assert not kernels.INTERPRETED
PLANES = {"WIDTH": 2, "BLOCK": kernels.ITEMS_A_PROGRAM}
ITEMS = {"items": "*i16", "count": "i32", "planes": "*u8"}
for kernel, types, constants in (
    (kernels._split_kernel, ITEMS, PLANES),
    (kernels._join_kernel, ITEMS, PLANES),
    (
        kernels._sums_kernel,
        {"runs": "*i64", "partials": "*i64"},
        {"BLOCK": kernels.WORDS_A_PROGRAM},
    ),
):
    types = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    places = {(list(types).index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    options = kernels._OPTIONS
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(kernel.__name__, len(compiled.asm["cubin"]))
"""

COMPILE_EXACT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from anchorline.adapters.gpu.kernels import exact_kernels as kernels

assert not kernels.INTERPRETED
FLOATS = dict.fromkeys(("sums", "tops", "weights"), "*fp32")
TILE = {"WIDEN": False, "ROWS": kernels.TILE_ROWS}
for kernel, integers, constants in (
    (
        kernels._product_kernel,
        ("count", "outputs", "inputs"),
        {**TILE, "COLUMNS": kernels.TILE_COLUMNS, "INPUTS": kernels.TILE_INPUTS},
    ),
    (
        kernels._split_kernel,
        ("first", "count", "heads", "groups"),
        {**TILE, "DIM": 64, "KEYS": kernels.KEYS_A_BLOCK, "BLOCKS": kernels.BLOCKS_A_SPLIT},
    ),
    (kernels._joined_kernel, ("rows", "splits"), {"DIM": 64}),
):
    scalars = {**dict.fromkeys(integers, "i32"), "scale": "fp32"}
    types = {
        name: "constexpr" if name in constants else {**FLOATS, **scalars}.get(name, "*bf16")
        for name in kernel.arg_names
    }
    places = {(list(types).index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    options = kernels._OPTIONS
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(kernel.__name__, len(compiled.asm["cubin"]))
"""

COMPILE_DELTA = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from anchorline.adapters.gpu.kernels import delta_kernels as kernels
from anchorline.adapters.gpu.kernels.delta_tiles import TILE, TileShape

assert not kernels.INTERPRETED
SHAPE = TileShape(128, 128)
CONSTANTS = {
    "NORMALISED": True,
    "EPSILON": kernels.EPSILON,
    "KEY_DIM": 128,
    "VALUE_DIM": 128,
    "SIZE": SHAPE.size,
    "AT_CORRECTIONS": SHAPE.corrections,
    "AT_KEYS": SHAPE.keys,
    "AT_DECAYS": SHAPE.decays,
    "AT_COUNT": SHAPE.count,
    "KEYS": 128,
    "COLUMNS": kernels.COLUMNS,
    "TILE": TILE,
}
TYPES = {
    **dict.fromkeys(("tokens", "heads", "groups"), "i32"),
    **dict.fromkeys(("g", "packed"), "*fp32"),
    "scale": "fp32",
}
for kernel in (kernels._tiles_kernel, kernels._companions_kernel):
    constants = {name: value for name, value in CONSTANTS.items() if name in kernel.arg_names}
    types = {
        name: "constexpr" if name in constants else TYPES.get(name, "*bf16")
        for name in kernel.arg_names
    }
    places = {(list(types).index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    options = kernels._OPTIONS
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(kernel.__name__, len(compiled.asm["cubin"]), compiled.metadata.shared)
"""

SPECIALISED = """
from anchorline.adapters.gpu.kernels import delta_kernels, exact_kernels

for kernel, names in (
    (delta_kernels._tiles_kernel, {"tokens"}),
    (delta_kernels._companions_kernel, {"tokens"}),
    (exact_kernels._product_kernel, {"count"}),
    (exact_kernels._split_kernel, {"first", "count"}),
    (exact_kernels._joined_kernel, {"rows", "splits"}),
):
    assert names == {each.name for each in kernel.params if each.do_not_specialize}, kernel
"""

PLAIN = ["_split_kernel", "_join_kernel", "_sums_kernel"]
EXACT = ["_product_kernel", "_split_kernel", "_joined_kernel"]
DELTA = ["_tiles_kernel", "_companions_kernel"]


@pytest.mark.parametrize(
    ("script", "kernels"),
    [(COMPILE, PLAIN), (COMPILE_EXACT, EXACT), (COMPILE_DELTA, DELTA)],
    ids=["plain", "exact", "delta"],
)
def test_the_kernels_compile_for_a_gpu_without_a_warning(
    tmp_path: Path, script: str, kernels: list[str]
) -> None:
    done = compiling(script, tmp_path)

    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == kernels
    assert "Warning" not in done.stderr


def test_one_compiled_kernel_serves_calls_of_every_size(tmp_path: Path) -> None:
    done = compiling(SPECIALISED, tmp_path)

    assert done.returncode == 0, done.stderr


def compiling(script: str, cache: Path) -> "subprocess.CompletedProcess[str]":
    """The script, run where Triton compiles and nothing interprets."""
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONPATH": str(ROOT / ".path"),
    }
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
