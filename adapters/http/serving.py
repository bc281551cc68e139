"""What the routes share."""

from dataclasses import dataclass

from ...application.request import GenerationRequest
from ...application.service import Service
from ...ports.clock import Clock
from .answer_format import Heading
from .questions import Questions
from .stats_reader import StatsReader
from .worker import Worker


@dataclass(frozen=True, slots=True)
class Serving:
    """The service and what is constant for as long as it runs.

    Attributes:
        started_s: when the application was made, on the monotonic clock.
        created_s: the same in seconds since 1970.
        worker: where bodies are decoded and prepared.
        questions: what admin routes ask the engine thread; flushes and verifies have their own.
        stats_timeout_s: how long admin routes wait for the engine thread.
        flush_timeout_s: how long a flush is waited for.
        verify_timeout_s: how long a verify is.
    """

    service: Service
    worker: Worker
    clock: Clock
    stats: StatsReader
    questions: Questions
    flushes: Questions
    verifies: Questions
    version: str
    system_fingerprint: str
    progress_interval_s: float
    stats_timeout_s: float
    flush_timeout_s: float
    verify_timeout_s: float
    started_s: float
    created_s: int

    @property
    def model(self) -> str:
        return self.service.profile.model

    def heading(self, request: GenerationRequest, *, streams_usage: bool) -> Heading:
        """The head of an answer to a request."""
        return Heading(
            request=request,
            created=int(self.clock.wall()),
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            streams_usage=streams_usage,
        )
