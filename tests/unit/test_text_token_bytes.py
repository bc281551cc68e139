"""The bytes that tokens stand for."""

import pytest
from tokenizers import Tokenizer, models

from anchorline.adapters.text.token_bytes import TokenBytes
from support.tiny_tokenizer import byte_level, sentencepiece_like


@pytest.mark.parametrize("text", ["Anna lives in Rome.", "ü 你好 \N{FOX FACE}\n\t\x00", "a  b"])
def test_byte_level_tokens_are_the_texts_bytes(text: str) -> None:
    backend = byte_level()
    token_bytes = TokenBytes(backend, backend.to_str())

    assert b"".join(map(token_bytes, backend.encode(text).ids)) == text.encode()


def test_every_byte_has_a_token_in_a_byte_level_vocabulary() -> None:
    backend = byte_level()
    token_bytes = TokenBytes(backend, backend.to_str())

    singles = {token_bytes(token) for token in range(backend.get_vocab_size())}

    assert {bytes([byte]) for byte in range(256)} <= singles


def test_special_tokens_are_their_text() -> None:
    backend = byte_level()
    token_bytes = TokenBytes(backend, backend.to_str())

    assert token_bytes(backend.encode("<|im_end|>").ids[0]) == b"<|im_end|>"


def test_sentencepiece_words_start_with_a_space_and_bytes_are_bytes() -> None:
    backend = sentencepiece_like()
    token_bytes = TokenBytes(backend, backend.to_str())
    text = "Anna saw \N{FOX FACE}"

    ids = backend.encode(text, add_special_tokens=False).ids

    assert b"".join(map(token_bytes, ids)) == f" {text}".encode()


def test_an_id_outside_the_vocabulary_has_no_bytes() -> None:
    backend = byte_level()

    assert TokenBytes(backend, backend.to_str())(10_000) == b""


def test_without_a_decoder_tokens_are_their_text() -> None:
    backend = Tokenizer(models.WordLevel({"Anna": 0, "<0x41>": 1}))
    token_bytes = TokenBytes(backend, backend.to_str())

    assert (token_bytes(0), token_bytes(1)) == (b"Anna", b"<0x41>")
