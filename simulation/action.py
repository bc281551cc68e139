"""What can happen in the world: values that say all that is needed to do it again."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Kind(enum.Enum):
    """What is done. The first group are requests of one client, the second are the machine's."""

    BEGIN = "begin"
    """A new conversation, on one of the heads that clients share."""

    TURN = "turn"
    """The conversation goes on: its prompt, the answer, and new tokens."""

    STRIPPED = "stripped"
    """The same, without the first part of the last answer: reasoning is not sent back."""

    TITLE = "title"
    """A short prompt of its own beside the conversation."""

    TAG = "tag"
    """The conversation and a short instruction, neither of which the conversation keeps."""

    COMPACT = "compact"
    """A summary replaces the conversation behind its head."""

    EDIT = "edit"
    """Tokens in the middle of the history are other ones, or blank."""

    BRANCH = "branch"
    """Back to an earlier line, and on from there."""

    RETRY = "retry"
    """The last prompt again."""

    RETURN = "return"
    """The conversation goes on from one of its earlier turns, as it was answered then."""

    READ = "read"
    """The next turn with no token to write: the prompt is only read."""

    LIMIT = "limit"
    """A prompt that fills the window, or nearly."""

    CANCEL = "cancel"
    """A turn whose client leaves: in the queue, in its prefill, or while it is answered."""

    BURST = "burst"
    """Turns of all clients at once; some may find the queue full."""

    OTHER = "other"
    """The client goes over to another conversation of its own, which may be a new one."""

    CHAT = "chat"
    """A short conversation that the client leads beside the others goes on."""

    SUMMARY = "summary"
    """A summary is asked for: the whole conversation is quoted behind other tokens than its own."""

    PREWARM = "prewarm"
    """What the next turn will need is brought in ahead of it."""

    CLOSE = "close"
    """A client says that its session is over."""

    SHRINK = "shrink"
    """Memory is given back, to whoever else needs it."""

    COMEBACK = "comeback"
    """A flush that says it is durable, a sudden end, and the next turn."""

    IDLE = "idle"
    """Background work goes on by itself for a while."""

    FLUSH = "flush"
    STOP = "stop"
    """A planned stop, and a start that reads back."""

    KILL = "kill"
    POWER = "power"
    LOSE_CATALOG = "lose-catalog"
    NEW_DISK = "new-disk"
    WEIGHTS = "weights"
    """A restart with other weights; a second one brings the first back."""

    BUDGET = "budget"
    """A restart with another budget on the medium."""

    DAMAGE = "damage"
    """A stored object is flipped, cut, exchanged or deleted."""

    TROUBLE = "trouble"
    """Calls to the medium or to the catalog fail at some rate, until `MEND`."""

    MEND = "mend"
    SPOIL = "spoil"
    """One of the next forwards fails."""

    WAIT = "wait"
    """Time passes, and old state may expire."""

    JUMP = "jump"
    """The wall clock is set forward or back."""

    CLEAR = "clear"
    """What slots hold, or what the medium holds, is forgotten on request."""


class Crash(enum.Enum):
    """What may cut an action short."""

    NONE = "none"
    KILL = "kill"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens; what it leaves open is drawn from its own seed.

    Attributes:
        client: who does it.
        tokens: new ones in the prompt.
        answer: tokens to write at most.
        crash: what ends the process while it goes on.
        after: so many small steps of the process before it ends.
        within_put: count steps of storing objects instead: the end comes in the middle of one.
    """

    kind: Kind
    client: int = 0
    tokens: int = 0
    answer: int = 0
    seed: int = 0
    crash: Crash = Crash.NONE
    after: int = 0
    within_put: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values, without those that are as always."""
        values = asdict(self)
        values["kind"], values["crash"] = self.kind.value, self.crash.value
        usual = asdict(Action(self.kind))
        usual["kind"], usual["crash"] = "", Crash.NONE.value
        return {name: value for name, value in values.items() if value != usual[name]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Action":
        """What `as_json` gave.

        Raises:
            ValueError, TypeError: it is nothing of the kind.
        """
        known = dict(values)
        kind = Kind(known.pop("kind"))
        crash = Crash(known.pop("crash", Crash.NONE.value))
        return cls(kind, crash=crash, **known)

    def __str__(self) -> str:
        values = self.as_json()
        kind = values.pop("kind")
        return " ".join([kind, *(f"{name}={value}" for name, value in values.items())])


def as_lines(actions: Iterable[Action]) -> list[str]:
    """A history to read."""
    return [str(action) for action in actions]
