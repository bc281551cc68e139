"""Where each planted fault was found soonest: what `make faults` tries first, and tests run."""

from typing import Final, NamedTuple


class Seen(NamedTuple):
    """A world that catches a fault.

    Attributes:
        rule: that is broken.
        step: at which it is.
    """

    rule: str
    seed: int
    step: int


SEEN: Final[dict[str, Seen]] = {
    "tokens not compared": Seen("state", 4, 3),
    "anchor before the forward": Seen("state", 2, 2),
    "failed forward kept": Seen("state", 1, 19),
    "one slot of a failed batch": Seen("state", 10, 94),
    "sections aliased": Seen("state", 2, 2),
    "sections of another line": Seen("state", 2, 2),
    "view forgotten": Seen("state", 4, 0),
    "wrong taint after a resume": Seen("gate", 0, 11),
    "written over clean rows": Seen("gate", 0, 4),
    "preserved told bitwise": Seen("gate", 0, 3),
    "clean end told bitwise": Seen("gate", 0, 3),
    "end of a state that went on": Seen("reread", 2, 1),
    "anchors outlive their rows": Seen("state", 4, 1),
    "anchors not released": Seen("leak", 4, 1),
    "nothing left to forward": Seen("fault", 4, 16),
    "grid from the resume point": Seen("fault", 4, 10),
    "namespace ignored": Seen("state", 4, 5),
    "request dropped": Seen("progress", 0, 9),
    "cancelled prefill goes on": Seen("progress", 2, 55),
    "negative counter": Seen("fault", 4, 10),
    "unread counted as read": Seen("counter", 2, 56),
    "resumed counted as cold": Seen("counter", 4, 7),
    "tainted heads": Seen("gate", 0, 101),
    "lend not given back": Seen("leak", 8, 58),
    "reads not taken back": Seen("leak", 5, 24),
    "flush always durable": Seen("durable", 4, 17),
    "staging buffer reused": Seen("damage", 4, 7),
    "staging buffer not given back": Seen("leak", 4, 12),
    "no fence": Seen("fault", 4, 3),
    "catalog before objects": Seen("durable", 0, 11),
    "transaction left open": Seen("durable", 4, 8),
    "flush before the commit": Seen("durable", 4, 8),
    "newest end not saved": Seen("durable", 5, 3),
    "end lost when merged": Seen("durable", 4, 8),
    "saved by reference": Seen("damage", 2, 6),
    "saved as clean": Seen("gate", 0, 10),
    "sections in place saved": Seen("state", 2, 2),
    "stored tokens not compared": Seen("state", 17, 19),
    "in place by its tokens": Seen("state", 6, 183),
    "sums and checksums not checked": Seen("state", 2, 126),
    "view not restored": Seen("damage", 4, 7),
    "view not restored, sums of what was read": Seen("state", 4, 7),
    "anchors kept over an import": Seen("state", 2, 25),
    "damaged entry kept": Seen("progress", 4, 27),
    "anchors kept above damage": Seen("damage", 4, 27),
    "file not synced": Seen("durable", 6, 25),
    "directory not synced": Seen("durable", 6, 25),
    "budget ignored during writes": Seen("budget", 1, 19),
    "stale index after a delete": Seen("durable", 1, 16),
    "referenced block deleted": Seen("durable", 4, 8),
    "counted-on block deleted": Seen("durable", 0, 9),
    "orphans stay": Seen("leak", 0, 13),
    "namespace not in the key": Seen("counter", 4, 5),
    "weights not in the fingerprint": Seen("state", 4, 72),
    "foreign entries offered": Seen("index", 4, 65),
    "newest conversation first": Seen("retention", 6, 15),
    "age by the wall clock": Seen("retention", 11, 220),
    "write guard ignored": Seen("guard", 0, 27),
    "no rebuild": Seen("durable", 0, 17),
    "temporary and quarantined not counted": Seen("budget", 1005, 90),
    "quarantined object trusted": Seen("damage", 1000, 9),
    "rebuilt by tokens": Seen("durable", 1000, 10),
    "merged without the taint": Seen("gate", 4, 222),
    "moved too late": Seen("kept", 0, 4),
    "written on over what is kept": Seen("kept", 0, 5),
    "kept with another taint": Seen("gate", 0, 4),
    "longer than its key": Seen("fault", 13, 9),
    "end with another one's spans": Seen("kept", 0, 5),
    "given up unwritten": Seen("durable", 7, 9),
    "lent too short": Seen("leak", 0, 11),
    "consumed by its reader": Seen("kept", 0, 11),
    "best leaves first": Seen("retention", 0, 24),
    "anchor released by its slot": Seen("fault", 0, 4),
    "anchor written over": Seen("kept", 0, 4),
    "second claim forgotten": Seen("kept", 6, 39),
    "claims outlive their rows": Seen("kept", 0, 12),
    "lost and not told": Seen("kept", 7, 9),
    "copy not given back": Seen("leak", 1, 9),
    "copied before there is room": Seen("budget", 0, 11),
    "claims after a failed forward": Seen("kept", 9, 22),
    "shared across namespaces": Seen("namespace", 0, 5),
    "tainted taken for clean": Seen("gate", 0, 4),
    "session for identity": Seen("kept", 0, 17),
    "kept tokens not compared": Seen("fault", 8, 40),
    "no fence before rows come back": Seen("damage", 3, 16),
    "memory not foreseen": Seen("peek", 0, 11),
    "best reason first": Seen("retention", 5, 5),
}

ESCAPED: Final[frozenset[str]] = frozenset()
"""Faults that no world of some thousands of steps has caught yet."""
