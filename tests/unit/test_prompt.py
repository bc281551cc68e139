"""A prompt as the cache sees it."""

import pytest

from anchorline.domain.prompt import Prompt, PromptParts
from support.builders import a_prompt, ids


def test_a_prompt_is_as_long_as_its_ids() -> None:
    assert len(a_prompt([1, 2, 3])) == 3


def test_there_is_a_key_id_for_every_id() -> None:
    with pytest.raises(ValueError, match="3 ids, 2 key ids"):
        Prompt(ids(1, 2, 3), ids(1, 2))


@pytest.mark.parametrize("line", [-1, 4])
def test_the_last_user_message_starts_within_the_prompt(line: int) -> None:
    with pytest.raises(ValueError, match="a user message at"):
        a_prompt([1, 2, 3], last_user=line)


@pytest.mark.parametrize("line", [0, 3])
def test_the_last_user_message_may_start_at_either_end(line: int) -> None:
    assert a_prompt([1, 2, 3], last_user=line).last_user == line


def test_a_prompt_of_ids_stands_for_nothing_in_particular() -> None:
    assert a_prompt([1]).parts == PromptParts(system=0, tools=0, history=0, images=0)
