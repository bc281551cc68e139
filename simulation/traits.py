"""What one world is like: its machine, its clients, and how rough its life is."""

import random
from dataclasses import dataclass

from ..adapters.memory.checkable_state import Parts
from ..domain.anchor_budget import AnchorBudget
from ..domain.disk_retention import Shares
from ..domain.write_guard import WriteGuard
from .action import Kind
from .history import STEP_S

LANES_PLACE_SHARE = 1 / 3
"""Of the seeds, those whose worlds let lanes bring rows in by themselves."""

CATALOG_FAILS_FROM = 1000
"""The first seed of those whose catalogs may fail: worlds below keep the histories they are known
for."""

KEEPS_FROM = 60_000
"""The first seed of those whose servers may keep conversations in memory; likewise."""

PLENTY_BYTES = 1 << 20
"""Of memory that is never short in any world."""

QUICK_STEP_S = STEP_S / 50
"""What a step takes where rows are moved in memory: less by far than to read them again."""

HOST_BYTES = 1 << 14
"""More than the rows of all slots."""

RAM_BYTES = (0, 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 16, PLENTY_BYTES)
"""From none, over part of one conversation, to more than all of them need."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Fixed for a world's life; `draw` makes those of a seed.

    Attributes:
        clients: who use it.
        share_bytes: of the medium, for heads and for conversations alike.
        day_bytes: that may be written in a day before the guard begins to hold back.
        staging: buffers between slots and medium.
        queue: requests that may wait.
        damage: how often stored bytes change by themselves, calls fail and forwards fail; a factor.
        crashes: how often the process ends when nobody asked it to; a factor.
        disk: whether there is a tier on a medium at all.
        cache: whether anything is kept at all.
        heads: how many shared beginnings there are.
        quarantined: objects that were moved aside and are kept.
        lanes_place: whether lanes bring rows in by themselves.
        alike: how many of the requests of a burst are the first one's prompt; a share.
        catalog_fails: whether the catalog may fail while calls to the medium do.
        ram_bytes: that memory may keep of conversations that lost their slot.
        step_s: what each step of the scheduler takes.
        host_bytes: of all memory, which others use too; 0 holds nobody to that.
        heal_idle_s: nobody asked for so long before tainted rows are prefilled again.
        plan: what is done in turn, again and again, between what is drawn.
    """

    slots: int = 1
    window: int = 256
    grid: int = 8
    parts: Parts = Parts.HYBRID
    row_invariant: bool = False
    clients: int = 4
    share_bytes: int = 1 << 22
    day_bytes: int = 1 << 40
    anchors: int = 6
    newest: int = 2
    staging: int = 3
    queue: int = 4
    save_tokens: int = 16
    idle_s: float | None = None
    damage: float = 1.0
    crashes: float = 1.0
    disk: bool = True
    cache: bool = True
    compress: bool = False
    heads: int = 2
    lanes_place: bool = False
    quarantined: int = 2
    alike: float = 0.0
    catalog_fails: bool = False
    ram_bytes: int = 0
    step_s: float = STEP_S
    host_bytes: int = 0
    heal_idle_s: float | None = None
    plan: tuple[Kind, ...] = ()

    @property
    def shares(self) -> Shares:
        """The budget on the medium."""
        return Shares(self.share_bytes, self.share_bytes)

    @property
    def anchor_budget(self) -> AnchorBudget:
        """The budget of a slot's anchors."""
        return AnchorBudget(
            bytes_max=0,
            count_min=self.anchors,
            count_max=self.anchors,
            newest_kept=self.newest,
        )

    @property
    def guard(self) -> WriteGuard:
        """The budget of a day's writing."""
        return WriteGuard(self.day_bytes, 12 * self.grid)

    @classmethod
    def draw(cls, seed: int) -> "Traits":
        """The traits of a seed's world."""
        rng = random.Random(f"traits {seed}")  # noqa: S311 - a world, not a secret
        newest = rng.choice([2, 2, 4])
        memory = random.Random(f"memory {seed}")  # noqa: S311
        ram_bytes = 0 if seed < KEEPS_FROM else memory.choice(RAM_BYTES)
        step_s = QUICK_STEP_S if ram_bytes else STEP_S
        heals = seed >= KEEPS_FROM
        heal_idle_s = memory.choice([None, None, 4 * step_s, 20 * step_s]) if heals else None
        host_bytes = memory.choice([0, 0, 16 * (ram_bytes + HOST_BYTES)]) if ram_bytes else 0
        return cls(
            slots=rng.choice([1, 1, 1, 2, 2, 3]),
            window=rng.choice([128, 192, 256, 256]),
            grid=rng.choice([8, 8, 16]),
            parts=rng.choice([Parts.HYBRID, Parts.HYBRID, Parts.ATTENTION, Parts.RECURRENT]),
            row_invariant=rng.random() < 0.25,
            clients=rng.randint(2, 6),
            share_bytes=rng.choice([1 << 19, 1 << 20, 1 << 22, 1 << 24]),
            day_bytes=rng.choice([1 << 40, 1 << 40, 1 << 22, 1 << 20]),
            anchors=rng.choice([newest + 1, 6, 12]),
            newest=newest,
            staging=rng.choice([1, 2, 3, 8]),
            queue=rng.choice([1, 2, 8]),
            save_tokens=rng.choice([16, 16, 64]),
            idle_s=rng.choice([None, 5 * step_s, 20 * step_s]),
            damage=rng.choice([0.0, 1.0, 1.0, 3.0]),
            crashes=rng.choice([0.0, 1.0, 1.0, 3.0]),
            disk=rng.random() < 0.85,
            cache=rng.random() < 0.97,
            compress=rng.random() < 0.15,
            heads=rng.randint(1, 3),
            lanes_place=random.Random(f"lanes {seed}").random() < LANES_PLACE_SHARE,  # noqa: S311
            ram_bytes=ram_bytes,
            step_s=step_s,
            host_bytes=host_bytes,
            heal_idle_s=heal_idle_s,
            catalog_fails=seed >= CATALOG_FAILS_FROM and seed % 3 > 0,
        )
