"""The tokenizer adapter, held to the port's contract with several vocabularies."""

import tempfile
from functools import cache
from pathlib import Path

import anchorline
from anchorline.adapters.text.tokenizer import TransformersTokenizer, load_tokenizer
from contract.tokenizer_contract import TokenizerContract
from support.tiny_tokenizer import byte_level, saved


@cache
def toy() -> TransformersTokenizer:
    return load_tokenizer(Path(anchorline.__file__).parent / "models" / "toy")


@cache
def tiny(*, special_marks: bool, bos: bool) -> TransformersTokenizer:
    with tempfile.TemporaryDirectory() as directory:
        backend = byte_level(special_marks=special_marks, bos=bos)
        return load_tokenizer(saved(backend, Path(directory)))


class TestToy(TokenizerContract):
    """The embedded model's tokenizer and template."""

    def tokenizer(self) -> TransformersTokenizer:
        return toy()


class TestTiny(TokenizerContract):
    """A vocabulary with characters of several tokens, and a plain ChatML template."""

    def tokenizer(self) -> TransformersTokenizer:
        return tiny(special_marks=False, bos=False)


class TestSpecialMarks(TokenizerContract):
    """The marks are special tokens, and a text starts with one."""

    def tokenizer(self) -> TransformersTokenizer:
        return tiny(special_marks=True, bos=True)
