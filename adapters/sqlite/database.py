"""One SQLite file of ours: opened, checked, and replaced when it cannot be relied on."""

import contextlib
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...domain.errors import StorageError, StorageFull, StorageReadOnly, StorageUnavailable

APPLICATION_ID: Final = 0x414E4C43
"""ANLC, in the file's header: whose it is."""

SCHEMA_VERSION: Final = 1

SCHEMA: Final = """
CREATE TABLE entries (
    id TEXT PRIMARY KEY,
    record BLOB NOT NULL,        -- the entry, see entry_record.py
    hits INTEGER NOT NULL,       -- changes with each use, so it stands beside the record
    last_used_s REAL NOT NULL
) STRICT;
CREATE TABLE cold_counts (
    key BLOB PRIMARY KEY,
    count INTEGER NOT NULL,
    counted INTEGER NOT NULL     -- grows by one with each counting: the least is the oldest
) STRICT, WITHOUT ROWID;
CREATE INDEX cold_counts_by_age ON cold_counts (counted);
CREATE TABLE written (
    day TEXT NOT NULL,
    kind TEXT NOT NULL,
    nbytes INTEGER NOT NULL,
    PRIMARY KEY (day, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE equal_fingerprints (
    fingerprint TEXT NOT NULL,
    older TEXT NOT NULL,
    PRIMARY KEY (fingerprint, older)
) STRICT, WITHOUT ROWID;
CREATE TABLE age_mark (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    age_s REAL NOT NULL,
    wall_s REAL NOT NULL
) STRICT;
"""

JOURNAL_BYTES_KEPT: Final = 4 << 20
DAMAGED_SUFFIX: Final = ".damaged"

_FULL: Final = frozenset({sqlite3.SQLITE_FULL})
_READ_ONLY: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class Damaged(Exception):
    """The file is there, and is not one that can be relied on."""


def open_existing(path: Path) -> sqlite3.Connection | None:
    """A checked connection that nobody else has; None if there is no such file.

    Raises:
        Damaged: it is no database of ours, of another version, or fails its check.
        StorageError: the system does not let it be opened.
    """
    with storage_errors(f"opening the catalog {path}"):
        if path.is_symlink():
            raise StorageUnavailable(f"the catalog {path} is a symbolic link; remove it")
        if not path.exists():
            return None
        connection = _connect(path)
        try:
            _check(connection)
        except sqlite3.DatabaseError as error:
            connection.close()
            if _code(error) in _DAMAGED:
                raise Damaged(str(error)) from error
            raise
        except BaseException:
            connection.close()
            raise
        return connection


def create(path: Path) -> sqlite3.Connection:
    """A fresh database in the file's place; what stood there stands beside it, once.

    Raises:
        StorageError: the system does not let it be made.
    """
    with storage_errors(f"making the catalog {path}"):
        if path.exists():
            path.replace(path.with_name(path.name + DAMAGED_SUFFIX))
        for journal in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + journal).unlink(missing_ok=True)
        # SQLite gives its journals the file's own mode.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
        connection = _connect(path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
            _sync_directory(path.parent)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def storage_errors(doing: str) -> Generator[None]:
    """Raises the port's error for SQLite's and the system's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _storage_error(error, doing) from error
    except PermissionError as error:
        raise StorageReadOnly(f"{doing}: {error.strerror}") from error
    except OSError as error:
        raise StorageUnavailable(f"{doing}: {error.strerror or error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun and ended by hand. The file is locked for as long as it is open: what
    # is kept in memory of it stays true.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES_KEPT}")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection
'''
