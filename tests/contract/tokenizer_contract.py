"""What every adapter of the tokenizer port must do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from anchorline.domain.conversation import Conversation, Message, Piece, PieceKind, ToolCall
from anchorline.domain.errors import RequestError
from anchorline.domain.tokens import common_prefix
from anchorline.ports.tokenizer import OutputParser, TextDecoder, Tokenizer

SYSTEM = Message("system", "Answer in one sentence.")
FIRST = Message("user", "Where does Anna live?")
ANSWER = Message("assistant", "Anna lives in Rome.", reasoning="The facts say so.")
SECOND = Message("user", "And Ben?")
TALK = Conversation((SYSTEM, FIRST, ANSWER, SECOND))

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALLS = (
    ToolCall("a", "weather", '{"city": "Rome"}'),
    ToolCall("b", "weather", '{"city": "Köln", "days": [1, 2]}'),
)

TEXTS = (
    "plain words",
    "  leading and trailing  ",
    "two\n\nlines\n",
    "Grüße, 你好, \N{FOX FACE}\N{SNOWMAN}!",
    "{'a': [1, 2.5]}",
)


def decoded(decoder: TextDecoder, ids: Sequence[int]) -> list[str]:
    """The text as it comes, token by token, with what the flush adds."""
    return [*(decoder.push(token) for token in ids), decoder.flush()]


def parsed(parser: OutputParser, text: str, step: int) -> list[Piece]:
    """The pieces of a text that comes in parts of `step` characters; neighbours joined."""
    pieces: list[Piece] = []
    for start in range(0, len(text), step):
        pieces += parser.push(text[start : start + step])
    pieces += parser.flush()
    joined: list[Piece] = []
    for piece in pieces:
        same = bool(joined) and joined[-1].kind is piece.kind is not PieceKind.TOOL_CALL
        if same:
            joined[-1] = Piece(piece.kind, joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def text_of(pieces: Sequence[Piece], kind: PieceKind) -> str:
    """The texts of one kind, joined."""
    return "".join(piece.text for piece in pieces if piece.kind is kind)


def calls_of(pieces: Sequence[Piece]) -> tuple[ToolCall, ...]:
    """The tool calls, in order."""
    return tuple(piece.call for piece in pieces if piece.call is not None)


class TokenizerContract(ABC):
    """Subclass it per adapter, named `Test...`, and give it a tokenizer.

    The tokenizer's template keeps earlier turns' reasoning, shows tools, and opens a thinking
    block unless a conversation asks for none. Override `written` and `refused` where the adapter
    has formats of its own.
    """

    steps: ClassVar = (1, 2, 3, 7, 1000)
    """Sizes of the parts in which text reaches a parser."""

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The adapter under test; may be the same one every time."""

    def written(self, message: Message, *, opens_reasoning: bool) -> str:
        """What a model writes for `message`, without the end token: ChatML with Hermes calls."""
        parts = [message.content] if message.content else []
        parts += [
            f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
            for call in message.tool_calls
        ]
        answer = "\n".join(parts)
        if not opens_reasoning:
            return answer
        return f"{message.reasoning or ''}\n</think>\n\n{answer}"

    def refused(self) -> Conversation:
        """A conversation that the template refuses."""
        return Conversation((Message("oracle", "Know thyself."),))

    # Facts

    def test_there_is_an_end_token(self) -> None:
        assert self.tokenizer().end_tokens

    def test_facts_are_digests_that_do_not_change(self) -> None:
        tokenizer = self.tokenizer()

        assert tokenizer.facts
        assert all(key and value for key, value in tokenizer.facts.items())
        assert dict(tokenizer.facts) == dict(self.tokenizer().facts)

    # Rendering

    def test_rendering_repeats(self) -> None:
        tokenizer = self.tokenizer()

        first, second = tokenizer.render(TALK), tokenizer.render(TALK)

        assert np.array_equal(first.prompt.ids, second.prompt.ids)
        assert first == replace(second, prompt=first.prompt)

    def test_text_has_key_ids_equal_to_its_ids(self) -> None:
        prompt = self.tokenizer().render(TALK).prompt

        assert len(prompt) > 0
        assert np.array_equal(prompt.ids, prompt.key_ids)

    @pytest.mark.parametrize("tools", [(), (TOOL,)])
    @pytest.mark.parametrize(
        "messages", [(FIRST,), (SYSTEM, FIRST), (FIRST, ANSWER, SECOND), TALK.messages]
    )
    def test_parts_add_up_to_the_length(
        self, messages: tuple[Message, ...], tools: tuple[dict[str, object], ...]
    ) -> None:
        prompt = self.tokenizer().render(Conversation(messages, tools)).prompt

        parts = prompt.parts
        assert min(parts.system, parts.tools, parts.history) >= 0
        assert parts.images == 0
        assert parts.system + parts.tools + parts.history == len(prompt)

    def test_parts_tell_what_the_tokens_stand_for(self) -> None:
        render = self.tokenizer().render

        bare = render(Conversation((FIRST,))).prompt.parts
        system = render(Conversation((SYSTEM, FIRST))).prompt.parts
        both = render(Conversation((SYSTEM, FIRST), (TOOL,))).prompt.parts

        assert bare.tools == system.tools == 0
        assert system.system > bare.system
        assert both.tools > 0
        assert system.history == bare.history == both.history

    def test_a_longer_history_leaves_the_other_parts_alone(self) -> None:
        render = self.tokenizer().render

        short = render(Conversation((SYSTEM, FIRST), (TOOL,))).prompt.parts
        long = render(Conversation(TALK.messages, (TOOL,))).prompt.parts

        assert (long.system, long.tools) == (short.system, short.tools)
        assert long.history > short.history

    def test_prompts_that_differ_in_the_last_user_message_share_all_below_it(self) -> None:
        render = self.tokenizer().render
        other = Conversation((SYSTEM, FIRST, ANSWER, Message("user", "Tell me a story.")))

        a, b = render(TALK).prompt, render(other).prompt

        assert 0 < a.last_user == b.last_user
        assert a.last_user <= common_prefix(a.ids, b.ids) < min(len(a), len(b))

    def test_the_last_user_message_starts_where_the_turn_before_it_ends(self) -> None:
        tokenizer = self.tokenizer()

        prompt = tokenizer.render(TALK).prompt

        below = tokenizer.decode(prompt.ids[: prompt.last_user].tolist())
        above = tokenizer.decode(prompt.ids[prompt.last_user :].tolist())
        assert ANSWER.content in below
        assert SECOND.content in above
        assert FIRST.content not in above

    def test_a_result_after_the_last_user_message_does_not_move_its_line(self) -> None:
        render = self.tokenizer().render
        call = Message("assistant", "", tool_calls=CALLS[:1])
        result = Message("tool", "sunny", tool_call_id=CALLS[0].id)

        before = render(Conversation((SYSTEM, FIRST))).prompt.last_user
        after = render(Conversation((SYSTEM, FIRST, call, result))).prompt.last_user

        assert after == before

    def test_without_a_user_message_its_line_is_0(self) -> None:
        assert self.tokenizer().render(Conversation((SYSTEM,))).prompt.last_user == 0

    def test_thinking_opens_a_block_and_without_it_none_is_open(self) -> None:
        render = self.tokenizer().render

        assert render(replace(TALK, thinking=True)).opens_reasoning
        assert not render(replace(TALK, thinking=False)).opens_reasoning

    def test_a_user_who_writes_of_a_mark_opens_nothing(self) -> None:
        talk = Conversation((Message("user", "What does <think> do?"),), thinking=False)

        assert not self.tokenizer().render(talk).opens_reasoning

    def test_a_refused_conversation_is_the_callers_fault(self) -> None:
        with pytest.raises(RequestError) as caught:
            self.tokenizer().render(self.refused())

        assert caught.value.field is not None
        assert caught.value.field.startswith("messages")
        assert str(caught.value)

    @pytest.mark.parametrize("thinking", [True, False])
    @pytest.mark.parametrize(
        "answer",
        [
            ANSWER,
            Message("assistant", "No thoughts."),
            Message("assistant", "", reasoning="I ask.", tool_calls=CALLS),
            Message("assistant", "I ask.", tool_calls=CALLS[:1]),
            Message("assistant", "a < b\n\n- <i>x</i>\n", reasoning="One\n\ntwo, 你好"),
        ],
    )
    def test_an_answer_sent_back_renders_to_what_was_written(
        self, answer: Message, thinking: bool
    ) -> None:
        tokenizer = self.tokenizer()
        answer = answer if thinking else replace(answer, reasoning=None)
        talk = Conversation((SYSTEM, FIRST), (TOOL,), thinking=thinking)
        asked = tokenizer.render(talk)
        text = self.written(answer, opens_reasoning=asked.opens_reasoning)

        pieces = parsed(
            tokenizer.parser(opens_reasoning=asked.opens_reasoning, tools=True), text, 3
        )
        copy = Message(
            "assistant",
            text_of(pieces, PieceKind.CONTENT),
            reasoning=text_of(pieces, PieceKind.REASONING) or None,
            tool_calls=calls_of(pieces),
        )
        again = tokenizer.render(replace(talk, messages=(*talk.messages, copy, SECOND)))

        whole = tokenizer.decode(again.prompt.ids.tolist())
        assert whole.startswith(tokenizer.decode(asked.prompt.ids.tolist()) + text)

    # Encoding and decoding

    @pytest.mark.parametrize("text", TEXTS)
    def test_decoding_gives_the_encoded_text_back(self, text: str) -> None:
        tokenizer = self.tokenizer()

        ids = tokenizer.encode(text)

        assert ids.dtype == np.uint32
        assert tokenizer.decode(ids.tolist()).endswith(text)

    @pytest.mark.parametrize("text", TEXTS)
    def test_the_bytes_of_the_tokens_are_the_texts_bytes(self, text: str) -> None:
        tokenizer = self.tokenizer()

        ids = tokenizer.encode(text).tolist()

        assert b"".join(tokenizer.token_bytes(token) for token in ids).endswith(text.encode())

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_decoder_gives_the_whole_text_and_never_part_of_a_character(self, text: str) -> None:
        tokenizer = self.tokenizer()

        parts = decoded(tokenizer.decoder(), tokenizer.encode(text).tolist())

        assert "".join(parts).endswith(text)
        assert all("\N{REPLACEMENT CHARACTER}" not in part for part in parts)

    def test_a_decoder_hides_the_end_token(self) -> None:
        tokenizer = self.tokenizer()
        ids = tokenizer.encode("The end.").tolist()

        for end in sorted(tokenizer.end_tokens):
            assert "".join(decoded(tokenizer.decoder(), [*ids, end])).endswith("The end.")

    def test_a_character_cut_short_becomes_a_replacement(self) -> None:
        tokenizer = self.tokenizer()
        first = len(tokenizer.encode(""))
        cut = tokenizer.encode("\N{FOX FACE}").tolist()[first:-1]
        expected = b"".join(tokenizer.token_bytes(token) for token in cut)

        text = "".join(decoded(tokenizer.decoder(), cut))

        assert text == expected.decode(errors="replace")

    def test_a_decoder_shows_what_a_parser_needs(self) -> None:
        tokenizer = self.tokenizer()
        answer = Message("assistant", "Yes.", reasoning="Hm.", tool_calls=CALLS)
        text = self.written(answer, opens_reasoning=True)

        parts = decoded(tokenizer.decoder(), tokenizer.encode(text).tolist())

        assert "".join(parts).endswith(text)

    def test_decoders_do_not_share_state(self) -> None:
        tokenizer = self.tokenizer()
        ids = tokenizer.encode("\N{FOX FACE} and \N{SNOWMAN}").tolist()
        one, other = tokenizer.decoder(), tokenizer.decoder()

        pushed = [(one.push(token), other.push(token)) for token in ids]

        assert all(a == b for a, b in pushed)

    # Parsing

    @pytest.mark.parametrize("step", steps)
    def test_a_plain_answer_is_content(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=False, tools=False)
        text = "\nif a < b: <b>x</b> </ <thin\n\n"

        assert parsed(parser, text, step) == [Piece(PieceKind.CONTENT, text)]

    @pytest.mark.parametrize("step", steps)
    def test_an_opened_answer_is_reasoning_and_then_content(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=True, tools=False)
        text = self.written(ANSWER, opens_reasoning=True)

        assert parsed(parser, text, step) == [
            Piece(PieceKind.REASONING, ANSWER.reasoning or ""),
            Piece(PieceKind.CONTENT, ANSWER.content),
        ]

    @pytest.mark.parametrize("step", steps)
    def test_reasoning_that_never_ends_is_all_there(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=True, tools=True)

        assert parsed(parser, "Let me see. </thi\n", step) == [
            Piece(PieceKind.REASONING, "Let me see. </thi\n")
        ]

    @pytest.mark.parametrize("step", steps)
    def test_calls_come_complete_and_in_order(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=True, tools=True)
        answer = Message("assistant", "I look.", reasoning="Two cities.", tool_calls=CALLS)

        pieces = parsed(parser, self.written(answer, opens_reasoning=True), step)

        assert text_of(pieces, PieceKind.REASONING) == "Two cities."
        assert text_of(pieces, PieceKind.CONTENT) == "I look."
        assert [(call.name, call.arguments) for call in calls_of(pieces)] == [
            (call.name, call.arguments) for call in CALLS
        ]

    def test_the_ids_of_calls_differ_and_repeat_with_the_text(self) -> None:
        tokenizer = self.tokenizer()
        twice = Message("assistant", "", tool_calls=(CALLS[0], CALLS[0]))
        text = self.written(twice, opens_reasoning=False)

        runs = [
            calls_of(parsed(tokenizer.parser(opens_reasoning=False, tools=True), text, step))
            for step in self.steps
        ]

        assert len({call.id for call in runs[0]}) == 2
        assert all(run == runs[0] for run in runs)

    @pytest.mark.parametrize("step", steps)
    def test_without_tools_a_call_is_text(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=False, tools=False)
        text = self.written(Message("assistant", "So:", tool_calls=CALLS), opens_reasoning=False)

        assert parsed(parser, text, step) == [Piece(PieceKind.CONTENT, text)]

    @pytest.mark.parametrize("step", steps)
    def test_an_unfinished_call_is_content(self, step: int) -> None:
        parser = self.tokenizer().parser(opens_reasoning=False, tools=True)
        whole = self.written(Message("assistant", "", tool_calls=CALLS[:1]), opens_reasoning=False)
        text = whole[: len(whole) * 2 // 3]

        assert parsed(parser, text, step) == [Piece(PieceKind.CONTENT, text)]

    def test_nothing_said_gives_no_pieces(self) -> None:
        for opens_reasoning in (True, False):
            parser = self.tokenizer().parser(opens_reasoning=opens_reasoning, tools=True)

            assert parsed(parser, "", 1) == []

    # Threads

    def test_calls_from_several_threads_give_what_one_gives(self) -> None:
        tokenizer = self.tokenizer()
        expected_text = "".join(TEXTS)
        expected_ids = tokenizer.render(TALK).prompt.ids.tolist()

        def work(_: int) -> bool:
            ids = tokenizer.encode(expected_text).tolist()
            text = "".join(decoded(tokenizer.decoder(), ids))
            rendered = tokenizer.render(TALK).prompt.ids.tolist()
            return text.endswith(expected_text) and rendered == expected_ids

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(40)))
