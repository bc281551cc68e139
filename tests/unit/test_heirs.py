"""Who has whose place in the store."""

from anchorline.application.heirs import REMEMBERED_MAX, Heirs
from anchorline.domain.entry import EntryId

A, B, C = EntryId("a"), EntryId("b"), EntryId("c")


def test_who_gave_no_place_up_has_its_own() -> None:
    assert Heirs().of(A) == A


def test_an_heir_of_an_heir_has_the_place_of_both() -> None:
    heirs = Heirs()
    heirs.took(B, [A])
    heirs.took(C, [B])

    assert [heirs.of(one) for one in (A, B, C)] == [C, C, C]


def test_who_is_stored_again_has_its_own_place_again() -> None:
    heirs = Heirs()
    heirs.took(B, [A])

    heirs.took(A, [])

    assert heirs.of(A) == A


def test_two_that_take_each_others_place_in_turn_are_followed_to_the_last() -> None:
    heirs = Heirs()
    heirs.took(B, [A])

    heirs.took(A, [B])

    assert heirs.of(B) == heirs.of(A) == A


def test_of_places_taken_long_ago_it_is_forgotten_who_took_them() -> None:
    heirs = Heirs()
    heirs.took(B, [A])
    for number in range(REMEMBERED_MAX):
        heirs.took(EntryId(f"heir-{number}"), [EntryId(f"place-{number}")])

    assert heirs.of(A) == A
    assert heirs.of(EntryId("place-0")) == EntryId("heir-0")
