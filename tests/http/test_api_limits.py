"""GET and POST /v1/cache/limits on the toy model, and what /v1/cache/stats says of memory."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from anchorline.container import build
from anchorline.domain.byte_size import GIB, MIB
from anchorline.domain.errors import SettingsError
from anchorline.settings import ServeSettings
from support.running_server import RunningServer, running_server
from support.server import Running

LIMITS = "/v1/cache/limits"
Body: TypeAlias = dict[str, Any]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    settings = ServeSettings(
        cache_dir=tmp_path_factory.mktemp("cache"),
        disk="off",
        threads=1,
        grid=32,
        mem_slack=8 * MIB,
        ram_bytes_max=16 * MIB,
    )
    with running_server(settings) as running:
        yield running


def host(answer: httpx.Response) -> Body:
    assert answer.status_code == 200, answer.text
    (pool,) = answer.json()["pools"]
    found: Body = pool
    return found


def bytes_of(pool: Body) -> dict[str, int]:
    return {name: figure["bytes"] for name, figure in pool["limits"].items()}


def test_the_limits_in_force_are_shown_with_where_they_come_from(toy: RunningServer) -> None:
    with toy.http() as client:
        pool = host(client.get(LIMITS))

    assert pool["pool"] == "host"
    limits = bytes_of(pool)
    assert (limits["slack"], limits["ram_bytes_max"]) == (8 * MIB, 16 * MIB)
    assert pool["limits"]["slack"]["why"] == "as set"
    assert "for model and slots" in pool["limits"]["ceiling"]["why"]
    assert 0 < pool["held"] <= limits["ceiling"] <= limits["peak"] <= pool["total"]


def test_what_is_set_is_answered_as_it_is_in_force(toy: RunningServer) -> None:
    with toy.http() as client:
        before = bytes_of(host(client.get(LIMITS)))
        changed = bytes_of(host(client.post(LIMITS, json={"ram_bytes_max": 4 * MIB})))
        wide = bytes_of(
            host(client.post(LIMITS, json={"pool": "host", "ram_bytes_max": None, "slack": None}))
        )
        back = host(client.post(LIMITS, json={"ram_bytes_max": 16 * MIB, "slack": 8 * MIB}))

    assert changed == before | {"ram_bytes_max": 4 * MIB}
    assert wide["ram_bytes_max"] > 16 * MIB
    assert bytes_of(back) == before


def test_anchors_that_no_longer_fit_are_given_back_at_once(toy: RunningServer) -> None:
    body = {"prompt": list(range(20, 420)), "max_tokens": 2}
    with toy.http() as client:
        client.post("/v1/completions", json=body)
        limits = bytes_of(host(client.get(LIMITS)))
        tight = host(client.post(LIMITS, json={"ceiling": 10 * MIB}))
        stats = client.get("/v1/cache/stats").json()["memory"][0]
        metrics = client.get("/metrics").text
        client.post(LIMITS, json={"ceiling": None})

    assert tight["caches"]["end_anchors"] == 0
    assert {back["cache"] for back in stats["given_back"] if back["reason"] == "limits"} >= {
        "body_anchors",
        "end_anchors",
    }
    assert 'anchorline_memory_limit_bytes{limit="ceiling",pool="host"} 1.048576e+07' in metrics
    assert (
        'memory_given_back_bytes_total{cache="end_anchors",pool="host",reason="limits"}' in metrics
    )
    with toy.http() as client:
        assert bytes_of(host(client.get(LIMITS))) == limits


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"ceiling": 1 << 60}, "ceiling", "is not between 0 and the"),
        ({"peak": 2 * MIB, "ceiling": 3 * MIB}, "peak", "less than the ceiling of 3.0 MiB"),
        ({"slack": -1}, "slack", "-1 is not between 0"),
        ({"slack": 2 * GIB, "ceiling": GIB}, "slack", "more than the ceiling of 1.0 GiB"),
        ({"ram_bytes_max": "4 GB"}, "ram_bytes_max", "expected int | null, got str"),
        ({"pool": "cuda:0", "ceiling": GIB}, "pool", "there is no pool 'cuda:0'; there is host"),
        ({"pool": 3, "ceiling": GIB}, "pool", "expected str | null, got int"),
    ],
)
def test_nonsense_is_refused_by_its_field_and_changes_nothing(
    toy: RunningServer, body: Body, field: str, says: str
) -> None:
    with toy.http() as client:
        before = bytes_of(host(client.get(LIMITS)))
        refused = client.post(LIMITS, json=body)
        after = bytes_of(host(client.get(LIMITS)))

    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["type"]) == (field, "invalid_request_error")
    assert says in error["message"]
    assert after == before


@pytest.mark.parametrize("body", [b"{}", b'{"pool": "host"}', b'{"roof": 5}'])
def test_a_body_that_sets_nothing_says_what_it_could(toy: RunningServer, body: bytes) -> None:
    with toy.http() as client:
        refused = client.post(LIMITS, content=body)

    assert refused.status_code == 400
    assert "ceiling, peak, slack, ram_bytes_max" in refused.json()["error"]["message"]


def test_a_body_that_is_too_long_or_no_json_is_refused(toy: RunningServer) -> None:
    with toy.http() as client:
        assert client.post(LIMITS, content=b" " * 5000).status_code == 400
        assert client.post(LIMITS, content=b"{").json()["error"]["code"] == "invalid_json"


def test_a_page_of_another_host_may_not_set_limits(toy: RunningServer) -> None:
    with toy.http() as client:
        refused = client.post(
            LIMITS, json={"slack": 0}, headers={"origin": "https://elsewhere.example"}
        )

    assert refused.status_code == 403


def test_a_server_without_limits_shows_none_and_refuses_to_set_any(shared_server: Running) -> None:
    with shared_server.http() as client:
        shown = client.get(LIMITS)
        refused = client.post(LIMITS, json={"slack": 0})

    assert shown.json() == {"pools": []}
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported"


def test_the_figures_say_all_there_is_to_know_of_memory(toy: RunningServer) -> None:
    with toy.http() as client:
        (stats,) = client.get("/v1/cache/stats").json()["memory"]

    assert list(stats["caches"]) == [
        "snapshots",
        "body_anchors",
        "end_anchors",
        "stash",
        "parked",
        "pinned",
    ]
    assert stats["workspace"]["window_bytes"] >= stats["workspace"]["floor_bytes"] > 0
    assert stats["held"] > stats["unwritten"] > 0
    assert stats["short"] == 0


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"mem_ceiling": 1 << 60}, "mem_ceiling cannot be used: 1152921504606846976 is not"),
        ({"mem_ceiling": 3 * GIB, "mem_peak": 2 * GIB}, "mem_peak cannot be used: the peak of 2.0"),
        ({"ram_bytes_max": 1 << 60}, "ram_bytes_max cannot be used: "),
    ],
)
def test_limits_that_make_no_sense_here_end_the_start(
    limits: dict[str, int], says: str, tmp_path: Path
) -> None:
    settings = ServeSettings(cache_dir=tmp_path, disk="off", threads=1, grid=32, **limits)  # type: ignore[arg-type]

    with pytest.raises(SettingsError, match=says):
        build(settings)
