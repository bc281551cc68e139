"""Clients as agents are: prompts that grow, titles, edits, returns, requests given up."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from soak.judge import Judge, Wrong
from soak.lives import Faults, Lives
from soak.processes import ServerProcess
from soak.replies import Body, Message, Refused, Reply, ask, ask_streamed, question

PROMPT_TOKENS_MAX: Final = 1700
"""A conversation whose prompt is longer is over."""

PARKED_MAX: Final = 5
HEADS: Final = 3

_NAMES: Final = "Anna Ben Carla David Emma Felix Grace Hugo Iris Jack Kira Leo Mia Noah".split()
_CITIES: Final = "Rome Oslo Cairo Lima Paris Madrid Berlin Vienna Athens Dublin".split()
_THINGS: Final = "a red lamp,a blue kite,soup,pears,a white drum,milk,42,a green book".split(",")


@dataclass(slots=True)
class Talk:
    """One conversation of one agent."""

    id: str
    messages: list[Message]
    prompt_tokens: int = 0

    def cut(self, turns: int) -> None:
        """Forget the last turns; the system message stays."""
        del self.messages[max(1, len(self.messages) - 2 * turns) :]


def facts(chance: random.Random, count: int) -> str:
    """Sentences of a kind that the model knows."""
    told = [
        f"{chance.choice(_NAMES)} lives in {chance.choice(_CITIES)}."
        if chance.random() < 0.5
        else f"{chance.choice(_NAMES)} has {chance.choice(_THINGS)}."
        for _ in range(count)
    ]
    return " ".join(told)


@dataclass(slots=True)
class Agent:
    """One client: does one thing after the other until there is no server any more.

    Attributes:
        number: decides its habits: which head its prompts have, whether it sends reasoning back,
            whether it has a salt.
        busy: its own requests share the machine with this much pause, in seconds.
    """

    number: int
    seed: int
    pause_s: float
    lives: Lives
    judge: Judge
    faults: Faults
    done: Counter[str] = field(default_factory=Counter[str])
    lost: int = 0
    _chance: random.Random = field(init=False)
    _talk: Talk = field(init=False)
    _parked: list[Talk] = field(default_factory=list[Talk])
    _talks: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed} {self.number}")
        self._talk = self._new_talk()

    def thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"agent {self.number}")

    def _run(self) -> None:
        while (server := self.lives.current()) is not None:
            with server.client() as client:
                while self.lives.is_current(server):
                    if not self._act(server, client):
                        break
                    time.sleep(self._chance.uniform(0.2, 1.8) * self.pause_s)

    def _act(self, server: ServerProcess, client: httpx.Client) -> bool:
        """Do one thing; False if the server has gone under it."""
        acts: list[tuple[int, Callable[[httpx.Client], None]]] = [
            (66, self._next_turn),
            (9, self._title),
            (7, self._edit),
            (7, self._give_up),
            (7, self._return),
            (4, self._begin),
        ]
        (act,) = self._chance.choices([act for _, act in acts], [weight for weight, _ in acts])
        try:
            act(client)
        except (httpx.TransportError, Refused) as error:
            if self.lives.is_current(server):
                self.faults.add(f"agent {self.number}: {error!r}", messages=self._talk.messages)
            else:
                self.lost += 1
            return False
        self.done[act.__name__.removeprefix("_").replace("_", " ")] += 1
        return True

    # --- what agents do ---------------------------------------------------------------------------

    def _next_turn(self, client: httpx.Client) -> None:
        if self._talk.prompt_tokens > PROMPT_TOKENS_MAX:
            self._talk = self._new_talk()
        body = self._question(self._tool_output())
        reply = self._ask(client, body)
        self._talk.prompt_tokens = reply.usage["prompt_tokens"]
        self._talk.messages = [*body["messages"], reply.message(stripped=self.number % 3 == 2)]

    def _title(self, client: httpx.Client) -> None:
        """A helper of the same client: another system text, the first words of the talk."""
        first = self._talk.messages[:2][-1]["content"][:200]
        messages = [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": f"Write a title for this: {first}"},
        ]
        self._ask(client, question(messages, max_tokens=8, session_id=f"{self._talk.id} title"))

    def _edit(self, client: httpx.Client) -> None:
        self._talk.cut(self._chance.randrange(1, 4))
        self._next_turn(client)

    def _give_up(self, client: httpx.Client) -> None:
        """Go away in the middle of an answer, then ask again."""
        body = self._question(self._tool_output())
        ask_streamed(client, body, leave_after=self._chance.randrange(6))
        self._next_turn(client)

    def _return(self, client: httpx.Client) -> None:
        """Go on with a conversation that was left some time ago."""
        if self._parked:
            at = self._chance.randrange(len(self._parked))
            self._parked[at], self._talk = self._talk, self._parked[at]
        self._next_turn(client)

    def _begin(self, client: httpx.Client) -> None:
        self._parked = [*self._parked, self._talk][-PARKED_MAX:]
        self._talk = self._new_talk()
        self._next_turn(client)

    # --- how they ask -----------------------------------------------------------------------------

    def _ask(self, client: httpx.Client, body: Body) -> Reply:
        streamed = self._chance.random() < 0.5
        reply = ask_streamed(client, body) if streamed else ask(client, body)
        try:
            self.judge.check(body, reply)
        except Wrong as error:
            life = self.lives.number
            self.faults.add(
                f"a wrong answer: {error}", body=body, reply=reply, cold=error.cold, life=life
            )
        return reply

    def _question(self, text: str) -> Body:
        messages = [*self._talk.messages, {"role": "user", "content": text}]
        fields = {"session_id": self._talk.id}
        if self.number % 4 == 3:
            fields["cache_salt"] = "team b"
        return question(messages, max_tokens=self._chance.choice((8, 16, 32, 48)), **fields)

    def _tool_output(self) -> str:
        name = self._chance.choice(_NAMES)
        asked = self._chance.choice((f"Where does {name} live?", f"What does {name} have?"))
        return f"{facts(self._chance, self._chance.randrange(8))} {asked}".strip()

    def _new_talk(self) -> Talk:
        self._talks += 1
        head = facts(random.Random(f"{self.seed} head {self.number % HEADS}"), 30)
        own = facts(self._chance, 4)
        system: Message = {"role": "system", "content": f"You know these facts. {head} {own}"}
        return Talk(f"agent {self.number}, talk {self._talks}", [system])
