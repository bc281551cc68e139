"""The stop matcher against a search of the whole text, for every way to cut it."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from anchorline.domain.stop import StopMatcher

LONGEST = 16


@st.composite
def texts_and_stops(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text, and stops of which many come in it or nearly do."""
    text = draw(st.text("ab", max_size=LONGEST))
    start = draw(st.integers(0, LONGEST))
    inside = text[start : start + draw(st.integers(1, 6))]
    others = draw(st.lists(st.text("ab", min_size=2, max_size=6), max_size=2))
    return text, [stop for stop in (inside, *others) if stop]


CASES = texts_and_stops()
CUTS = st.lists(st.integers(0, LONGEST), max_size=6) | st.just(list(range(LONGEST)))


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


@given(CASES, CUTS)
@settings(max_examples=400)
def test_every_cut_of_a_text_gives_what_a_search_of_the_whole_gives(
    case: tuple[str, list[str]], cuts: list[int]
) -> None:
    text, stops = case
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


@given(CASES)
@settings(max_examples=400)
def test_no_more_is_held_back_than_may_become_a_stop(case: tuple[str, list[str]]) -> None:
    text, stops = case
    matcher = StopMatcher(stops)
    shown = ""

    for at, letter in enumerate(text):
        passed = matcher.push(letter)
        shown += passed.text
        if passed.stop is not None:
            return
        held = text[len(shown) : at + 1]
        assert held == "" or any(stop.startswith(held) for stop in stops)
