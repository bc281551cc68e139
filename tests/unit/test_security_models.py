"""Directories of models that somebody has made: none of their code runs."""

import io
import json
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from anchorline.adapters.gpu.loading import load_engine
from anchorline.adapters.text.tokenizer import load_tokenizer
from anchorline.domain.errors import ModelError
from support.tiny_models import tiny_model
from support.tiny_tokenizer import byte_level, saved

CODE = """\
from pathlib import Path
Path({mark!r}).write_text("ran")
from transformers import LlamaConfig as Own, PreTrainedTokenizerFast as OwnTokenizer
from transformers import LlamaForCausalLM as OwnModel
"""


class Payload:
    """What a pickle runs when it is read."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.write_text, (self._mark, "ran"))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once a model's code has run; whoever is asked on the terminal agrees."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "mark"


def amended(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_the_payload_of_these_tests_would_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "mark")))  # noqa: S301, to see that it does

    assert (tmp_path / "mark").read_text() == "ran"


def test_a_tokenizers_own_code_is_neither_run_nor_asked_for(tmp_path: Path, mark: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    saved(byte_level(), model)
    (model / "own.py").write_text(CODE.format(mark=str(mark)))
    own = {"AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"]}
    amended(model / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=own)

    with suppress(ModelError):  # it is read with a class of the library's, if there is one
        load_tokenizer(model)

    assert not mark.exists()
    assert sys.stdin.read(2) == "y\n", "nobody was asked"


@pytest.mark.parametrize("model_type", ["llama", "own"])
def test_a_models_own_code_is_neither_run_nor_asked_for(
    tmp_path: Path, mark: Path, model_type: str
) -> None:
    model = tmp_path / "model"
    cast("Any", tiny_model("llama")).save_pretrained(model)
    (model / "own.py").write_text(CODE.format(mark=str(mark)))
    own = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnModel"}
    amended(model / "config.json", auto_map=own, model_type=model_type)

    try:
        load_engine(str(model), window=64)
    except ModelError:
        assert model_type == "own"

    assert not mark.exists()
    assert sys.stdin.read(2) == "y\n", "nobody was asked"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "../outside.bin"])
def test_pickled_weights_are_not_unpickled_under_any_name(
    tmp_path: Path, mark: Path, name: str
) -> None:
    model = tmp_path / "model"
    cast("Any", tiny_model("llama")).save_pretrained(model)
    names = list(tiny_model("llama").state_dict())
    (model / "other.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    (model / "model.safetensors").unlink()
    torch.save(Payload(mark), model / name)
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, name)}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(ModelError):
        load_engine(str(model), window=64)

    assert not mark.exists()


@pytest.mark.parametrize("place", ["deeper/w.safetensors", "../w.safetensors"])
def test_weights_outside_of_what_the_fingerprint_covers_are_not_read(
    tmp_path: Path, place: str
) -> None:
    model = tmp_path / "model"
    cast("Any", tiny_model("llama")).save_pretrained(model)
    names = list(tiny_model("llama").state_dict())
    (model / "deeper").mkdir()
    (model / place).write_bytes((model / "model.safetensors").read_bytes())
    (model / "model.safetensors").rename(model / "unused.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, place)}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(ModelError):
        load_engine(str(model), window=64)


def test_weights_that_the_config_places_elsewhere_are_not_read(tmp_path: Path) -> None:
    model = tmp_path / "model"
    cast("Any", tiny_model("llama")).save_pretrained(model)
    (model / "deeper").mkdir()
    (model / "deeper/w.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    amended(model / "config.json", transformers_weights="deeper/w.safetensors")

    with pytest.raises(ModelError, match=r"deeper/w\.safetensors"):
        load_engine(str(model), window=64)


def test_an_index_is_a_part_of_the_fingerprint(tmp_path: Path) -> None:
    model = tmp_path / "model"
    cast("Any", tiny_model("llama")).save_pretrained(model)
    names = list(tiny_model("llama").state_dict())
    (model / "model.safetensors").rename(model / "one.safetensors")
    (model / "two.safetensors").write_bytes((model / "one.safetensors").read_bytes())
    found: set[str] = set()
    for place in ("one.safetensors", "two.safetensors"):
        index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, place)}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        found.add(load_engine(str(model), window=64).profile.facts["weights"])

    assert len(found) == 2
