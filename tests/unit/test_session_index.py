"""Where each session's conversation stands."""

import gc
import tracemalloc

import pytest

from anchorline.domain.entry import EntryId, Tier
from anchorline.domain.namespace import Namespace
from anchorline.domain.session_index import SESSIONS_MAX, Place, SessionIndex

PLAIN = Namespace()
SALTED = Namespace(salt="s")
SLOT = Place(Tier.SLOT, 0)
PARKED = Place(Tier.RAM, EntryId("ram-1"))
STORED = Place(Tier.DISK, EntryId("d"))


class TestNewest:
    def test_a_session_is_found_where_it_was_noted_last(self) -> None:
        index = SessionIndex()

        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(PLAIN, "a", PARKED, 2.0)

        assert index.find(PLAIN, "a") == PARKED
        assert len(index) == 1

    def test_news_that_are_older_change_nothing(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 2.0)

        index.note(PLAIN, "a", STORED, 1.0)

        assert index.find(PLAIN, "a") == PARKED

    def test_a_copy_does_not_take_the_place_of_a_nearer_one(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 2.0)

        index.note(PLAIN, "a", STORED, 2.0)

        assert index.find(PLAIN, "a") == PARKED

    def test_a_nearer_copy_takes_the_place(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", STORED, 2.0)

        index.note(PLAIN, "a", SLOT, 2.0)

        assert index.find(PLAIN, "a") == SLOT

    def test_of_two_in_one_tier_the_one_noted_last_counts(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 2.0)

        index.note(PLAIN, "a", Place(Tier.RAM, EntryId("ram-2")), 2.0)

        assert index.find(PLAIN, "a") == Place(Tier.RAM, EntryId("ram-2"))

    def test_a_session_that_nobody_noted_is_not_found(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)

        assert index.find(PLAIN, "b") is None
        assert index.find(PLAIN, "") is None

    def test_sessions_may_stand_at_one_place(self) -> None:
        # A client that forked its conversation: both go on from the same entry.
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 1.0)
        index.note(PLAIN, "b", PARKED, 1.0)

        index.note(PLAIN, "b", SLOT, 2.0)

        assert index.find(PLAIN, "a") == PARKED
        assert index.find(PLAIN, "b") == SLOT


class TestNamespaces:
    def test_the_same_hint_in_another_namespace_is_another_session(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)

        assert index.find(SALTED, "a") is None

        index.note(SALTED, "a", PARKED, 2.0)

        assert index.find(PLAIN, "a") == SLOT
        assert index.find(SALTED, "a") == PARKED

    def test_equal_namespaces_are_one(self) -> None:
        index = SessionIndex()
        index.note(Namespace(salt="s"), "a", SLOT, 1.0)

        assert index.find(Namespace(salt="s"), "a") == SLOT


class TestClose:
    def test_closing_drops_the_preference(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(PLAIN, "b", SLOT, 1.0)

        assert index.close("a") == 1

        assert index.find(PLAIN, "a") is None
        assert index.find(PLAIN, "b") == SLOT
        assert index.close("a") == 0

    def test_closing_without_a_namespace_closes_the_hint_in_all(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(SALTED, "a", PARKED, 1.0)
        index.note(SALTED, "b", PARKED, 1.0)

        assert index.close("a") == 2

        assert len(index) == 1
        assert index.find(SALTED, "b") == PARKED

    def test_closing_in_a_namespace_leaves_the_others_alone(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(SALTED, "a", PARKED, 1.0)

        assert index.close("a", PLAIN) == 1
        assert index.close("a", Namespace(salt="t")) == 0

        assert index.find(PLAIN, "a") is None
        assert index.find(SALTED, "a") == PARKED

    def test_a_closed_session_may_come_back(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 5.0)
        index.close("a")

        index.note(PLAIN, "a", PARKED, 1.0)

        assert index.find(PLAIN, "a") == PARKED


class TestForget:
    def test_a_place_that_is_gone_is_no_sessions_any_more(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 1.0)
        index.note(SALTED, "b", PARKED, 1.0)
        index.note(PLAIN, "c", SLOT, 1.0)

        index.forget(PARKED)

        assert index.find(PLAIN, "a") is None
        assert index.find(SALTED, "b") is None
        assert index.find(PLAIN, "c") == SLOT
        assert len(index) == 1

    def test_a_session_that_has_moved_on_is_not_forgotten_with_its_old_place(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(PLAIN, "a", PARKED, 2.0)

        index.forget(SLOT)

        assert index.find(PLAIN, "a") == PARKED

    def test_a_place_of_nobody_is_forgotten_without_a_trace(self) -> None:
        index = SessionIndex()
        index.note(PLAIN, "a", SLOT, 1.0)

        index.forget(Place(Tier.SLOT, 1))
        index.forget(STORED)

        assert index.find(PLAIN, "a") == SLOT

    def test_what_is_forgotten_may_be_noted_again_with_older_news(self) -> None:
        # The entry in memory went; the one on disk is older, and the newest that is left.
        index = SessionIndex()
        index.note(PLAIN, "a", PARKED, 2.0)
        index.forget(PARKED)

        index.note(PLAIN, "a", STORED, 1.0)

        assert index.find(PLAIN, "a") == STORED


class TestBound:
    def test_the_oldest_use_goes_first(self) -> None:
        index = SessionIndex(2)
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(PLAIN, "b", PARKED, 2.0)
        index.note(PLAIN, "a", SLOT, 3.0)

        index.note(PLAIN, "c", STORED, 4.0)

        assert index.find(PLAIN, "a") == SLOT
        assert index.find(PLAIN, "b") is None
        assert index.find(PLAIN, "c") == STORED
        assert len(index) == 2

    def test_the_order_of_noting_does_not_count(self) -> None:
        index = SessionIndex(2)
        for session, at in (("new", 9.0), ("old", 1.0), ("newer", 10.0)):
            index.note(PLAIN, session, STORED, at)

        assert index.find(PLAIN, "old") is None
        assert index.find(PLAIN, "new") == index.find(PLAIN, "newer") == STORED

    def test_a_session_older_than_all_in_a_full_index_does_not_stay(self) -> None:
        index = SessionIndex(1)
        index.note(PLAIN, "a", SLOT, 2.0)

        index.note(PLAIN, "b", STORED, 1.0)

        assert index.find(PLAIN, "a") == SLOT
        assert index.find(PLAIN, "b") is None

    def test_looking_up_is_no_use(self) -> None:
        # A peek changes nothing. A request notes where its conversation stands when it has ended.
        index = SessionIndex(2)
        index.note(PLAIN, "a", SLOT, 1.0)
        index.note(PLAIN, "b", PARKED, 2.0)

        index.find(PLAIN, "a")
        index.note(PLAIN, "c", STORED, 3.0)

        assert index.find(PLAIN, "a") is None

    def test_it_holds_as_many_sessions_as_it_says(self) -> None:
        index = SessionIndex()
        for number in range(SESSIONS_MAX + 10):
            index.note(PLAIN, str(number), STORED, float(number))

        assert len(index) == SESSIONS_MAX == 4096
        assert index.find(PLAIN, "9") is None
        assert index.find(PLAIN, "10") == STORED

    def test_places_that_come_and_go_leave_no_memory_behind(self) -> None:
        index = SessionIndex(2)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for number in range(1000):
                index.note(PLAIN, "a", Place(Tier.RAM, EntryId(f"ram-{number}")), float(number))
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert after - before < 20_000


class TestPlaces:
    @pytest.mark.parametrize(
        ("tier", "where"),
        [(Tier.SLOT, EntryId("ram-1")), (Tier.RAM, 0), (Tier.DISK, 3), (Tier.NONE, 0)],
    )
    def test_a_slot_has_a_number_and_an_entry_an_id(self, tier: Tier, where: EntryId | int) -> None:
        with pytest.raises(ValueError, match=f"no place in the tier {tier.value}"):
            Place(tier, where)
