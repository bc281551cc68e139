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

from anchorline.adapters.gpu.loading import find_model
from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.adapters.http.server import HttpServer, Listener
from anchorline.container import Server
from anchorline.domain.errors import ModelError
from anchorline.settings import ServeSettings

PATIENCE_S: Final = 120.0
"""How long a test waits for what must happen; only a failing one waits so long."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that accepts connections.

    Attributes:
        model: the name it serves.
        grid: the step of its grid, in tokens.
    """

    url: str
    model: str
    grid: int

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
    """Load the model and serve it on a free port; stop everything at the end of the block."""
    location = ModelStore(settings.models_path).resolve(settings.model)
    files = find_model(location.source).directory
    parts = Server(settings=settings, location=location, files=files)
    app, engine_thread = parts.app(), parts.engine_thread()
    ready: queue.Queue[str] = queue.Queue()
    http_server = HttpServer(
        app,
        Listener("127.0.0.1", 0),
        shutdown_s=PATIENCE_S,
        on_ready=ready.put,
        on_stopping=parts.service().drain,
    )
    thread = threading.Thread(target=http_server.run, name="test-http")
    engine_thread.start()
    thread.start()
    try:
        profile = parts.engine().profile
        yield RunningServer(ready.get(timeout=PATIENCE_S), profile.model, profile.grid.step)
    finally:
        http_server.stop()
        thread.join(PATIENCE_S)
        stopped = engine_thread.stop(PATIENCE_S)
    assert stopped, "the engine thread is busy"
    assert not thread.is_alive(), "the server goes on"


def require_model(name: str) -> None:
    """Have a built-in model here, fetched if need be; skip where it cannot be had."""
    try:
        ModelStore(ServeSettings().models_path).get(name, lambda _: None)
    except ModelError as error:
        pytest.skip(f"{name} is neither here nor to be had: {error}")
