"""The stop matcher against a search of the whole text, for every way to cut it."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.stop import StopMatcher

TEXTS = st.text("abc", max_size=24)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)
CUTS = st.lists(st.integers(0, 24), max_size=6)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What is shown, and the stop: the first that is complete when the text grows by letters."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


@given(TEXTS, STOPS, CUTS)
def test_every_cut_of_a_text_gives_what_a_search_of_the_whole_gives(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    expected, stop = naive(text, stops)
    matcher = StopMatcher(stops)
    shown, found = "", None

    for piece in pieces(text, cuts):
        passed = matcher.push(piece)
        shown += passed.text
        # Nothing that belongs to a stop was shown, not even before it was known to be one.
        assert expected.startswith(shown)
        found = passed.stop
        if found is not None:
            break
    shown += matcher.flush()

    assert (shown, found) == (expected, stop)


@given(TEXTS, STOPS)
def test_no_more_is_held_back_than_may_become_a_stop(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""

    for at, letter in enumerate(text):
        passed = matcher.push(letter)
        shown += passed.text
        if passed.stop is not None:
            return
        held = text[len(shown) : at + 1]
        assert held == "" or any(stop.startswith(held) for stop in stops)
