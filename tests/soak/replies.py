"""What clients send, and what they got for it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import httpx

from support.near_tie import Step

Body: TypeAlias = dict[str, Any]
Message: TypeAlias = Mapping[str, str]


class Refused(Exception):
    """The server answered with an error; the message has its status and its words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as its client received it.

    Attributes:
        steps: every sampled token, the end token included.
        cache: where its state came from, see docs/api.md.
    """

    content: str
    reasoning: str
    finish: str
    usage: Body
    steps: tuple[Step, ...]

    @property
    def cache(self) -> Body:
        return self.usage["anchorline"]["cache"]

    def message(self, *, stripped: bool) -> Message:
        """The answer as clients send it back; a stripping client keeps no reasoning."""
        message = {"role": "assistant", "content": self.content}
        return message if stripped else {**message, "reasoning_content": self.reasoning}


def question(messages: Iterable[Message], *, max_tokens: int, **fields: str) -> Body:
    """A greedy request that asks for what the comparison with another run needs."""
    return {
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 20,
        **fields,
    }


def ask(client: httpx.Client, body: Body) -> Reply:
    """A whole answer.

    Raises:
        Refused: it is an error.
        httpx.TransportError: the connection broke.
    """
    response = client.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        raise Refused(f"{response.status_code}: {response.text}")
    answer: Body = response.json()
    choice = answer["choices"][0]
    return Reply(
        content=choice["message"]["content"] or "",
        reasoning=choice["message"].get("reasoning_content") or "",
        finish=choice["finish_reason"],
        usage=answer["usage"],
        steps=_steps(choice["logprobs"]),
    )


def ask_streamed(client: httpx.Client, body: Body, *, leave_after: int | None = None) -> Reply:
    """An answer that was put together from a stream.

    Args:
        client: of the server that is asked.
        body: as for a whole answer.
        leave_after: go away after so many events, with what came until then; such a reply has
            no usage.

    Raises:
        Refused: it is an error, be it in the middle of the stream.
        httpx.TransportError: the connection broke.
    """
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    content, reasoning = "", ""
    steps: list[Step] = []
    finish, usage, ended = "", cast("Body", {}), False
    with client.stream("POST", "/v1/chat/completions", json=asked) as response:
        if response.status_code != 200:
            raise Refused(f"{response.status_code}: {response.read().decode()}")
        for number, event in enumerate(_events(response.iter_lines())):
            if event is None:
                ended = True
                break
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                content += choice["delta"].get("content") or ""
                reasoning += choice["delta"].get("reasoning_content") or ""
                steps.extend(_steps(choice["logprobs"]))
                finish = choice["finish_reason"] or finish
            if number == leave_after:
                return Reply(content, reasoning, finish, {}, tuple(steps))
    if not ended:
        raise Refused("the stream ended before its end")
    return Reply(content, reasoning, finish, usage, tuple(steps))


def _events(lines: Iterable[str]) -> Iterable[Body | None]:
    """The events of a stream; None at its end."""
    for line in lines:
        if not line.startswith("data: "):
            continue  # comments and the empty lines between events
        data = line.removeprefix("data: ")
        event: Body | None = None if data == "[DONE]" else json.loads(data)
        if event is not None and "error" in event:
            raise Refused(data)
        yield event


def _steps(logprobs: Body | None) -> tuple[Step, ...]:
    listed: list[Body] = (logprobs or {}).get("content") or []
    return tuple(
        Step(
            bytes(token["bytes"]),
            {bytes(other["bytes"]): other["logprob"] for other in token["top_logprobs"]},
        )
        for token in listed
    )
