"""One SQLite file of ours: opened, checked, and replaced when it cannot be relied on."""

import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...domain.errors import StorageError, StorageFull, StorageReadOnly, StorageUnavailable

APPLICATION_ID: Final = 0x414E4C43
"""ANLC, in the file's header: whose it is."""

SCHEMA_VERSION: Final = 1

SCHEMA: Final = (
    # A record is an entry, see entry_record.py. What changes with each use stands beside it.
    """CREATE TABLE entries (
        id TEXT PRIMARY KEY,
        record BLOB NOT NULL,
        hits INTEGER NOT NULL,
        last_used_s REAL NOT NULL
    ) STRICT""",
    # `counted` grows with each counting: the least is the oldest.
    """CREATE TABLE cold_counts (
        key BLOB PRIMARY KEY,
        count INTEGER NOT NULL,
        counted INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX cold_counts_by_age ON cold_counts (counted)",
    """CREATE TABLE written (
        day TEXT NOT NULL,
        kind TEXT NOT NULL,
        nbytes INTEGER NOT NULL,
        PRIMARY KEY (day, kind)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE equal_fingerprints (
        fingerprint TEXT NOT NULL,
        older TEXT NOT NULL,
        PRIMARY KEY (fingerprint, older)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE state (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        needs_rebuild INTEGER NOT NULL,
        age_s REAL,
        wall_s REAL
    ) STRICT""",
    "INSERT INTO state VALUES (1, 1, NULL, NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

TABLES: Final = {"entries", "cold_counts", "written", "equal_fingerprints", "state"}
JOURNALS: Final = ("-wal", "-shm", "-journal")
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
        # SQLite would say "disk I/O error".
        if path.parent.exists() and not os.access(path.parent, os.W_OK):
            raise StorageReadOnly(
                f"the catalog {path} cannot be written to; nothing is kept on disk"
            )
        if path.is_symlink():
            raise StorageUnavailable(f"the catalog {path} is a symbolic link; remove it")
        if not path.exists():
            return None
        _check_files(path)
        with damage_found():
            connection = _connect(path)
            try:
                _check(connection)
            except BaseException:
                connection.close()
                raise
        return connection


def create(path: Path) -> sqlite3.Connection:
    """A fresh database in the file's place; what stood there is kept beside it, the last time's.

    Raises:
        StorageError: the system does not let it be made.
    """
    with storage_errors(f"making the catalog {path}"):
        if path.exists():
            path.replace(path.with_name(path.name + DAMAGED_SUFFIX))
        for journal in JOURNALS:
            path.with_name(path.name + journal).unlink(missing_ok=True)
        # SQLite gives its journals the mode of the file.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
        connection = _connect(path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                connection.execute(statement)
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


@contextmanager
def damage_found() -> Generator[None]:
    """Raises Damaged for SQLite's errors that are the file's content's fault."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _code(error) in _DAMAGED:
            raise Damaged(str(error)) from error
        raise


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun and ended by hand. The file stays locked while it is open: what is
    # known of it in memory stays true.
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


def _check_files(path: Path) -> None:
    """Hold the database and its journals to be files of one name; SQLite writes into any other.

    Raises:
        Damaged: one is a link, has a second name, or is no file.
    """
    for suffix in ("", *JOURNALS):
        file = path.with_name(path.name + suffix)
        try:
            found = file.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise Damaged(f"{file.name} is no plain file, or has another name too")
        if stat.S_IMODE(found.st_mode) & 0o077:
            file.chmod(0o600)


def _check(connection: sqlite3.Connection) -> None:
    """Hold the file against what `create` makes.

    Raises:
        Damaged: it is another one.
        sqlite3.Error: it cannot be read.
    """
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
        raise Damaged(
            f"it is the application {application:08x}'s with version {version}, and this program "
            f"reads {APPLICATION_ID:08x}'s with version {SCHEMA_VERSION}"
        )
    tables: list[tuple[str]] = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table'"
    ).fetchall()
    if {name for (name,) in tables} != TABLES:
        raise Damaged(f"its tables are {sorted(name for (name,) in tables)}")
    # Pages, order and types; what indexes hold is not compared, which takes seconds.
    found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise Damaged(found)


def _storage_error(error: sqlite3.Error, doing: str) -> StorageError:
    text, code = f"{doing}: {error}", _code(error)
    if code in _FULL:
        return StorageFull(text)
    if code in _READ_ONLY:
        return StorageReadOnly(text)
    if code == sqlite3.SQLITE_BUSY:
        return StorageUnavailable(f"{doing}: another process uses it")
    if code in _DAMAGED:
        return StorageUnavailable(f"{text}; it is made again at the next start")
    return StorageUnavailable(text)


def _code(error: sqlite3.Error) -> int:
    # Errors of the Python layer carry no code. The low byte is the primary one.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
