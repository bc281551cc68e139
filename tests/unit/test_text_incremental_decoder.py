"""Text that comes token by token."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from anchorline.adapters.text.incremental_decoder import IncrementalDecoder
from contract.tokenizer_contract import decoded
from support.tiny_tokenizer import byte_level, sentencepiece_like

HIDDEN = frozenset({0, 1, 2})


@cache
def backend(name: str) -> Tokenizer:
    return byte_level() if name == "byte level" else sentencepiece_like()


def whole(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


def decoder(tokenizer: Tokenizer) -> IncrementalDecoder:
    return IncrementalDecoder(lambda ids: whole(tokenizer, list(ids)), HIDDEN)


VOCABULARIES = pytest.mark.parametrize("name", ["byte level", "sentencepiece"])


@VOCABULARIES
@given(text=st.text(max_size=40))
def test_any_text_comes_out_whole_and_in_whole_characters(name: str, text: str) -> None:
    tokenizer = backend(name)
    ids = [token for token in tokenizer.encode(text).ids if token not in HIDDEN]

    parts = decoded(decoder(tokenizer), ids)

    assert "".join(parts) == whole(tokenizer, ids)
    assert "\N{REPLACEMENT CHARACTER}" in text or "\N{REPLACEMENT CHARACTER}" not in "".join(parts)


@given(ids=st.lists(st.integers(0, 499), max_size=60))
def test_any_ids_come_out_as_the_whole_decode_has_them(ids: list[int]) -> None:
    tokenizer = backend("byte level")

    parts = decoded(decoder(tokenizer), ids)

    assert "".join(parts) == whole(tokenizer, [token for token in ids if token not in HIDDEN])


@VOCABULARIES
def test_spaces_between_words_are_kept(name: str) -> None:
    tokenizer = backend(name)
    ids = tokenizer.encode("Anna lives in Rome", add_special_tokens=False).ids

    assert "".join(decoded(decoder(tokenizer), ids)) == "Anna lives in Rome"


def test_a_character_comes_with_its_last_token() -> None:
    tokenizer = backend("byte level")
    ids = tokenizer.encode("\N{FOX FACE}").ids
    assert len(ids) > 1

    assert decoded(decoder(tokenizer), ids) == [""] * (len(ids) - 1) + ["\N{FOX FACE}", ""]


def test_a_hidden_token_inside_a_character_does_not_break_it() -> None:
    tokenizer = backend("byte level")
    first, *rest = tokenizer.encode("\N{FOX FACE}").ids

    assert "".join(decoded(decoder(tokenizer), [first, 2, *rest])) == "\N{FOX FACE}"


def test_a_replacement_character_of_the_text_itself_is_kept() -> None:
    tokenizer = backend("byte level")
    ids = tokenizer.encode("a\N{REPLACEMENT CHARACTER}b").ids

    assert "".join(decoded(decoder(tokenizer), ids)) == "a\N{REPLACEMENT CHARACTER}b"


def test_a_run_of_bytes_that_are_no_characters_is_let_go_of() -> None:
    tokenizer = backend("byte level")
    stray = tokenizer.encode("\N{FOX FACE}").ids[-1]
    one = decoder(tokenizer)

    shown = "".join(one.push(stray) for _ in range(100))

    assert len(shown) > 80
    assert shown + one.flush() == whole(tokenizer, [stray] * 100)


@pytest.mark.parametrize("starts", [(0,), (0, 1), (0, 1, 2), (3, 0, 1)])
def test_characters_that_are_never_completed_come_as_the_whole_decode_has_them(
    starts: tuple[int, ...],
) -> None:
    tokenizer = backend("byte level")
    fox = tokenizer.encode("\N{FOX FACE}").ids
    ids = [fox[place] for place in starts] * 12 + fox

    text = "".join(decoded(decoder(tokenizer), ids))

    assert text == whole(tokenizer, ids)
    assert text.endswith("\N{FOX FACE}")
