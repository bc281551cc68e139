"""Stop strings."""

import pytest

from anchorline.domain.stop import Passed, StopMatcher


def shown(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    """All that is shown of a text in pieces, and the stop that ended it."""
    matcher = StopMatcher(stops)
    text = ""
    for piece in pieces:
        passed = matcher.push(piece)
        text += passed.text
        if passed.stop is not None:
            return text, passed.stop
    return text + matcher.flush(), None


def test_without_stops_everything_passes_at_once() -> None:
    matcher = StopMatcher([])

    assert matcher.push("a\n\nb") == Passed("a\n\nb")
    assert matcher.flush() == ""


def test_a_stop_ends_the_text_and_is_not_shown() -> None:
    assert shown(["\n\n"], ["one\n\ntwo"]) == ("one", "\n\n")


def test_a_stop_is_found_across_pieces() -> None:
    assert shown(["STOP"], ["go S", "TO", "P on"]) == ("go ", "STOP")


def test_what_may_be_the_start_of_a_stop_is_held_back() -> None:
    matcher = StopMatcher(["STOP"])

    assert matcher.push("go ST") == Passed("go ")
    assert matcher.push("AY") == Passed("STAY")


def test_only_what_may_still_become_a_stop_is_held_back() -> None:
    matcher = StopMatcher(["aab"])

    assert matcher.push("aaa") == Passed("a")
    assert matcher.push("b") == Passed("", "aab")


def test_what_was_held_back_comes_at_the_end() -> None:
    matcher = StopMatcher(["STOP"])
    matcher.push("go STO")

    assert matcher.flush() == "STO"
    assert matcher.flush() == ""


def test_no_part_of_a_stop_that_comes_is_ever_shown() -> None:
    for cut in range(1, 4):
        matcher = StopMatcher(["STOP"])

        first = matcher.push("x" + "STOP"[:cut])
        second = matcher.push("STOP"[cut:])

        assert first.text + second.text == "x"
        assert second.stop == "STOP"


def test_of_several_stops_the_first_to_be_complete_ends_the_text() -> None:
    assert shown(["three", "two"], ["one two three"]) == ("one ", "two")


def test_the_stop_does_not_depend_on_how_the_text_was_cut() -> None:
    assert shown(["abcd", "bc"], ["abcd"]) == shown(["abcd", "bc"], list("abcd"))


def test_of_stops_that_end_together_the_longest_ends_the_text() -> None:
    assert shown(["c", "bc"], ["abc"]) == ("a", "bc")
    assert shown(["bc", "c"], list("abc")) == ("a", "bc")


def test_what_follows_a_stop_is_not_shown() -> None:
    matcher = StopMatcher(["."])

    assert matcher.push("One. Two.") == Passed("One", ".")
    assert matcher.flush() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty stop"):
        StopMatcher(["a", ""])
