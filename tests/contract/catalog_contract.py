"""What `ports/catalog.py` promises, as tests over any catalog."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.fingerprint import Fingerprint, fingerprint_of
from anchorline.domain.grid import Span
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.ports.catalog import AgeMark, Catalog

FINGERPRINT = fingerprint_of({"weights": "toy"})
COLD_COUNTS_MAX = 20
DAYS_MAX = 5
STEP = 64


def key(number: int) -> PrefixKey:
    return PrefixKey(number.to_bytes(16, "big"))


def name(number: int) -> ObjectName:
    return ObjectName(f"{FINGERPRINT}/blocks/00/{number:032x}-{number:032x}.blk")


def fingerprint(number: int) -> Fingerprint:
    return fingerprint_of({"number": str(number)})


def make_entry(entry_id: str, blocks: Iterable[int] = (1, 2), **changes: object) -> StoredEntry:
    """An entry of blocks with those numbers, and an anchor at its end."""
    numbers = list(blocks)
    entry = StoredEntry(
        id=EntryId(entry_id),
        role=Role.HEAD,
        fingerprint=FINGERPRINT,
        blocks=tuple(
            StoredBlock(name(number), key(number), STEP * place, 4096 * number)
            for place, number in enumerate(numbers, start=1)
        ),
        anchors=(
            StoredAnchor(
                ObjectName(f"{FINGERPRINT}/anchors/00/{entry_id}"),
                key(sum(numbers)),
                STEP * len(numbers),
                AnchorKind.GRID,
                8192,
            ),
        ),
        taint=STEP * len(numbers),
        end=None,
        session=None,
        hits=0,
        created_s=10.0,
        last_used_s=10.0,
    )
    return dataclasses.replace(entry, **changes)


def ids(catalog: Catalog) -> list[str]:
    return sorted(entry.id for entry in catalog.entries())


class CatalogContract(ABC):
    """Holds an adapter to its port."""

    @abstractmethod
    def make_catalog(self) -> Catalog:
        """A new one that keeps `COLD_COUNTS_MAX` counts and `DAYS_MAX` days."""

    @abstractmethod
    def reopen(self, catalog: Catalog) -> Catalog:
        """Close it, and open it as the next process does."""

    @abstractmethod
    def after_kill(self, catalog: Catalog) -> Catalog:
        """The catalog as it is found when the process is killed now; `catalog` lives on."""

    def now_and_later(self, catalog: Catalog) -> Iterator[Catalog]:
        """The catalog, then what a kill leaves of it, then what the next process opens."""
        yield catalog
        yield self.after_kill(catalog)
        yield self.reopen(catalog)

    def test_a_new_catalog_knows_that_it_knows_nothing(self) -> None:
        catalog = self.make_catalog()

        assert catalog.needs_rebuild
        assert list(catalog.entries()) == []
        assert catalog.age_mark() is None
        assert catalog.written(10) == {}

    def test_a_rebuild_is_needed_until_it_is_finished(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a"))

        catalog = self.reopen(catalog)
        assert catalog.needs_rebuild  # the rebuild was interrupted
        catalog.finish_rebuild()

        assert not catalog.needs_rebuild
        assert not self.after_kill(catalog).needs_rebuild

    def test_an_entry_is_kept_as_it_is(self) -> None:
        catalog = self.make_catalog()
        made = [
            make_entry("head"),
            make_entry(
                "conversation",
                range(1, 400),
                role=Role.CONVERSATION,
                taint=100,
                end=End(399 * STEP, (Span(5, 9),), (Span(1, 9), Span(20, 399 * STEP))),
                session='a "session" \0 with ünicode',
                hits=7,
                created_s=1.5,
                last_used_s=2.25,
            ),
            make_entry("without anchors", anchors=()),
            make_entry("without anything", (), anchors=(), session=""),
        ]
        for entry in made:
            catalog.put(entry)

        for found in self.now_and_later(catalog):
            assert {entry.id: entry for entry in found.entries()} == {
                entry.id: entry for entry in made
            }

    def test_what_is_committed_survives_a_kill(self) -> None:
        catalog = self.make_catalog()

        catalog.put(make_entry("a"))
        assert ids(self.after_kill(catalog)) == ["a"]
        catalog.put(make_entry("b"), replaces=[EntryId("a")])
        assert ids(self.after_kill(catalog)) == ["b"]
        catalog.remove([EntryId("b")])
        assert ids(self.after_kill(catalog)) == []

    def test_an_entry_of_the_same_id_is_replaced(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a", (1, 2)))

        catalog.put(make_entry("a", (2, 3)))

        assert [entry.blocks[-1].key for entry in catalog.entries()] == [key(3)]
        assert catalog.unreferenced([name(1), name(2), name(3)]) == {name(1)}

    def test_an_entry_may_replace_any_number_of_others(self) -> None:
        catalog = self.make_catalog()
        for entry_id in ("a", "b", "c"):
            catalog.put(make_entry(entry_id))

        catalog.put(make_entry("d"), replaces=[EntryId("a"), EntryId("c"), EntryId("unknown")])

        assert ids(catalog) == ids(self.reopen(catalog)) == ["b", "d"]

    def test_removing_what_is_not_there_changes_nothing(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a"))

        catalog.remove([EntryId("unknown")])
        catalog.remove([])

        assert ids(catalog) == ["a"]

    def test_an_object_is_needed_as_long_as_any_entry_needs_it(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a", (1, 2)))
        catalog.put(make_entry("b", (2, 3)))
        anchor = ObjectName(f"{FINGERPRINT}/anchors/00/a")
        asked = [name(1), name(2), name(3), name(4), anchor]

        assert catalog.unreferenced(asked) == {name(4)}
        catalog = self.reopen(catalog)
        catalog.remove([EntryId("a")])
        assert catalog.unreferenced(asked) == {name(1), name(4), anchor}
        catalog.remove([EntryId("b")])
        assert catalog.unreferenced(asked) == set(asked)

    def test_an_object_that_an_entry_needs_twice_is_needed_until_it_goes(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a", (1, 1)))
        assert catalog.unreferenced([name(1)]) == set()

        catalog.remove([EntryId("a")])

        assert catalog.unreferenced([name(1)]) == {name(1)}

    def test_a_use_counts_as_a_hit_and_makes_the_entry_young(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a", hits=1))
        catalog.put(make_entry("b"))

        catalog.touch({EntryId("a"): 20.0, EntryId("unknown"): 21.0})
        catalog.touch({EntryId("a"): 30.0})

        for found in (catalog.entries(), self.reopen(catalog).entries()):
            used = {entry.id: (entry.hits, entry.last_used_s) for entry in found}
            assert used == {"a": (3, 30.0), "b": (0, 10.0)}

    def test_a_use_is_kept_with_the_next_change(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a"))
        catalog.touch({EntryId("a"): 20.0})

        catalog.put(make_entry("b"))

        used = {entry.id: entry.hits for entry in self.after_kill(catalog).entries()}
        assert used == {"a": 1, "b": 0}

    def test_a_use_of_an_entry_that_is_replaced_at_once_is_forgotten(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a"))
        catalog.touch({EntryId("a"): 20.0})

        catalog.put(make_entry("b"), replaces=[EntryId("a")])

        assert ids(catalog) == ids(self.reopen(catalog)) == ["b"]

    def test_cold_lines_are_counted(self) -> None:
        catalog = self.make_catalog()

        assert catalog.count_cold([key(1), key(2)]) == {key(1): 1, key(2): 1}
        assert catalog.count_cold([key(2), key(3), key(3)]) == {key(2): 2, key(3): 2}
        assert catalog.count_cold([]) == {}

        for found in self.now_and_later(catalog):
            counts = found.cold_counts([key(1), key(2), key(3), key(4)])
            assert counts == {key(1): 1, key(2): 2, key(3): 2, key(4): 0}

    def test_the_lines_counted_longest_ago_are_forgotten_over_the_bound(self) -> None:
        catalog = self.make_catalog()
        catalog.count_cold(map(key, range(COLD_COUNTS_MAX)))
        catalog = self.reopen(catalog)
        catalog.count_cold([key(0)])

        catalog.count_cold([key(100), key(101)])

        kept = catalog.cold_counts(map(key, [0, 1, 2, 3, 100, 101]))
        assert kept == dict(zip(map(key, [0, 1, 2, 3, 100, 101]), [2, 0, 0, 1, 1, 1], strict=True))
        everything = catalog.cold_counts(map(key, range(200)))
        assert sum(count > 0 for count in everything.values()) == COLD_COUNTS_MAX

    def test_more_lines_at_once_than_are_kept_are_counted_all_the_same(self) -> None:
        catalog = self.make_catalog()

        counts = catalog.count_cold(map(key, range(2 * COLD_COUNTS_MAX)))

        assert counts == {key(number): 1 for number in range(2 * COLD_COUNTS_MAX)}
        assert catalog.cold_counts([key(0)]) == {key(0): 0}

    def test_written_bytes_add_up_by_day_and_kind(self) -> None:
        catalog = self.make_catalog()
        catalog.add_written("2026-11-28", "head", 5)
        catalog.add_written("2026-11-29", "head", 1 << 50)
        catalog.add_written("2026-11-29", "conversation", 7)
        catalog.add_written("2026-11-29", "head", 1)

        for found in self.now_and_later(catalog):
            assert found.written(1) == {"2026-11-29": {"head": (1 << 50) + 1, "conversation": 7}}
            assert list(found.written(9)) == ["2026-11-29", "2026-11-28"]
            assert found.written(0) == {}

    def test_the_oldest_days_are_forgotten_over_the_bound(self) -> None:
        catalog = self.make_catalog()

        for day in range(DAYS_MAX + 3):
            catalog.add_written(f"2026-01-{day + 1:02}", "head", 1)

        assert list(catalog.written(100)) == [
            f"2026-01-{day + 1:02}" for day in range(DAYS_MAX + 2, 2, -1)
        ]

    def test_equal_fingerprints_are_found_from_any_of_them(self) -> None:
        catalog = self.make_catalog()
        catalog.adopt(fingerprint(3), fingerprint(2))
        catalog.adopt(fingerprint(2), fingerprint(1))
        catalog.adopt(fingerprint(2), fingerprint(1))
        catalog.adopt(fingerprint(9), fingerprint(8))

        for found in self.now_and_later(catalog):
            for number in (1, 2, 3):
                assert found.equal_to(fingerprint(number)) == set(map(fingerprint, (1, 2, 3)))
            assert found.equal_to(fingerprint(5)) == {fingerprint(5)}

    def test_the_age_mark_is_the_newest_one(self) -> None:
        catalog = self.make_catalog()
        catalog.set_age_mark(AgeMark(age_s=1.0, wall_s=1e9))
        catalog.set_age_mark(AgeMark(age_s=2.5, wall_s=0.5))

        assert catalog.age_mark() == AgeMark(2.5, 0.5)
        assert self.reopen(catalog).age_mark() == AgeMark(2.5, 0.5)

    def test_what_is_given_out_is_not_the_catalogs_own(self) -> None:
        catalog = self.make_catalog()
        catalog.put(make_entry("a"))
        before = list(catalog.entries())

        catalog.put(make_entry("b"))
        catalog.touch({EntryId("a"): 99.0})

        assert before == [make_entry("a")]
