"""Bounds of a server's scheduler and of what it keeps."""

from dataclasses import dataclass

from ..domain.anchor_budget import AnchorBudget
from ..domain.ram_retention import Retention


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the scheduler.

    Attributes:
        queue_max: requests that wait for a slot.
        anchors: the budget of each slot's grid anchors.
        cache_enabled: False serves every request cold.
        ram_bytes_max: of what memory keeps of conversations that lost their slot; None keeps
            none, and has no tier whose budget could become more.
        retention: which of them leaves first.
        heal_idle_s: nobody asked for anything for so long before tainted rows are prefilled again;
            None never does it.
        ram_idle_s: unused for so long, what the medium has leaves memory; None keeps it.
        prefetch: read what queued requests resume from into memory, where there are both tiers.
    """

    queue_max: int
    anchors: AnchorBudget
    cache_enabled: bool
    ram_bytes_max: int | None = None
    retention: Retention = Retention.VALUE
    ram_idle_s: float | None = None
    heal_idle_s: float | None = None
    prefetch: bool = True
