"""Both catalogs against the catalog contract, and what each adds."""

import dataclasses
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.simulation.faulty_catalog import CALLS, CatalogFault, FaultyCatalog
from anchorline.adapters.sqlite.entry_record import decode_entry, encode_entry
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.entry import EntryId
from anchorline.domain.errors import (
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from anchorline.ports.catalog import AgeMark, Catalog
from contract.catalog_contract import (
    COLD_COUNTS_MAX,
    DAYS_MAX,
    CatalogContract,
    fingerprint,
    ids,
    key,
    make_entry,
    name,
)


class TestMemoryCatalog(CatalogContract):
    def make_catalog(self) -> MemoryCatalog:
        return MemoryCatalog(cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX)

    def reopen(self, catalog: Catalog) -> MemoryCatalog:
        assert isinstance(catalog, MemoryCatalog)
        catalog.close()
        return catalog.restart()

    def after_kill(self, catalog: Catalog) -> MemoryCatalog:
        assert isinstance(catalog, MemoryCatalog)
        return catalog.restart()


class TestFaultyCatalogWithoutFaults(CatalogContract):
    def make_catalog(self) -> FaultyCatalog:
        self.inner = MemoryCatalog(cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX)
        return FaultyCatalog(self.inner, seed=1)

    def reopen(self, catalog: Catalog) -> FaultyCatalog:
        catalog.close()
        self.inner = self.inner.restart()
        return FaultyCatalog(self.inner, seed=1)

    def after_kill(self, catalog: Catalog) -> MemoryCatalog:
        return self.inner.restart()


REFUSED: dict[CatalogFault, type[StorageError]] = {
    CatalogFault.FULL: StorageFull,
    CatalogFault.READ_ONLY: StorageReadOnly,
    CatalogFault.FAILED: StorageUnavailable,
}


class TestFaultyCatalog:
    """A call that fails has changed nothing."""

    @pytest.mark.parametrize("fault", CatalogFault)
    def test_a_change_that_fails_leaves_nothing(self, fault: CatalogFault) -> None:
        inner = MemoryCatalog(needs_rebuild=False)
        inner.put(make_entry("a"))
        before = picture(inner)
        catalog = FaultyCatalog(inner, rates={fault: 1.0})

        with pytest.raises(REFUSED[fault], match="simulated"):
            catalog.put(make_entry("b"), replaces=[EntryId("a")])
        with pytest.raises(REFUSED[fault]):
            catalog.remove([EntryId("a")])
        with pytest.raises(REFUSED[fault]):
            catalog.count_cold([key(1)])

        assert picture(inner) == before
        catalog.rates = {}
        assert picture(catalog) == before

    @pytest.mark.parametrize("fault", [CatalogFault.FULL, CatalogFault.READ_ONLY])
    def test_questions_are_answered_where_nothing_can_be_written(self, fault: CatalogFault) -> None:
        inner = MemoryCatalog(needs_rebuild=False)
        inner.put(make_entry("a"))

        assert picture(FaultyCatalog(inner, rates={fault: 1.0})) == picture(inner)

    def test_every_call_of_the_port_can_be_named(self) -> None:
        assert {call for call in vars(Catalog) if not call.startswith("_")} == CALLS

    def test_the_same_seed_meets_the_same_faults(self) -> None:
        def outcomes(seed: int) -> list[str]:
            rates = dict.fromkeys(CatalogFault, 0.2)
            catalog = FaultyCatalog(MemoryCatalog(), seed=seed, rates=rates)
            seen: list[str] = []
            for number in range(60):
                try:
                    catalog.put(make_entry(str(number % 5)))
                    seen.append("done")
                except StorageError as error:
                    seen.append(type(error).__name__)
            return seen

        assert outcomes(1) == outcomes(1)
        assert outcomes(1) != outcomes(2)
        assert len(set(outcomes(1))) == 4


class SqliteFiles:
    """Catalogs in a directory, closed after the test."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> Iterator[None]:
        self.path = tmp_path / "catalog.db"
        self.made: list[SqliteCatalog] = []
        yield
        for catalog in self.made:
            catalog.close()

    def open(self, path: Path | None = None) -> SqliteCatalog:
        catalog = SqliteCatalog(
            path or self.path, cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX
        )
        self.made.append(catalog)
        return catalog

    def reopen(self, catalog: Catalog) -> SqliteCatalog:
        assert isinstance(catalog, SqliteCatalog)
        catalog.close()
        return self.open()


class TestSqliteCatalog(SqliteFiles, CatalogContract):
    def make_catalog(self) -> SqliteCatalog:
        return self.open()

    def after_kill(self, catalog: Catalog) -> SqliteCatalog:
        """Opens a copy of the files as they stand: what a killed process leaves."""
        place = self.path.with_name(f"killed-{len(self.made)}")
        place.mkdir()
        for file in self.path.parent.glob("catalog.db*"):
            shutil.copy(file, place)
        return self.open(place / "catalog.db")

    def test_nobody_else_can_look_into_it(self) -> None:
        self.open().put(make_entry("a"))

        files = list(self.path.parent.glob("catalog.db*"))
        assert len(files) == 2
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

    def test_a_healthy_catalog_says_nothing_of_damage(self) -> None:
        catalog = self.open()
        catalog.put(make_entry("a"))
        catalog.finish_rebuild()

        assert self.reopen(catalog).damage is None

    def test_a_second_process_cannot_open_it(self) -> None:
        catalog = self.open()
        catalog.put(make_entry("a"))

        with pytest.raises(StorageUnavailable, match="another process uses it"):
            self.open()

        catalog.put(make_entry("b"))
        assert ids(self.reopen(catalog)) == ["a", "b"]

    def test_a_link_in_its_place_is_not_followed(self) -> None:
        target = self.path.with_name("elsewhere")
        self.path.symlink_to(target)

        with pytest.raises(StorageUnavailable, match="symbolic link"):
            self.open()
        assert not target.exists()

    def test_a_directory_that_is_missing_is_told(self) -> None:
        with pytest.raises(StorageUnavailable, match="No such file or directory"):
            self.open(self.path.parent / "missing/catalog.db")

    def test_a_commit_that_fails_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = sqlite3.connect
        made: list[sqlite3.Connection] = []

        def connect(path: Path, **how: Any) -> sqlite3.Connection:  # noqa: ANN401 - passed on
            made.append(real(path, **how))
            return made[-1]

        monkeypatch.setattr(sqlite3, "connect", connect)
        catalog = self.open()
        catalog.put(make_entry("a"))
        made[0].execute("PRAGMA query_only = 1")

        with pytest.raises(StorageReadOnly):
            catalog.put(make_entry("b"), replaces=[EntryId("a")])
        with pytest.raises(StorageReadOnly):
            catalog.remove([EntryId("a")])
        with pytest.raises(StorageReadOnly):
            catalog.count_cold([key(1)])
        made[0].execute("PRAGMA query_only = 0")

        assert ids(catalog) == ids(self.after_kill(catalog)) == ["a"]
        assert catalog.unreferenced([name(1)]) == set()
        assert catalog.count_cold([key(1)]) == {key(1): 1}

    def test_the_journal_does_not_grow_for_ever(self) -> None:
        catalog = self.open()

        for _ in range(60):
            catalog.put(make_entry("a", range(1, 600)))

        assert sum(file.stat().st_size for file in self.path.parent.iterdir()) < 12 << 20


class TestDamage(SqliteFiles):
    """A catalog that cannot be relied on is made again, and says that it has to be filled."""

    def healthy(self) -> None:
        catalog = self.open()
        for number in range(60):
            catalog.put(make_entry(f"entry {number}", range(number, number + 20)))
        catalog.finish_rebuild()
        catalog.close()

    def check_made_again(self) -> None:
        catalog = self.open()
        assert catalog.needs_rebuild
        assert catalog.damage is not None
        assert list(catalog.entries()) == []
        catalog.put(make_entry("new"))
        catalog.finish_rebuild()
        assert ids(self.reopen(catalog)) == ["new"]

    @pytest.mark.parametrize("left", [0, 1, 99, 4096, 4097, 20_000])
    def test_a_truncated_catalog_is_made_again(self, left: int) -> None:
        self.healthy()
        os.truncate(self.path, left)

        self.check_made_again()

    @pytest.mark.parametrize("page", range(12))
    def test_a_zeroed_page_costs_the_catalog_or_nothing(self, page: int) -> None:
        self.healthy()
        with self.path.open("r+b") as file:
            file.seek(4096 * page)
            file.write(bytes(4096))

        catalog = self.open()

        assert catalog.needs_rebuild or len(catalog.entries()) == 60

    def test_damage_where_nobody_looks_at_the_start_is_seen_at_the_start(self) -> None:
        self.healthy()
        catalog = self.open()
        catalog.count_cold(map(key, range(COLD_COUNTS_MAX)))
        catalog.close()
        connection = sqlite3.connect(self.path)
        ((page,),) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'cold_counts'"
        ).fetchall()
        connection.close()
        with self.path.open("r+b") as file:
            file.seek(4096 * (page - 1))
            file.write(bytes(4096))

        self.check_made_again()

    def test_garbage_is_made_again_and_kept_for_a_look(self) -> None:
        garbage = random.Random(1).randbytes(50_000)
        self.path.write_bytes(garbage)

        self.check_made_again()

        assert self.path.with_name("catalog.db.damaged").read_bytes() == garbage

    def test_a_flipped_bit_in_an_entry_is_seen_although_the_database_is_well(self) -> None:
        self.healthy()
        connection = sqlite3.connect(self.path)
        (record,) = connection.execute("SELECT record FROM entries LIMIT 1").fetchone()
        flipped = bytearray(record)
        flipped[len(flipped) // 2] ^= 4
        connection.execute("UPDATE entries SET record = ? WHERE record = ?", (flipped, record))
        connection.commit()
        connection.close()

        self.check_made_again()

    @pytest.mark.parametrize(
        "statement",
        [
            "PRAGMA user_version = 99",
            "PRAGMA application_id = 7",
            "DROP TABLE written",
            "CREATE TABLE other (x)",
            "DELETE FROM state",
            "UPDATE entries SET id = 'another' WHERE id = 'entry 1'",
        ],
    )
    def test_a_catalog_of_another_make_is_made_again(self, statement: str) -> None:
        self.healthy()
        connection = sqlite3.connect(self.path)
        connection.execute(statement)
        connection.commit()
        connection.close()

        self.check_made_again()

    def test_a_lost_journal_costs_what_stood_in_it_and_no_more(self) -> None:
        catalog = self.open()
        catalog.put(make_entry("early"))
        catalog = self.reopen(catalog)
        catalog.put(make_entry("late"))
        killed = self.path.with_name("killed")
        killed.mkdir()
        shutil.copy(self.path, killed)  # without catalog.db-wal

        assert ids(self.open(killed / "catalog.db")) == ["early"]

    def test_a_garbled_journal_costs_what_stood_in_it_and_no_more(self) -> None:
        catalog = self.open()
        catalog.put(make_entry("early"))
        catalog = self.reopen(catalog)
        catalog.put(make_entry("late"))
        killed = self.path.with_name("killed")
        killed.mkdir()
        shutil.copy(self.path, killed)
        journal = bytearray(self.path.with_name("catalog.db-wal").read_bytes())
        for at in range(0, len(journal), 97):
            journal[at] ^= 0x55
        (killed / "catalog.db-wal").write_bytes(journal)

        assert ids(self.open(killed / "catalog.db")) == ["early"]

    def test_anothers_journal_is_not_taken_for_a_fresh_catalogs(self) -> None:
        catalog = self.open()
        catalog.put(make_entry("a"))
        journal = self.path.with_name("catalog.db-wal").read_bytes()
        catalog.close()
        self.path.unlink()
        self.path.with_name("catalog.db-wal").write_bytes(journal)

        fresh = self.open()

        assert fresh.needs_rebuild
        assert ids(fresh) == []


class TestRecords:
    def test_any_flipped_bit_of_a_record_is_seen(self) -> None:
        record = encode_entry(make_entry("a"))

        for at in range(len(record)):
            flipped = bytearray(record)
            flipped[at] ^= 1 << at % 8
            with pytest.raises(ValueError, match="not what was written"):
                decode_entry(bytes(flipped))

    def test_any_truncated_record_is_seen(self) -> None:
        record = encode_entry(make_entry("a"))

        for length in range(len(record)):
            with pytest.raises(ValueError, match="not what was written"):
                decode_entry(record[:length])


@pytest.mark.parametrize("seed", range(4))
def test_both_catalogs_agree_on_random_histories(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / "catalog.db"
    memory = MemoryCatalog(cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX)
    sqlite = SqliteCatalog(path, cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX)

    def some_ids() -> list[EntryId]:
        return [EntryId(str(chance.randrange(8))) for _ in range(chance.randrange(4))]

    for step in range(120):
        blocks = [chance.randrange(12) for _ in range(chance.randrange(6))]
        entry = make_entry(str(chance.randrange(8)), blocks, hits=chance.randrange(3))
        gone, keys = some_ids(), [key(chance.randrange(40)) for _ in range(chance.randrange(9))]
        day, pair = f"2026-02-{chance.randrange(1, 9):02}", chance.sample(range(9), 2)
        action = chance.randrange(8)
        if action == 7:
            sqlite.close()
            sqlite = SqliteCatalog(path, cold_counts_max=COLD_COUNTS_MAX, days_max=DAYS_MAX)
        for catalog in (memory, sqlite):
            match action:
                case 0 | 1:
                    catalog.put(entry, gone)
                case 2:
                    catalog.remove(gone)
                case 3:
                    catalog.touch(dict.fromkeys(gone, float(step)))
                case 4:
                    catalog.count_cold(keys)
                case 5:
                    catalog.add_written(day, "head", step)
                case 6:
                    catalog.adopt(fingerprint(pair[0]), fingerprint(pair[1]))
                    catalog.set_age_mark(AgeMark(step, step))
                case _:
                    pass
        assert picture(memory) == picture(sqlite), (seed, step, action)
    sqlite.close()


def picture(catalog: Catalog) -> object:
    """All that a catalog knows."""
    return (
        sorted(map(dataclasses.astuple, catalog.entries()), key=repr),
        catalog.unreferenced(map(name, range(12))),
        catalog.cold_counts(map(key, range(40))),
        catalog.written(99),
        [catalog.equal_to(fingerprint(number)) for number in range(9)],
        catalog.age_mark(),
        catalog.needs_rebuild,
    )
