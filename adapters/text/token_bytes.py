"""The bytes that one token stands for."""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from tokenizers import Tokenizer

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-F]{2})>")
_WORD_START: Final = "\N{LOWER ONE EIGHTH BLOCK}"


def _byte_alphabet() -> Mapping[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and above.

    https://github.com/openai/gpt-2/blob/master/src/encoder.py, `bytes_to_unicode`.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


def _step_types(decoder: object) -> frozenset[str]:
    """The types of the steps a serialised decoder is made of."""
    if not isinstance(decoder, dict):
        return frozenset()
    step = cast("dict[str, object]", decoder)
    inner = step.get("decoders")
    nested = cast("list[object]", inner) if isinstance(inner, list) else []
    return frozenset({str(step.get("type"))}).union(*(_step_types(one) for one in nested))


class TokenBytes:
    """Maps ids to bytes, for byte-level and for sentencepiece-like vocabularies."""

    def __init__(self, backend: Tokenizer, serialised: str) -> None:
        """Args: serialised: what `backend.to_str()` gives, which the caller has already made."""
        self._backend = backend
        self._added = {
            token: added.content for token, added in backend.get_added_tokens_decoder().items()
        }
        decoder = cast("dict[str, object]", json.loads(serialised)).get("decoder")
        types = _step_types(decoder)
        self._alphabet = _byte_alphabet() if "ByteLevel" in types else None
        self._byte_fallback = "ByteFallback" in types

    def __call__(self, token: int) -> bytes:
        """The bytes of `token`; none for an id that the vocabulary does not have."""
        added = self._added.get(token)
        if added is not None:
            return added.encode()
        piece = self._backend.id_to_token(token)
        if piece is None:
            return b""
        if self._alphabet is not None:
            values = [self._alphabet.get(character) for character in piece]
            known = [value for value in values if value is not None]
            # The library's decoder takes a token with foreign characters as plain text too.
            return bytes(known) if len(known) == len(values) else piece.encode()
        fallback = _BYTE_TOKEN.fullmatch(piece) if self._byte_fallback else None
        if fallback is not None:
            return bytes([int(fallback[1], 16)])
        return piece.replace(_WORD_START, " ").encode()
