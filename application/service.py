"""The service: what driving adapters call, from any thread."""

from collections.abc import Callable, Sequence

from ..domain.errors import AnchorlineError, RequestError
from ..domain.tokens import TokenIds
from ..ports.engine import EngineProfile
from ..ports.inbox import Inbox
from ..ports.tokenizer import Tokenizer
from .admission import Admission
from .calls import ChatCall, CompletionCall
from .durability import FlushReport
from .live_verify_report import LiveReport
from .request import EventSink, Failed, GenerationRequest
from .scheduler import Scheduler
from .stats import CacheStats, Cleared, EntryStats


class Service:
    """Checks calls on the caller's thread, and hands work to the engine thread."""

    def __init__(
        self,
        profile: EngineProfile,
        tokenizer: Tokenizer,
        admission: Admission,
        scheduler: Scheduler,
        inbox: Inbox,
    ) -> None:
        self._profile = profile
        self._tokenizer = tokenizer
        self._admission = admission
        self._scheduler = scheduler
        self._inbox = inbox

    @property
    def profile(self) -> EngineProfile:
        """The served model's profile."""
        return self._profile

    def prepare_chat(self, call: ChatCall) -> GenerationRequest:
        """Render and check a chat; takes milliseconds, touches no engine.

        Raises:
            RequestError: something in it cannot be served; the error names the field.
        """
        return self._admission.chat(call)

    def prepare_completion(self, call: CompletionCall) -> GenerationRequest:
        """The same for a completion.

        Raises:
            RequestError: as above.
        """
        return self._admission.completion(call)

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request; returns at once. The sink's first event is `Queued` or `Failed`.

        Raises:
            Draining: the engine thread has stopped.
        """

        def enter() -> None:
            try:
                self._scheduler.submit(request, sink)
            except AnchorlineError as error:
                sink(Failed(error))

        self._inbox.post(enter)

    def cancel(self, request_id: str) -> None:
        """Stop a request at its next chunk or token; one that has ended already is ignored."""
        self._inbox.post(lambda: self._scheduler.cancel(request_id))

    def drain(self) -> None:
        """Take no new requests; those accepted go on."""
        self._inbox.post(self._scheduler.drain)

    def stats(self, answer: Callable[[CacheStats], None]) -> None:
        """Give `answer` the current figures, on the engine thread, between two steps."""
        self._inbox.post(lambda: answer(self._scheduler.stats()))

    def flush(self, answer: Callable[[FlushReport], None]) -> None:
        """Make every conversation durable; `answer` is told how that went, on the engine thread."""
        self._inbox.post(lambda: self._scheduler.flush(answer))

    def clear(self, *, ram: bool, disk: bool, answer: Callable[[Cleared], None]) -> None:
        """Forget what nothing is using, in one tier or in both."""
        self._inbox.post(lambda: answer(self._scheduler.clear(ram=ram, disk=disk)))

    def verify(self, samples: int, entry: str | None, answer: Callable[[LiveReport], None]) -> None:
        """Verify so many entries, or the one of this id, while nobody asks for anything.

        Raises:
            RequestError: this server verifies nothing.
        """
        if not self._scheduler.verifies:
            raise RequestError(
                "this server verifies nothing; start it with --verify on, and with its cache on",
                code="unsupported",
            )
        self._inbox.post(lambda: self._scheduler.verify(samples, entry, answer))

    def entries(self, answer: Callable[[tuple[EntryStats, ...]], None]) -> None:
        """Give `answer` everything that is kept, residents included."""
        self._inbox.post(lambda: answer(self._scheduler.entries()))

    def encode(self, text: str) -> TokenIds:
        """The ids of a plain text."""
        return self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids.

        Raises:
            RequestError: an id that the model does not have.
        """
        self._admission.check_ids(ids, field="tokens")
        return self._tokenizer.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token stands for."""
        return self._tokenizer.token_bytes(token)
