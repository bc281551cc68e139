"""The prefix keys of one prompt."""

import pytest

from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey, chain, extend, root_key
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import TokenIds
from support.builders import random_ids

GRID = Grid(8)
PLAIN = Namespace()
IDS = random_ids(50)


def a_chain(length: int = 50, namespace: Namespace = PLAIN) -> PromptChain:
    return PromptChain(IDS[:length], namespace, GRID)


def test_keys_at_grid_lines_are_those_of_the_chain() -> None:
    prompt = a_chain()

    keys = [prompt.key(line) for line in range(0, 49, 8)]

    assert keys == chain(PLAIN, IDS, GRID)
    assert keys[0] == root_key(PLAIN)


def test_a_key_off_the_grid_extends_that_of_the_grid_line_below() -> None:
    assert a_chain().key(21) == extend(a_chain().key(16), IDS[16:21])
    assert a_chain().key(3) == extend(root_key(PLAIN), IDS[:3])


def test_each_id_is_hashed_once_for_all_grid_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counting(key: PrefixKey, key_ids: TokenIds) -> PrefixKey:
        hashed.extend(key_ids.tolist())
        return extend(key, key_ids)

    monkeypatch.setattr("anchorline.domain.prompt_chain.extend", counting)
    prompt = a_chain()

    for line in (16, 8, 16, 40, 0, 24, 48):
        prompt.key(line)

    assert hashed == IDS[:48].tolist()


def test_keys_off_the_grid_go_on_from_each_other_and_are_the_same() -> None:
    prompt = a_chain()

    for line in (17, 19, 19, 18, 23, 9, 25, 31, 16, 26, 1, 49, 7):
        below = GRID.floor(line)
        key = chain(PLAIN, IDS, GRID)[below // 8]
        assert prompt.key(line) == (extend(key, IDS[below:line]) if below < line else key)


def test_the_order_of_asking_changes_nothing() -> None:
    prompt, other = a_chain(), a_chain()

    downwards = [prompt.key(line) for line in range(50, -1, -1)]

    assert downwards[::-1] == [other.key(line) for line in range(51)]


def test_prompts_share_their_keys_up_to_where_they_part() -> None:
    other_ids = IDS.copy()
    other_ids[30] += 1
    prompt, other = a_chain(), PromptChain(other_ids, PLAIN, GRID)

    same = [line for line in range(51) if prompt.key(line) == other.key(line)]

    assert same == list(range(31))


def test_a_longer_prompt_has_the_keys_of_a_shorter_one() -> None:
    shorter = a_chain(19)

    assert [shorter.key(line) for line in range(20)] == [a_chain().key(line) for line in range(20)]


def test_prompts_of_two_namespaces_share_no_key() -> None:
    prompt, salted = a_chain(), a_chain(namespace=Namespace(salt="s"))

    assert not {prompt.key(line) for line in range(51)} & {salted.key(line) for line in range(51)}


@pytest.mark.parametrize("line", [-1, 20, 24, 1000])
def test_a_line_outside_the_prompt_has_no_key(line: int) -> None:
    shorter = a_chain(19)

    with pytest.raises(AssertionError, match="of 19 tokens"):
        shorter.key(line)

    assert shorter.key(19) == a_chain().key(19)


def test_a_prompt_without_tokens_has_the_key_of_its_namespace() -> None:
    assert a_chain(0).key(0) == root_key(PLAIN)


def test_it_tells_its_length_and_its_grid() -> None:
    assert a_chain(19).length == 19
    assert a_chain(19).grid == GRID
