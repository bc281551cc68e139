"""Servers that verify, and keep conversations in memory."""

from typing import Final

from anchorline.application.kept_blocks import KeptBlock
from anchorline.application.live_verify_report import Found, LiveReport
from anchorline.application.ram_entry import RamEntry
from support.verified import VerifiedServer

PLENTY: Final = 1 << 20


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def a_server(**how: object) -> VerifiedServer:
    """One that keeps all in memory, and nothing on a medium unless told to."""
    return VerifiedServer(
        **{"disk_enabled": False, "ram_bytes_max": PLENTY, **how}  # type: ignore[arg-type]
    )


def parked(server: VerifiedServer) -> RamEntry:
    """A conversation of 100 tokens and an answer, whose slot another one took.

    The other one's rows end below its last ones: those still stand in the slot, and there alone.
    """
    server.ask(ids(0, 100), max_tokens=21)
    server.ask(ids(50, 70))
    (entry,) = server.memory.entries
    return entry


def come_back(server: VerifiedServer) -> RamEntry:
    """The same once it has come back, and lost the slot to a short request.

    Its lowest rows are copies, its highest stand in the slot, and those between are both.
    """
    entry = parked(server)
    server.ask([*entry.ids.tolist(), 5], max_tokens=0)
    server.ask(ids(30, 10), max_tokens=1)
    return next(one for one in server.memory.entries if one.line >= entry.line)


def block_at(entry: RamEntry, row: int) -> KeptBlock:
    return next(block for block in entry.blocks if block.span.start <= row < block.span.end)


def only_mismatch(report: LiveReport) -> Found:
    """What was found, which is one thing."""
    (found,) = report.mismatches
    return found
