"""Admission: what a client asks for becomes a request that can be served.

Or an error that says which field is wrong and what it may be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..domain.conversation import Conversation
from ..domain.errors import PromptTooLong, RequestError
from ..domain.namespace import Namespace
from ..domain.prompt import Prompt, PromptParts
from ..domain.sampling import SamplingParams
from ..domain.tokens import TokenIds
from ..ports.clock import Clock
from ..ports.engine import EngineProfile
from ..ports.tokenizer import Tokenizer
from .calls import ChatCall, CompletionCall, GenerationWish, SamplingWish
from .request import GenerationRequest

STOPS_MAX: Final = 16
"""Stop strings of one request."""

STOP_CHARACTERS_MAX: Final = 1024
"""The length of one: text is held back for as long as one may begin in it."""

TOP_LOGPROBS_MAX: Final = 20
"""Alternatives per token, as OpenAI's API has it."""

ID_DIGITS_MAX: Final = 10
"""Of a token id."""

TOKEN_CHARACTERS_MAX: Final = 512
"""No token of any vocabulary is so long: a longer prompt is refused before it is tokenized."""

HINT_CHARACTERS_MAX: Final = 1024
"""The length of a session hint or a cache salt."""

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
_SEED_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values come from that no rule decides.

    Attributes:
        request_id: a new id, unique in this process.
        seed: 64 random bits, for requests that bring none.
    """

    request_id: Callable[[], str]
    seed: Callable[[], int]


class Admission:
    """Checks calls against one model. Callable from any thread: it keeps nothing."""

    def __init__(
        self,
        profile: EngineProfile,
        tokenizer: Tokenizer,
        clock: Clock,
        sources: Sources,
        defaults: SamplingParams,
        max_tokens_default: int | None,
    ) -> None:
        """Takes what holds where a call says nothing.

        Args:
            defaults: the model's own sampling parameters; the seed is not used.
            max_tokens_default: None lets an answer fill the window.
        """
        self._profile = profile
        self._tokenizer = tokenizer
        self._clock = clock
        self._sources = sources
        self._defaults = defaults
        self._max_tokens_default = max_tokens_default

    def chat(self, call: ChatCall) -> GenerationRequest:
        """Render a conversation and check everything about it.

        Raises:
            RequestError: with the field at fault.
        """
        arrived_s = self._clock.monotonic()
        self._check_model(call.wish.model)
        if not call.conversation.messages:
            raise RequestError("there is no message to answer", field="messages")
        self._check_amount(call.conversation)
        rendered = self._tokenizer.render(call.conversation)
        request = self._request(rendered.prompt, call.wish, arrived_s, field="messages")
        return replace(
            request,
            chat=True,
            opens_reasoning=rendered.opens_reasoning,
            tools=bool(call.conversation.tools),
        )

    def completion(self, call: CompletionCall) -> GenerationRequest:
        """The same for a bare text or ids.

        Raises:
            RequestError: with the field at fault.
        """
        arrived_s = self._clock.monotonic()
        self._check_model(call.wish.model)
        if isinstance(call.prompt, str):
            self._check_characters(len(call.prompt), field="prompt")
            ids = self._tokenizer.encode(call.prompt)
        else:
            self.check_ids([int(index) for index in call.prompt], field="prompt")
            ids = call.prompt
        prompt = Prompt(ids, ids, parts=PromptParts(history=len(ids)))
        return self._request(prompt, call.wish, arrived_s, field="prompt")

    def check_ids(self, ids: Sequence[int], *, field: str) -> None:
        """Every id is one the model has.

        Raises:
            RequestError: naming the first that is not.
        """
        vocabulary = self._profile.vocabulary
        for at, index in enumerate(ids):
            if not 0 <= index < vocabulary:
                raise RequestError(
                    f"{index} is no token id of this model, which has 0 to {vocabulary - 1}",
                    field=f"{field}.{at}",
                )

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._profile.model:
            raise RequestError(
                f"this server serves {self._profile.model!r}, not {name[:200]!r}",
                field="model",
                code="model_not_found",
            )

    def _request(
        self, prompt: Prompt, wish: GenerationWish, arrived_s: float, *, field: str
    ) -> GenerationRequest:
        self._check_fits(prompt.ids, field)
        for name, hint in (("session_id", wish.session or ""), ("cache_salt", wish.cache_salt)):
            if len(hint) > HINT_CHARACTERS_MAX:
                raise RequestError(
                    f"{len(hint)} characters are more than the {HINT_CHARACTERS_MAX} it may have",
                    field=name,
                )
        return GenerationRequest(
            id=self._sources.request_id(),
            prompt=prompt,
            namespace=Namespace(salt=wish.cache_salt),
            sampling=self._sampling(wish.sampling),
            max_tokens=self._max_tokens(wish.max_tokens, len(prompt)),
            stop=_checked_stops(wish.stop),
            chat=False,
            opens_reasoning=False,
            tools=False,
            ignore_end=wish.ignore_end,
            session=wish.session,
            arrived_s=arrived_s,
        )

    def _check_amount(self, conversation: Conversation) -> None:
        """Refuse what cannot fit before minutes are spent on rendering it and counting tokens."""
        messages, window = conversation.messages, self._profile.window
        if len(messages) > window:
            raise RequestError(
                f"{len(messages)} messages are more than the {window} tokens of the window",
                field="messages",
                code="context_length_exceeded",
            )
        self._check_characters(sum(len(one.content) for one in messages), field="messages")

    def _check_characters(self, characters: int, field: str) -> None:
        window = self._profile.window
        if characters > window * TOKEN_CHARACTERS_MAX:
            raise RequestError(
                f"a text of {characters} characters is longer than any that the window of "
                f"{window} tokens can hold",
                field=field,
                code="context_length_exceeded",
            )

    def _check_fits(self, ids: TokenIds, field: str) -> None:
        if not len(ids):
            raise RequestError("the prompt is empty", field=field)
        if len(ids) > self._profile.window - 1:
            raise PromptTooLong(len(ids), self._profile.window, field=field)

    def _max_tokens(self, wished: int | None, prompt_length: int) -> int:
        """What is wished, cut to what the window holds, as agents ask for more than there is."""
        if wished is not None and wished < 0:
            raise RequestError(f"{wished} is negative", field="max_tokens")
        room = self._profile.window - prompt_length
        default = room if self._max_tokens_default is None else self._max_tokens_default
        return min(room, default if wished is None else wished)

    def _sampling(self, wish: SamplingWish) -> SamplingParams:
        given = {name: getattr(wish, name) for name in _RANGES}
        for name, (low, high) in _RANGES.items():
            value = given[name]
            # Written so that a value that is not a number fails too.
            if value is not None and not low <= value <= high:
                raise RequestError(f"{value} is not between {low:g} and {high:g}", field=name)
        if wish.top_k is not None and wish.top_k < -1:
            raise RequestError(f"{wish.top_k} is not a number of tokens", field="top_k")
        if wish.top_logprobs is not None and not 0 <= wish.top_logprobs <= TOP_LOGPROBS_MAX:
            raise RequestError(
                f"{wish.top_logprobs} is not between 0 and {TOP_LOGPROBS_MAX}", field="top_logprobs"
            )
        seed = self._sources.seed() if wish.seed is None else wish.seed
        params = replace(
            self._defaults,
            **{name: float(value) for name, value in given.items() if value is not None},
            seed=seed & _SEED_MASK,
            logit_bias=self._checked_bias(wish.logit_bias),
            top_logprobs=wish.top_logprobs,
        )
        return params if wish.top_k is None else replace(params, top_k=max(wish.top_k, 0))

    def _checked_bias(self, bias: Mapping[str, float]) -> dict[int, float]:
        checked: dict[int, float] = {}
        for key, value in bias.items():
            field = f"logit_bias.{key[:40]}"
            if not key.isascii() or not key.isdigit():
                raise RequestError("the keys of a logit bias are token ids", field=field)
            # A text of thousands of digits is no int to Python.
            if len(key) > ID_DIGITS_MAX or not 0 <= int(key) < self._profile.vocabulary:
                raise RequestError("this model has no such token id", field=field)
            if not -100.0 <= value <= 100.0:
                raise RequestError(f"{value} is not between -100 and 100", field=field)
            checked[int(key)] = value
        return checked


def _checked_stops(stops: tuple[str, ...]) -> tuple[str, ...]:
    if len(stops) > STOPS_MAX:
        raise RequestError(f"{len(stops)} stop strings are more than {STOPS_MAX}", field="stop")
    for at, stop in enumerate(stops):
        if not 0 < len(stop) <= STOP_CHARACTERS_MAX:
            raise RequestError(
                f"a stop string has 1 to {STOP_CHARACTERS_MAX} characters", field=f"stop.{at}"
            )
    return stops
