"""Traces of agents: what sessions asked, with the ids of their blocks in place of their texts.

A trace is one session. Of each request it has the time, the tokens of the prompt and of the answer,
and an id for each whole block of the prompt: equal ids are equal tokens. That is all that a cache
can tell prompts apart by, so tokens are made up from the ids, and a window that is too small for
them gets each block shortened alike.

    request 1   [ a ][ b ][ c ][ d   | answer          the id of its last block is not in the trace
    request 2   [ a ][ b ][ c ][ d ][ e ][ f ][ g      but in that of whoever goes on from it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from ..adapters.memory.checkable_state import fold, mixed
from ..domain.tokens import TokenIds, common_prefix, token_ids

_MADE_UP: Final = 1 << 32
"""From here on ids are of blocks that a trace does not name."""

_BLOCKS_MAX: Final = 1 << 24
"""Of a request, and tokens of a block."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a session.

    Attributes:
        at_s: since the start of its trace.
        prompt: tokens.
        answer: tokens; at least 1.
        blocks: the ids of the prompt's whole blocks.
    """

    at_s: float
    prompt: int
    answer: int
    blocks: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return self.prompt + self.answer


@dataclass(frozen=True, slots=True)
class AgentTrace:
    """One session.

    Attributes:
        block: tokens of a block.
        requests: by time; at least one.
    """

    name: str
    block: int
    requests: tuple[TraceRequest, ...]

    @property
    def longest(self) -> int:
        """Tokens of its longest prompt with the answer."""
        return max(request.tokens for request in self.requests)

    def first(self, count: int) -> "AgentTrace":
        """Its first requests alone."""
        return replace(self, requests=self.requests[:count])


@dataclass(frozen=True, slots=True)
class Turn:
    """A request as tokens.

    Attributes:
        number: of the session's requests, from 0.
        answer: what is to be written; at least one token.
    """

    session: str
    number: int
    at_s: float
    prompt: TokenIds
    answer: TokenIds

    @property
    def forwarded(self) -> TokenIds:
        """What a model has read once the answer is complete: all but its last token."""
        return token_ids(np.concatenate((self.prompt, self.answer[:-1])))


def trace_of(name: str, values: object) -> AgentTrace:
    """A trace out of its file's JSON values.

    Raises:
        ValueError: it is none; the message says where.
    """
    whole = _mapping(values, "the trace")
    block = _count(whole, "block_size", "the trace", least=1)
    listed = whole.get("requests")
    if not isinstance(listed, list) or not listed:
        raise ValueError("the trace has no list of requests")
    requests = [
        _request_of(one, block, f"request {number}")
        for number, one in enumerate(cast("list[object]", listed))
    ]
    return AgentTrace(name, block, tuple(sorted(requests, key=lambda one: one.at_s)))


def turns_of(trace: AgentTrace, *, window: int, below: int) -> list[Turn]:
    """A session's requests as tokens, shortened alike where the longest does not fit the window.

    A prompt's last block and its answer are what the next request that goes on from it has there;
    where none does they are nobody else's.

    Args:
        below: token ids are.
    """
    scale = _Scale(trace.block, window, max(trace.longest, window))
    seed = fold(*trace.name.encode())
    return [
        _turn(trace, number, told, scale, seed, below) for number, told in enumerate(_told(trace))
    ]


def interleaved(sessions: Sequence[Sequence[Turn]]) -> list[Turn]:
    """The turns of several sessions, as they come in time."""
    turns = [turn for session in sessions for turn in session]
    return sorted(turns, key=lambda turn: turn.at_s)


def unavoidable(turns: Sequence[Turn]) -> list[int]:
    """Tokens that each turn must read whatever was kept: those that no turn before it has read."""
    read: list[TokenIds] = []
    must: list[int] = []
    for turn in turns:
        known = max((common_prefix(turn.prompt, one) for one in read), default=0)
        must.append(max(len(turn.prompt) - known, 1))
        read.append(turn.forwarded)
    return must


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where lines of a trace are in a window: at `window / longest` of what they were."""

    block: int
    window: int
    longest: int

    def line(self, tokens: int) -> int:
        return tokens * self.window // self.longest

    def starts(self, blocks: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """The lines where blocks start, and where the last one ends."""
        lines = np.arange(blocks + 1, dtype=np.int64) * self.block
        return lines * self.window // self.longest


@dataclass(frozen=True, slots=True)
class _Told:
    """What a request and its answer are made of.

    Attributes:
        blocks: the ids of all blocks, with those that only later requests name.
        prompt_next: tokens of the first longer prompt that goes on from it; None where none does.
    """

    blocks: tuple[int, ...]
    prompt_next: int | None


def _told(trace: AgentTrace) -> list[_Told]:
    """Of each request, by what stands behind it in those that repeat it or go on from it."""
    found: list[_Told] = []  # the last request first
    for number, request in reversed(list(enumerate(trace.requests))):
        known, prompt_next = request.blocks, None
        follower = _follower(trace.requests, number)
        if follower is not None:
            later, told = trace.requests[follower], found[len(trace.requests) - 1 - follower]
            known = told.blocks
            prompt_next = later.prompt if later.prompt > request.prompt else told.prompt_next
        made_up = range(len(known), -(-request.tokens // trace.block))
        blocks = (*known, *(_MADE_UP + number * _BLOCKS_MAX + index for index in made_up))
        found.append(_Told(blocks, prompt_next))
    return found[::-1]


def _follower(requests: Sequence[TraceRequest], number: int) -> int | None:
    """The first request after one that has its whole prompt, as far as blocks tell."""
    one = requests[number]
    for later in range(number + 1, len(requests)):
        other = requests[later]
        if other.prompt >= one.prompt and other.blocks[: len(one.blocks)] == one.blocks:
            return later
    return None


def _turn(
    trace: AgentTrace, number: int, told: _Told, scale: _Scale, seed: int, below: int
) -> Turn:
    request = trace.requests[number]
    prompt = max(scale.line(request.prompt), 1)
    end = scale.line(request.tokens)
    if told.prompt_next is not None:
        # Reasoning that the client dropped was written, and is not in the trace: what is kept of
        # the answer is what the next prompt has room for.
        end = min(end, scale.line(told.prompt_next))
    ids = _ids(told.blocks, scale, max(end, prompt + 1), seed, below)
    return Turn(trace.name, number, request.at_s, ids[:prompt], ids[prompt:])


def _ids(blocks: Sequence[int], scale: _Scale, count: int, seed: int, below: int) -> TokenIds:
    """The tokens of blocks, up to a line: each is of its block's id and its place in it alone."""
    starts = scale.starts(len(blocks))
    lengths = np.diff(starts)
    lengths[-1] += max(count - int(starts[-1]), 0)  # an answer has a token, however short it is
    owners = np.repeat(np.array(blocks, dtype=np.uint64), lengths)
    places = np.arange(len(owners), dtype=np.uint64) - np.repeat(
        starts[:-1].astype(np.uint64), lengths
    )
    words = mixed(mixed(owners + np.uint64(seed)) + places)
    return token_ids((words[:count] % np.uint64(below)).astype(np.int64))


def _request_of(values: object, block: int, where: str) -> TraceRequest:
    one = _mapping(values, where)
    at_s, blocks = one.get("t"), one.get("hash_ids")
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < float("inf"):
        raise ValueError(f"{where} has no time `t`")
    prompt = _count(one, "in", where, least=1)
    whole = prompt // block
    if not isinstance(blocks, list) or not all(map(_is_id, cast("list[object]", blocks))):
        raise ValueError(f"{where} has no list of ids `hash_ids`")
    if not whole <= len(cast("list[int]", blocks)) <= _BLOCKS_MAX:
        told = f"{len(cast('list[int]', blocks))} blocks"
        raise ValueError(f"{where} names {told}, and {prompt} tokens have {whole} whole ones")
    answer = max(_count(one, "out", where, least=0), 1)
    return TraceRequest(float(at_s), prompt, answer, tuple(cast("list[int]", blocks)[:whole]))


def _mapping(values: object, where: str) -> Mapping[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"{where} is no JSON object")  # noqa: TRY004 - of what a file says
    return cast("Mapping[str, Any]", values)


def _count(values: Mapping[str, Any], name: str, where: str, *, least: int) -> int:
    count = values.get(name)
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count < _MADE_UP:
        raise ValueError(f"{where} has no number of tokens `{name}`")
    return count


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MADE_UP
