"""A conversation over a restart of the real server: the state is the same, byte for byte."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from anchorline.domain.grid import Span
from anchorline.settings import ServeSettings
from support.running_server import RunningServer, require_model, running_server

FACTS = (
    "Remember these facts. Anna lives in Paris. Ben lives in Rome. Carla lives in Oslo. "
    "David has a red book. Emma has a blue lamp."
)
QUESTIONS = (
    "Where does Anna live?",
    "What is 3 + 4?",
    "Where does Ben live?",
    "What does David have?",
    "What is the capital of France?",
    "Where does Carla live?",
)


class Talk:
    """One conversation, sent back whole with each question."""

    def __init__(self, max_tokens: int) -> None:
        self.messages: list[dict[str, str]] = [{"role": "system", "content": FACTS}]
        self.max_tokens = max_tokens

    def ask(self, server: RunningServer, question: str) -> dict[str, Any]:
        """The whole answer of the server."""
        self.messages.append({"role": "user", "content": question})
        with server.http() as client:
            response = client.post(
                "/v1/chat/completions",
                json={
                    "messages": self.messages,
                    "max_tokens": self.max_tokens,
                    "temperature": 0,
                },
            )
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        message = body["choices"][0]["message"]
        self.messages.append(
            {
                "role": "assistant",
                "content": message["content"],
                "reasoning_content": message.get("reasoning_content") or "",
            }
        )
        return body


def digest(server: RunningServer) -> str:
    """Of everything that stands in the slot: rows and sections, by their content sums."""
    state = server.engine.slots[0]
    rows = state.row_sums(Span(0, state.length))
    parts = (state.length, sorted(rows.items()), sorted(state.section_sums().items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., RunningServer]:
    """Starts servers over one cache directory, or over another one."""
    models = ServeSettings().models_path

    def one(model: str, stack: ExitStack, cache: Path = tmp_path / "cache") -> RunningServer:
        require_model(model)
        settings = ServeSettings(
            model=model,
            dtype="float32",
            cache_dir=cache,
            models_dir=models,
            disk_free_min=0,
            ram_bytes_max=0,  # what lost its slot is on disk or nowhere
            disk_heads_bytes_max=1 << 30,
            disk_conversations_bytes_max=2 << 30,
        )
        return stack.enter_context(running_server(settings))

    return one


def flush(server: RunningServer) -> httpx.Response:
    with server.http() as client:
        return client.post("/v1/cache/flush")


@pytest.mark.parametrize("ending", ["stopped", "flushed and killed"])
@pytest.mark.parametrize(("model", "max_tokens"), [("toy", 60), ("smollm2", 12)])
def test_after_five_turns_and_a_restart_the_sixth_reads_only_itself(
    start: Callable[..., RunningServer], tmp_path: Path, model: str, max_tokens: int, ending: str
) -> None:
    talk = Talk(max_tokens)
    left = tmp_path / "cache"
    with ExitStack() as first:
        server = start(model, first)
        answers = [talk.ask(server, question) for question in QUESTIONS[:5]]
        before = digest(server)
        if ending == "flushed and killed":
            assert flush(server).json()["durable"]
            # What a process leaves that ends here: nothing of it is written later.
            left = Path(shutil.copytree(left, tmp_path / "left"))
    usage: dict[str, int] = answers[-1]["usage"]
    held = usage["prompt_tokens"] + usage["completion_tokens"] - 1

    with ExitStack() as second:
        server = start(model, second, left)
        after = digest(server)
        answer = talk.ask(server, QUESTIONS[5])

    cache = answer["usage"]["anchorline"]["cache"]
    assert after == before
    assert cache["cached"] == held
    assert (cache["tier"], cache["source"], cache["gate"]) == ("disk", "conversation", "preserved")


def test_after_a_restart_an_edit_of_the_last_tokens_costs_them_and_one_grid_step(
    start: Callable[..., RunningServer],
) -> None:
    prompt = [5 + (7 * at) % 1900 for at in range(1500)]
    with ExitStack() as first:
        server = start("toy", first)
        with server.http() as client:
            client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4})

    with ExitStack() as second:
        server = start("toy", second)
        edited = [*prompt[:-16], *range(100, 116)]
        with server.http() as client:
            answer = client.post("/v1/completions", json={"prompt": edited, "max_tokens": 4}).json()

    cache = answer["usage"]["anchorline"]["cache"]
    assert cache["reread"] <= 16 + server.grid
    assert cache["gate"] == "bitwise"


def test_a_conversation_that_was_replaced_comes_back_from_the_disk(
    start: Callable[..., RunningServer],
) -> None:
    def complete(client: httpx.Client, prompt: list[int]) -> dict[str, Any]:
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
        answer: dict[str, Any] = client.post("/v1/completions", json=body).json()
        return answer["usage"]["anchorline"]["cache"]

    one = [5 + (7 * at) % 1900 for at in range(1500)]
    other = [9 + (11 * at) % 1900 for at in range(1400)]
    with ExitStack() as stack:
        server = start("toy", stack)
        with server.http() as client:
            complete(client, one)
            cold = digest(server)
            complete(client, other)
            back = complete(client, [*one, 77])
            warm = digest(server)

    assert back["tier"] == "disk"
    assert back["reread"] <= 1 + server.grid
    assert back["restore_ms"] > 0
    assert cold != warm
