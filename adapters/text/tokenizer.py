"""The tokenizer port over a fast tokenizer and a chat template."""

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tokenizers import Encoding

from ...domain.conversation import Conversation
from ...domain.errors import RequestError
from ...domain.prompt import Prompt, PromptParts
from ...domain.tokens import TokenIds, token_ids
from ...ports.tokenizer import OutputParser, Rendered, TextDecoder
from . import marks
from .answer_parser import AnswerParser
from .chat_template import ChatTemplate
from .incremental_decoder import IncrementalDecoder
from .loading import LoadedTokenizer, load
from .outline import Outline, outline
from .token_bytes import TokenBytes


def load_tokenizer(source: str | Path) -> "TransformersTokenizer":
    """The tokenizer of the model at `source`: a directory, a GGUF file or a Hugging Face id.

    Blocks for up to some seconds.

    Raises:
        ModelNotFound: there is no tokenizer.
        ModelRefused: it has no fast tokenizer.
    """
    return TransformersTokenizer(load(source))


class TransformersTokenizer:
    """Implements the port `Tokenizer`."""

    def __init__(self, loaded: LoadedTokenizer) -> None:
        self._backend = loaded.backend
        self._template = None
        if loaded.render is not None:
            self._template = ChatTemplate(loaded.render, loaded.template, loaded.reserved)
        serialised = loaded.backend.to_str()
        self._facts = {
            "tokenizer": hashlib.sha256(serialised.encode()).hexdigest(),
            "chat_template": hashlib.sha256(loaded.template.encode()).hexdigest(),
        }
        self._token_bytes = TokenBytes(loaded.backend, serialised)
        self._first = self._first_tokens()
        added = loaded.backend.get_added_tokens_decoder()
        special = {token: entry.content for token, entry in added.items() if entry.special}
        self._end_tokens = loaded.end_tokens | self._turn_end(special.keys())
        self._hidden = self._end_tokens | {
            # The parser must see its marks, whether the model's makers call them special or not.
            token
            for token, text in special.items()
            if text not in marks.ALL
        }

    @property
    def end_tokens(self) -> frozenset[int]:
        return self._end_tokens

    @property
    def facts(self) -> Mapping[str, str]:
        return self._facts

    def render(self, conversation: Conversation) -> Rendered:
        if self._template is None:
            raise RequestError(
                "the model has no chat template: use /v1/completions with a plain prompt",
                field="messages",
            )
        found = outline(self._template, conversation)
        encoding = self._encoding(found.text, field="messages")
        ids = token_ids(encoding.ids)
        ends = [end for _, end in encoding.offsets]
        answer = found.first_answer
        prompt = Prompt(
            ids,
            ids,
            last_user=_line(ends, found.last_user),
            parts=_parts(ends, found),
            first_answer=None if answer is None else _line(ends, answer),
        )
        return Rendered(prompt, found.opens_reasoning)

    def encode(self, text: str) -> TokenIds:
        ids = self._encoding(text, field="prompt").ids
        if self._first and ids[: len(self._first)] != self._first:
            ids = [*self._first, *ids]
        return token_ids(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self._backend.decode(ids, skip_special_tokens=False)

    def token_bytes(self, token: int) -> bytes:
        return self._token_bytes(token)

    def decoder(self) -> TextDecoder:
        return IncrementalDecoder(self.decode, self._hidden)

    def parser(self, *, opens_reasoning: bool, tools: bool) -> OutputParser:
        return AnswerParser(opens_reasoning=opens_reasoning, tools=tools)

    def _encoding(self, text: str, *, field: str) -> Encoding:
        try:
            return self._backend.encode(text, add_special_tokens=False)
        except TypeError as error:  # the library's way to refuse what is no Unicode text
            raise RequestError("the text holds half a surrogate pair", field=field) from error

    def _first_tokens(self) -> list[int]:
        """What the tokenizer puts in front of a text. What some put behind it is left out."""
        with_specials = self._backend.encode("a").ids
        without = self._backend.encode("a", add_special_tokens=False).ids
        start = next(
            (
                start
                for start in range(len(with_specials))
                if with_specials[start : start + len(without)] == without
            ),
            0,
        )
        return with_specials[:start]

    def _turn_end(self, special: Collection[int]) -> frozenset[int]:
        """The special token that the template ends an answer with.

        A model's files often name the end of a document alone, and the model would talk on.
        """
        answer_end = self._template.habits.answer_end if self._template else ""
        ids = self._backend.encode(answer_end, add_special_tokens=False).ids
        return frozenset([token for token in ids if token in special][:1])


def _line(ends: Sequence[int], place: int) -> int:
    """How many tokens end at or before the character `place`."""
    return bisect_right(ends, place) if place else 0


def _parts(ends: Sequence[int], found: Outline) -> PromptParts:
    start, end = found.tools
    tools = _line(ends, end) - _line(ends, start)
    system = _line(ends, found.head)
    if start < found.head:  # the head tells of tools too
        system = max(0, system - tools)
    return PromptParts(system=system, tools=tools, history=len(ends) - system - tools)
