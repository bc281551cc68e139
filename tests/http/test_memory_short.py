"""A prompt that the memory has no room for gets its status before its response begins."""

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from anchorline.adapters.system.memory import SystemMemory
from anchorline.domain.byte_size import MIB
from anchorline.settings import ServeSettings
from support.running_server import RunningServer, running_server

LIMITS = "/v1/cache/limits"
ROOM = 8 * MIB
"""Over what is held: the toy model takes 1 MiB for a short prompt, and 35 for its whole window."""

Body: TypeAlias = dict[str, Any]


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    """A server with little room above what it holds."""
    settings = ServeSettings(cache_dir=tmp_path_factory.mktemp("cache"), disk="off", threads=1)
    with running_server(settings) as running, running.http() as client:
        client.post("/v1/completions", json=prompt(300))
        # What tests before this one have left in the process is given back now, not by the server.
        gc.collect()
        SystemMemory().give_back()
        peak = client.get(LIMITS).json()["pools"][0]["held"] + ROOM
        assert client.post(LIMITS, json={"ceiling": peak, "peak": peak}).status_code == 200
        yield running


def prompt(tokens: int, **more: object) -> Body:
    ids = [20 + (7 * at) % 1000 for at in range(tokens)]
    return {"prompt": ids, "max_tokens": 2, "temperature": 0, **more}


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_prompt_is_told_to_come_back_and_a_short_one_is_served(
    tight: RunningServer, stream: bool
) -> None:
    with tight.http() as client:
        refused = client.post("/v1/completions", json=prompt(8000, stream=stream))
        served = client.post("/v1/completions", json=prompt(300))

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("memory_short", "server_error")
    assert "a prompt of 8000 tokens takes" in error["message"]
    assert served.status_code == 200


def test_it_is_counted_and_what_was_given_back_for_it_too(tight: RunningServer) -> None:
    with tight.http() as client:
        before = client.get("/v1/cache/stats").json()["memory"][0]["short"]
        client.post("/v1/completions", json=prompt(8000))
        stats = client.get("/v1/cache/stats").json()["memory"][0]
        metrics = client.get("/metrics").text

    assert stats["short"] == before + 1
    assert 'anchorline_memory_short_total{pool="host"}' in metrics
    assert stats["running"] == 0


def test_with_more_room_the_same_prompt_is_read(tmp_path: Path) -> None:
    settings = ServeSettings(cache_dir=tmp_path, disk="off", threads=1)
    with running_server(settings) as server, server.http() as client:
        assert client.post("/v1/completions", json=prompt(2000)).status_code == 200
        stats = client.get("/v1/cache/stats").json()["memory"][0]

    assert (stats["short"], stats["given_back"]) == (0, [])
    assert stats["held"] <= stats["limits"]["ceiling"]["bytes"]
