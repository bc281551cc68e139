"""What a start costs with 100,000 stored objects, and a commit of the catalog at any time.

Times are against what was promised, and against one bare sync of a page: the drive's own share.
The directories' pages are in memory, as after a restart of the server and not of the machine.
"""

import gc
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from report import Figure, Options, against
from storage_drive import ROOM, scratch
from storage_states import LARGE, made_state, profile_of

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.codec.raw_codec import RawCodec
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.adapters.system.clock import SystemClock
from anchorline.adapters.system.collection import no_collection
from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.object_store import ObjectStore
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.content_chain import ContentChain
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.fingerprint import Fingerprint, fingerprint_of
from anchorline.domain.object_header import ObjectKind
from anchorline.domain.object_name import ObjectIdentity
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.write_guard import WriteGuard
from anchorline.ports.engine import EngineProfile

BLOCKS: Final = 96
ANCHORS: Final = 4
ENTRIES: Final = 1_000
ENTRIES_QUICK: Final = 50
GRID: Final = 1_024
OBJECT_BYTES: Final = 4_096
REPETITIONS: Final = 7
REPETITIONS_QUICK: Final = 2
COMMITS: Final = 25
PROMISED_S: Final = 0.5


def figures(options: Options) -> Iterator[Figure]:
    """The index, the walk over the files, and a commit."""
    entries = ENTRIES_QUICK if options.quick else ENTRIES
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    profile = profile_of(made_state(LARGE, GRID).layout, (BLOCKS + 1) * GRID, GRID)
    with scratch() as directory:
        options.progress(f"start: {entries} entries are made")
        yield _made(directory, fingerprint_of(profile.facts), entries)
        found = Starts()
        for number in range(-1, repetitions):
            options.progress(f"start: {number + 1} of {repetitions}")
            found = _start(directory, profile, Starts() if number == 0 else found)
    count = f"{entries * (BLOCKS + ANCHORS):,} objects"
    promised = [PROMISED_S] * repetitions
    for name, seconds, target in (
        ("catalog and index of the tier", found.index_s, "below 1"),
        ("opening the storage, which walks over the files", found.open_s, ""),
        ("looking for strays, which reads names alone", found.strays_s, ""),
    ):
        what = f"start with {count}: {name} / {PROMISED_S} s"
        yield Figure("made", what, seconds, promised, against(seconds, promised), target)


@dataclass(slots=True)
class Starts:
    """Seconds of the steps of a start."""

    index_s: list[float] = field(default_factory=list[float])
    open_s: list[float] = field(default_factory=list[float])
    strays_s: list[float] = field(default_factory=list[float])


def _start(directory: Path, profile: EngineProfile, into: Starts) -> Starts:
    """Open everything as the composition root does."""
    opened: list[NvmeStorage] = []
    into.open_s.append(_seconds(lambda: opened.append(NvmeStorage(directory, bytes_max=ROOM))))
    store = ObjectStore(opened[0], RawCodec(PlaneCodec()))
    tiers: list[DiskTier] = []
    into.index_s.append(_seconds(lambda: tiers.append(_loaded(directory, store, profile))))
    strays: list[int] = []
    into.strays_s.append(_seconds(lambda: strays.append(tiers[0].reclaim())))
    assert strays == [0]
    tiers[0].close()
    return into


def _loaded(directory: Path, store: ObjectStore, profile: EngineProfile) -> DiskTier:
    """As the composition root does it; the collector's one pass over what is new is part of it."""
    with no_collection():
        tier = _tier(directory, store, profile)
    gc.collect(1)
    return tier


def _tier(directory: Path, store: ObjectStore, profile: EngineProfile) -> DiskTier:
    return DiskTier(
        store,
        SqliteCatalog(directory / "catalog.db"),
        SystemClock(),
        PrometheusTelemetry(),
        profile,
        fingerprint_of(profile.facts),
        DiskLimits(Shares(ROOM, ROOM), Ages(), WriteGuard(ROOM, GRID)),
        local_day=lambda: "2026-11-29",
    )


def _made(directory: Path, fingerprint: Fingerprint, count: int) -> Figure:
    """Fill the directory and its catalog; what a commit takes against a sync of one page."""
    catalog = SqliteCatalog(directory / "catalog.db")
    entries = [_entry(fingerprint, number) for number in range(count)]
    for entry in entries[COMMITS:]:
        for part in (*entry.blocks, *entry.anchors):
            _make_file(directory / part.name)
        catalog.put(entry)
    os.sync()
    commits: list[float] = []
    syncs: list[float] = []
    fd = os.open(directory / "synced", os.O_WRONLY | os.O_CREAT, 0o600)
    for number, entry in enumerate(entries[:COMMITS]):
        for part in (*entry.blocks, *entry.anchors):
            _make_file(directory / part.name)
        os.sync()
        commits.append(_seconds(lambda entry=entry: catalog.put(entry)))
        os.pwrite(fd, bytes(OBJECT_BYTES), number * OBJECT_BYTES)
        syncs.append(_seconds(lambda: os.fsync(fd)))
    os.close(fd)
    catalog.finish_rebuild()  # nothing is a stray to a catalog that may lack entries
    catalog.close()
    what = "commit of an entry of 100 objects / a sync of one more page"
    return Figure("made", what, commits, syncs, against(commits, syncs))


def _entry(fingerprint: Fingerprint, number: int) -> StoredEntry:
    """A long conversation with anchors at its end."""
    lines = [GRID * (block + 1) for block in range(BLOCKS)]
    keys = {
        line: PrefixKey(hashlib.sha256(f"{number} {line}".encode()).digest()[:16]) for line in lines
    }

    def name(kind: ObjectKind, line: int) -> ObjectName:
        return ObjectIdentity(fingerprint, kind, keys[line], ContentChain(keys[line])).name

    blocks = [
        StoredBlock(name(ObjectKind.BLOCK, line), keys[line], line, OBJECT_BYTES) for line in lines
    ]
    anchors = [
        StoredAnchor(name(ObjectKind.GRID, line), keys[line], line, AnchorKind.GRID, OBJECT_BYTES)
        for line in lines[-ANCHORS:]
    ]
    return StoredEntry(
        id=EntryId(f"made-{number}"),
        role=Role.CONVERSATION,
        fingerprint=fingerprint,
        blocks=tuple(blocks),
        anchors=tuple(anchors),
        taint=lines[-1],
        end=None,
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


def _make_file(path: Path) -> None:
    """A file of the right length with nothing in it: a walk looks no further."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, OBJECT_BYTES)
    os.close(fd)


def _seconds(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s
