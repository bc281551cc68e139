"""A world's catalog that fails: when, how, and which objects it may still name wrongly."""

import random
from collections.abc import Mapping
from typing import Final

from ..adapters.memory.memory_catalog import MemoryCatalog
from ..adapters.simulation.faulty_catalog import CatalogFault, FaultyCatalog
from ..domain.stored_entry import ObjectName
from ..ports.catalog import Catalog
from .watched_storage import Ledger

TROUBLES: Final[tuple[Mapping[CatalogFault, float], ...]] = (
    {},
    {CatalogFault.FULL: 1.0},
    {CatalogFault.FULL: 0.3},
    {CatalogFault.READ_ONLY: 1.0},
    {CatalogFault.FAILED: 1.0},
    {CatalogFault.FAILED: 0.3},
    {CatalogFault.FULL: 0.1, CatalogFault.FAILED: 0.1},
)
"""What a catalog may do to calls, until it is mended; the first goes on as it is."""

ALONE: Final = 0.4
"""How often the medium itself works meanwhile."""


class CatalogTrouble:
    """Stands between each process and its catalog, in worlds where that fails.

    Attributes:
        aside: objects that were moved aside while the catalog failed, or later: one that the
            process could not tell of it names them until somebody wants to read them.
    """

    def __init__(self, *, happens: bool, seed: int) -> None:
        """All is well."""
        self.happens = happens
        self._seed = seed
        self._rates: Mapping[CatalogFault, float] = {}
        self._catalogs = 0
        self._faulty: FaultyCatalog | None = None
        self.aside: set[ObjectName] = set()

    def __bool__(self) -> bool:
        """Whether calls fail now."""
        return bool(self._rates)

    def between(self, catalog: MemoryCatalog) -> Catalog:
        """What the next process gets for its catalog."""
        if not self.happens:
            return catalog
        self._catalogs += 1
        self._faulty = FaultyCatalog(catalog, seed=self._seed + self._catalogs, rates=self._rates)
        return self._faulty

    def begin(self, rng: random.Random) -> bool:
        """From now on calls fail at some rate, if they do in this world; whether they alone do."""
        if not self.happens:
            return False
        # It works again only once it is mended: then it is told what it missed.
        self._set(rng.choice(TROUBLES) or self._rates)
        return bool(self._rates) and rng.random() < ALONE

    def end(self) -> bool:
        """Calls work again; whether any may have failed."""
        had = bool(self._rates)
        self._set({})
        return had

    def note(self, ledger: Ledger) -> None:
        """Remember what was moved aside, before the ledger forgets it."""
        if self._rates or self.aside:
            self.aside |= {name for name, _, _ in ledger.moved_aside}

    def _set(self, rates: Mapping[CatalogFault, float]) -> None:
        self._rates = rates
        if self._faulty is not None:
            self._faulty.rates = rates
