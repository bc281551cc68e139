"""Splitting answers into reasoning, content and tool calls."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from anchorline.adapters.text.answer_parser import AnswerParser
from anchorline.domain.conversation import Piece, PieceKind
from contract.tokenizer_contract import calls_of, parsed, text_of

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "f", "arguments": }\n</tool_call>'

FRAGMENTS = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, BROKEN, "<", "</", "\n", " ", "ab"]
)
TEXTS = st.lists(FRAGMENTS, max_size=12).map("".join)
PROMPTS = st.booleans()


def pieces(
    text: str, *, opens_reasoning: bool = False, tools: bool = True, step: int = 1
) -> list[Piece]:
    return parsed(AnswerParser(opens_reasoning=opens_reasoning, tools=tools), text, step)


def reasoning(text: str) -> Piece:
    return Piece(PieceKind.REASONING, text)


def content(text: str) -> Piece:
    return Piece(PieceKind.CONTENT, text)


def kinds(found: Sequence[Piece]) -> list[PieceKind]:
    return [piece.kind for piece in found]


# Reasoning


def test_a_model_that_opens_the_block_itself_reasons() -> None:
    assert pieces("<think>\nHm.\n</think>\n\nYes.") == [reasoning("Hm."), content("Yes.")]


def test_a_mark_further_on_opens_nothing() -> None:
    assert pieces(" <think>\nHm.\n</think>") == [content(" <think>\nHm.\n</think>")]


def test_an_empty_block_gives_no_reasoning() -> None:
    assert pieces("\n</think>\n\nYes.", opens_reasoning=True) == [content("Yes.")]


def test_only_one_line_end_before_the_closing_mark_is_dropped() -> None:
    found = pieces("Hm.\n\n</think>\nYes.", opens_reasoning=True)

    assert found == [reasoning("Hm.\n"), content("Yes.")]


def test_a_repeated_opening_mark_is_dropped() -> None:
    found = pieces("<think>\nHm.\n</think>\n\nYes.", opens_reasoning=True)

    assert found == [reasoning("Hm."), content("Yes.")]


def test_reasoning_comes_before_it_is_complete() -> None:
    parser = AnswerParser(opens_reasoning=True, tools=False)

    assert parser.push("One, ") == [reasoning("One, ")]
    assert parser.push("two\n") == [reasoning("two")]
    assert parser.push("three") == [reasoning("\nthree")]


def test_calls_are_not_looked_for_in_reasoning() -> None:
    found = pieces(f"{CALL}\n</think>\n\nNo.", opens_reasoning=True)

    assert found == [reasoning(CALL), content("No.")]


# Calls


def test_the_line_end_before_a_call_is_dropped() -> None:
    found = pieces(f"I look.\n{CALL}")

    assert kinds(found) == [PieceKind.CONTENT, PieceKind.TOOL_CALL]
    assert found[0] == content("I look.")


def test_content_after_a_call_keeps_its_line_ends() -> None:
    assert text_of(pieces(f"One.\n{CALL}\n\nTwo."), PieceKind.CONTENT) == "One.\n\nTwo."


def test_line_ends_after_the_last_call_are_dropped() -> None:
    assert kinds(pieces(f"{CALL}\n\n")) == [PieceKind.TOOL_CALL]


def test_a_malformed_call_is_content_with_all_that_stood_around_it() -> None:
    assert pieces(f"One.\n{BROKEN}\nTwo.") == [content(f"One.\n{BROKEN}\nTwo.")]


def test_a_call_after_a_malformed_one_is_found() -> None:
    found = pieces(f"{BROKEN}\n{CALL}")

    assert found[0] == content(BROKEN)
    assert [call.name for call in calls_of(found)] == ["f"]


def test_a_closing_mark_inside_an_argument_ends_nothing() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "</tool_call> </tool_call>"}}</tool_call>'

    (found,) = pieces(text)

    assert found.call is not None
    assert found.call.arguments == '{"a": "</tool_call> </tool_call>"}'


def test_a_string_that_never_ends_is_content() -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": "}}}}</tool_call>\n{BROKEN[:20]}'

    assert pieces(text) == [content(text)]


def test_a_call_is_given_as_soon_as_it_is_closed() -> None:
    parser = AnswerParser(opens_reasoning=False, tools=True)

    assert list(parser.push(CALL[:-1])) == []
    assert kinds(parser.push(CALL[-1:])) == [PieceKind.TOOL_CALL]


def test_equal_calls_of_one_answer_have_different_ids() -> None:
    ids = [call.id for call in calls_of(pieces(f"{CALL}\n{CALL}"))]

    assert len(set(ids)) == 2
    assert all(identity.startswith("call_") for identity in ids)


# Any text


@given(text=TEXTS, opens=PROMPTS, tools=st.booleans(), step=st.integers(2, 40))
def test_the_parts_in_which_a_text_comes_do_not_matter(
    text: str, opens: bool, tools: bool, step: int
) -> None:
    whole = pieces(text, opens_reasoning=opens, tools=tools, step=max(1, len(text)))

    assert pieces(text, opens_reasoning=opens, tools=tools, step=step) == whole
    assert pieces(text, opens_reasoning=opens, tools=tools, step=1) == whole


@given(text=TEXTS, opens=PROMPTS, tools=st.booleans(), step=st.integers(1, 40))
def test_nothing_is_lost_but_marks_of_reasoning_and_line_ends(
    text: str, opens: bool, tools: bool, step: int
) -> None:
    found = pieces(text, opens_reasoning=opens, tools=tools, step=step)

    written = "".join(CALL if piece.call else piece.text for piece in found)
    for dropped in ("<think>", "</think>", "\n"):
        written, text = written.replace(dropped, ""), text.replace(dropped, "")
    assert written == text


@given(text=TEXTS, opens=PROMPTS, step=st.integers(1, 40))
def test_no_piece_is_empty(text: str, opens: bool, step: int) -> None:
    parser = AnswerParser(opens_reasoning=opens, tools=True)

    for start in range(0, len(text), step):
        assert all(piece.text or piece.call for piece in parser.push(text[start : start + step]))
    assert all(piece.text or piece.call for piece in parser.flush())
