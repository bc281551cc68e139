"""Where prompts go on: at which lines which kept state continues a prompt.

One index for every tier. It goes by prefix keys, and keys are hints: what it finds has the
prompt's keys at its line, not yet the prompt's tokens. Whoever uses it compares those first.

    owner 1   0 ------ way ------ way ------------- way
    owner 2   0 ------ way ------------ way ------- way --- way
    prompt    0 ======================== * the prompt parts from both here
                         ^ found, of 1   ^ found, of 2

Of an owner's grid ways the highest is found. It is met without passing the others one by one: each
way is filed at its line under the next grid way above it, so that all those whose next way is the
prompt's as well are passed over together. So a lookup costs one visit of each grid line that the
prompt shares with somebody, and of what it finds, whatever else is kept.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from .anchor import AnchorKind
from .entry import EntryId
from .prefix_key import PrefixKey
from .prompt_chain import PromptChain

T = TypeVar("T")
_Counted = TypeVar("_Counted", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Way(Generic[T]):
    """One line at which an owner continues a prompt: rows below it, and an anchor at it.

    Attributes:
        key: the prefix key at the line.
        below: the prefix key at the grid line below; None for row 0. On the grid it is not used.
        what: what the owner would bring in.
        same: equal in ways at one place that bring in the very same; None in one like no other.
    """

    owner: EntryId
    key: PrefixKey
    below: PrefixKey | None
    line: int
    kind: AnchorKind
    what: T
    same: Hashable = None


_Place: TypeAlias = tuple[int, PrefixKey]
"""A line, and the key there. With their lines, keys of few bits confuse no two lines."""


class _Spot(Generic[T]):
    """What stands at one place, by what is the same. Compared by identity, which costs least."""

    __slots__ = ("by_same", "place")

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.by_same: dict[Hashable, _Filed[T]] = {}


_Filed: TypeAlias = dict[_Spot[T] | None, dict[tuple[EntryId, AnchorKind], Way[T]]]
"""Ways by the spot of their owner's next grid way above; None for its highest one.

Ends stand under None as well: each of them is found for itself.
"""


@dataclass(frozen=True, slots=True)
class _Owned(Generic[T]):
    """What an owner has here.

    Attributes:
        filed: each of its ways with the spot it stands at, and the one it is filed under there.
        off_grid: of ways that may stand off the grid: the key below, and the line.
    """

    filed: Sequence[tuple[Way[T], _Spot[T], _Spot[T] | None]]
    block_ends: Sequence[_Place]
    off_grid: Sequence[tuple[PrefixKey | None, int]]


class WayIndex(Generic[T]):
    """The ways of many owners, found by the keys of a prompt."""

    def __init__(self) -> None:
        """Makes an empty index."""
        self._owners: dict[EntryId, _Owned[T]] = {}
        self._spots: dict[_Place, _Spot[T]] = {}
        self._block_ends: Counter[_Place] = Counter()
        # Off the grid each key costs a hash. So a line there is looked at only where the grid line
        # below it is the prompt's: by the key there, None for row 0.
        self._off_grid: dict[PrefixKey | None, Counter[int]] = {}

    def __len__(self) -> int:
        """How many owners it knows."""
        return len(self._owners)

    def __contains__(self, owner: EntryId) -> bool:
        return owner in self._owners

    def add(
        self, owner: EntryId, ways: Iterable[Way[T]], block_ends: Iterable[tuple[int, PrefixKey]]
    ) -> None:
        """Take an owner's ways and rows, in place of what it has here.

        Args:
            ways: at most one of each line and kind, or none. The owner has all rows below each.
            block_ends: the line and the key at the end of each row block: of every grid line from
                the first one up, and then of the short block, if there is one.
        """
        self.remove(owner)
        given, ends = tuple(ways), tuple(block_ends)
        assert all(way.owner == owner for way in given), f"ways of others than {owner}"
        on_grid = {line for line, _ in ends[:-1]}  # the last block may be the short one
        owned = _Owned(
            filed=tuple(self._filed(given)),
            block_ends=ends,
            off_grid=tuple({(way.below, way.line) for way in given if way.line not in on_grid}),
        )
        self._owners[owner] = owned
        self._block_ends.update(ends)
        for way, spot, above in owned.filed:
            filed = spot.by_same.setdefault(way.same, {})
            filed.setdefault(above, {})[owner, way.kind] = way
        for below, line in owned.off_grid:
            self._off_grid.setdefault(below, Counter())[line] += 1

    def remove(self, owner: EntryId) -> None:
        """Forget an owner; nothing happens if it is not here."""
        owned = self._owners.pop(owner, None)
        if owned is None:
            return
        for end in owned.block_ends:
            _count_down(self._block_ends, end)
        for way, spot, above in owned.filed:
            filed = spot.by_same[way.same]
            del filed[above][owner, way.kind]
            if not filed[above]:
                del filed[above]
            if not filed:
                del spot.by_same[way.same]
            if not spot.by_same:
                del self._spots[spot.place]
        for below, line in owned.off_grid:
            _count_down(self._off_grid[below], line)
            if not self._off_grid[below]:
                del self._off_grid[below]

    def find(self, chain: PromptChain, highest: int) -> list[Way[T]]:
        """What continues the prompt: each owner's highest grid way, and all its ends.

        The highest line comes first; within a line the order says nothing. Where a comparison of
        the tokens refuses a grid way, `lower` has the owner's next one. Until then a collision of
        keys hides it; it may as well bring out more than one of an owner at once.

        Args:
            chain: of the prompt.
            highest: the highest line it may resume at.
        """
        found: list[Way[T]] = []
        for _, groups in self._standing(chain, highest):
            for group in groups:
                found.extend(group)
        return found

    def choices(self, chain: PromptChain, highest: int) -> list[Way[T]]:
        """What is found, but of ways that are the same only one: it may be anybody's.

        Where a thousand conversations share a head, each of them is found at the same anchor in it.
        """
        found: list[Way[T]] = []
        for same, groups in self._standing(chain, highest):
            for group in groups:
                if same is not None:
                    found.append(next(iter(group)))
                    break
                found.extend(group)
        return found

    def lower(self, chain: PromptChain, way: Way[T]) -> Way[T] | None:
        """The next grid way below `way` of the same owner that has the prompt's key.

        Args:
            chain: that `way` was found for.
            way: one that is here.
        """
        below = [
            one
            for one, _, _ in self._owners[way.owner].filed
            if one.kind is AnchorKind.GRID
            and one.line < way.line
            and chain.key(one.line) == one.key
        ]
        return max(below, key=lambda one: one.line, default=None)

    def shared_line(self, chain: PromptChain) -> int:
        """The highest grid line up to which some owner has the prompt's rows."""
        return self._shared(chain, chain.length)

    def _shared(self, chain: PromptChain, top: int) -> int:
        """The same, at or below `top`.

        Nobody has a block without those below it. So all lines up to the one looked for are known,
        and it is found by halving: a collision can but make it too high.
        """
        lines = chain.grid.lines(0, top)
        ends = self._block_ends
        known = bisect_left(lines, True, key=lambda line: (line, chain.key(line)) not in ends)
        return lines[known - 1] if known else 0

    def _standing(
        self, chain: PromptChain, highest: int
    ) -> Iterator[tuple[Hashable, Iterator[Iterable[Way[T]]]]]:
        """What is found, in groups of ways, by what is the same; from the highest line down."""
        passed: set[_Spot[T] | None] = set()

        def groups(filed: _Filed[T]) -> Iterator[Iterable[Way[T]]]:
            for above, ways in filed.items():
                if above not in passed:
                    yield ways.values()

        for spot in self._spots_of(chain, min(highest, chain.length)):
            passed.add(spot)
            for same, filed in spot.by_same.items():
                if not passed.issuperset(filed):  # told at once, and mostly it is
                    yield same, groups(filed)

    def _spots_of(self, chain: PromptChain, top: int) -> Iterator[_Spot[T]]:
        """The spots on the prompt's way, from `top` down."""
        step, spots = chain.grid.step, self._spots
        for line in range(self._shared(chain, top), -1, -step):
            key = chain.key(line)
            off_grid = self._off_grid.get(key if line else None)
            if off_grid:
                last = min(line + step - 1, top)
                # Upwards, as each key off the grid goes on from the one before it.
                lines = sorted(at for at in off_grid if line < at <= last)
                places = [(at, chain.key(at)) for at in lines]
                yield from (spots[place] for place in reversed(places) if place in spots)
            spot = spots.get((line, key))
            if spot is not None and line:
                yield spot

    def _filed(self, ways: Sequence[Way[T]]) -> Iterator[tuple[Way[T], _Spot[T], _Spot[T] | None]]:
        """Each of an owner's ways, its spot, and the spot that it is to be filed under there."""
        above: _Spot[T] | None = None
        for way in sorted(ways, key=lambda way: -way.line):
            spot = self._spots.setdefault((way.line, way.key), _Spot((way.line, way.key)))
            if way.kind is not AnchorKind.GRID:
                yield way, spot, None
                continue
            assert spot is not above, f"two ways of {way.owner} at {way.line}"
            yield way, spot, above
            above = spot


def _count_down(counts: Counter[_Counted], key: _Counted) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
