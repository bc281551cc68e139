"""What the tier on the medium may never do between two moments: lose, mix up, overfill."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from ..adapters.memory.crashable_storage import CrashableStorage
from ..application.disk_tier import DiskTier
from ..application.heirs import Heirs
from ..domain.anchor import AnchorKind
from ..domain.disk_index import objects_of
from ..domain.entry import EntryId, Role
from ..domain.stored_entry import ObjectName, StoredEntry
from ..ports.catalog import Catalog
from .violation import violated


@dataclass(frozen=True, slots=True)
class TierState:
    """What a tier holds at one moment.

    Attributes:
        evicted: entries that left by a rule since the process started.
        quarantined: objects that were found damaged since then.
        heirs: who took whose place since then.
    """

    entries: Mapping[EntryId, StoredEntry]
    evicted: int
    quarantined: int
    heirs: Heirs = field(default_factory=Heirs)

    @classmethod
    def of(cls, tier: DiskTier | None) -> "TierState | None":
        """The present one; None without a tier."""
        if tier is None:
            return None
        return cls(
            {entry.id: entry for entry in tier.entries()},
            tier.counters.evicted,
            tier.counters.quarantined,
            tier.heirs,
        )

    @classmethod
    def of_catalog(cls, catalog: Catalog) -> "TierState":
        """What is committed, whoever runs."""
        return cls({entry.id: entry for entry in catalog.entries()}, 0, 0)


def check_went_on(before: TierState, after: TierState) -> None:
    """Between two moments of one process nothing is lost but by a rule.

    Raises:
        Violation: an entry is gone, or lost its end, and nothing says why.
    """
    if after.quarantined != before.quarantined:
        return
    for entry_id, entry in before.entries.items():
        now = after.entries.get(entry_id)
        if now is not None and _ends(entry) and not _ends(now):
            violated("durable", f"entry {entry_id} of line {_top(entry)} lost its end")
    gone = [entry for entry_id, entry in before.entries.items() if entry_id not in after.entries]
    unexplained = [entry for entry in gone if not is_continued(entry, after.entries.values())]
    # Two may have given their place to a longer one, which left then: that is one that left.
    left = {after.heirs.of(entry.id) for entry in unexplained} - after.entries.keys()
    if len(left) > after.evicted - before.evicted:
        lines = sorted(_top(entry) for entry in unexplained)
        went = after.evicted - before.evicted
        violated("durable", f"entries of lines {lines} are gone and {went} left by a rule")


def check_survived(before: TierState, after: TierState) -> None:
    """What was committed when a process ended is there in the next one, or left by a rule.

    Raises:
        Violation: something is gone, or came from nowhere.
    """
    gone = [entry for entry_id, entry in before.entries.items() if entry_id not in after.entries]
    if len(gone) > after.evicted:
        lines = sorted(_top(entry) for entry in gone)
        violated("durable", f"of lines {lines} only {after.evicted} left by a rule")
    new = set(after.entries) - set(before.entries)
    if new:
        violated("index", f"{len(new)} entries that nobody committed")
    for entry_id, entry in after.entries.items():
        if entry.anchors != before.entries[entry_id].anchors:
            violated("durable", f"entry {entry_id} has other anchors after a restart")


def check_rebuilt(before: TierState, after: TierState) -> None:
    """What was committed is found again by its objects alone, up to its highest anchor.

    Raises:
        Violation: something is not.
    """
    found = {
        (entry.fingerprint, anchor.key, anchor.line)
        for entry in after.entries.values()
        for anchor in entry.anchors
    }
    lost = [
        entry
        for entry in before.entries.values()
        if (entry.fingerprint, entry.anchors[-1].key, entry.anchors[-1].line) not in found
    ]
    if len(lost) > after.evicted:
        lines = sorted(_top(entry) for entry in lost)
        violated("durable", f"entries of lines {lines} were not found again by their objects")


def check_kept(before: TierState, after: TierState, gone: Set[ObjectName]) -> None:
    """A start without a catalog destroys nothing that was committed, be it readable then or not.

    Args:
        gone: objects that were there before the start.

    Raises:
        Violation: it did.
    """
    needed = {name for entry in before.entries.values() for name in objects_of(entry)}
    if needed & gone and not after.evicted:
        violated("durable", f"a rebuild took {len(needed & gone)} objects of entries away")


def check_index(tier: DiskTier, storage: CrashableStorage, excused: Set[ObjectName]) -> None:
    """Every entry has its objects, as long as it says, and is of the arithmetic it stands under.

    Args:
        excused: objects that the medium itself has lost or changed.

    Raises:
        Violation: one has not.
    """
    there = {one.name: one.nbytes for one in storage.names()}
    for entry in tier.entries():
        for name, nbytes in objects_of(entry).items():
            if name not in excused and there.get(name) != nbytes:
                violated(
                    "durable",
                    f"an entry of line {_top(entry)} needs {name}: {nbytes} bytes, "
                    f"there are {there.get(name)}",
                )
    for entry in tier.index.entries():
        if entry.fingerprint not in tier.fingerprints:
            violated("index", f"an entry of another arithmetic is offered: {entry.id}")


def check_budget(used: int, pool: int) -> None:
    """All that stands on the medium fits the budget, temporary and quarantined objects too.

    Raises:
        Violation: it does not.
    """
    if used > pool:
        violated("budget", f"{used} bytes stand where {pool} may")


def is_continued(entry: StoredEntry, others: Iterable[StoredEntry]) -> bool:
    """Whether a longer conversation holds all of its rows but those of its last block."""
    rows = {block.name for block in entry.blocks[:-1]}
    return entry.role is Role.CONVERSATION and any(
        other.role is Role.CONVERSATION
        and _top(other) >= _top(entry)
        and rows <= {block.name for block in other.blocks}
        for other in others
    )


def _ends(entry: StoredEntry) -> bool:
    return any(anchor.kind is AnchorKind.END for anchor in entry.anchors)


def _top(entry: StoredEntry) -> int:
    return max((anchor.line for anchor in entry.anchors), default=0)
