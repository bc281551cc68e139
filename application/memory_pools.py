"""All pools of memory of one server. A request has to fit each of them."""

from collections.abc import Mapping, Sequence
from typing import Final

from ..domain.errors import RequestError
from .memory_budget import MemoryBudget
from .memory_stats import MemoryStats

HOST: Final = "host"
"""The name of the pool in which rows are kept outside the slots."""


class MemoryPools:
    """The host's memory, and that of the device where it is another one. On the engine thread."""

    def __init__(self, budgets: Sequence[MemoryBudget]) -> None:
        """Takes the pool that the model runs in first; the host's is among them."""
        self._budgets = tuple(budgets)
        (self.host,) = [budget for budget in budgets if budget.pool == HOST]

    @property
    def model(self) -> MemoryBudget:
        """The pool that the model runs in."""
        return self._budgets[0]

    def before_response(self, context_tokens: int, running: Sequence[int] = ()) -> None:
        """As `MemoryBudget.before_response`, of each pool."""
        for budget in self._budgets:
            budget.before_response(context_tokens, running)

    def before_prefill(self, context_tokens: int, running: Sequence[int] = ()) -> None:
        """As `MemoryBudget.before_prefill`, of each pool."""
        for budget in self._budgets:
            budget.before_prefill(context_tokens, running)

    def after_request(self, running: Sequence[int] = ()) -> None:
        """As `MemoryBudget.after_request`, of each pool."""
        for budget in self._budgets:
            budget.after_request(running)

    def forwarding(self, context_tokens: int) -> None:
        """As `MemoryBudget.forwarding`, of the model's pool."""
        self.model.forwarding(context_tokens)

    def forwarded(self) -> None:
        """As `MemoryBudget.forwarded`, of the model's pool."""
        self.model.forwarded()

    def set_limits(self, pool: str | None, changes: Mapping[str, int | None]) -> None:
        """Change limits of one pool.

        Args:
            pool: its name; None is the model's.
            changes: as `MemoryBudget.set_limits` takes them.

        Raises:
            RequestError: they make no sense; nothing has changed.
        """
        named = self.model.pool if pool is None else pool
        budget = next((budget for budget in self._budgets if budget.pool == named), None)
        if budget is None:
            known = " and ".join(budget.pool for budget in self._budgets)
            raise RequestError(f"there is no pool {named!r}; there is {known}", field="pool")
        if "ram_bytes_max" in changes and budget is not self.host:
            raise RequestError(f"that is a limit of the pool {HOST!r}", field="ram_bytes_max")
        budget.set_limits(changes)

    def stats(self) -> tuple[MemoryStats, ...]:
        """The figures of each pool, the model's first."""
        return tuple(budget.stats() for budget in self._budgets)
