"""Copies of sections that slots and entries share."""

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.application.held_sections import HeldSections
from anchorline.domain.anchor import SectionsHandle
from contract.readings import as_bytes, copied_sections, prefill_to
from support.builders import random_ids


class Holding:
    """An engine of two slots, and who holds which copy."""

    def __init__(self) -> None:
        self.engine = CheckableEngine(slots=2, window=64, grid=8)
        self.one = self.engine.profile.layout.section_bytes
        self.held = HeldSections(self.engine.copies, self.one)

    def prefill(self, line: int, *, slot: int = 0) -> None:
        prefill_to(self.engine, slot, random_ids(64), line)

    def capture(self, into: SectionsHandle | None = None, *, slot: int = 0) -> SectionsHandle:
        return self.held.capture(self.engine.slots[slot], into)

    def read(self, handle: SectionsHandle) -> dict[str, bytes]:
        return as_bytes(copied_sections(self.engine, handle))

    @property
    def live(self) -> int:
        return self.engine.copies.counts().sections


def test_a_copy_that_only_its_slot_holds_is_written_over() -> None:
    holding = Holding()
    holding.prefill(8)
    handle = holding.capture()
    holding.prefill(16)

    again = holding.capture(into=handle)

    assert (again, holding.live) == (handle, 1)
    assert holding.engine.copies.sections_line(handle) == 16


def test_a_copy_that_an_entry_holds_is_not_written_over() -> None:
    holding = Holding()
    holding.prefill(8)
    handle = holding.capture()
    holding.held.keep(handle)
    expected = holding.read(handle)
    holding.prefill(16)

    again = holding.capture(into=handle)

    assert again != handle
    assert holding.read(handle) == expected
    assert holding.engine.copies.sections_line(again) == 16


def test_a_copy_that_another_slot_holds_is_not_written_over() -> None:
    holding = Holding()
    holding.prefill(8)
    handle = holding.capture()
    holding.held.hold(handle)
    expected = holding.read(handle)
    holding.prefill(16)

    again = holding.capture(into=handle)

    assert again != handle
    assert holding.read(handle) == expected


def test_a_copy_goes_with_the_last_slot_or_entry_that_holds_it() -> None:
    holding = Holding()
    holding.prefill(8)
    handle = holding.capture()
    holding.held.hold(handle)
    holding.held.keep(handle)
    holding.held.keep(handle)

    left: list[int] = []
    for give_up in (
        holding.held.release,
        holding.held.give_up,
        holding.held.release,
        holding.held.give_up,
    ):
        give_up(handle)
        left.append(holding.live)

    assert left == [1, 1, 1, 0]


def test_bytes_of_entries_are_counted_once_however_many_hold_a_copy() -> None:
    holding = Holding()
    holding.prefill(8)
    shared, alone = holding.capture(), holding.capture()
    for handle in (shared, shared, alone):
        holding.held.keep(handle)

    assert holding.held.entry_bytes == 2 * holding.one
    assert holding.held.freed_without({shared, alone}) == holding.one
    holding.held.give_up(shared)
    assert holding.held.freed_without({shared, alone}) == 2 * holding.one


def test_bytes_that_no_entry_holds_yet_are_those_of_slots_alone() -> None:
    holding = Holding()
    holding.prefill(8)
    kept, own = holding.capture(), holding.capture()
    holding.held.keep(kept)

    assert holding.held.bytes_not_kept({kept, own}) == holding.one
    assert holding.held.bytes_not_kept(set()) == 0


def test_a_slot_that_has_its_copy_no_more_leaves_it_to_the_entry() -> None:
    holding = Holding()
    holding.prefill(8)
    handle = holding.capture()
    expected = holding.read(handle)
    holding.held.keep(handle)

    holding.held.release(handle)
    holding.capture(slot=1)

    assert holding.read(handle) == expected
    assert holding.live == 2
