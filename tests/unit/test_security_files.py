"""Files: for nobody else, whatever the umask; and never through a link, soft or hard."""

import os
import sqlite3
import stat
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from anchorline.adapters.gpu.model_package import ModelPackage, Progress
from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.adapters.nvme.buffered_storage import BufferedStorage
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.nvme.quarantine import QUARANTINE_NAME
from anchorline.adapters.nvme.root_directory import LOCK_NAME
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.errors import ObjectCorrupt, StorageError, StorageUnavailable
from anchorline.domain.prefix_key import PrefixKey
from anchorline.ports.block_storage import object_name
from anchorline.settings import exposed_keys, load
from support.stored_objects import FINGERPRINT, make_object

PAGE = 4096
DEAR = b"dear to somebody else"


@pytest.fixture(autouse=True)
def careless() -> Generator[None]:
    """A process whose files would be everybody's."""
    before = os.umask(0)
    yield
    os.umask(before)


def opened(root: Path) -> NvmeStorage:
    return NvmeStorage(root, bytes_max=1 << 30)


def modes(root: Path) -> set[tuple[str, int]]:
    """What kind each thing below a directory is, itself included, and who may do what with it."""
    found = [root, *root.rglob("*")]
    return {
        ("directory" if path.is_dir() else "file", stat.S_IMODE(path.lstat().st_mode))
        for path in found
    }


PRIVATE = {("directory", 0o700), ("file", 0o600)}


@pytest.fixture
def dear(tmp_path: Path) -> Path:
    """A file outside of everything that is ours."""
    path = tmp_path / "dear"
    path.write_bytes(DEAR)
    return path


# --- modes ----------------------------------------------------------------------------------------


def test_all_of_a_store_is_its_users_own(tmp_path: Path) -> None:
    root = tmp_path / "cache" / "state"
    storage = opened(root)
    catalog = SqliteCatalog(root / "catalog.db")
    for seed in range(3):
        storage.put(*make_object(seed))
    storage.quarantine(make_object(0)[0], "bad")
    catalog.count_cold([PrefixKey(b"12345678")])

    assert {path.name for path in root.iterdir()} >= {"catalog.db", "catalog.db-wal", "quarantine"}
    assert modes(tmp_path / "cache") == PRIVATE
    catalog.close()
    storage.close()


def test_a_catalog_that_is_made_again_and_its_damaged_one_are_its_users_own(
    tmp_path: Path,
) -> None:
    root = tmp_path / "state"
    root.mkdir(0o700)
    (root / "catalog.db").write_bytes(b"garbage" * 1000)
    (root / "catalog.db").chmod(0o600)

    SqliteCatalog(root / "catalog.db").close()

    assert (root / "catalog.db.damaged").exists()
    assert modes(root) == PRIVATE


def test_a_catalog_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir(0o700)
    SqliteCatalog(root / "catalog.db").close()
    (root / "catalog.db").chmod(0o666)

    catalog = SqliteCatalog(root / "catalog.db")
    catalog.count_cold([PrefixKey(b"12345678")])

    assert catalog.damage is None
    assert modes(root) == PRIVATE
    catalog.close()


def test_a_root_that_others_could_look_into_is_closed_to_them(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    root.chmod(0o755)

    opened(root).close()

    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def fake_build(
    package: ModelPackage, staging: Path, progress: Progress, download: object, convert: object
) -> Path:
    """A model as transformers would save it."""
    model = staging / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_bytes(b"{}")
    return model


def test_fetched_models_are_their_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorline.adapters.gpu.model_store.build", fake_build)

    ModelStore(tmp_path / "cache" / "models").get("smollm2", lambda _: None)

    assert modes(tmp_path / "cache") == PRIVATE


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NvmeStorage, BufferedStorage])
@pytest.mark.parametrize("link", ["soft", "hard"])
def test_a_lock_that_is_a_link_is_not_written_through(
    tmp_path: Path, dear: Path, kind: type[NvmeStorage | BufferedStorage], link: str
) -> None:
    root = tmp_path / "state"
    root.mkdir(0o700)
    linked(root / LOCK_NAME, dear, link)

    with pytest.raises(StorageError):
        kind(root, bytes_max=1 << 30)
    assert dear.read_bytes() == DEAR


@pytest.mark.parametrize("link", ["soft", "hard"])
def test_a_probe_that_a_link_waits_for_is_not_written_through(
    tmp_path: Path, dear: Path, link: str
) -> None:
    root = tmp_path / "state"
    root.mkdir(0o700)
    linked(root / "direct-io-probe", dear, link)

    opened(root).close()

    assert dear.read_bytes() == DEAR
    assert {path.name for path in root.iterdir()} == {LOCK_NAME, QUARANTINE_NAME}


def test_a_quarantine_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0000000001-x.blk").write_bytes(DEAR)
    root = tmp_path / "state"
    root.mkdir(0o700)
    (root / QUARANTINE_NAME).symlink_to(elsewhere)

    with pytest.raises(StorageUnavailable):
        NvmeStorage(root, bytes_max=1 << 30, quarantined_max=0)
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [DEAR]


@pytest.mark.parametrize("link", ["soft", "hard"])
def test_links_in_the_quarantine_are_deleted_and_not_what_they_lead_to(
    tmp_path: Path, dear: Path, link: str
) -> None:
    root = tmp_path / "state"
    opened(root).close()
    for number in range(5):
        linked(root / QUARANTINE_NAME / f"000000000{number}-x.blk", dear, link)

    NvmeStorage(root, bytes_max=1 << 30, quarantined_max=1).close()

    assert len(list((root / QUARANTINE_NAME).iterdir())) == 1
    assert dear.read_bytes() == DEAR


def test_a_link_in_place_of_all_state_of_a_fingerprint_is_left_alone(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    name, parts = make_object(1)
    (elsewhere / name).parent.mkdir(parents=True)
    unfinished = elsewhere / f"{name}.tmp-1-1"
    unfinished.write_bytes(DEAR)
    root = tmp_path / "state"
    root.mkdir(0o700)
    (root / FINGERPRINT).symlink_to(elsewhere / FINGERPRINT)

    storage = opened(root)

    assert list(storage.names()) == []
    for call in (
        lambda: storage.put(name, parts),
        lambda: storage.header(name, PAGE),
        lambda: storage.delete(name),
        lambda: storage.quarantine(name, "bad"),
    ):
        with pytest.raises(StorageError):
            call()
    assert unfinished.read_bytes() == DEAR
    assert len(list(unfinished.parent.iterdir())) == 1
    storage.close()


@pytest.mark.parametrize("link", ["soft", "hard"])
def test_a_link_under_the_name_of_an_unfinished_file_is_not_written_through(
    tmp_path: Path, dear: Path, link: str
) -> None:
    storage = opened(tmp_path / "state")
    name, parts = make_object(1)
    place = storage.path / name
    place.parent.mkdir(mode=0o700, parents=True)
    for number in range(1, 4):
        linked(place.with_name(f"{place.name}.tmp-{os.getpid()}-{number}"), dear, link)

    with pytest.raises(StorageError):
        storage.put(name, parts)

    assert dear.read_bytes() == DEAR
    assert not place.exists()
    storage.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("link", ["soft", "hard"])
def test_a_catalog_with_a_link_among_its_files_is_not_written_through(
    tmp_path: Path, dear: Path, suffix: str, link: str
) -> None:
    path = tmp_path / "catalog.db"
    SqliteCatalog(path).close()
    file = path.with_name(path.name + suffix)
    file.unlink(missing_ok=True)
    linked(file, dear, link)

    try:
        catalog = SqliteCatalog(path)
    except StorageUnavailable:
        assert (suffix, link) == ("", "soft")  # a person has to look at it
    else:
        assert catalog.damage is not None
        catalog.count_cold([PrefixKey(b"12345678")])
        catalog.close()
    assert dear.read_bytes() == DEAR


def test_anothers_database_under_our_name_is_moved_aside_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE dear (x)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    os.link(other, tmp_path / "catalog.db")

    SqliteCatalog(tmp_path / "catalog.db").close()

    assert other.read_bytes() == before


def test_a_damaged_catalog_replaces_a_link_and_not_what_it_leads_to(
    tmp_path: Path, dear: Path
) -> None:
    (tmp_path / "catalog.db").write_bytes(b"garbage" * 1000)
    (tmp_path / "catalog.db.damaged").symlink_to(dear)

    SqliteCatalog(tmp_path / "catalog.db").close()

    assert dear.read_bytes() == DEAR
    assert not (tmp_path / "catalog.db.damaged").is_symlink()


def test_a_models_lock_that_is_a_link_is_not_written_through(
    tmp_path: Path, dear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorline.adapters.gpu.model_store.build", fake_build)
    models = tmp_path / "models"
    models.mkdir()
    (models / ".smollm2.lock").symlink_to(dear)

    with pytest.raises(OSError, match="symbolic links"):
        ModelStore(models).get("smollm2", lambda _: None)
    assert dear.read_bytes() == DEAR


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../dear",
        f"{FINGERPRINT}/../../dear",
        f"{FINGERPRINT}/blocks/../../../dear",
        f"{FINGERPRINT}/./a.blk",
        f"/{FINGERPRINT}/a.blk",
        f"{FINGERPRINT}//a.blk",
        f"{FINGERPRINT}/a\x00.blk",
        f"{FINGERPRINT}/a.blk\n",
        f"{FINGERPRINT}/a b.blk",
        f"{FINGERPRINT}/a.tmp-1",
        f"{FINGERPRINT}/{'a' * 300}.blk",
        "lock",
        "catalog.db",
        QUARANTINE_NAME,
        f"{QUARANTINE_NAME}/0000000001.reason",
        "",
    ],
)
def test_a_name_that_is_no_objects_reaches_no_file(tmp_path: Path, name: str) -> None:
    storage = opened(tmp_path / "state")
    before = {str(path) for path in tmp_path.rglob("*")}

    for call in (
        lambda: object_name(name),
        lambda: storage.put(name, [np.zeros(PAGE, dtype=np.uint8)]),  # type: ignore[arg-type]
        lambda: storage.header(name, PAGE),  # type: ignore[arg-type]
        lambda: storage.delete(name),  # type: ignore[arg-type]
        lambda: storage.quarantine(name, "bad"),  # type: ignore[arg-type]
    ):
        with pytest.raises((ValueError, ObjectCorrupt)):
            call()
    assert {str(path) for path in tmp_path.rglob("*")} == before
    storage.close()


# --- the configuration file -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ('[serve]\napi_key = "sesame"\n', 0o644, "holds api_key, and everybody can read it"),
        ('[serve]\nadmin_key = "a"\napi_key = "b"\n', 0o604, "holds admin_key and api_key"),
        ('[serve]\napi_key = "sesame"\n', 0o600, None),
        ('[serve]\napi_key = "sesame"\n', 0o640, None),
        ("[serve]\nport = 1\n", 0o644, None),
    ],
)
def test_a_configuration_file_that_shows_a_key_to_everybody_is_told_of(
    tmp_path: Path, text: str, mode: int, told: str | None
) -> None:
    path = tmp_path / "anchorline.toml"
    path.write_text(text)
    path.chmod(mode)

    for found in (exposed_keys(path), exposed_keys(directory=tmp_path)):
        assert (found is None) == (told is None)
        assert told is None or (found is not None and told in found and "chmod o-r" in found)
        assert "sesame" not in str(found)


def test_without_a_configuration_file_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert exposed_keys(directory=tmp_path) is None
    assert load({}, environ={"ANCHORLINE_API_KEY": "k"}, directory=tmp_path).api_key == "k"


def linked(place: Path, target: Path, link: str) -> None:
    """Make a soft or a hard link."""
    if link == "soft":
        place.symlink_to(target)
    else:
        os.link(target, place)
