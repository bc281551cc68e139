"""Where prompts go on."""

import gc
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import EntryId
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.way_index import Way, WayIndex
from support.builders import random_ids

STEP = 8
GRID = Grid(STEP)
IDS = random_ids(200)


class WeakChain(PromptChain):
    """Keys of one byte."""

    def key(self, line: int) -> PrefixKey:
        return PrefixKey(super().key(line)[:1])


class CountingChain(PromptChain):
    """Counts how often it is asked for a key, and how often off the grid."""

    asked = 0
    off_grid = 0

    def key(self, line: int) -> PrefixKey:
        self.asked += 1
        self.off_grid += not self.grid.has(line)
        return super().key(line)


def a_chain(
    ids: TokenIds, kind: type[PromptChain] = PromptChain, namespace: Namespace | None = None
) -> PromptChain:
    return kind(ids, namespace or Namespace(), GRID)


def edited(ids: TokenIds, at: int, *, seed: int = 1) -> TokenIds:
    """The same tokens up to `at`, and others of the same number behind."""
    rest = random_ids(len(ids) - at, seed=seed).tolist()
    return token_ids([*ids[:at].tolist(), int(ids[at]) + 1, *rest[1:]])


def add(
    index: WayIndex[str],
    chain: PromptChain,
    grid: Sequence[int],
    *,
    end: int | None = None,
    top: int | None = None,
    owner: str = "owner",
    same: str | None = None,
) -> None:
    """An owner of the chain's tokens, with rows up to `top` or else to its highest line.

    Args:
        grid: lines of its grid ways.
        end: where its end stands.
        same: what its ways have in common with those of others at their lines.
    """
    lines = [(line, AnchorKind.GRID) for line in grid]
    if end is not None:
        lines.append((end, AnchorKind.END))
    reach = max(line for line, _ in lines) if top is None else top

    def below(line: int) -> PrefixKey | None:
        under = GRID.floor(line - 1)
        return chain.key(under) if under > 0 else None

    index.add(
        EntryId(owner),
        [
            Way(
                EntryId(owner), chain.key(line), below(line), line, kind, f"{owner} at {line}", same
            )
            for line, kind in lines
        ],
        [(span.end, chain.key(span.end)) for span in GRID.chunks(0, reach)],
    )


def told(ways: Sequence[Way[str]]) -> list[tuple[str, int, AnchorKind]]:
    return [(str(way.owner), way.line, way.kind) for way in ways]


def lines(ways: Sequence[Way[str]]) -> list[int]:
    return [way.line for way in ways]


class TestFind:
    def test_a_prompt_that_goes_on_finds_the_end_and_the_highest_grid_way(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:70]), (48, 56, 64), end=70)

        found = index.find(a_chain(IDS), 199)

        assert told(found) == [("owner", 70, AnchorKind.END), ("owner", 64, AnchorKind.GRID)]
        assert [way.what for way in found] == ["owner at 70", "owner at 64"]

    @pytest.mark.parametrize(
        ("at", "expected"),
        [(70, [70, 64]), (69, [64]), (64, [64]), (63, [56]), (55, [16]), (16, [16]), (15, [])],
    )
    def test_a_prompt_that_parts_finds_what_stands_below(
        self, at: int, expected: list[int]
    ) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:70]), (16, 56, 64), end=70)

        assert lines(index.find(a_chain(edited(IDS, at)), 199)) == expected

    @pytest.mark.parametrize(
        ("highest", "expected"),
        [(199, [70, 64]), (70, [70, 64]), (69, [64]), (64, [64]), (63, [16]), (15, []), (-1, [])],
    )
    def test_nothing_above_the_highest_line_is_found(
        self, highest: int, expected: list[int]
    ) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:70]), (16, 64), end=70)

        assert lines(index.find(a_chain(IDS), highest)) == expected

    def test_a_shorter_prompt_finds_what_it_reaches(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:70]), (16, 64), end=70)

        assert lines(index.find(a_chain(IDS[:69]), 199)) == [64]
        assert lines(index.find(a_chain(IDS[:63]), 199)) == [16]
        assert lines(index.find(a_chain(IDS[:0]), 199)) == []

    def test_owners_that_share_a_prefix_are_each_found_at_their_own_highest_line(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:96]), (16, 32, 96), owner="goes on")
        add(index, a_chain(edited(IDS[:96], 50)), (16, 48, 64, 80), owner="parts")
        add(index, a_chain(edited(IDS[:96], 33)), (8, 40), owner="parts early")
        add(index, a_chain(edited(IDS[:96], 0)), (8, 40), owner="another")

        found = index.find(a_chain(IDS), 199)

        assert told(found) == [
            ("goes on", 96, AnchorKind.GRID),
            ("parts", 48, AnchorKind.GRID),
            ("parts early", 8, AnchorKind.GRID),
        ]

    def test_an_end_is_found_beside_higher_ways_of_its_owner(self) -> None:
        # Where arithmetic is row-invariant an entry may have rows above an earlier end.
        index = WayIndex[str]()
        add(index, a_chain(IDS), (16, 64), end=37)

        assert lines(index.find(a_chain(IDS), 199)) == [64, 37]

    def test_an_end_on_the_grid_is_found_beside_the_grid_way_there(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (56, 64), end=64)

        assert set(told(index.find(a_chain(IDS), 199))) == {
            ("owner", 64, AnchorKind.GRID),
            ("owner", 64, AnchorKind.END),
        }

    def test_an_end_below_the_first_grid_line_is_found(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (), end=5)

        assert lines(index.find(a_chain(IDS), 199)) == [5]
        assert lines(index.find(a_chain(edited(IDS, 4)), 199)) == []

    def test_grid_ways_off_the_grid_are_found(self) -> None:
        # Where arithmetic is row-invariant any line will do, inside of a block as well.
        index = WayIndex[str]()
        add(index, a_chain(IDS[:80]), (16, 35, 37, 48), top=80)

        assert lines(index.find(a_chain(IDS), 199)) == [48]
        assert lines(index.find(a_chain(edited(IDS, 47)), 199)) == [37]
        assert lines(index.find(a_chain(edited(IDS, 36)), 199)) == [35]
        assert lines(index.find(a_chain(edited(IDS, 34)), 199)) == [16]

    def test_another_namespace_finds_nothing(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (64,), end=70)
        add(index, a_chain(IDS), (), end=5, owner="short")

        assert index.find(a_chain(IDS, namespace=Namespace(salt="s")), 199) == []

    def test_a_way_without_the_rows_below_the_step_it_stands_in_is_not_found(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (16, 64), top=40)

        assert lines(index.find(a_chain(IDS), 55)) == [16]

    def test_a_way_at_line_0_saves_nothing_and_is_not_found(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (0,), top=8)

        assert index.find(a_chain(IDS), 199) == []

    def test_an_empty_index_finds_nothing(self) -> None:
        assert WayIndex[str]().find(a_chain(IDS), 199) == []
        assert WayIndex[str]().shared_line(a_chain(IDS)) == 0


class TestChoices:
    def test_of_ways_that_are_the_same_one_is_told(self) -> None:
        index = WayIndex[str]()
        for seed in range(30):
            chain = a_chain(edited(IDS[:90], 70, seed=seed))
            add(index, chain, (32, 64, 80), owner=str(seed), same="head")
        chain = a_chain(edited(IDS, 70, seed=99))

        assert lines(index.choices(chain, 199)) == [64]
        assert lines(index.find(chain, 199)) == [64] * 30

    def test_what_is_the_same_at_one_line_differs_at_another(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (64,), owner="a", same="head")
        add(index, a_chain(IDS), (32,), owner="b", same="head")

        assert lines(index.choices(a_chain(IDS), 199)) == [64, 32]

    def test_what_differs_at_one_line_is_all_told(self) -> None:
        index = WayIndex[str]()
        for owner, same in (("a", "one"), ("b", "other"), ("c", None), ("d", None), ("e", "one")):
            add(index, a_chain(IDS), (64,), owner=owner, same=same)

        told_of = [str(way.owner) for way in index.choices(a_chain(IDS), 199)]

        assert set(told_of) in ({"a", "b", "c", "d"}, {"e", "b", "c", "d"})
        assert len(told_of) == 4

    def test_the_one_told_is_one_that_is_found(self) -> None:
        # At 32 both have the same, and the first of them is found at 64 already.
        index = WayIndex[str]()
        add(index, a_chain(IDS), (32, 64), owner="a", same="head")
        add(index, a_chain(edited(IDS, 40)), (32, 64), owner="b", same="head")
        add(index, a_chain(edited(IDS, 40, seed=2)), (32, 64), owner="c", same="head")

        found = told(index.choices(a_chain(IDS), 199))

        assert found[0] == ("a", 64, AnchorKind.GRID)
        assert found[1:] in (
            [("b", 32, AnchorKind.GRID)],
            [("c", 32, AnchorKind.GRID)],
        )

    def test_where_one_of_the_same_goes_another_is_told(self) -> None:
        index = WayIndex[str]()
        for owner in "abc":
            add(index, a_chain(IDS), (32, 64), owner=owner, same="head")

        for left in (2, 1, 0):
            (way,) = index.choices(a_chain(IDS), 199)
            assert way.line == 64
            index.remove(way.owner)
            assert len(index) == left

        assert index.choices(a_chain(IDS), 199) == []


class TestLower:
    def test_it_is_the_owners_next_grid_way_below(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (8, 16, 64), end=20, top=64)
        add(index, a_chain(IDS), (8, 48), owner="other")
        chain = a_chain(IDS)
        highest = index.find(chain, 199)[0]

        lower = index.lower(chain, highest)
        assert lower is not None
        lowest = index.lower(chain, lower)
        assert lowest is not None

        assert told([highest, lower, lowest]) == [
            ("owner", 64, AnchorKind.GRID),
            ("owner", 16, AnchorKind.GRID),
            ("owner", 8, AnchorKind.GRID),
        ]
        assert index.lower(chain, lowest) is None

    def test_it_has_the_prompts_key(self) -> None:
        # The owner has 64 and the prompt collides with it there, though both parted at 20.
        class Colliding(PromptChain):
            def key(self, line: int) -> PrefixKey:
                return PrefixKey(b"!") if line == 64 else super().key(line)

        index = WayIndex[str]()
        add(index, a_chain(IDS, Colliding), (8, 16, 48, 64))
        chain = a_chain(edited(IDS, 20), Colliding)
        # Another owner has the prompt's rows, so that the lookup gets as far as that line.
        add(index, chain, (64,), owner="true")
        collision = next(way for way in index.find(chain, 199) if way.owner == "owner")

        lower = index.lower(chain, collision)

        assert collision.line == 64
        assert lower is not None
        assert lower.line == 16


class TestSharedLine:
    def test_it_is_the_highest_grid_line_with_the_prompts_rows(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:70]), (16,), top=70)
        add(index, a_chain(edited(IDS, 30)), (16,), top=100, owner="other")

        assert index.shared_line(a_chain(IDS)) == 64
        assert index.shared_line(a_chain(IDS[:64])) == 64
        assert index.shared_line(a_chain(IDS[:63])) == 56
        assert index.shared_line(a_chain(edited(IDS, 50))) == 48
        assert index.shared_line(a_chain(edited(IDS, 30))) == 96
        assert index.shared_line(a_chain(edited(IDS, 7))) == 0

    def test_rows_count_where_no_way_stands(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (), top=40)

        assert index.shared_line(a_chain(IDS)) == 40
        assert index.find(a_chain(IDS), 199) == []

    def test_the_short_block_at_an_end_is_no_grid_line(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (), end=70)

        assert index.shared_line(a_chain(IDS)) == 64


class TestChanges:
    def test_a_removed_owner_leaves_the_others_alone(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (16, 64), end=70, owner="a")
        add(index, a_chain(IDS), (16, 64), end=70, owner="b")

        index.remove(EntryId("a"))

        assert told(index.find(a_chain(IDS), 199)) == [
            ("b", 70, AnchorKind.END),
            ("b", 64, AnchorKind.GRID),
        ]
        assert index.shared_line(a_chain(IDS)) == 64

    def test_nothing_of_a_removed_owner_is_found(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (16, 64), end=70)

        index.remove(EntryId("owner"))
        index.remove(EntryId("owner"))

        assert index.find(a_chain(IDS), 199) == []
        assert index.shared_line(a_chain(IDS)) == 0
        assert len(index) == 0
        assert EntryId("owner") not in index

    def test_an_owner_that_is_added_again_has_only_what_came_last(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS), (16, 64), end=70)

        add(index, a_chain(IDS), (16, 32))

        assert lines(index.find(a_chain(IDS), 199)) == [32]
        assert index.shared_line(a_chain(IDS)) == 32
        assert len(index) == 1
        assert EntryId("owner") in index

    def test_ways_of_somebody_else_are_refused(self) -> None:
        chain = a_chain(IDS)
        way = Way(EntryId("a"), chain.key(8), None, 8, AnchorKind.GRID, "")

        with pytest.raises(AssertionError, match="others than b"):
            WayIndex[str]().add(EntryId("b"), [way], [(8, chain.key(8))])

    def test_two_grid_ways_at_one_line_are_refused(self) -> None:
        chain = a_chain(IDS)
        way = Way(EntryId("a"), chain.key(8), None, 8, AnchorKind.GRID, "")

        with pytest.raises(AssertionError, match="two ways of a at 8"):
            WayIndex[str]().add(EntryId("a"), [way, way], [(8, chain.key(8))])

    def test_owners_that_come_and_go_leave_no_memory_behind(self) -> None:
        index = WayIndex[str]()

        def come_and_go(first: int) -> None:
            for seed in range(first, first + 50):
                add(index, a_chain(random_ids(70, seed=seed)), (16, 64), end=70, owner="a")
                add(index, a_chain(edited(IDS, 68, seed=seed)), (16, 64), end=70, owner="b")
            index.remove(EntryId("a"))
            index.remove(EntryId("b"))

        add(index, a_chain(IDS), (16, 64), end=70, owner="stays")
        assert bytes_left_by(come_and_go) < 8_000

    def test_an_owner_whose_neighbours_come_and_go_costs_no_more_memory(self) -> None:
        # Each of them stands where it does, with another next way and other things in common.
        index = WayIndex[str]()

        def come_and_go(first: int) -> None:
            for seed in range(first, first + 50):
                chain = a_chain(edited(IDS, 40, seed=seed))
                add(index, chain, (16, 64), end=39, owner="b", same=str(seed))
                add(index, chain, (16, 72), owner="c")
            index.remove(EntryId("b"))
            index.remove(EntryId("c"))

        add(index, a_chain(IDS), (16, 64), end=39, owner="stays")
        assert bytes_left_by(come_and_go) < 8_000


def bytes_left_by(work: Callable[[int], None]) -> int:
    """What is taken more after a second time than after the first; it is given a seed."""
    work(1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work(1001)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


class TestWeakKeys:
    """A collision costs a wrong candidate, which a comparison of the tokens refuses."""

    def test_the_true_owner_is_among_the_colliding_ones(self) -> None:
        index = WayIndex[str]()
        for seed in range(60):
            chain = a_chain(random_ids(70, seed=seed), WeakChain)
            add(index, chain, (48, 64), end=70, owner=str(seed))
        prompt = token_ids([*random_ids(70, seed=30).tolist(), 1, 2, 3])

        found = told(index.find(a_chain(prompt, WeakChain), 72))

        assert ("30", 70, AnchorKind.END) in found
        assert ("30", 64, AnchorKind.GRID) in found

    def test_colliding_owners_leave_nothing_behind(self) -> None:
        index = WayIndex[str]()
        for seed in range(60):
            chain = a_chain(random_ids(70, seed=seed), WeakChain)
            add(index, chain, (48, 56, 64), end=70, owner=str(seed))

        for seed in range(60):
            index.remove(EntryId(str(seed)))

        for seed in range(60):
            assert index.find(a_chain(random_ids(100, seed=seed), WeakChain), 99) == []


class TestCost:
    """In keys: a lookup is hardly anything else, and some of them cost a hash."""

    def test_other_owners_cost_a_lookup_no_key(self) -> None:
        def keys_asked(owners: int) -> int:
            index = WayIndex[str]()
            for seed in range(owners):
                chain = a_chain(edited(IDS, 100, seed=seed))
                add(index, chain, range(8, 190, 8), end=199, owner=str(seed))
            prompt = CountingChain(IDS, Namespace(), GRID)
            assert len(index.find(prompt, 199)) == owners
            return prompt.asked

        assert keys_asked(100) == keys_asked(1) <= 100 // STEP + 10

    def test_lines_above_the_shared_rows_are_not_visited(self) -> None:
        index = WayIndex[str]()
        add(index, a_chain(IDS[:8]), (8,))
        long = CountingChain(random_ids(100_000), Namespace(), GRID)
        short = CountingChain(random_ids(1_000), Namespace(), GRID)

        index.find(long, 99_999)
        index.find(short, 999)

        # Ten times the doubling.
        assert long.asked <= short.asked + 10

    def test_ends_of_other_conversations_cost_no_hash(self) -> None:
        index = WayIndex[str]()
        for seed in range(300):
            chain = a_chain(random_ids(100 + seed, seed=seed, below=10**9))
            add(index, chain, (96,), end=100 + seed, owner=str(seed))
        prompt = CountingChain(random_ids(200, seed=7, below=10**9), Namespace(), GRID)

        found = index.find(prompt, 199)

        assert told(found) == [("7", 107, AnchorKind.END), ("7", 96, AnchorKind.GRID)]
        assert prompt.off_grid == 1

    def test_ends_at_one_line_cost_one_hash(self) -> None:
        index = WayIndex[str]()
        for seed in range(50):
            add(index, a_chain(edited(IDS, 3, seed=seed)), (), end=5, owner=str(seed))
        prompt = CountingChain(IDS, Namespace(), GRID)

        assert index.find(prompt, 199) == []
        assert prompt.off_grid == 1
