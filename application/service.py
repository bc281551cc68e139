"""The service: what driving adapters call, from any thread."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..domain.errors import AnchorlineError, RequestError
from ..domain.namespace import Namespace
from ..domain.tokens import TokenIds
from ..ports.engine import EngineProfile
from ..ports.inbox import Inbox
from ..ports.tokenizer import Tokenizer
from .admission import Admission
from .calls import ChatCall, CompletionCall
from .durability import FlushReport
from .live_verify_report import LiveReport
from .memory_pools import MemoryPools
from .memory_stats import MemoryStats
from .peek import Peeked
from .prewarm import PrewarmReport
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
        memory: MemoryPools | None = None,
    ) -> None:
        """Takes what it serves.

        Args:
            memory: limits that can be looked at and changed; None has none.
        """
        self._profile = profile
        self._tokenizer = tokenizer
        self._admission = admission
        self._scheduler = scheduler
        self._inbox = inbox
        self._memory = memory

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
        self._inbox.post(lambda: answer(self._stats()))

    def memory(self, answer: Callable[[tuple[MemoryStats, ...]], None]) -> None:
        """Give `answer` the figures of each pool of memory; none where it has no limits."""
        self._inbox.post(lambda: answer(self._memory_stats()))

    def set_limits(
        self,
        pool: str | None,
        changes: Mapping[str, int | None],
        answer: Callable[[tuple[MemoryStats, ...] | RequestError], None],
    ) -> None:
        """Change limits of a pool of memory; `answer` is told what is in force, or why it is not.

        Args:
            pool: its name; None is the one that the model runs in.
            changes: bytes by `domain.memory_plan.LIMITS`; None leaves one to the plan.

        Raises:
            RequestError: this server has no limits.
        """
        memory = self._memory
        if memory is None:
            raise RequestError("this server limits no memory", code="unsupported")

        def change() -> None:
            try:
                memory.set_limits(pool, changes)
            except RequestError as error:
                answer(error)
            else:
                answer(memory.stats())

        self._inbox.post(change)

    def peek(self, request: GenerationRequest, answer: Callable[[Peeked], None]) -> None:
        """Tell `answer` what a request would resume from; it is not run, and nothing is counted."""
        self._inbox.post(lambda: answer(self._scheduler.peek(request)))

    def prewarm(self, request: GenerationRequest, answer: Callable[[PrewarmReport], None]) -> None:
        """Bring what a request would resume from into an idle slot; tell `answer` what came of it.

        Any request that comes meanwhile goes first.
        """
        self._inbox.post(lambda: self._scheduler.prewarm(request, answer))

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

    def close_session(
        self, session: str, namespace: Namespace | None, answer: Callable[[int], None]
    ) -> None:
        """End a session's precedence; `answer` is told how many places were known of it."""
        self._inbox.post(lambda: answer(self._scheduler.close_session(session, namespace)))

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

    def _stats(self) -> CacheStats:
        return replace(self._scheduler.stats(), memory=self._memory_stats())

    def _memory_stats(self) -> tuple[MemoryStats, ...]:
        return () if self._memory is None else self._memory.stats()
