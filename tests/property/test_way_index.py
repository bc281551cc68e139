"""Finding by keys, against a comparison of all tokens with those of every owner."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import EntryId
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.way_index import Way, WayIndex

GRID = Grid(3)
NAMESPACES = (Namespace(), Namespace(salt="s"))

Found = tuple[EntryId, int, AnchorKind]


@dataclass(frozen=True)
class Asked:
    """A prompt, and what it may resume at."""

    ids: TokenIds
    namespace: Namespace
    highest: int


@dataclass(frozen=True)
class Told:
    """An owner as plain rules see it: tokens, lines, and how far its rows reach."""

    owner: EntryId
    ids: TokenIds
    namespace: Namespace
    ways: frozenset[tuple[int, AnchorKind]]
    reach: int

    def shares(self, prompt: Asked, line: int) -> bool:
        """Whether all tokens below a line are the prompt's."""
        return (
            self.namespace == prompt.namespace
            and line <= len(prompt.ids)
            and all(self.ids[at] == prompt.ids[at] for at in range(line))
        )

    def usable(self, prompt: Asked) -> set[tuple[int, AnchorKind]]:
        return {
            (line, kind)
            for line, kind in self.ways
            if line <= prompt.highest and self.shares(prompt, line)
        }


def tell(number: int, ids: TokenIds, drawn: bytes) -> Told:
    """An owner whose grid ways stand on the grid, and at times off it as well, with some ends."""
    reach_at, grid_mask, off_grid, ends, shift, salted = drawn
    reach = reach_at % (len(ids) + 1)

    def drawn_lines(mask: int) -> set[int]:
        return {line for line in range(1, reach + 1) if mask << shift % 12 >> line & 1}

    grid = {line for line in GRID.lines(0, reach) if grid_mask >> line // GRID.step & 1}
    if off_grid % 3 == 0:
        grid |= drawn_lines(off_grid)
    ways = {(line, AnchorKind.GRID) for line in grid}
    ways |= {(line, AnchorKind.END) for line in drawn_lines(ends & grid_mask)}
    if reach and ends % 2:
        ways.add((reach, AnchorKind.END))
    return Told(EntryId(str(number)), ids, NAMESPACES[salted % 4 == 0], frozenset(ways), reach)


# Two ids, so that prompts share long prefixes and part everywhere.
IDS = st.binary(max_size=18).map(lambda drawn: token_ids([byte & 1 for byte in drawn]))
OWNERS = st.lists(st.tuples(IDS, st.binary(min_size=6, max_size=6)), max_size=8).map(
    lambda drawn: [tell(number, *one) for number, one in enumerate(drawn)]
)
PROMPTS = st.builds(Asked, IDS, st.sampled_from(NAMESPACES), st.integers(-1, 19))


def found_by_tokens(owners: Sequence[Told], prompt: Asked) -> set[Found]:
    """Each owner's highest grid way, and all its ends, that are the prompt's."""
    expected: set[Found] = set()
    for one in owners:
        usable = one.usable(prompt)
        grid = [line for line, kind in usable if kind is AnchorKind.GRID]
        if grid:
            expected.add((one.owner, max(grid), AnchorKind.GRID))
        expected |= {(one.owner, *way) for way in usable if way[1] is AnchorKind.END}
    return expected


def shared_by_tokens(owners: Sequence[Told], prompt: Asked) -> int:
    return max(
        (line for one in owners for line in GRID.lines(0, one.reach) if one.shares(prompt, line)),
        default=0,
    )


def a_chain(ids: TokenIds, namespace: Namespace, bits: int | None = None) -> PromptChain:
    """With keys of so many bits, eight at most; of all by default."""

    class WeakChain(PromptChain):
        def key(self, line: int) -> PrefixKey:
            assert bits is not None
            return PrefixKey(bytes([super().key(line)[0] >> (8 - bits)]))

    return (PromptChain if bits is None else WeakChain)(ids, namespace, GRID)


def add(index: WayIndex[Told], one: Told, bits: int | None = None) -> None:
    chain = a_chain(one.ids, one.namespace, bits)

    def way(line: int, kind: AnchorKind) -> Way[Told]:
        below = GRID.floor(line - 1)
        key = chain.key(below) if below else None
        # Even owners have all in common with each other, odd ones nothing with anybody.
        same = None if int(one.owner) % 2 else kind
        return Way(one.owner, chain.key(line), key, line, kind, one, same)

    index.add(
        one.owner,
        [way(line, kind) for line, kind in one.ways],
        [(span.end, chain.key(span.end)) for span in GRID.chunks(0, one.reach)],
    )


def an_index(owners: Sequence[Told], bits: int | None = None) -> WayIndex[Told]:
    index = WayIndex[Told]()
    for one in owners:
        add(index, one, bits)
    return index


def told(ways: Sequence[Way[Told]]) -> list[Found]:
    return [(way.owner, way.line, way.kind) for way in ways]


class TestKeys:
    @given(OWNERS, PROMPTS)
    @settings(max_examples=300)
    def test_what_is_found_is_what_a_comparison_of_all_tokens_finds(
        self, owners: list[Told], prompt: Asked
    ) -> None:
        chain = a_chain(prompt.ids, prompt.namespace)

        found = an_index(owners).find(chain, prompt.highest)

        assert len(told(found)) == len(set(told(found)))
        assert set(told(found)) == found_by_tokens(owners, prompt)
        assert [way.line for way in found] == sorted((way.line for way in found), reverse=True)
        assert all(way.what.owner == way.owner for way in found)

    @given(OWNERS, PROMPTS)
    @settings(max_examples=200)
    def test_choices_are_what_is_found_without_what_is_the_same(
        self, owners: list[Told], prompt: Asked
    ) -> None:
        chain = a_chain(prompt.ids, prompt.namespace)
        index = an_index(owners)

        found, choices = index.find(chain, prompt.highest), index.choices(chain, prompt.highest)

        own = {way for way in told(found) if int(way[0]) % 2}
        shared = {way[1:] for way in told(found) if not int(way[0]) % 2}
        told_shared = [way for way in told(choices) if not int(way[0]) % 2]
        assert {way for way in told(choices) if int(way[0]) % 2} == own
        assert set(told_shared) <= set(told(found))
        assert {way[1:] for way in told_shared} == shared
        assert len(choices) == len(own) + len(shared)
        assert [way.line for way in choices] == sorted((way.line for way in choices), reverse=True)

    @given(OWNERS, PROMPTS)
    @settings(max_examples=200)
    def test_the_shared_line_is_what_a_comparison_of_all_tokens_finds(
        self, owners: list[Told], prompt: Asked
    ) -> None:
        chain = a_chain(prompt.ids, prompt.namespace)

        assert an_index(owners).shared_line(chain) == shared_by_tokens(owners, prompt)

    @given(OWNERS, PROMPTS)
    @settings(max_examples=200)
    def test_from_the_highest_grid_way_all_lower_ones_are_reached(
        self, owners: list[Told], prompt: Asked
    ) -> None:
        index, chain = an_index(owners), a_chain(prompt.ids, prompt.namespace)

        for one in owners:
            ways = [way for way in index.find(chain, prompt.highest) if way.owner == one.owner]
            grid = [way for way in ways if way.kind is AnchorKind.GRID]
            reached = [way.line for way in downwards(index, chain, grid)]
            usable = one.usable(prompt)
            lines = [line for line, kind in usable if kind is AnchorKind.GRID]
            assert reached == sorted(lines, reverse=True)

    @given(OWNERS, PROMPTS, st.data())
    @settings(max_examples=200)
    def test_an_index_after_many_changes_is_one_of_what_is_left(
        self, owners: list[Told], prompt: Asked, data: st.DataObject
    ) -> None:
        index = an_index(owners)
        left = {one.owner: one for one in owners}
        changes = st.tuples(st.sampled_from(owners), st.booleans()) if owners else st.nothing()
        for one, goes in data.draw(st.lists(changes, max_size=10)) if owners else []:
            if goes:
                index.remove(one.owner)
                left.pop(one.owner, None)
            else:  # as an entry whose upper rows were lost
                reach = one.reach // 2
                ways = frozenset(way for way in one.ways if way[0] <= reach)
                left[one.owner] = Told(one.owner, one.ids, one.namespace, ways, reach)
                add(index, left[one.owner])

        chain, rest = a_chain(prompt.ids, prompt.namespace), list(left.values())
        assert len(index) == len(rest)
        assert set(told(index.find(chain, prompt.highest))) == found_by_tokens(rest, prompt)
        assert index.shared_line(chain) == shared_by_tokens(rest, prompt)


class TestKeysOfAFewBits:
    """Keys are hints: they may bring out what is not the prompt's, and must hide nothing that is.

    Whoever finds something compares the tokens, and asks for the owner's next lower grid way where
    they are others.
    """

    @given(OWNERS, PROMPTS, st.integers(0, 8))
    @settings(max_examples=400)
    def test_nothing_is_missed(self, owners: list[Told], prompt: Asked, bits: int) -> None:
        index = an_index(owners, bits)
        chain = a_chain(prompt.ids, prompt.namespace, bits)

        true = {
            found
            for way in index.find(chain, prompt.highest)
            for found in told(first_true(index, chain, way, prompt))
        }

        # An owner that a collision brought out twice is reached from both.
        grid = {way for way in true if way[2] is AnchorKind.GRID}
        highest = {
            max((way for way in grid if way[0] == one.owner), key=lambda way: way[1])
            for one in owners
            if any(way[0] == one.owner for way in grid)
        }
        assert (true - grid) | highest == found_by_tokens(owners, prompt)

    @given(OWNERS, PROMPTS, st.integers(0, 8))
    @settings(max_examples=200)
    def test_what_is_found_has_the_prompts_key_at_its_line(
        self, owners: list[Told], prompt: Asked, bits: int
    ) -> None:
        chain = a_chain(prompt.ids, prompt.namespace, bits)

        found = an_index(owners, bits).find(chain, prompt.highest)

        assert len(told(found)) == len(set(told(found)))
        assert [way.line for way in found] == sorted((way.line for way in found), reverse=True)
        for way in found:
            assert 0 < way.line <= min(prompt.highest, len(prompt.ids))
            assert chain.key(way.line) == way.key

    @given(OWNERS, PROMPTS, st.integers(0, 8))
    @settings(max_examples=200)
    def test_the_shared_line_is_never_told_too_low(
        self, owners: list[Told], prompt: Asked, bits: int
    ) -> None:
        shared = an_index(owners, bits).shared_line(a_chain(prompt.ids, prompt.namespace, bits))

        assert GRID.has(shared)
        assert shared_by_tokens(owners, prompt) <= shared <= len(prompt.ids)

    @given(OWNERS, PROMPTS, st.integers(0, 8))
    @settings(max_examples=100)
    def test_once_all_are_removed_nothing_is_found(
        self, owners: list[Told], prompt: Asked, bits: int
    ) -> None:
        index = an_index(owners, bits)
        for one in owners:
            index.remove(one.owner)

        chain = a_chain(prompt.ids, prompt.namespace, bits)
        assert index.find(chain, prompt.highest) == []
        assert index.shared_line(chain) == len(index) == 0


def downwards(
    index: WayIndex[Told], chain: PromptChain, ways: Sequence[Way[Told]]
) -> list[Way[Told]]:
    """Each way, and all that are reached from it."""
    reached: list[Way[Told]] = []
    for way in ways:
        one: Way[Told] | None = way
        while one is not None:
            reached.append(one)
            one = index.lower(chain, one)
    return reached


def first_true(
    index: WayIndex[Told], chain: PromptChain, way: Way[Told], prompt: Asked
) -> list[Way[Told]]:
    """The way, or the next lower one, whose tokens are the prompt's."""
    reached = downwards(index, chain, [way]) if way.kind is AnchorKind.GRID else [way]
    return [one for one in reached if one.what.shares(prompt, one.line)][:1]
