"""What leaves the medium when room is needed, and what has grown too old."""

from collections.abc import Sequence

import pytest

from anchorline.domain.disk_retention import (
    Ages,
    Holding,
    Left,
    Shares,
    expired,
    victims,
)
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.entry_value import DAY_S
from anchorline.domain.stored_entry import ObjectName

NOW = 100 * DAY_S
SHARES = Shares(heads_bytes_max=200, conversations_bytes_max=800)


def a_holding(
    name: str,
    alone_bytes: int = 0,
    *,
    objects: str = "",
    role: Role = Role.CONVERSATION,
    tokens: int = 1000,
    hits: int = 0,
    unused_days: float = 0.0,
    foreign: bool = False,
    in_use: bool = False,
) -> Holding:
    """A holding of `alone_bytes`, or of objects of 100 bytes each, one a letter."""
    return Holding(
        id=EntryId(name),
        role=role,
        tokens=tokens,
        alone_bytes=alone_bytes,
        hits=hits,
        created_s=0.0,
        last_used_s=NOW - unused_days * DAY_S,
        foreign=foreign,
        in_use=in_use,
        objects={ObjectName(letter): 100 for letter in objects},
    )


def who_goes(
    holdings: Sequence[Holding],
    incoming: int,
    *,
    role: Role = Role.CONVERSATION,
    shares: Shares = SHARES,
    bytes_max: int | None = None,
) -> list[tuple[str, Left]] | None:
    found = victims(holdings, shares, role, incoming, NOW, bytes_max=bytes_max)
    return None if found is None else [(str(entry_id), why) for entry_id, why in found]


def names(found: list[tuple[str, Left]] | None) -> list[str] | None:
    return None if found is None else [name for name, _ in found]


class TestValue:
    def test_it_is_tokens_saved_per_byte(self) -> None:
        assert a_holding("a", 500, tokens=1000).value(NOW) == 2.0

    def test_every_hit_counts_once_more(self) -> None:
        assert a_holding("a", 500, tokens=1000, hits=3).value(NOW) == 8.0

    def test_it_halves_with_each_day_unused(self) -> None:
        assert a_holding("a", 500, tokens=1000, unused_days=3).value(NOW) == 0.25

    def test_a_use_in_the_future_is_one_of_now(self) -> None:
        assert a_holding("a", 500, tokens=1000, unused_days=-3).value(NOW) == 2.0

    def test_an_entry_without_bytes_of_its_own_has_a_value(self) -> None:
        assert a_holding("a", 0, tokens=1000).value(NOW) == 1000.0


class TestCaps:
    def test_what_fits_sends_nobody_away(self) -> None:
        assert who_goes([a_holding("a", 400), a_holding("b", 500)], 100) == []

    def test_one_byte_too_much_sends_one_away(self) -> None:
        assert who_goes([a_holding("a", 400), a_holding("b", 500)], 101) == [("b", Left.SHARE)]

    def test_the_least_valuable_go_first_and_no_more_than_needed(self) -> None:
        holdings = [
            a_holding("much used", 300, hits=9),
            a_holding("long unused", 300, unused_days=5),
            a_holding("plain", 300),
        ]

        assert names(who_goes(holdings, 100)) == []
        assert names(who_goes(holdings, 200)) == ["long unused"]
        assert names(who_goes(holdings, 500)) == ["long unused", "plain"]

    def test_of_equal_values_the_one_unused_for_longest_goes(self) -> None:
        # Values this old are all 0.
        holdings = [
            a_holding("a", 500, unused_days=5000),
            a_holding("b", 500, unused_days=6000),
        ]

        assert names(who_goes(holdings, 100)) == ["b"]

    def test_a_pool_that_is_over_its_limit_already_is_brought_under_it(self) -> None:
        holdings = [a_holding(name, 500) for name in "abcd"]

        assert names(who_goes(holdings, 0)) == ["a", "b"]

    def test_what_is_larger_than_the_pool_sends_nobody_away(self) -> None:
        assert who_goes([a_holding("a", 400)], 1001) is None

    def test_what_is_in_use_never_goes(self) -> None:
        holdings = [a_holding("a", 400, in_use=True), a_holding("b", 400)]

        assert names(who_goes(holdings, 300)) == ["b"]
        assert who_goes(holdings, 601) is None

    def test_a_medium_with_less_room_than_the_shares_is_the_limit(self) -> None:
        holdings = [a_holding("a", 100), a_holding("b", 100)]

        assert names(who_goes(holdings, 100, bytes_max=300)) == []
        assert names(who_goes(holdings, 100, bytes_max=299)) == ["a"]
        assert who_goes(holdings, 100, bytes_max=99) is None

    def test_a_medium_without_room_empties_the_pool(self) -> None:
        holdings = [a_holding("a", 100), a_holding("b", 100, role=Role.HEAD)]

        assert sorted(names(who_goes(holdings, 0, bytes_max=0)) or []) == ["a", "b"]

    def test_a_pool_of_nothing_is_emptied(self) -> None:
        holdings = [a_holding("a", 100), a_holding("b", 100, role=Role.HEAD)]

        found = who_goes(holdings, 0, role=Role.HEAD, shares=Shares(0, 0))

        assert sorted(names(found) or []) == ["a", "b"]


class TestForeign:
    def test_state_of_another_arithmetic_goes_before_everything(self) -> None:
        holdings = [
            a_holding("worthless", 400, unused_days=50),
            a_holding("foreign", 400, hits=99, foreign=True),
        ]

        assert who_goes(holdings, 300) == [("foreign", Left.FOREIGN)]
        assert who_goes(holdings, 700) == [("foreign", Left.FOREIGN), ("worthless", Left.SHARE)]

    def test_the_least_valuable_of_it_goes_first(self) -> None:
        holdings = [
            a_holding("used", 400, foreign=True),
            a_holding("unused", 400, foreign=True, unused_days=1),
        ]

        assert names(who_goes(holdings, 300)) == ["unused"]

    def test_it_goes_for_any_role_whatever_its_own(self) -> None:
        holdings = [a_holding("foreign", 800, foreign=True)]

        assert who_goes(holdings, 500, role=Role.HEAD) == [("foreign", Left.FOREIGN)]


class TestShares:
    def test_a_role_may_use_what_the_other_leaves(self) -> None:
        assert who_goes([a_holding("a", 900)], 100) == []
        assert who_goes([a_holding("a", 900, role=Role.HEAD)], 100, role=Role.HEAD) == []

    def test_it_gives_that_back_when_the_other_needs_it(self) -> None:
        holdings = [
            a_holding("conversation", 450, hits=9),
            a_holding("another", 450, hits=9),
            a_holding("head", 100, role=Role.HEAD),
        ]

        found = who_goes(holdings, 100, role=Role.HEAD)

        assert found == [("another", Left.SHARE)]

    def test_a_role_within_its_share_gives_nothing_for_one_over_its_own(self) -> None:
        holdings = [
            a_holding("conversation", 800, hits=9),
            a_holding("head", 200, role=Role.HEAD, unused_days=6),
        ]

        assert names(who_goes(holdings, 100)) == ["conversation"]
        assert names(who_goes(holdings, 100, role=Role.HEAD)) == ["head"]

    def test_a_role_over_its_share_alone_gets_no_room_from_the_other(self) -> None:
        holdings = [a_holding("conversation", 800, unused_days=9)]

        assert who_goes(holdings, 201, role=Role.HEAD) is None

    def test_where_both_are_over_their_shares_the_least_valuable_goes(self) -> None:
        holdings = [
            a_holding("conversation", 900, unused_days=1),
            a_holding("head", 300, role=Role.HEAD),
        ]

        assert names(who_goes(holdings, 0)) == ["conversation"]

    def test_where_the_other_is_over_but_in_use_a_role_makes_room_among_its_own(self) -> None:
        holdings = [
            a_holding("conversation", 900, in_use=True),
            a_holding("head", 100, role=Role.HEAD),
        ]

        assert who_goes(holdings, 50, role=Role.HEAD) == [("head", Left.ROOM)]

    def test_on_a_smaller_medium_shares_are_smaller_in_proportion(self) -> None:
        # 500 instead of 1000: heads may hold 100 of them.
        holdings = [
            a_holding("conversation", 300, unused_days=9),
            a_holding("head", 60, role=Role.HEAD),
            a_holding("another head", 60, role=Role.HEAD, hits=5),
        ]

        assert names(who_goes(holdings, 100, bytes_max=500)) == ["head"]


class TestSharedObjects:
    def test_an_object_counts_once_however_many_need_it(self) -> None:
        holdings = [a_holding(name, objects="ABCDEFG") for name in "xyz"]

        assert who_goes(holdings, 300) == []
        assert who_goes(holdings, 301) is not None

    def test_what_others_need_does_not_become_free(self) -> None:
        # Ten objects of 100 bytes. With `old` only I goes, and J with `plain`: 200 in all.
        holdings = [
            a_holding("used", objects="ABCDEFGH", hits=9),
            a_holding("old", objects="ABCDI", unused_days=6),
            a_holding("plain", objects="ABCDJ"),
        ]

        assert names(who_goes(holdings, 100)) == ["old"]
        assert names(who_goes(holdings, 200)) == ["old", "plain"]

    def test_the_last_one_to_need_an_object_frees_it(self) -> None:
        holdings = [a_holding(name, objects="ABCDEFGHIJ") for name in "xyz"]

        assert names(who_goes(holdings, 1000)) == ["x", "y", "z"]

    def test_shares_of_what_is_left_grow_while_others_go(self) -> None:
        # b and c share 200 bytes, 300 for each. When b has gone c holds 400 alone: less worth than
        # d by then, though it was worth more.
        holdings = [
            a_holding("b", objects="ABCD", tokens=900, unused_days=1),
            a_holding("c", objects="ABEF", tokens=1200),
            a_holding("d", objects="GHIJ", tokens=1300),
        ]

        assert names(who_goes(holdings, 300)) == ["b", "c"]

    def test_who_shares_all_it_has_with_what_is_in_use_stays(self) -> None:
        # Its leaving would free nothing.
        holdings = [
            a_holding("read", objects="ABCDE", in_use=True),
            a_holding("inside", objects="ABC", unused_days=9),
            a_holding("beside", objects="FGHIJ", hits=3),
        ]

        assert names(who_goes(holdings, 100)) == ["beside"]
        assert who_goes(holdings, 501) is None

    def test_an_entry_about_to_be_written_keeps_what_it_builds_on(self) -> None:
        stored = a_holding("older turn", objects="ABCDEFG", unused_days=1)
        other = a_holding("other", objects="HIJ", hits=9)
        incoming = a_holding("newer turn", objects="ABCDEFG", in_use=True)

        assert names(who_goes([stored, other], 100)) == ["older turn"]
        assert names(who_goes([stored, other, incoming], 100)) == ["other"]


class TestExpired:
    @pytest.mark.parametrize(
        ("role", "days", "gone"),
        [
            (Role.HEAD, 7, False),
            (Role.HEAD, 7.01, True),
            (Role.CONVERSATION, 2, False),
            (Role.CONVERSATION, 2.01, True),
        ],
    )
    def test_each_role_has_its_own_age(self, role: Role, days: float, gone: bool) -> None:
        holding = a_holding("a", 1, role=role, unused_days=days)

        assert (expired([holding], Ages(), NOW) == ["a"]) == gone

    def test_the_oldest_use_comes_first(self) -> None:
        holdings = [a_holding(name, 1, unused_days=days) for name, days in (("a", 3), ("b", 5))]

        assert expired(holdings, Ages(), NOW) == ["b", "a"]

    def test_what_is_in_use_does_not_expire(self) -> None:
        assert expired([a_holding("a", 1, unused_days=99, in_use=True)], Ages(), NOW) == []

    def test_state_of_another_arithmetic_expires_alike(self) -> None:
        assert expired([a_holding("a", 1, unused_days=3, foreign=True)], Ages(), NOW) == ["a"]

    def test_a_use_in_the_future_does_not_expire(self) -> None:
        assert expired([a_holding("a", 1, unused_days=-99)], Ages(), NOW) == []


def test_a_pool_is_both_shares() -> None:
    assert SHARES.pool == 1000
    assert SHARES.of(Role.HEAD) == 200
    assert SHARES.of(Role.CONVERSATION) == 800
