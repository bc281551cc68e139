"""A server whose tiers have too little room stays under its ceiling, what it writes included."""

import random
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import httpx
import pytest

from anchorline.domain.byte_size import MIB
from soak.processes import ServerProcess

WINDOW: Final = 2048
ROOM: Final = 32 * MIB
"""Above what is held at the start: 4 of them are the slot's rows, 14 a long prompt's workspace, and
6 what is compressed meanwhile."""

REQUESTS: Final = 80
LONG_EVERY: Final = 10
LEFT_BYTES: Final = 26 * MIB
"""At least as much would be there if all of it were kept."""


@pytest.fixture
def server(tmp_path: Path) -> Generator[ServerProcess]:
    """One whose memory no other test shares."""
    flags = (f"--window={WINDOW}", f"--cache-dir={tmp_path / 'cache'}", "--disk-free-min=0")
    process = ServerProcess(tmp_path / "log", *flags)
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


def test_no_prompt_takes_it_over_its_ceiling_and_none_is_refused(server: ServerProcess) -> None:
    ceiling = _resident(server, "VmRSS") + ROOM
    with server.client() as client:
        limits = {"ceiling": ceiling, "peak": ceiling}
        assert client.post("/v1/cache/limits", json=limits).status_code == 200
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # forgets the highest mark
        highest, rows = 0, 0
        for number in range(REQUESTS):
            tokens = WINDOW - 64 if number % LONG_EVERY == LONG_EVERY - 1 else 24 + number % 72
            rows += tokens
            assert _ask(client, number, tokens) == 200
            highest = max(highest, _resident(server, "VmHWM"))
        stats = client.get("/v1/cache/stats").json()
        # The server resets the kernel's mark itself, and remembers it.
        highest = max(highest, stats["memory"][0]["highest"])
        client.post("/v1/cache/flush")  # what is being written is not forgotten
        assert client.post("/v1/cache/clear?tier=all").status_code == 200
        cleared = client.get("/v1/cache/stats").json()

    assert rows * stats["row_bytes"] > LEFT_BYTES
    assert highest < ceiling
    assert stats["ram"]["evicted"] > 0
    assert cleared["ram"]["bytes_used"] == 0


def _ask(client: httpx.Client, seed: int, tokens: int) -> int:
    chance = random.Random(seed)
    ids = [chance.randrange(20, 1000) for _ in range(tokens)]
    body = {"prompt": ids, "max_tokens": 2, "temperature": 0}
    return client.post("/v1/completions", json=body).status_code


def _resident(server: ServerProcess, name: str) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii").splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(kib) << 10
