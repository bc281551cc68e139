"""What `ports/memory.py` promises, as tests over any pool."""

from abc import ABC, abstractmethod

from anchorline.ports.memory import Memory


class MemoryContract(ABC):
    @abstractmethod
    def make_memory(self) -> Memory: ...

    def test_the_figures_fit_each_other(self) -> None:
        use = self.make_memory().use()

        assert 0 <= use.allocated <= use.reserved <= use.total
        assert use.reserved <= use.highest
        assert 0 <= use.available <= use.total

    def test_figures_are_whole_bytes(self) -> None:
        use = self.make_memory().use()

        assert [type(figure) for figure in (use.allocated, use.reserved, use.available)] == [
            int
        ] * 3

    def test_giving_back_never_loses_what_is_allocated(self) -> None:
        memory = self.make_memory()
        before = memory.use()

        given = memory.give_back()

        after = memory.use()
        assert given >= 0
        assert after.reserved >= after.allocated
        assert after.total == before.total

    def test_what_rose_before_the_first_call_is_not_told(self) -> None:
        memory = self.make_memory()

        assert memory.rose() == 0
        assert 0 <= memory.rose() < memory.use().total
