"""What the fingerprint depends on: all that decides bits, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from anchorline.adapters.gpu import facts
from anchorline.adapters.gpu.torch_engine import TorchEngine
from support.tiny_models import tiny_model

MIB = 1 << 20

BESIDE_ARITHMETIC = ("__init__.py", "departure.py", "verdict.py")
"""Sources of exact mode that decide no bit and no verdict."""


def facts_of(model: nn.Module | None = None, *, grid: int = 16) -> Mapping[str, str]:
    return TorchEngine(model or tiny_model("llama"), window=64, grid=grid).profile.facts


def changed(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    assert set(one) == set(other)
    return {name for name in one if one[name] != other[name]}


def sparse_file(path: Path, size: int, marks: Mapping[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for offset, mark in marks.items():
            file.seek(offset)
            file.write(mark)
    return path


def test_equal_engines_have_equal_facts() -> None:
    assert changed(facts_of(), facts_of()) == set()


def test_names_slots_and_the_window_decide_no_bits() -> None:
    other = TorchEngine(tiny_model("llama"), window=128, grid=16, slots=2, name="another")

    assert changed(facts_of(), other.profile.facts) == set()


def test_the_grid_is_a_fact() -> None:
    assert changed(facts_of(), facts_of(grid=32)) == {"grid"}


def test_other_weights_are_other_weights() -> None:
    assert changed(facts_of(), facts_of(tiny_model("llama", seed=1))) == {"weights"}


def test_the_dtype_is_a_fact() -> None:
    narrow = facts_of(tiny_model("llama", torch.bfloat16))

    assert {"dtype", "layout", "weights"} <= changed(facts_of(), narrow)


def test_rope_parameters_are_facts() -> None:
    rope = {"rope_type": "default", "rope_theta": 5_000.0}
    model = tiny_model("llama", rope_parameters=rope)

    assert changed(facts_of(), facts_of(model)) == {"config"}


def test_how_attention_is_computed_is_a_fact() -> None:
    model = tiny_model("llama")
    cast("Any", model).set_attn_implementation("eager")

    assert changed(facts_of(), facts_of(model)) == {"config"}


def test_the_number_of_threads_is_a_fact_on_a_cpu() -> None:
    one = facts_of()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        other = facts_of()
    finally:
        torch.set_num_threads(threads)

    assert changed(one, other) == {"threads"}


def test_an_environment_variable_that_chooses_kernels_is_a_fact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = facts_of()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere/else")

    assert changed(one, facts_of()) == {"environment"}


def test_no_fact_holds_a_path_or_a_name() -> None:
    model = tiny_model("llama")
    cast("Any", model).config._name_or_path = "/home/somebody/model"

    found = TorchEngine(model, window=64, grid=16, name="anybody").profile.facts

    assert changed(found, facts_of()) == set()
    assert "somebody" not in str(found)
    assert str(Path.cwd()) not in str(found)


def test_every_source_that_computes_rows_is_among_the_sources() -> None:
    llama, qwen = tiny_model("llama"), tiny_model("qwen3")

    assert facts.sources_digest(llama) != facts.sources_digest(qwen)
    package = Path(facts.__file__).parent
    assert all((package / name).is_file() for name in facts.OWN_SOURCES)


def test_the_weights_digest_does_not_know_names(tmp_path: Path) -> None:
    one = sparse_file(tmp_path / "b.safetensors", 100, {7: b"x"})
    before = facts.weights_digest([one])

    assert facts.weights_digest([one.rename(tmp_path / "a.safetensors")]) == before


@pytest.mark.parametrize(
    ("size", "offset"),
    [
        (64 * MIB, 33 * MIB + 12_345),  # read whole
        (64 * MIB + 1, 0),
        (64 * MIB + 1, 64 * MIB),  # the very last byte
        (200 * MIB, 199 * MIB * 5 // 17),
    ],
)
def test_a_changed_byte_changes_the_digest(tmp_path: Path, size: int, offset: int) -> None:
    clean = sparse_file(tmp_path / "clean", size, {})
    marked = sparse_file(tmp_path / "marked", size, {offset: b"x"})

    assert facts.weights_digest([clean]) != facts.weights_digest([marked])


def test_the_size_of_a_large_file_is_part_of_its_digest(tmp_path: Path) -> None:
    one = sparse_file(tmp_path / "one", 100 * MIB, {})
    other = sparse_file(tmp_path / "other", 100 * MIB + 1, {})

    assert facts.weights_digest([one]) != facts.weights_digest([other])


def test_every_source_of_exact_arithmetic_is_among_the_sources() -> None:
    found = {path.name for path in (Path(facts.__file__).parent / "exact").glob("*.py")}

    assert {*facts.EXACT_SOURCES, *facts.PROOF_SOURCES, *BESIDE_ARITHMETIC} == found
