"""Whoever leaves memory is the one worth least at that moment, however many leave at once."""

from hypothesis import given
from hypothesis import strategies as st

from anchorline.application.ram_entry import RamEntry
from anchorline.application.ram_tier import RamTier
from anchorline.domain.ram_retention import RamHolding, Retention, leaves_first
from support.builders import random_ids
from support.remembering import GRID, Remembering

# Which of three heads each conversation begins with, its length, its hits, and its session.
talks = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 4 * GRID), st.integers(0, 3), st.sampled_from("abc")
    ),
    min_size=1,
    max_size=9,
)

some = st.sets(st.integers(0, 8))


class Memory:
    """Conversations of which some share heads; of an open session the newest leaves late."""

    def __init__(
        self,
        talks: list[tuple[int, int, int, str]],
        retention: Retention,
        safe: set[int],
        given_up: set[int],
    ) -> None:
        self.memory = Remembering(retention=retention)
        tier = self.tier
        for number, (head, length, hits, session) in enumerate(talks):
            ids = [*random_ids(3 * GRID, seed=head), *random_ids(length + 1, seed=50 + number)]
            self.memory.parked(ids, session=session).hits = hits
            self.memory.clock.advance(1000.0 * (1 + number % 3))
        self.names = {id(entry): number for number, entry in enumerate(tier.entries)}
        tier.is_safe = lambda entry: self.names[id(entry)] in safe
        tier.given_up = lambda entry: self.names[id(entry)] in given_up
        tier.in_session = self._is_newest
        self.gone: list[int] = []
        tier.left = lambda entry: self.gone.append(self.names[id(entry)])

    @property
    def tier(self) -> RamTier:
        return self.memory.tier

    def worth_least(self) -> RamEntry:
        tier, now_s = self.tier, self.memory.clock.monotonic()

        def order(entry: RamEntry) -> tuple[bool, tuple[int, bool, float, float]]:
            holding = RamHolding(
                tokens=entry.line,
                alone_bytes=tier.bytes_alone(entry),
                hits=entry.hits,
                last_used_s=entry.last_used_s,
                credit=entry.credit,
                safe=tier.is_safe(entry),
                given_up=not tier.is_safe(entry) and tier.given_up(entry),
                in_session=tier.in_session(entry),
            )
            return not holding.alone_bytes, leaves_first(holding, self.retention, now_s)

        return min(tier.entries, key=order)

    retention = Retention.VALUE

    def _is_newest(self, entry: RamEntry) -> bool:
        mine = [one for one in self.tier.entries if one.session == entry.session]
        return entry.session != "c" and entry is mine[-1]


@given(talks, st.sampled_from(Retention), some, some)
def test_many_that_leave_at_once_leave_as_one_by_one(
    talks: list[tuple[int, int, int, str]], retention: Retention, safe: set[int], gone: set[int]
) -> None:
    at_once, one_by_one = (Memory(talks, retention, safe, gone) for _ in range(2))
    one_by_one.retention = retention

    assert at_once.tier.make_room(at_once.tier.bytes_max)
    while one_by_one.tier.nbytes:
        one_by_one.tier.drop(one_by_one.worth_least())

    assert at_once.gone == one_by_one.gone[: len(at_once.gone)]
    at_once.memory.assert_counted()
