"""Which stored entries continue a prompt, and how far."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.disk_index import Continuation, DiskIndex, objects_of
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import TokenIds, token_ids
from support.builders import random_ids

STEP = 8
GRID = Grid(STEP)
PLAIN = Namespace()
IDS = random_ids(200)
BLOCK_BYTES = 1000
ANCHOR_BYTES = 300


class WeakChain(PromptChain):
    """Keys of so few bits that many prefixes share one."""

    bits = 8

    def key(self, line: int) -> PrefixKey:
        return PrefixKey(bytes([super().key(line)[0] >> (8 - self.bits)]))


class CountingChain(PromptChain):
    """Counts how often a key costs a hash of its own."""

    off_grid = 0

    def key(self, line: int) -> PrefixKey:
        self.off_grid += not self.grid.has(line)
        return super().key(line)


def a_chain(ids: TokenIds, kind: type[PromptChain] = PromptChain) -> PromptChain:
    return kind(ids, PLAIN, GRID)


def an_entry(
    chain: PromptChain,
    anchors: Sequence[int],
    *,
    end: int | None = None,
    top: int | None = None,
    taint: int | None = None,
    name: str = "entry",
    content: str = "0",
) -> StoredEntry:
    """An entry of the chain's tokens.

    Args:
        anchors: lines of its grid anchors.
        end: where its end anchor stands.
        top: where its rows end; by default at its highest anchor.
        content: of its objects; entries of the same tokens and content share them.
    """
    lines = [*anchors, *([] if end is None else [end])]
    reach = max(lines) if top is None else top
    ends = [*GRID.lines(0, reach), *([] if GRID.has(reach) else [reach])]

    def object_name(line: int, kind: str) -> ObjectName:
        return ObjectName(f"{chain.key(line).hex()}-{content}.{kind}")

    stored = [
        StoredAnchor(object_name(at, "grid"), chain.key(at), at, AnchorKind.GRID, ANCHOR_BYTES)
        for at in anchors
    ]
    if end is not None:
        stored.append(
            StoredAnchor(object_name(end, "end"), chain.key(end), end, AnchorKind.END, ANCHOR_BYTES)
        )
    return StoredEntry(
        id=EntryId(name),
        role=Role.CONVERSATION,
        fingerprint=fingerprint_of({}),
        blocks=tuple(
            StoredBlock(object_name(at, "blk"), chain.key(at), at, BLOCK_BYTES) for at in ends
        ),
        anchors=tuple(stored),
        taint=reach if taint is None else taint,
        end=None if end is None else End(end),
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


def an_index(*entries: StoredEntry) -> DiskIndex:
    index = DiskIndex()
    for entry in entries:
        index.add(entry)
    return index


def ways(found: list[Continuation]) -> list[tuple[str, int, AnchorKind]]:
    return [(str(one.entry.id), one.line, one.anchor.kind) for one in found]


def lines(found: list[Continuation]) -> list[int]:
    return [one.line for one in found]


class TestContinuations:
    def test_a_prompt_that_goes_on_is_offered_the_end_and_the_highest_anchor(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (48, 56, 64), end=70))

        found = index.continuations(a_chain(IDS), 199)

        assert ways(found) == [
            ("entry", 70, AnchorKind.END),
            ("entry", 64, AnchorKind.GRID),
        ]

    def test_all_rows_below_the_line_come_along(self) -> None:
        entry = an_entry(a_chain(IDS[:70]), (48, 64), end=70)

        end, anchor = an_index(entry).continuations(a_chain(IDS), 199)

        assert end.blocks == entry.blocks
        assert [block.end for block in anchor.blocks] == list(range(8, 65, 8))
        assert end.nbytes == 9 * BLOCK_BYTES + ANCHOR_BYTES
        assert anchor.nbytes == 8 * BLOCK_BYTES + ANCHOR_BYTES

    def test_a_prompt_whose_last_16_tokens_changed_is_offered_the_anchor_below(self) -> None:
        # The blocks of the entry run above that anchor, up to the end of another answer.
        old = IDS[:100]
        edited = token_ids([*old[:84].tolist(), *random_ids(16, seed=9).tolist()])
        index = an_index(an_entry(a_chain(IDS[:122]), (72, 80, 88, 96), end=122))

        found = index.continuations(a_chain(edited), 99)

        assert ways(found) == [("entry", 80, AnchorKind.GRID)]
        assert [block.end for block in found[0].blocks] == list(range(8, 81, 8))

    def test_a_prompt_of_other_tokens_is_offered_nothing(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (8, 64), end=70))

        assert index.continuations(a_chain(random_ids(200, seed=1)), 199) == []

    def test_one_other_token_at_the_start_leaves_nothing(self) -> None:
        other = IDS.copy()
        other[0] += 1
        index = an_index(an_entry(a_chain(IDS[:70]), (8, 64), end=70))

        assert index.continuations(a_chain(other), 199) == []

    def test_a_prompt_of_another_namespace_is_offered_nothing(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (64,), end=70))

        assert index.continuations(PromptChain(IDS, Namespace(salt="s"), GRID), 199) == []

    @pytest.mark.parametrize(
        ("highest", "expected"),
        [(199, [70, 64]), (70, [70, 64]), (69, [64]), (64, [64]), (63, []), (0, [])],
    )
    def test_nothing_above_the_highest_line_is_offered(
        self, highest: int, expected: list[int]
    ) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (64,), end=70))

        assert lines(index.continuations(a_chain(IDS), highest)) == expected

    def test_an_end_above_the_prompt_is_not_offered(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (56, 64), end=70))

        assert lines(index.continuations(a_chain(IDS[:69]), 199)) == [64]

    def test_an_end_on_the_grid_is_offered_beside_the_anchor_there(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:64]), (56, 64), end=64))

        assert ways(index.continuations(a_chain(IDS), 199)) == [
            ("entry", 64, AnchorKind.GRID),
            ("entry", 64, AnchorKind.END),
        ]

    def test_an_end_below_the_first_grid_line_is_offered(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:5]), (), end=5))

        assert lines(index.continuations(a_chain(IDS), 199)) == [5]

    def test_of_several_ends_in_one_grid_step_the_prompts_own_is_offered(self) -> None:
        chats = [
            an_entry(
                a_chain(token_ids([*IDS[:66].tolist(), number, number + 1])), (64,), end=66 + number
            )
            for number in (1, 2)
        ]
        chats = [replace(chat, id=EntryId(str(number))) for number, chat in enumerate(chats)]
        prompt = token_ids([*IDS[:66].tolist(), 2, 3, 4, 5])

        found = an_index(*chats).continuations(a_chain(prompt), 69)

        assert ways(found)[0] == ("1", 68, AnchorKind.END)


class TestCompleteness:
    def test_an_anchor_above_the_rows_is_not_offered(self) -> None:
        index = an_index(an_entry(a_chain(IDS), (48, 64), top=48))

        assert lines(index.continuations(a_chain(IDS), 199)) == [48]

    def test_an_end_inside_a_block_is_not_offered(self) -> None:
        # Rows up to 72 in whole blocks: none of them ends at 70.
        index = an_index(an_entry(a_chain(IDS), (64,), end=70, top=72))

        assert lines(index.continuations(a_chain(IDS), 199)) == [64]

    def test_an_end_above_a_short_last_block_is_not_offered(self) -> None:
        index = an_index(an_entry(a_chain(IDS), (64,), end=70, top=69))

        assert lines(index.continuations(a_chain(IDS), 199)) == [64]

    def test_an_entry_without_rows_offers_nothing(self) -> None:
        index = an_index(an_entry(a_chain(IDS), (64,), top=0))

        assert index.continuations(a_chain(IDS), 199) == []

    def test_an_anchor_over_blocks_of_other_tokens_is_not_offered(self) -> None:
        entry = an_entry(a_chain(IDS), (64,))
        others = an_entry(a_chain(random_ids(200, seed=1)), (64,))

        mixed = an_index(replace(entry, blocks=others.blocks))

        assert mixed.continuations(a_chain(IDS), 199) == []

    def test_an_anchor_at_line_0_saves_nothing_and_is_not_offered(self) -> None:
        index = an_index(an_entry(a_chain(IDS), (0,), top=8))

        assert index.continuations(a_chain(IDS), 199) == []


class TestModelsWithoutParts:
    def test_blocks_without_rows_carry_the_tokens_all_the_same(self) -> None:
        # A model without views: a block is its header, 4 KiB, and still one an entry needs.
        entry = an_entry(a_chain(IDS[:70]), (64,), end=70)
        blocks = tuple(replace(block, nbytes=4096) for block in entry.blocks)

        found = an_index(replace(entry, blocks=blocks)).continuations(a_chain(IDS), 199)

        assert lines(found) == [70, 64]
        assert found[0].nbytes == 9 * 4096 + ANCHOR_BYTES

    def test_anchors_without_sections_are_needed_all_the_same(self) -> None:
        entry = an_entry(a_chain(IDS[:70]), (64,), end=70)
        anchors = tuple(replace(anchor, nbytes=4096) for anchor in entry.anchors)

        found = an_index(replace(entry, anchors=anchors)).continuations(a_chain(IDS), 199)

        assert [one.nbytes for one in found] == [9 * BLOCK_BYTES + 4096, 8 * BLOCK_BYTES + 4096]


class TestOrder:
    def test_the_highest_line_comes_first(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (16,), name="a"),
            an_entry(chain, (64,), end=70, name="b"),
            an_entry(chain, (32,), name="c"),
        )

        assert lines(index.continuations(a_chain(IDS), 199)) == [70, 64, 32, 16]

    def test_of_one_line_clean_state_comes_first(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (64,), name="a", taint=40), an_entry(chain, (64,), name="b", taint=64)
        )

        assert [one.entry.id for one in index.continuations(chain, 199)] == ["b", "a"]

    def test_the_order_of_adding_changes_nothing(self) -> None:
        chain = a_chain(IDS)
        entries = [an_entry(chain, (56, 64), name=str(number)) for number in range(5)]

        forwards = an_index(*entries).continuations(chain, 199)
        backwards = an_index(*reversed(entries)).continuations(chain, 199)

        assert forwards == backwards

    def test_each_entry_offers_only_its_highest_anchor_in_the_prompt(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (8, 16, 64, 128), name="a"), an_entry(chain, (8, 32, 64), name="b")
        )

        assert ways(index.continuations(a_chain(IDS[:80]), 79)) == [
            ("a", 64, AnchorKind.GRID),
            ("b", 64, AnchorKind.GRID),
        ]


class TestChoices:
    def test_a_head_that_many_share_is_offered_once(self) -> None:
        chains = [
            a_chain(token_ids([*IDS[:70].tolist(), *random_ids(60, seed=seed).tolist()]))
            for seed in range(20)
        ]
        index = an_index(
            *(
                an_entry(chain, (32, 64, 96), end=122, name=str(number))
                for number, chain in enumerate(chains)
            )
        )

        assert lines(index.choices(a_chain(IDS), 199)) == [64]
        assert len(index.continuations(a_chain(IDS), 199)) == 20

    def test_the_own_state_of_a_conversation_is_offered_beside_the_head(self) -> None:
        own, other = (
            a_chain(token_ids([*IDS[:70].tolist(), *random_ids(60, seed=seed).tolist()]))
            for seed in range(2)
        )
        index = an_index(
            an_entry(own, (64, 96), end=122, name="own"),
            an_entry(other, (64, 96), end=122, name="other"),
        )
        asked = token_ids([*IDS[:70].tolist(), *random_ids(60, seed=0).tolist()])

        assert ways(index.choices(a_chain(asked), 129)) == [
            ("own", 122, AnchorKind.END),
            ("own", 96, AnchorKind.GRID),
            ("other", 64, AnchorKind.GRID),
        ]

    def test_the_same_tokens_with_other_bytes_are_another_choice(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (64,), name="a"), an_entry(chain, (64,), name="b", content="1")
        )

        assert ways(index.choices(chain, 199)) == [
            ("a", 64, AnchorKind.GRID),
            ("b", 64, AnchorKind.GRID),
        ]

    def test_the_same_bytes_under_another_gate_are_another_choice(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (64,), name="a", taint=40), an_entry(chain, (64,), name="b", taint=64)
        )

        assert [one.entry.id for one in index.choices(chain, 199)] == ["b", "a"]

    def test_other_sections_over_the_same_rows_are_another_choice(self) -> None:
        entry = an_entry(a_chain(IDS), (64,), name="a")
        anchors = an_entry(a_chain(IDS), (64,), name="b", content="1").anchors

        index = an_index(entry, replace(entry, id=EntryId("b"), anchors=anchors))

        assert len(index.choices(a_chain(IDS), 199)) == 2

    def test_an_anchor_over_other_rows_is_another_choice(self) -> None:
        entry = an_entry(a_chain(IDS), (64,), name="a")
        rows = an_entry(a_chain(IDS), (64,), name="b", content="1").blocks

        index = an_index(entry, replace(entry, id=EntryId("b"), blocks=rows))

        assert len(index.choices(a_chain(IDS), 199)) == 2


class TestMissing:
    def test_it_is_what_reaches_above_the_rows_in_place(self) -> None:
        entry = an_entry(a_chain(IDS[:70]), (64,), end=70)
        blocks = tuple(replace(block, nbytes=block.end) for block in entry.blocks)
        end, anchor = an_index(replace(entry, blocks=blocks)).continuations(a_chain(IDS), 199)

        assert anchor.missing(0) == (8, sum(range(8, 65, 8)))
        assert anchor.missing(7) == anchor.missing(0)
        assert anchor.missing(8) == (7, sum(range(16, 65, 8)))
        assert anchor.missing(63) == (1, 64)
        assert anchor.missing(64) == anchor.missing(150) == (0, 0)
        assert end.missing(63) == (2, 64 + 70)
        assert end.missing(69) == (1, 70)


class TestWeakKeys:
    """A collision costs a wrong candidate, which whoever reads the objects refuses."""

    def test_colliding_keys_crash_nothing(self) -> None:
        index = DiskIndex()
        for seed in range(60):
            ids = random_ids(70, seed=seed)
            index.add(an_entry(a_chain(ids, WeakChain), (48, 56, 64), end=70, name=str(seed)))

        for seed in range(60, 90):
            found = index.continuations(a_chain(random_ids(100, seed=seed), WeakChain), 99)
            assert all(one.line == one.anchor.line == one.blocks[-1].end for one in found)
            index.shared_line(a_chain(random_ids(100, seed=seed), WeakChain))
        for seed in range(60):
            index.remove(EntryId(str(seed)))
        assert index.nbytes == len(index) == 0

    def test_the_true_entry_is_among_the_colliding_ones(self) -> None:
        index = DiskIndex()
        for seed in range(60):
            ids = random_ids(70, seed=seed)
            index.add(an_entry(a_chain(ids, WeakChain), (48, 64), end=70, name=str(seed)))

        prompt = token_ids([*random_ids(70, seed=30).tolist(), 1, 2, 3])
        found = index.continuations(a_chain(prompt, WeakChain), 72)

        assert ("30", 70, AnchorKind.END) in ways(found)
        assert ("30", 64, AnchorKind.GRID) in ways(found)

    def test_one_key_for_everything_crashes_nothing(self) -> None:
        class OneKey(WeakChain):
            bits = 0

        index = an_index(an_entry(a_chain(IDS, OneKey), (8, 16, 64), end=70))

        found = index.continuations(a_chain(random_ids(200, seed=1), OneKey), 199)

        assert lines(found) == [70, 64]
        assert index.remove(EntryId("entry")) is not None
        assert index.continuations(a_chain(IDS, OneKey), 199) == []


class TestHolding:
    def test_an_object_is_held_while_some_entry_needs_it(self) -> None:
        chain = a_chain(IDS)
        head, longer = an_entry(chain, (32,), name="head"), an_entry(chain, (64,), name="longer")
        index = an_index(head, longer)
        shared, own = longer.blocks[0].name, longer.blocks[-1].name

        assert index.holds(shared) == index.holds(own) == BLOCK_BYTES
        assert index.holds(head.anchors[0].name) == ANCHOR_BYTES
        assert index.holds(ObjectName("none")) is None

        index.remove(longer.id)

        assert index.holds(shared) == BLOCK_BYTES
        assert index.holds(own) is None

    def test_it_tells_who_needs_an_object(self) -> None:
        chain = a_chain(IDS)
        head, longer = an_entry(chain, (32,), name="head"), an_entry(chain, (64,), name="longer")
        index = an_index(head, longer)

        assert index.needing(longer.blocks[0].name) == (head, longer)
        assert index.needing(longer.blocks[-1].name) == (longer,)
        assert index.needing(ObjectName("none")) == ()

    def test_objects_that_are_shared_count_once(self) -> None:
        chain = a_chain(IDS)
        index = an_index(an_entry(chain, (32,), name="head"), an_entry(chain, (64,), name="longer"))

        assert index.nbytes == 8 * BLOCK_BYTES + 2 * ANCHOR_BYTES

    def test_an_entry_holds_its_share_of_what_others_need(self) -> None:
        chain = a_chain(IDS)
        entries = [
            an_entry(chain, (32,), name="a"),
            an_entry(chain, (64,), name="b"),
            an_entry(chain, (16,), name="c"),
        ]
        index = an_index(*entries)

        # Blocks 1 and 2 are needed by three, 3 and 4 by two; thirds are rounded up.
        assert [index.held_alone(entry) for entry in entries] == [
            2 * 334 + 2 * 500 + ANCHOR_BYTES,
            2 * 334 + 2 * 500 + 4 * 1000 + ANCHOR_BYTES,
            2 * 334 + ANCHOR_BYTES,
        ]
        assert sum(map(index.held_alone, entries)) >= index.nbytes

    def test_an_entry_of_the_same_id_takes_the_place_of_the_other(self) -> None:
        chain, other = a_chain(IDS), a_chain(random_ids(200, seed=1))
        index = an_index(an_entry(chain, (64,), end=70), an_entry(other, (32,)))

        assert len(index) == 1
        assert index.continuations(chain, 199) == []
        assert lines(index.continuations(other, 199)) == [32]
        assert index.nbytes == 4 * BLOCK_BYTES + ANCHOR_BYTES

    def test_nothing_of_a_removed_entry_is_left(self) -> None:
        chain = a_chain(IDS)
        entry = an_entry(chain, (56, 64), end=70)
        index = an_index(entry)

        assert index.remove(entry.id) == entry
        assert index.remove(entry.id) is None

        assert index.entry(entry.id) is None
        assert index.entries() == ()
        assert index.continuations(chain, 199) == []
        assert index.shared_line(chain) == 0
        assert index.nbytes == 0
        assert all(index.needing(name) == () for name in objects_of(entry))

    def test_a_removed_entry_leaves_those_it_shared_with_alone(self) -> None:
        chain = a_chain(IDS)
        index = an_index(
            an_entry(chain, (64,), end=70, name="a"), an_entry(chain, (64,), end=70, name="b")
        )

        index.remove(EntryId("a"))

        assert ways(index.continuations(chain, 199)) == [
            ("b", 70, AnchorKind.END),
            ("b", 64, AnchorKind.GRID),
        ]

    def test_entries_are_found_by_their_id(self) -> None:
        entry = an_entry(a_chain(IDS), (64,))
        index = an_index(entry)

        assert index.entry(EntryId("entry")) == entry
        assert index.entries() == (entry,)


class TestSharedLine:
    def test_it_is_the_highest_grid_line_with_the_prompts_rows(self) -> None:
        index = an_index(an_entry(a_chain(IDS[:70]), (16,), top=70))
        edited = token_ids([*IDS[:50].tolist(), *random_ids(50, seed=2).tolist()])

        assert index.shared_line(a_chain(IDS)) == 64
        assert index.shared_line(a_chain(IDS[:64])) == 64
        assert index.shared_line(a_chain(IDS[:63])) == 56
        assert index.shared_line(a_chain(edited)) == 48

    def test_a_prompt_that_shares_no_whole_step_shares_nothing(self) -> None:
        index = an_index(an_entry(a_chain(IDS), (64,)))
        other = token_ids([*IDS[:7].tolist(), *random_ids(50, seed=2).tolist()])

        assert index.shared_line(a_chain(other)) == 0
        assert index.shared_line(a_chain(IDS[:7])) == 0
        assert DiskIndex().shared_line(a_chain(IDS)) == 0


def test_ends_of_other_conversations_cost_a_lookup_nothing() -> None:
    index = DiskIndex()
    for seed in range(300):
        ids = random_ids(100 + seed, seed=seed, below=10**9)
        index.add(an_entry(a_chain(ids), (96,), end=100 + seed, name=str(seed)))
    prompt = CountingChain(random_ids(200, seed=7, below=10**9), PLAIN, GRID)

    found = index.continuations(prompt, 199)

    # Of 300 ends the one of seed 7 is looked at: the rows below it are the prompt's.
    assert ways(found) == [("7", 107, AnchorKind.END), ("7", 96, AnchorKind.GRID)]
    assert prompt.off_grid == 1
