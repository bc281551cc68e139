"""Objects in memory, with a crash that loses what a real medium would lose."""

import itertools
import random
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...domain.errors import ObjectCorrupt, ObjectMissing, StorageFull, StorageUnavailable
from ...domain.stored_entry import ObjectName
from ...ports.block_storage import (
    ALIGNMENT,
    ByteArray,
    ByteRange,
    Space,
    StoredObject,
    object_name,
)

PUT_STEPS = ("create", "write", "sync file", "rename", "done")
"""What `put` is about to do when it calls its hook; `done` comes before it returns."""

SYNC_STEPS = ("sync directories", "synced")
"""The same of `sync`."""


class CrashedHere(BaseException):
    """Raised by a test's hook to stop a `put` between two steps; nothing is cleaned up."""


@dataclass(slots=True)
class _File:
    """A file's content, and the part of it that a power cut leaves."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class CrashableStorage:
    """Implements `ports.block_storage.BlockStorage`; also the one for a tier in RAM.

    `put` goes through the steps of a file on a disk: a temporary file is created, written, synced
    and renamed. `sync` syncs the directories. The storage keeps two views, what a running process
    sees and what is on the medium; `crash()` lets only the latter live, `kill()` only ends the
    process. With a `random.Random`, `crash` lets each unsynced thing live or die by itself, as a
    medium may do that wrote some of it early; content that was not synced may then be torn.

    A deletion is on the medium with the next sync of its directory: an object may come back.

    It does not model: a medium that loses or garbles what was synced (`overwrite` does that),
    errors and slowness (`adapters.simulation.FaultyStorage` does), directories that are not durable
    themselves, and the order in which a journal commits.
    """

    def __init__(
        self,
        *,
        bytes_max: int = 1 << 40,
        quarantined_max: int = 64,
        on_step: Callable[[str], None] = lambda _: None,
        forgets: Container[str] = (),
    ):
        """An empty storage.

        Args:
            bytes_max: for everything, temporary and quarantined files included.
            quarantined_max: objects.
            on_step: called before each of `PUT_STEPS` and `SYNC_STEPS`; what it raises passes
                through `put`, which cleans up unless it is `CrashedHere`, and through `sync`.
            forgets: steps that are left out: a faulty storage, for tests that have to be able
                to fail.
        """
        self._bytes_max = bytes_max
        self._quarantined_max = quarantined_max
        self.on_step = on_step
        self._forgets = forgets
        # All below is read and written under the lock. A put holds it to its end: calls do not
        # overlap here, and a second one for the same name finds the first one's object.
        self._lock = threading.RLock()
        self._seen: dict[str, _File] = {}
        self._on_medium: dict[str, _File] = {}
        self._unsynced: set[str] = set()  # names that the two views may see otherwise
        self._quarantined: dict[str, tuple[_File, str]] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def buffer(self, nbytes: int) -> ByteArray:
        return np.zeros(-(-nbytes // ALIGNMENT) * ALIGNMENT, dtype=np.uint8)

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        object_name(name)
        assert parts
        assert not any(len(part) % ALIGNMENT for part in parts)
        with self._lock:
            self._check_open()
            if name in self._seen:
                return 0
            nbytes = sum(map(len, parts))
            left = self._bytes_max - self._used()
            if nbytes > left:
                raise StorageFull(f"{nbytes} bytes do not fit: {left} of {self._bytes_max} left")
            temporary = f"{name}.tmp-{next(self._numbers)}"
            try:
                self._write(name, temporary, parts)
            except CrashedHere:
                raise
            except BaseException:
                self._unlink(temporary)
                self._unlink(name)
                raise
            return nbytes

    def _write(self, name: str, temporary: str, parts: Sequence[ByteArray]) -> None:
        self.on_step("create")
        file = self._seen[temporary] = _File()
        self._unsynced.add(temporary)
        for part in parts:
            self.on_step("write")
            file.content += part.data
        self.on_step("sync file")
        if "sync file" not in self._forgets:
            file.durable = bytes(file.content)
        self.on_step("rename")
        self._seen[name] = self._seen.pop(temporary)
        self._unsynced.add(name)
        self.on_step("done")

    def sync(self) -> None:
        with self._lock:
            self._check_open()
            self.on_step("sync directories")
            if "sync directories" not in self._forgets:
                for name in list(self._unsynced):
                    self._sync_directory(name)
            self.on_step("synced")

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        with self._lock:
            content = self._file(name).content
            for span, buffer in zip(ranges, buffers, strict=True):
                assert span.start % ALIGNMENT == 0 == span.end % ALIGNMENT
                assert len(buffer) == span.end - span.start
                if span.end > len(content):
                    raise ObjectCorrupt(
                        f"{name} has {len(content)} bytes and should reach to {span.end}"
                    )
                buffer[:] = np.frombuffer(content, dtype=np.uint8)[span.start : span.end]

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        with self._lock:
            return bytes(self._file(name).content[:nbytes])

    def delete(self, name: ObjectName) -> int:
        object_name(name)
        with self._lock:
            self._check_open()
            return self._unlink(name)

    def quarantine(self, name: ObjectName, reason: str) -> None:
        object_name(name)
        with self._lock:
            self._check_open()
            file = self._seen.get(name)
            if file is None:
                return
            self._unlink(name)
            self._sync_directory(name)
            self._quarantined[f"{next(self._numbers)} {name}"] = (file, reason)
            while len(self._quarantined) > self._quarantined_max:
                del self._quarantined[next(iter(self._quarantined))]

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        with self._lock:
            self._check_open()
            found = [
                StoredObject(ObjectName(name), _padded(len(file.content)))
                for name, file in self._seen.items()
                if name.startswith(prefix) and ".tmp-" not in name
            ]
        yield from found

    def all_names(self) -> Iterator[ObjectName]:
        yield from (found.name for found in self.names())

    def space(self) -> Space:
        with self._lock:
            self._check_open()
            used = self._used()
            return Space(used, max(self._bytes_max - used, 0), self._bytes_max)

    def close(self) -> None:
        with self._lock:
            self._closed = True

    # What follows is not the port's: it goes behind its back, for tests.

    @property
    def quarantined(self) -> list[tuple[str, str]]:
        """Names and reasons, oldest first."""
        return [(key.partition(" ")[2], reason) for key, (_, reason) in self._quarantined.items()]

    def content(self, name: ObjectName) -> bytes:
        return bytes(self._seen[name].content)

    def overwrite(self, name: ObjectName, content: bytes) -> None:
        """Give an object other bytes, as a broken medium does."""
        self._seen[name].content = bytearray(content)
        self._seen[name].durable = content

    def kill(self, *, bytes_max: int | None = None) -> "CrashableStorage":
        """The storage as a new process finds it after this one was killed.

        What was not synced is not synced now: the new process sees it, and may yet lose it.
        """
        return self._restarted(self._seen, self._on_medium, bytes_max)

    def crash(
        self, chance: random.Random | None = None, *, bytes_max: int | None = None
    ) -> "CrashableStorage":
        """The storage as it is found after a power cut.

        Args:
            chance: decides what of the unsynced lives all the same; without it nothing does.
            bytes_max: the new limit, the same one if None.
        """
        survivors = dict(self._on_medium)
        for name in sorted(self._unsynced):
            if chance is not None and chance.random() < 0.5:  # the directory was written early
                _set(survivors, name, self._seen.get(name))
        for name, file in survivors.items():
            if len(file.durable) == len(file.content):
                continue
            torn = 0 if chance is None else chance.randrange(len(file.content) + 1)
            durable = bytes(file.content[: max(torn, len(file.durable))])
            survivors[name] = _File(bytearray(durable), durable)
        return self._restarted(survivors, survivors, bytes_max)

    def _restarted(
        self, seen: dict[str, _File], on_medium: dict[str, _File], bytes_max: int | None
    ) -> "CrashableStorage":
        self._closed = True
        limit = self._bytes_max if bytes_max is None else bytes_max
        fresh = CrashableStorage(bytes_max=limit, quarantined_max=self._quarantined_max)
        # The start reclaims temporary files.
        fresh._seen = {name: file for name, file in seen.items() if ".tmp-" not in name}
        fresh._on_medium = {name: file for name, file in on_medium.items() if ".tmp-" not in name}
        fresh._unsynced = {
            name
            for name in {*fresh._seen, *fresh._on_medium}
            if fresh._seen.get(name) is not fresh._on_medium.get(name)
        }
        fresh._quarantined = dict(self._quarantined)
        return fresh

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailable("the storage has been closed")

    def _file(self, name: ObjectName) -> _File:
        object_name(name)
        self._check_open()
        if name not in self._seen:
            raise ObjectMissing(f"there is no object {name}")
        return self._seen[name]

    def _unlink(self, name: str) -> int:
        file = self._seen.pop(name, None)
        if file is None:
            return 0
        self._unsynced.add(name)
        return _padded(len(file.content))

    def _sync_directory(self, name: str) -> None:
        directory = name.rpartition("/")[0]
        for entry in [entry for entry in self._unsynced if entry.rpartition("/")[0] == directory]:
            _set(self._on_medium, entry, self._seen.get(entry))
            self._unsynced.discard(entry)

    def _used(self) -> int:
        files = [*self._seen.values(), *(file for file, _ in self._quarantined.values())]
        return sum(_padded(len(file.content)) for file in files)


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _set(view: dict[str, _File], name: str, file: _File | None) -> None:
    if file is None:
        view.pop(name, None)
    else:
        view[name] = file
