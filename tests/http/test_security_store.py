"""The real server's files, made under a umask that keeps nothing from anybody."""

import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from anchorline.settings import ServeSettings
from support.running_server import running_server


@pytest.fixture(autouse=True)
def careless() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_all_that_a_server_writes_is_its_users_own(tmp_path: Path) -> None:
    settings = ServeSettings(
        model="toy",
        dtype="float32",
        cache_dir=tmp_path / "made" / "cache",
        disk_free_min=0,
        disk_heads_bytes_max=1 << 28,
        disk_conversations_bytes_max=1 << 28,
    )
    prompt = [5 + (7 * at) % 1900 for at in range(700)]
    with running_server(settings) as server, server.http() as client:
        body = {"prompt": prompt, "max_tokens": 2, "cache_salt": "s"}
        assert client.post("/v1/completions", json=body).status_code == 200
        assert client.post("/v1/cache/flush").status_code == 200
        names = written(settings.cache_dir)
        modes = {path: mode(path) for path in [tmp_path / "made", *everything(tmp_path / "made")]}

    assert {".blk", ".anc", ".db", ".db-wal"} <= {Path(name).suffix for name in names}
    wrong = {
        path: oct(found)
        for path, found in modes.items()
        if found != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}
    assert {mode(path) for path in everything(tmp_path / "made")} <= {0o700, 0o600}


def everything(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def written(directory: Path) -> list[str]:
    return [path.name for path in everything(directory) if path.is_file()]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
