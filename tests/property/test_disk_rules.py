"""The rules of the tier on a medium, against the same rules told in the plainest way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorline.domain.age_clock import GAP_S_MAX, AgeClock
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.disk_index import Continuation, DiskIndex, objects_of
from anchorline.domain.disk_retention import Holding, Left, Shares, victims
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.entry_value import DAY_S
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid
from anchorline.domain.head_admission import (
    BRANCHES_MAX,
    PROMPT_STEPS_MIN,
    SESSION_LINES,
    HeadCause,
    PromptShape,
    head_lines,
)
from anchorline.domain.measured_rate import SAMPLES, MeasuredRate
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.write_guard import WriteCause, WriteGuard

GRID = Grid(3)
FINGERPRINT = fingerprint_of({})
NOW = 40 * DAY_S
# Two ids, so that prompts share long prefixes and part everywhere.
PROMPTS = st.binary(max_size=16).map(lambda drawn: token_ids([byte & 1 for byte in drawn]))


# --- the index ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """An entry as the plain rules see it: its tokens, and where its blocks end."""

    ids: TokenIds
    ends: frozenset[int]
    entry: StoredEntry

    def shares(self, prompt: TokenIds, line: int) -> bool:
        return line <= len(prompt) and self.ids[:line].tolist() == prompt[:line].tolist()


TELLING = st.tuples(PROMPTS, st.binary(min_size=6, max_size=6))
"""Ids, and what decides everything else: drawn at once, which is much faster than one by one."""


def tell(number: int, ids: TokenIds, drawn: bytes) -> Told:
    top_at, end_at, grid_mask, content, taint, is_head = drawn
    chain = PromptChain(ids, Namespace(), GRID)
    top = top_at % (len(ids) + 1)
    ends = [*GRID.lines(0, top), *([] if GRID.has(top) else [top])]

    def name(line: int, kind: str) -> ObjectName:
        return ObjectName(f"{chain.key(line).hex()}-{kind}-{content % 2}")

    anchors = [
        StoredAnchor(name(line, "grid"), chain.key(line), line, AnchorKind.GRID, 10 + line)
        for line in (0, *GRID.lines(0, len(ids)))
        if grid_mask >> line // GRID.step & 1
    ]
    # None, where the rows end, or anywhere.
    end = [None, top, end_at // 3 % (len(ids) + 1)][end_at % 3]
    if end is not None:
        anchors.append(
            StoredAnchor(name(end, "end"), chain.key(end), end, AnchorKind.END, 10 + end)
        )
    entry = StoredEntry(
        id=EntryId(str(number)),
        role=Role.HEAD if is_head % 2 else Role.CONVERSATION,
        fingerprint=FINGERPRINT,
        blocks=tuple(StoredBlock(name(at, "blk"), chain.key(at), at, 100 + at) for at in ends),
        anchors=tuple(anchors),
        taint=taint % (len(ids) + 1),
        end=None if end is None else End(end),
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )
    return Told(ids, frozenset(ends), entry)


MANY_TOLD = st.lists(TELLING, max_size=7).map(
    lambda drawn: [tell(number, *one) for number, one in enumerate(drawn)]
)

Way = tuple[EntryId, int, AnchorKind]


def ways(found: Sequence[Continuation]) -> list[Way]:
    return [(one.entry.id, one.line, one.anchor.kind) for one in found]


def ways_by_tokens(entries: Sequence[Told], prompt: TokenIds, highest: int) -> set[Way]:
    """Each entry's ends and its highest anchor whose rows are complete and the prompt's."""
    expected: set[Way] = set()
    for one in entries:
        usable = [
            anchor
            for anchor in one.entry.anchors
            if anchor.line in one.ends
            and anchor.line <= highest
            and one.shares(prompt, anchor.line)
        ]
        grid = [anchor.line for anchor in usable if anchor.kind is AnchorKind.GRID]
        if grid:
            expected.add((one.entry.id, max(grid), AnchorKind.GRID))
        expected.update(
            (one.entry.id, anchor.line, AnchorKind.END)
            for anchor in usable
            if anchor.kind is AnchorKind.END
        )
    return expected


def an_index(entries: Sequence[Told]) -> DiskIndex:
    index = DiskIndex()
    for one in entries:
        index.add(one.entry)
    return index


@given(MANY_TOLD, PROMPTS, st.integers(0, 17))
@settings(max_examples=200)
def test_keys_find_what_a_comparison_of_all_tokens_finds(
    entries: list[Told], prompt: TokenIds, highest: int
) -> None:
    found = an_index(entries).continuations(PromptChain(prompt, Namespace(), GRID), highest)

    assert len(ways(found)) == len(set(ways(found)))
    assert set(ways(found)) == ways_by_tokens(entries, prompt, highest)
    assert [one.line for one in found] == sorted((one.line for one in found), reverse=True)
    for one in found:
        assert [block.end for block in one.blocks] == sorted(
            end for end in an_end_of(entries, one) if end <= one.line
        )


def an_end_of(entries: Sequence[Told], found: Continuation) -> frozenset[int]:
    return next(one.ends for one in entries if one.entry == found.entry)


@given(MANY_TOLD, PROMPTS)
@settings(max_examples=200)
def test_the_shared_line_is_what_a_comparison_of_all_tokens_finds(
    entries: list[Told], prompt: TokenIds
) -> None:
    expected = max(
        (
            line
            for one in entries
            for line in one.ends
            if GRID.has(line) and one.shares(prompt, line)
        ),
        default=0,
    )

    assert an_index(entries).shared_line(PromptChain(prompt, Namespace(), GRID)) == expected


@given(MANY_TOLD, PROMPTS, st.data())
@settings(max_examples=200)
def test_an_index_after_many_changes_is_one_of_what_is_left(
    entries: list[Told], prompt: TokenIds, data: st.DataObject
) -> None:
    index = an_index(entries)
    left = {one.entry.id: one.entry for one in entries}
    if entries:
        for one in data.draw(st.lists(st.sampled_from(entries), max_size=10)):
            if data.draw(st.booleans()):
                index.remove(one.entry.id)
                left.pop(one.entry.id, None)
            else:  # the same id with other anchors
                entry = replace(one.entry, anchors=one.entry.anchors[::2], hits=5)
                index.add(entry)
                left[entry.id] = entry

    chain = PromptChain(prompt, Namespace(), GRID)
    fresh = DiskIndex()
    for entry in left.values():
        fresh.add(entry)
    objects = {name for entry in left.values() for name in objects_of(entry)}
    everything = {name for one in entries for name in objects_of(one.entry)}
    assert {entry.id: entry for entry in index.entries()} == left
    assert index.continuations(chain, 16) == fresh.continuations(chain, 16)
    assert index.shared_line(chain) == fresh.shared_line(chain)
    assert {name for name in everything if index.holds(name) is not None} == objects
    for name in everything:
        needing = {entry.id for entry in left.values() if name in objects_of(entry)}
        assert {entry.id for entry in index.needing(name)} == needing
    sizes = {name: size for entry in left.values() for name, size in objects_of(entry).items()}
    alone = sum(index.held_alone(entry) for entry in left.values())
    assert index.nbytes == sum(sizes.values()) <= alone <= index.nbytes + 50 * len(left)


@given(MANY_TOLD, PROMPTS, st.integers(0, 8))
@settings(max_examples=200)
def test_keys_of_a_few_bits_lose_no_candidate(
    entries: list[Told], prompt: TokenIds, bits: int
) -> None:
    def cut(key: PrefixKey) -> PrefixKey:
        return PrefixKey(bytes([key[0] >> (8 - bits)]))

    class WeakChain(PromptChain):
        def key(self, line: int) -> PrefixKey:
            return cut(super().key(line))

    index = DiskIndex()
    for one in entries:
        entry = one.entry
        index.add(
            replace(
                entry,
                blocks=tuple(replace(block, key=cut(block.key)) for block in entry.blocks),
                anchors=tuple(replace(anchor, key=cut(anchor.key)) for anchor in entry.anchors),
            )
        )

    found = ways(index.continuations(WeakChain(prompt, Namespace(), GRID), len(prompt)))

    # A wrong candidate may hide a lower true one of its entry: reading it is what finds out.
    highest = {(entry_id, kind): line for entry_id, line, kind in reversed(found)}
    for entry_id, line, kind in ways_by_tokens(entries, prompt, len(prompt)):
        assert highest[entry_id, kind] >= line


# --- retention ------------------------------------------------------------------------------------

OBJECTS = [ObjectName(name) for name in "abcdefghij"]


def holdings_of(sizes: bytes, drawn: Sequence[tuple[int, bytes]]) -> list[Holding]:
    return [
        Holding(
            id=EntryId(str(number)),
            role=Role.HEAD if bits[0] % 2 else Role.CONVERSATION,
            tokens=bits[1] % 6,
            alone_bytes=0,
            hits=bits[2] % 3,
            created_s=0.0,
            last_used_s=NOW - bits[3] % 4 * DAY_S,
            foreign=bits[4] % 5 == 1,
            in_use=bits[5] % 5 == 1,
            objects={
                name: 1 + sizes[place] % 9
                for place, name in enumerate(OBJECTS)
                if mask >> place & 1
            },
        )
        for number, (mask, bits) in enumerate(drawn)
    ]


HOLDINGS = st.builds(
    holdings_of,
    st.binary(min_size=len(OBJECTS), max_size=len(OBJECTS)),
    st.lists(
        st.tuples(st.integers(1, (1 << len(OBJECTS)) - 1), st.binary(min_size=6, max_size=6)),
        max_size=7,
    ),
)


def bytes_of(holdings: Sequence[Holding]) -> int:
    """What the medium really holds for them: each object once."""
    return sum({name: size for one in holdings for name, size in one.objects.items()}.values())


SHARES = st.builds(Shares, st.integers(0, 30), st.integers(0, 30))
ROLES = st.sampled_from([Role.HEAD, Role.CONVERSATION])


@given(HOLDINGS, SHARES, ROLES, st.integers(0, 40), st.none() | st.integers(0, 60))
@settings(max_examples=250)
def test_caps_hold_in_what_is_really_there(
    holdings: list[Holding], shares: Shares, role: Role, incoming: int, bytes_max: int | None
) -> None:
    limit = shares.pool if bytes_max is None else min(shares.pool, bytes_max)

    going = victims(holdings, shares, role, incoming, NOW, bytes_max=bytes_max)

    if going is None:
        # Impossible though all went that may: what is left is read, or inside the other's share.
        left = [one for one in holdings if one.in_use or not (one.foreign or one.role is role)]
        assert bytes_of(left) + incoming > limit
        return
    gone = [entry_id for entry_id, _ in going]
    assert len(gone) == len(set(gone))
    assert not {one.id for one in holdings if one.in_use} & set(gone)
    stays = [one for one in holdings if one.id not in gone]
    assert bytes_of(stays) + incoming <= limit
    if bytes_of(holdings) + incoming <= limit:
        assert gone == []
    for entry_id in gone:  # nobody goes for nothing
        back = [one for one in holdings if one.id == entry_id]
        assert bytes_of([*stays, *back]) > bytes_of(stays)


@given(HOLDINGS, SHARES, ROLES, st.integers(0, 40))
@settings(max_examples=200)
def test_nothing_of_this_arithmetic_goes_while_foreign_state_may(
    holdings: list[Holding], shares: Shares, role: Role, incoming: int
) -> None:
    going = victims(holdings, shares, role, incoming, NOW) or []

    reasons = [why for _, why in going]
    foreign = {one.id for one in holdings if one.foreign and not one.in_use}
    assert reasons == sorted(reasons, key=lambda why: why is not Left.FOREIGN)
    assert {entry_id for entry_id, why in going if why is Left.FOREIGN} == foreign & {
        entry_id for entry_id, _ in going
    }


@given(
    holdings=HOLDINGS,
    incoming=st.integers(0, 40),
    limit=st.integers(0, 60),
)
@settings(max_examples=200)
def test_without_sharing_the_victims_are_the_shortest_run_of_least_values(
    holdings: list[Holding], incoming: int, limit: int
) -> None:
    # One role, nothing foreign, every object its owner's alone.
    plain = [
        replace(
            one,
            role=Role.CONVERSATION,
            foreign=False,
            alone_bytes=sum(one.objects.values()),
            objects={ObjectName(f"{one.id} {name}"): one.objects[name] for name in one.objects},
        )
        for one in holdings
    ]
    by_value = sorted(
        (one for one in plain if not one.in_use),
        key=lambda one: (one.value(NOW), one.last_used_s, one.id),
    )
    expected: list[EntryId] | None = None
    for count in range(len(by_value) + 1):
        gone = [one.id for one in by_value[:count]]
        if bytes_of([one for one in plain if one.id not in gone]) + incoming <= limit:
            expected = gone
            break

    shares = Shares(0, limit)
    with_objects = victims(plain, shares, Role.CONVERSATION, incoming, NOW)
    without = victims(
        [replace(one, objects={}) for one in plain], shares, Role.CONVERSATION, incoming, NOW
    )

    assert with_objects == without
    assert (None if with_objects is None else [entry_id for entry_id, _ in with_objects]) == (
        expected
    )


@given(HOLDINGS, SHARES, ROLES, st.integers(0, 40))
@settings(max_examples=200)
def test_a_role_within_its_share_gives_nothing_for_the_other(
    holdings: list[Holding], shares: Shares, role: Role, incoming: int
) -> None:
    holdings = [
        replace(
            one,
            foreign=False,
            objects={ObjectName(f"{one.id} {name}"): one.objects[name] for name in one.objects},
        )
        for one in holdings
    ]
    other = Role.HEAD if role is Role.CONVERSATION else Role.CONVERSATION

    going = victims(holdings, shares, role, incoming, NOW) or []

    held = bytes_of([one for one in holdings if one.role is other])
    for entry_id, _ in going:
        victim = next(one for one in holdings if one.id == entry_id)
        if victim.role is other:
            assert held > shares.of(other)
            held -= bytes_of([victim])


# --- heads ----------------------------------------------------------------------------------------


@st.composite
def shapes(draw: st.DrawFn) -> PromptShape:
    length = draw(st.integers(0, 60))
    lines = st.integers(0, length)
    return PromptShape(
        length=length,
        start=draw(lines),
        last_user=draw(lines),
        first_answer=draw(lines),
        first_of_session=draw(st.booleans()),
        clean=draw(st.booleans()),
    )


COUNTS = st.dictionaries(st.sampled_from(list(GRID.lines(0, 66))), st.integers(0, 4))


@given(shapes(), COUNTS, st.integers(1, 3))
@settings(max_examples=250)
def test_heads_are_few_long_clean_and_passed_by_this_prefill(
    shape: PromptShape, counts: dict[int, int], admit_after: int
) -> None:
    kept = head_lines(shape, GRID, counts, admit_after)

    assert list(kept) == sorted(kept)
    assert len(kept) <= 1 + BRANCHES_MAX + SESSION_LINES
    by_cause = Counter(kept.values())
    assert by_cause[HeadCause.COUNTED] <= 1
    assert by_cause[HeadCause.BRANCH] <= BRANCHES_MAX
    assert by_cause[HeadCause.SESSION] <= SESSION_LINES
    assert shape.clean or not kept
    for line, cause in kept.items():
        assert GRID.has(line)
        assert PROMPT_STEPS_MIN * GRID.step <= line
        assert shape.start < line <= shape.length
        if cause is HeadCause.SESSION:
            assert shape.first_of_session
            assert line <= shape.last_user
        else:
            assert counts[line] >= admit_after
        if cause is HeadCause.BRANCH:
            assert counts.get(line + GRID.step, 0) < counts[line]
            assert line <= shape.first_answer


@given(shapes(), COUNTS, st.integers(1, 3))
def test_the_longest_line_that_was_counted_enough_is_always_kept(
    shape: PromptShape, counts: dict[int, int], admit_after: int
) -> None:
    enough = [
        line
        for line in range(PROMPT_STEPS_MIN * GRID.step, shape.length + 1, GRID.step)
        if line > shape.start and counts.get(line, 0) >= admit_after
    ]

    kept = head_lines(replace(shape, clean=True), GRID, counts, admit_after)

    if enough:
        assert kept[max(enough)] is HeadCause.COUNTED
    else:
        assert HeadCause.COUNTED not in kept.values()


# --- clocks, budgets, rates -----------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**5)), max_size=12))
def test_an_age_never_goes_back_and_no_jump_adds_more_than_its_bound(
    processes: list[tuple[int, int]],
) -> None:
    # By process: how the wall clock moved while there was none, and how long it ran.
    age_s, wall_s, ran_s = 0.0, 1.8e9, 0
    for moved_s, seconds in processes:
        clock = AgeClock(age_s, wall_s, wall_s + moved_s, monotonic_s=3.0)
        readings = [clock.now(3.0 + seconds * part / 4) for part in range(5)]
        assert [age_s, *readings] == sorted([age_s, *readings])
        age_s, wall_s, ran_s = readings[-1], wall_s + moved_s, ran_s + seconds

    assert ran_s <= age_s <= ran_s + GAP_S_MAX * len(processes)


@given(
    day=st.integers(0, 100),
    tokens=st.integers(0, 100),
    written=st.integers(0, 300),
    more=st.integers(0, 300),
    cause=st.sampled_from(WriteCause),
)
def test_more_written_bytes_never_allow_more_and_more_tokens_never_less(
    day: int, tokens: int, written: int, more: int, cause: WriteCause
) -> None:
    guard = WriteGuard(day_bytes_max=day, long_tokens=50)

    if guard.allows(cause, tokens, written + more):
        assert guard.allows(cause, tokens, written)
        assert guard.allows(cause, tokens + more, written + more)


@given(
    prior=st.floats(1e3, 1e11),
    object_s_prior=st.floats(0, 1),
    nbytes=st.integers(1, 10**10),
    objects=st.integers(1, 200),
    seconds=st.floats(1e-5, 1e3),
)
@settings(max_examples=200)
def test_what_takes_the_same_again_and_again_is_expected_to_take_that(
    prior: float, object_s_prior: float, nbytes: int, objects: int, seconds: float
) -> None:
    rate = MeasuredRate(prior, object_s_prior)

    for _ in range(3 * SAMPLES):
        rate.observe(nbytes, objects, seconds)

    assert rate.seconds(nbytes, objects) == pytest.approx(seconds, rel=1e-6)


SECONDS = st.sampled_from([-1.0, 0.0]) | st.floats(1e-9, 1e6)


@given(st.lists(st.tuples(st.integers(-1, 10**12), st.integers(-1, 500), SECONDS)))
def test_no_measurements_make_a_rate_that_is_none(
    measured: list[tuple[int, int, float]],
) -> None:
    rate = MeasuredRate()
    for nbytes, objects, seconds in measured:
        rate.observe(nbytes, objects, seconds)

    assert 0 < rate.seconds(10**6, 1) < float("inf")
    assert rate.seconds(2 * 10**6, 2) >= rate.seconds(10**6, 1)
