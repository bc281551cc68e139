"""What decides an answer: keys are equal only where all of it is."""

from dataclasses import fields, replace

import pytest

from anchorline.domain.namespace import Namespace
from anchorline.domain.response_key import ResponseKey, greedy_form
from anchorline.domain.sampling import GREEDY_BELOW, SamplingParams
from anchorline.domain.tokens import TokenIds
from support.builders import ids

SAID = SamplingParams(
    temperature=0.0,
    top_p=0.5,
    top_k=3,
    min_p=0.1,
    seed=7,
    repetition_penalty=1.1,
    presence_penalty=0.2,
    frequency_penalty=0.3,
    logit_bias={4: 1.0, 5: -1.0},
    top_logprobs=2,
)
NOT_LOOKED_AT = {"temperature", "top_p", "top_k", "min_p", "seed"}


def key(
    read: TokenIds | None = None, compared: TokenIds | None = None, **other: object
) -> ResponseKey:
    read = ids(1, 2, 3) if read is None else read
    plain: dict[str, object] = {
        "namespace": Namespace(),
        "sampling": SamplingParams(),
        "others": (4, ("end",)),
    }
    return ResponseKey(read, read if compared is None else compared, **{**plain, **other})  # type: ignore[arg-type]


def test_keys_of_the_same_are_equal_though_nothing_in_them_is_one_object() -> None:
    assert key(ids(1, 2, 3)) == key(ids(1, 2, 3))
    assert hash(key(ids(1, 2, 3))) == hash(key(ids(1, 2, 3)))


@pytest.mark.parametrize(
    "other",
    [
        key(ids(1, 2)),
        key(ids(1, 2, 3, 0)),
        key(ids(1, 2, 4)),
        key(ids(0, 2, 3)),
        key(ids(1, 2, 3), ids(1, 9, 3)),
        key(ids(1, 9, 3), ids(1, 2, 3)),
        key(namespace=Namespace(salt="b")),
        key(namespace=Namespace(adapter="b")),
        key(sampling=SamplingParams(logit_bias={1: 2.0})),
        key(others=(5, ("end",))),
        key(others=(4, ("end", "stop"))),
    ],
)
def test_keys_differ_by_any_part_of_them(other: ResponseKey) -> None:
    assert other != key()


def test_a_key_is_equal_to_nothing_else() -> None:
    assert key() != (1, 2, 3)


def test_keys_whose_hashes_collide_stay_apart() -> None:
    same_hash = [key(), key(others=()), key(sampling=SAID), key(namespace=Namespace(salt="b"))]

    found = {one: number for number, one in enumerate(same_hash)}

    assert len({hash(one) for one in same_hash}) == 1
    assert [found[one] for one in same_hash] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", [one.name for one in fields(SamplingParams)])
def test_only_what_a_greedy_choice_does_not_look_at_is_left_out(name: str) -> None:
    plain = SamplingParams()
    changed = replace(plain, **{name: getattr(SAID, name) or GREEDY_BELOW / 2})

    assert changed != plain
    assert (greedy_form(changed) == greedy_form(plain)) == (name in NOT_LOOKED_AT)


@pytest.mark.parametrize("temperature", [0.0, GREEDY_BELOW / 2])
def test_what_takes_the_likeliest_token_is_greedy(temperature: float) -> None:
    form = replace(SAID, temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=0)

    assert greedy_form(replace(SAID, temperature=temperature)) == form


@pytest.mark.parametrize("temperature", [GREEDY_BELOW, 0.7, 2.0, float("nan")])
def test_what_is_drawn_is_not(temperature: float) -> None:
    assert greedy_form(SamplingParams(temperature=temperature)) is None
