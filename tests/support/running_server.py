"""The whole server as the composition root builds it, on a real socket, in this process."""

import contextlib
import queue
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import httpx
import openai
import pytest

from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.adapters.http.server import HttpServer, Listener
from anchorline.container import build, start, stop
from anchorline.domain.errors import ModelError
from anchorline.ports.engine import Engine
from anchorline.settings import ServeSettings

PATIENCE_S: Final = 120.0
"""How long a test waits for what must happen; only a failing one waits so long."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that accepts connections.

    Attributes:
        model: the name it serves.
        grid: the step of its grid, in tokens.
        engine: to look at its state between requests.
    """

    url: str
    model: str
    grid: int
    engine: Engine

    @contextlib.contextmanager
    def openai(self) -> Generator[openai.OpenAI]:
        """The official client; it does not try again, so that every error is seen."""
        with openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            timeout=PATIENCE_S,
            http_client=openai.DefaultHttpxClient(verify=False),  # as below
        ) as client:
            yield client

    @contextlib.contextmanager
    def http(self) -> Generator[httpx.Client]:
        with httpx.Client(
            base_url=self.url,
            timeout=PATIENCE_S,
            verify=False,  # noqa: S501, no certificate is there, and loading roots takes long
        ) as client:
            yield client


@contextlib.contextmanager
def running_server(settings: ServeSettings) -> Generator[RunningServer]:
    """Load the model and serve it on a free port; stop it in good order at the end of the block."""
    parts = build(settings)
    ready: queue.Queue[str] = queue.Queue()
    http_server = HttpServer(
        parts.app(),
        Listener("127.0.0.1", 0),
        shutdown_s=PATIENCE_S,
        on_ready=ready.put,
        on_stopping=parts.service().drain,
    )
    thread = threading.Thread(target=http_server.run, name="test-http")
    start(parts)
    thread.start()
    try:
        profile = parts.engine().profile
        url = ready.get(timeout=PATIENCE_S)
        yield RunningServer(url, profile.model, profile.grid.step, parts.engine())
    finally:
        http_server.stop()
        thread.join(PATIENCE_S)
        stop(parts)
    assert not thread.is_alive(), "the server goes on"


def require_model(name: str) -> None:
    """Have a built-in model here, fetched if need be; skip where it cannot be had."""
    try:
        ModelStore(ServeSettings().models_path).get(name, lambda _: None)
    except ModelError as error:
        pytest.skip(f"{name} is neither here nor to be had: {error}")
