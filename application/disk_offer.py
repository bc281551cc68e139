"""Stored state as an offer to a request, priced by the measured rate of its medium."""

from dataclasses import dataclass

from ..domain.disk_index import Continuation
from ..domain.entry import Role, Source, Tier
from ..domain.measured_rate import MeasuredRate
from ..domain.offers import Offer
from ..domain.taint_line import TaintLine


@dataclass(frozen=True, slots=True)
class DiskOffer:
    """An offer, and what it would bring in."""

    offer: Offer
    continuation: Continuation


def disk_offer(
    found: Continuation, in_place: int, rate: MeasuredRate, *, row_invariant: bool
) -> DiskOffer:
    """What a continuation offers.

    Args:
        in_place: rows that a slot shares with the prompt, and that need not be read.
    """
    entry, anchor = found.entry, found.anchor
    missing, missing_bytes = found.missing(in_place)
    move_bytes = anchor.nbytes + missing_bytes
    offer = Offer(
        line=anchor.line,
        gate=TaintLine(entry.taint).gate(anchor.line, anchor.kind, row_invariant),
        tier=Tier.DISK,
        source=Source.HEAD if entry.role is Role.HEAD else Source.CONVERSATION,
        move_bytes=move_bytes,
        move_seconds=rate.seconds(move_bytes, 1 + missing),
    )
    return DiskOffer(offer, found)
