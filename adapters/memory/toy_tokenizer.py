"""A tokenizer without a vocabulary file: one token per byte, and the marks of ChatML.

A verified fake: it passes the contract suite of the tokenizer port. It models what matters to a
cache: characters cut in two between tokens, answers that render back to what was written, and
answers that do not (bytes that are no text come back as U+FFFD). It does not model merges, so
texts joined have their tokens joined.
"""

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...domain.conversation import Conversation, Message
from ...domain.errors import RequestError
from ...domain.prompt import Prompt, PromptParts
from ...domain.tokens import TokenIds, token_ids
from ...ports.tokenizer import OutputParser, Rendered, TextDecoder
from .toy_output_parser import ToyOutputParser

MARKS: Final = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
"""Special tokens; their ids follow those of the 256 bytes."""

VOCABULARY: Final = 256 + len(MARKS)
TURN_START: Final = 256
TURN_END: Final = 257

_MARK: Final = re.compile("|".join(re.escape(mark) for mark in MARKS))
_HIDDEN: Final = frozenset({TURN_START, TURN_END})


class ToyTokenizer:
    """Implements `ports.tokenizer.Tokenizer`."""

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset({TURN_END})

    @property
    def facts(self) -> Mapping[str, str]:
        return {"tokenizer": "toy-bytes-1", "template": "toy-chatml-1"}

    def render(self, conversation: Conversation) -> Rendered:
        if not conversation.messages:
            raise RequestError("a conversation needs a message", field="messages")
        head, rest = _split(conversation.messages)
        system = "" if head is None else head.content
        before, tools = "", ""
        if conversation.tools:
            before = f"<|im_start|>system\n{system}"
            tools = f"\n<tools>\n{_listed(conversation.tools)}\n</tools><|im_end|>\n"
        elif head is not None:
            before = f"<|im_start|>system\n{system}<|im_end|>\n"
        opens_reasoning = conversation.thinking is not False
        turns = [_turn(message, at) for at, message in rest]
        turns.append("<|im_start|>assistant\n<think>\n")
        if not opens_reasoning:
            turns[-1] += "\n</think>\n\n"
        pieces = [self.encode(text) for text in (before, tools, *turns)]
        ids = token_ids(np.concatenate(pieces))
        lengths = [len(piece) for piece in pieces]
        users = [number for number, (_, message) in enumerate(rest) if message.role == "user"]
        prompt = Prompt(
            ids=ids,
            key_ids=ids,
            last_user=sum(lengths[: 2 + users[-1]]) if users else 0,
            parts=PromptParts(system=lengths[0], tools=lengths[1], history=sum(lengths[2:])),
        )
        return Rendered(prompt, opens_reasoning)

    def encode(self, text: str) -> TokenIds:
        ids: list[int] = []
        at = 0
        for match in _MARK.finditer(text):
            ids += text[at : match.start()].encode()
            ids.append(256 + MARKS.index(match.group()))
            at = match.end()
        ids += text[at:].encode()
        return token_ids(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(token) for token in ids).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else MARKS[token - 256].encode()

    def decoder(self) -> TextDecoder:
        return ToyDecoder(self)

    def parser(self, *, opens_reasoning: bool, tools: bool) -> OutputParser:
        return ToyOutputParser(opens_reasoning=opens_reasoning, tools=tools)


class ToyDecoder:
    """Implements `ports.tokenizer.TextDecoder`."""

    def __init__(self, tokenizer: ToyTokenizer):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        if token in _HIDDEN:
            return self._decoder.decode(b"", final=True)
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def _split(messages: Sequence[Message]) -> tuple[Message | None, list[tuple[int, Message]]]:
    """The system text in front, if there is one, and the other messages with their numbers."""
    numbered = list(enumerate(messages))
    if messages[0].role in ("system", "developer"):
        return messages[0], numbered[1:]
    return None, numbered


def _listed(tools: Sequence[Mapping[str, object]]) -> str:
    return "\n".join(json.dumps(tool, ensure_ascii=False, sort_keys=True) for tool in tools)


def _turn(message: Message, at: int) -> str:
    match message.role:
        case "system" | "developer":
            return f"<|im_start|>system\n{message.content}<|im_end|>\n"
        case "user" | "tool":
            return f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n"
        case "assistant":
            parts = [message.content] if message.content else []
            parts += [
                f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
                "\n</tool_call>"
                for call in message.tool_calls
            ]
            thought = f"<think>\n{message.reasoning or ''}\n</think>\n\n"
            return f"<|im_start|>assistant\n{thought}" + "\n".join(parts) + "<|im_end|>\n"
        case _:
            raise RequestError(
                f"the toy template knows no role {message.role!r}", field=f"messages.{at}.role"
            )
