"""The index of a storage, as an SQLite database."""

import contextlib
import gc
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from ...domain.entry import EntryId
from ...domain.errors import StorageError
from ...domain.fingerprint import Fingerprint
from ...domain.prefix_key import PrefixKey
from ...domain.stored_entry import ObjectName, StoredEntry
from ...ports.catalog import AgeMark
from .database import Damaged, create, damage_found, open_existing, storage_errors
from .entry_record import decode_entry, encode_entry

_NAME: Final = attrgetter("name")


class SqliteCatalog:
    """Implements `ports.catalog.Catalog`.

    Entries stand in memory too, from the start on: questions about them ask no file, and changes
    are made there once they are committed. The file is locked while it is open.

    May be called from any thread, on one at a time. Changes wait for the drive (one sync of the
    journal, about 4 ms); questions do not, but for counts of cold lines, which are looked up.
    """

    def __init__(self, path: Path, *, cold_counts_max: int = 1 << 18, days_max: int = 400):
        """Open the catalog, or make a fresh one if it is missing or damaged.

        A damaged one is kept beside it as `<name>.damaged`.

        Args:
            path: the file; its directory is there.
            cold_counts_max: lines whose counts are kept.
            days_max: days whose written bytes are kept.

        Raises:
            StorageUnavailable: another process has it open, or the drive failed.
            StorageFull, StorageReadOnly: it could not be made.
        """
        self._path = path
        self._cold_counts_max = cold_counts_max
        self._days_max = days_max
        # What is wrong with the one that stood here, for people; None if nothing was.
        self.damage: str | None = None
        try:
            connection = open_existing(path) or create(path)
            self._load(connection)
        except Damaged as damaged:
            self.damage = f"the catalog {path} was damaged ({damaged}) and is made again"
            self._load(create(path))

    def _load(self, connection: sqlite3.Connection) -> None:
        """Read what is kept in memory.

        Raises:
            Damaged: a record is not what was written.
            StorageError: the drive failed.
        """
        self._connection = connection
        # Uses that were counted since the last commit; the next one takes them along.
        self._touched: set[EntryId] = set()
        self._age_mark_changed = False
        try:
            with (
                storage_errors(f"reading the catalog {self._path}"),
                damage_found(),
                _no_collection(),
            ):
                self._entries = _read_entries(connection)
                self._references: Counter[ObjectName] = Counter()
                for entry in self._entries.values():
                    self._references.update(map(_NAME, (*entry.blocks, *entry.anchors)))
                self._read_figures(connection)
        except BaseException:
            connection.close()
            raise

    def _read_figures(self, connection: sqlite3.Connection) -> None:
        state = connection.execute("SELECT needs_rebuild, age_s, wall_s FROM state").fetchone()
        if state is None:
            raise Damaged("its state is missing")
        needs_rebuild, age_s, wall_s = state
        self._needs_rebuild = bool(needs_rebuild)
        self._age_mark = None if age_s is None else AgeMark(age_s, wall_s)
        self._cold_rows, self._counted = connection.execute(
            "SELECT count(*), coalesce(max(counted), 0) FROM cold_counts"
        ).fetchone()
        self._equal: list[tuple[Fingerprint, Fingerprint]] = connection.execute(
            "SELECT fingerprint, older FROM equal_fingerprints"
        ).fetchall()

    @property
    def needs_rebuild(self) -> bool:
        return self._needs_rebuild

    def finish_rebuild(self) -> None:
        with self._commit("finishing the rebuild") as run:
            run("UPDATE state SET needs_rebuild = 0")
        self._needs_rebuild = False

    def entries(self) -> Sequence[StoredEntry]:
        return list(self._entries.values())

    def put(self, entry: StoredEntry, replaces: Iterable[EntryId] = ()) -> None:
        gone = [entry_id for entry_id in replaces if entry_id in self._entries]
        with self._commit(f"committing the entry {entry.id}") as run:
            for entry_id in gone:
                run("DELETE FROM entries WHERE id = ?", entry_id)
            run(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
                entry.id,
                encode_entry(entry),
                entry.hits,
                entry.last_used_s,
            )
        for entry_id in (*gone, entry.id):
            self._forget(entry_id)
        self._entries[entry.id] = entry
        self._references.update(part.name for part in (*entry.blocks, *entry.anchors))

    def remove(self, ids: Iterable[EntryId]) -> None:
        gone = [entry_id for entry_id in ids if entry_id in self._entries]
        if not gone:
            return
        with self._commit(f"removing {len(gone)} entries") as run:
            for entry_id in gone:
                run("DELETE FROM entries WHERE id = ?", entry_id)
        for entry_id in gone:
            self._forget(entry_id)

    def touch(self, used: Mapping[EntryId, float]) -> None:
        for entry_id, used_s in used.items():
            entry = self._entries.get(entry_id)
            if entry is not None:
                self._entries[entry_id] = replace(entry, hits=entry.hits + 1, last_used_s=used_s)
                self._touched.add(entry_id)

    def unreferenced(self, names: Iterable[ObjectName]) -> set[ObjectName]:
        return {name for name in names if name not in self._references}

    def count_cold(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        counts: dict[PrefixKey, int] = {}
        rows, counted = self._cold_rows, self._counted
        with self._commit("counting cold lines") as run:
            for key in keys:
                counted += 1
                ((count,),) = run(
                    "INSERT INTO cold_counts VALUES (?, 1, ?) ON CONFLICT (key) DO UPDATE "
                    "SET count = count + 1, counted = excluded.counted RETURNING count",
                    key,
                    counted,
                )
                assert isinstance(count, int)
                counts[key] = count
                rows += count == 1
            if rows > self._cold_counts_max:
                run(
                    "DELETE FROM cold_counts WHERE key IN "
                    "(SELECT key FROM cold_counts ORDER BY counted LIMIT ?)",
                    rows - self._cold_counts_max,
                )
                rows = self._cold_counts_max
        self._cold_rows, self._counted = rows, counted
        return counts

    def cold_counts(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        counts: dict[PrefixKey, int] = {}
        with storage_errors("looking up counts of cold lines"):
            for key in keys:
                row = self._connection.execute(
                    "SELECT count FROM cold_counts WHERE key = ?", (key,)
                ).fetchone()
                counts[key] = 0 if row is None else row[0]
        return counts

    def add_written(self, day: str, kind: str, nbytes: int) -> None:
        with self._commit("counting written bytes") as run:
            run(
                "INSERT INTO written VALUES (?, ?, ?) ON CONFLICT (day, kind) DO UPDATE "
                "SET nbytes = nbytes + excluded.nbytes",
                day,
                kind,
                nbytes,
            )
            run(
                "DELETE FROM written WHERE day NOT IN "
                "(SELECT DISTINCT day FROM written ORDER BY day DESC LIMIT ?)",
                self._days_max,
            )

    def written(self, days: int) -> Mapping[str, Mapping[str, int]]:
        by_day: dict[str, dict[str, int]] = {}
        with storage_errors("looking up written bytes"):
            rows: list[tuple[str, str, int]] = self._connection.execute(
                "SELECT day, kind, nbytes FROM written WHERE day IN "
                "(SELECT DISTINCT day FROM written ORDER BY day DESC LIMIT ?) ORDER BY day DESC",
                (days,),
            ).fetchall()
        for day, kind, nbytes in rows:
            by_day.setdefault(day, {})[kind] = nbytes
        return by_day

    def adopt(self, fingerprint: Fingerprint, older: Fingerprint) -> None:
        with self._commit(f"recording that {fingerprint} equals {older}") as run:
            run("INSERT OR IGNORE INTO equal_fingerprints VALUES (?, ?)", fingerprint, older)
        self._equal.append((fingerprint, older))

    def equal_to(self, fingerprint: Fingerprint) -> frozenset[Fingerprint]:
        found = {fingerprint}
        while True:
            more = {end for pair in self._equal if found.intersection(pair) for end in pair}
            if more <= found:
                return frozenset(found)
            found |= more

    def age_mark(self) -> AgeMark | None:
        return self._age_mark

    def set_age_mark(self, mark: AgeMark) -> None:
        self._age_mark = mark
        self._age_mark_changed = True

    def close(self) -> None:
        """As of the port. Uses that were counted since the last commit are written if they can."""
        if self._touched or self._age_mark_changed:
            with contextlib.suppress(StorageError), self._commit("closing"):
                pass
        self._connection.close()

    @contextmanager
    def _commit(self, doing: str) -> Generator["_Run"]:
        """A transaction: durable after the context, without a trace if it raises."""
        with storage_errors(f"{doing} in the catalog {self._path}"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._write_pending()
                yield _Run(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._touched.clear()
        self._age_mark_changed = False

    def _write_pending(self) -> None:
        touched = [self._entries[entry_id] for entry_id in self._touched]
        self._connection.executemany(
            "UPDATE entries SET hits = ?, last_used_s = ? WHERE id = ?",
            [(entry.hits, entry.last_used_s, entry.id) for entry in touched],
        )
        if self._age_mark_changed and self._age_mark is not None:
            self._connection.execute(
                "UPDATE state SET age_s = ?, wall_s = ?",
                (self._age_mark.age_s, self._age_mark.wall_s),
            )

    def _forget(self, entry_id: EntryId) -> None:
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return
        for part in (*entry.blocks, *entry.anchors):
            self._references[part.name] -= 1
            if not self._references[part.name]:
                del self._references[part.name]


@contextmanager
def _no_collection() -> Generator[None]:
    """Keeps the cycle collector from walking 100,000 new objects, none of them in a cycle.

    It took 90 of 200 ms of a start with that many.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Run:
    """Runs statements inside a transaction."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    def __call__(self, statement: str, *values: str | bytes | float) -> list[tuple[object, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _read_entries(connection: sqlite3.Connection) -> dict[EntryId, StoredEntry]:
    """Every entry, in the order of their commits.

    Raises:
        Damaged: a record is not what was written.
        sqlite3.Error: the database cannot be read.
    """
    entries: dict[EntryId, StoredEntry] = {}
    try:
        for entry_id, record, hits, last_used_s in connection.execute(
            "SELECT id, record, hits, last_used_s FROM entries ORDER BY rowid"
        ):
            entry = decode_entry(record)
            if entry.id != entry_id:
                raise Damaged(f"the entry {entry_id} says that it is {entry.id}")
            entries[entry.id] = replace(entry, hits=hits, last_used_s=last_used_s)
    except ValueError as error:
        raise Damaged(str(error)) from error
    return entries
