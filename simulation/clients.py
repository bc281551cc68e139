"""Who uses a server: what each client remembers, and what it asks next."""

import random
from dataclasses import dataclass, field

from ..domain.namespace import Namespace
from ..domain.sampling import SamplingParams
from .action import Action, Kind
from .traits import Traits

VOCABULARY = 97
BLANK = 0
EARLIER_KEPT = 4
OTHERS_MAX = 2
CHAT_STEPS_MAX = 5
"""Grid steps of a short conversation, before a new one begins."""

FIRST = 0
CHAT = 1
"""Numbers of a client's first conversation, and of its short ones."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as a client makes it.

    Attributes:
        talk: the number of the conversation that it is of.
        kept: the conversation goes on from this prompt and its answer.
    """

    client: int
    talk: int
    session: str | None
    kind: Kind
    ids: tuple[int, ...]
    answer: int
    kept: bool
    last_user: int
    first_answer: int | None
    sampling: SamplingParams
    stop: tuple[str, ...]


@dataclass(slots=True)
class Talk:
    """One conversation.

    Attributes:
        number: unique among its client's.
        ids: with all its answers.
        answers: where each answer stands in it.
        prompt: the last one that was sent for it.
        earlier: what the last turns before were.
    """

    number: int
    session: str | None
    ids: list[int] = field(default_factory=list[int])
    answers: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    prompt: list[int] = field(default_factory=list[int])
    earlier: list[tuple[list[int], list[tuple[int, int]]]] = field(
        default_factory=list[tuple[list[int], list[tuple[int, int]]]]
    )

    def answered(self, ask: Ask, sequence: list[int]) -> None:
        """The conversation now is what was asked and what was written."""
        self.earlier = [*self.earlier[-EARLIER_KEPT + 1 :], (self.ids, self.answers)]
        self.ids = sequence
        self.answers = [(start, end) for start, end in self.answers if end <= len(ask.ids)]
        if len(sequence) > len(ask.ids):
            self.answers.append((len(ask.ids), len(sequence)))
        self.prompt = list(ask.ids)


@dataclass(slots=True)
class Client:
    """One agent or person.

    Attributes:
        talk: the conversation it leads now.
        others: those it may come back to.
        chat: a short one beside them.
        sessions: how many there were.
    """

    number: int
    namespace: Namespace
    talk: Talk
    chat: Talk
    others: list[Talk] = field(default_factory=list[Talk])
    sessions: int = 0

    def answered(self, ask: Ask, sequence: list[int]) -> None:
        """One of its conversations goes on."""
        for talk in (self.talk, self.chat, *self.others):
            if talk.number == ask.talk:
                talk.answered(ask, sequence)

    def go_over(self, rng: random.Random) -> None:
        """Leave the conversation for another one, or for a new one."""
        if len(self.others) < OTHERS_MAX and rng.random() < 0.5:
            self.others.append(self.talk)
            self.talk = Talk(CHAT + 1 + len(self.others), None)
        elif self.others:
            at = rng.randrange(len(self.others))
            self.talk, self.others[at] = self.others[at], self.talk


class Clients:
    """All of them, and what they have in common."""

    def __init__(self, traits: Traits, rng: random.Random) -> None:
        """Draws who they are."""
        self._traits = traits
        self._step = traits.grid
        self.heads = [self._words(rng, rng.randint(3, 9) * self._step) for _ in range(traits.heads)]
        self.titles = self._words(rng, rng.randint(1, 2 * self._step))
        spaces = [Namespace(), Namespace(), Namespace(salt="ada"), Namespace(adapter="lora-1@1")]
        self.all = [
            Client(
                number,
                rng.choice(spaces),
                Talk(
                    FIRST,
                    rng.choice([None, f"session-{number}", f"session-{number}", "shared"]),
                ),
                Talk(CHAT, None),
            )
            for number in range(traits.clients)
        ]
        if traits.alike:
            for client in self.all:
                client.namespace = Namespace()

    def ask(self, action: Action, rng: random.Random) -> Ask:
        """What a client asks next; its memory changes with the answer only."""
        client = self.all[action.client % len(self.all)]
        if action.kind is Kind.OTHER:
            client.go_over(rng)
        talk = client.chat if action.kind is Kind.CHAT else client.talk
        if action.kind is Kind.RETURN and talk.earlier:
            talk.ids, talk.answers = rng.choice(talk.earlier)
        kind, tokens = self._kind(action, talk)
        room = self._traits.window - 1
        ids = self._prompt(kind, client, talk, tokens, rng)[:room]
        answer = 0 if kind is Kind.READ else action.answer
        if kind is Kind.LIMIT:
            answer = rng.choice([0, 1, self._traits.window - len(ids)])
        first = talk.answers[0][0] if talk.answers else None
        return Ask(
            client=client.number,
            talk=talk.number,
            session=talk.session,
            kind=kind,
            ids=tuple(ids),
            answer=answer,
            kept=kind not in (Kind.TITLE, Kind.TAG, Kind.SUMMARY),
            last_user=max(len(ids) - tokens, 0),
            first_answer=None if first is None or first > len(ids) else first,
            sampling=_sampling(rng),
            stop=rng.choice([(), (), (), ("A",), ("BC", "7")]),
        )

    def _kind(self, action: Action, talk: Talk) -> tuple[Kind, int]:
        """What can be asked of a conversation as it is, and with how many new tokens."""
        if action.kind is Kind.CHAT:
            longest = CHAT_STEPS_MAX * self._step
            tokens = min(action.tokens, 2 * self._step)
            if len(talk.ids) + tokens > longest:
                talk.ids, talk.answers = [], []
            return Kind.CHAT, tokens
        if not talk.ids:
            return Kind.BEGIN, action.tokens
        room = self._traits.window - 1 - 2 * self._step
        if action.kind is not Kind.LIMIT and len(talk.ids) + action.tokens > room:
            return Kind.COMPACT, action.tokens
        return Kind.TURN if action.kind is Kind.OTHER else action.kind, action.tokens

    def _prompt(
        self, kind: Kind, client: Client, talk: Talk, tokens: int, rng: random.Random
    ) -> list[int]:
        """The ids of a prompt with so many new tokens."""
        words = self._words(rng, max(tokens, 1))
        ids = talk.ids
        match kind:
            case Kind.BEGIN:
                talk.session = _next_session(client, talk, rng)
                prompt = [*rng.choice(self.heads), *words]
            case Kind.STRIPPED if talk.answers:
                start, end = talk.answers[-1]
                prompt = [*ids[:start], *ids[rng.randint(start, end) :], *words]
            case Kind.TITLE:
                prompt = [*self.titles, *words[: 2 * self._step]]
            case Kind.TAG:
                prompt = [*ids, *self.titles[: self._step]]
            case Kind.SUMMARY:
                prompt = [*self.titles[: self._step], *ids[-self._traits.window // 2 :], *words]
            case Kind.COMPACT:
                head = rng.choice(self.heads) if rng.random() < 0.5 else ids[: 4 * self._step]
                prompt = [*head, *words]
            case Kind.EDIT:
                prompt = _edited(ids, words, rng)
            case Kind.BRANCH:
                prompt = [*ids[: rng.randint(0, len(ids))], *words]
            case Kind.RETRY:
                prompt = list(talk.prompt or ids)
            case Kind.LIMIT:
                room = self._traits.window - rng.choice([1, 1, 2, self._step])
                prompt = [*ids, *self._words(rng, max(room - len(ids), 0))][:room]
            case _:
                prompt = [*ids, *words]
        return prompt

    @staticmethod
    def _words(rng: random.Random, count: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(count)]


def _next_session(client: Client, talk: Talk, rng: random.Random) -> str | None:
    """A new conversation may be a new session, and its hint may be missing."""
    client.sessions += 1
    return rng.choice([None, talk.session, f"session-{client.number}-{client.sessions}"])


def _edited(ids: list[int], words: list[int], rng: random.Random) -> list[int]:
    """A history with other tokens in its middle."""
    at = rng.randrange(len(ids))
    count = rng.randint(1, 6)
    instead = [BLANK] * count if rng.random() < 0.5 else words[:count]
    return [*ids[:at], *instead, *ids[at + count :], *words]


def _sampling(rng: random.Random) -> SamplingParams:
    """Mostly greedy, as agents are; the tokens are asked for, so that clients know them."""
    roll = rng.random()
    if roll < 0.7:
        return SamplingParams(top_logprobs=0)
    if roll < 0.8:
        return SamplingParams()
    return SamplingParams(
        temperature=rng.choice([0.2, 1.0]),
        top_k=rng.choice([0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        seed=rng.randrange(4),
        repetition_penalty=rng.choice([1.0, 1.1]),
        top_logprobs=rng.choice([0, 2]),
    )
