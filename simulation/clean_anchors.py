"""What is said to be clean is what a cold prefill leaves."""

from collections.abc import Set

from ..application.disk_tier import DiskTier
from ..application.object_store import ObjectStore
from ..domain.anchor import AnchorKind
from ..domain.errors import StorageError
from ..domain.stored_entry import ObjectName
from .box import Box
from .oracle import Node, Realm
from .violation import violated


class CleanAnchors:
    """Looks once at each stored grid anchor whose entry says that no other row is below it."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._seen: set[ObjectName] = set()

    def check(self, tier: DiskTier, box: Box, excused: Set[ObjectName]) -> None:
        """Hold what the running process offers against the oracle.

        Args:
            excused: objects that the medium has changed or lost.

        Raises:
            Violation: an anchor is told clean, and another history than a cold prefill's made it.
        """
        for entry in tier.index.entries():
            for anchor in entry.anchors:
                said = anchor.kind is AnchorKind.GRID and entry.taint >= anchor.line
                if said and anchor.name not in self._seen and anchor.name not in excused:
                    self._seen.add(anchor.name)
                    node = _made(box, anchor.name)
                    if node is not None and not node.is_cold(box.grid):
                        violated("gate", f"an anchor of line {anchor.line} is not clean")


def _made(box: Box, name: ObjectName) -> Node | None:
    """The state whose sections an anchor holds; None where it holds none, or cannot be read.

    The sections that are asked for are one word each, and so are their plain sums.
    """
    try:
        header = ObjectStore(box.storage, box.codec).read_header(name)
    except StorageError:
        return None
    words = {part.name: part.sums.plain for part in header.parts}
    if "tokens" not in words:
        return None
    realm = Realm(box.weights, header.namespace)
    return box.oracle.known(realm, header.line, words["tokens"], words["bits_after"])
