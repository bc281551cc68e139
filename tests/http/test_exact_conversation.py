"""Six turns on `toy` with a restart in the middle, in exact arithmetic and on the grid.

In exact arithmetic a conversation that was decoded, kept, restarted and resumed is, bit for bit,
what a server is in that reads the whole of it cold.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal

from anchorline.domain.grid import Span
from anchorline.settings import ServeSettings
from support.running_server import RunningServer, running_server

SYSTEM = "You are a friendly helper. Anna lives in Paris. Ben has a red book."
QUESTIONS = (
    "Where does Anna live?",
    "What is 3 + 4?",
    "What does Ben have?",
    "What is the capital of Italy?",
    "What is the opposite of hot?",
    "Hello!",
)
MAX_TOKENS = 24


def settings_of(directory: Path, arith: Literal["exact", "grid"]) -> ServeSettings:
    return ServeSettings(
        model="toy",
        dtype="float32",
        threads=1,
        window=1024,
        arith=arith,
        cache_dir=directory,
        disk_free_min=0,
        disk_heads_bytes_max=1 << 28,
        disk_conversations_bytes_max=1 << 28,
    )


class Talk:
    """One conversation, sent back whole with each question."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = [{"role": "system", "content": SYSTEM}]
        self.gates: list[str] = []

    def ask(self, server: RunningServer, question: str) -> str:
        """The answer's text."""
        self.messages.append({"role": "user", "content": question})
        answer = self._answered(server)
        self.messages.append(answer)
        return answer["reasoning_content"] + answer["content"]

    def _answered(self, server: RunningServer) -> dict[str, str]:
        body = {"messages": self.messages, "max_tokens": MAX_TOKENS, "temperature": 0}
        with server.http() as client:
            response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        self.gates.append(answer["usage"]["anchorline"]["cache"]["gate"])
        message = answer["choices"][0]["message"]
        return {
            "role": "assistant",
            "content": message["content"] or "",
            "reasoning_content": message.get("reasoning_content") or "",
        }


def digest(server: RunningServer) -> str:
    """Of everything that stands in the slot: rows and sections, by their content sums."""
    state = server.engine.slots[0]
    rows = state.row_sums(Span(0, state.length))
    parts = (state.length, sorted(rows.items()), sorted(state.section_sums().items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def talked_over_a_restart(directory: Path, arith: Literal["exact", "grid"]) -> Talk:
    """The first three turns on one server, the others on the next one over the same directory."""
    talk = Talk()
    for questions in (QUESTIONS[:3], QUESTIONS[3:-1]):
        with running_server(settings_of(directory, arith)) as server:
            for question in questions:
                talk.ask(server, question)
    return talk


def test_in_exact_arithmetic_every_turn_is_bitwise_and_equals_a_cold_server(
    tmp_path: Path,
) -> None:
    talk = talked_over_a_restart(tmp_path / "kept", "exact")
    with running_server(settings_of(tmp_path / "kept", "exact")) as server:
        last = talk.ask(server, QUESTIONS[-1])
        kept = digest(server)
        with server.http() as client:
            arithmetic = client.get("/v1/cache/stats").json()["arithmetic"]

    fresh = Talk()
    fresh.messages = talk.messages[:-2]
    with running_server(settings_of(tmp_path / "fresh", "exact")) as server:
        again = fresh.ask(server, QUESTIONS[-1])
        cold = digest(server)

    assert talk.gates == ["cold", *["bitwise"] * 5]
    assert fresh.gates == ["cold"]
    assert arithmetic.startswith("exact: proved row-invariant in ")
    assert again == last
    assert cold == kept


def test_on_the_grid_the_same_turns_are_preserved(tmp_path: Path) -> None:
    talk = talked_over_a_restart(tmp_path, "grid")

    assert talk.gates == ["cold", *["preserved"] * 4]
