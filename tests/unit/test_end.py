"""The end of a generation."""

import pytest

from anchorline.domain.end import End
from anchorline.domain.grid import Span


def test_spans_may_reach_up_to_the_end() -> None:
    end = End(line=20, hidden=(Span(4, 8),), regions=(Span(2, 10), Span(15, 20)))

    assert end.line == 20


@pytest.mark.parametrize("kind", ["hidden", "regions"])
def test_no_span_reaches_beyond_the_end(kind: str) -> None:
    with pytest.raises(ValueError, match="beyond the end at 20"):
        End(20, **{kind: (Span(15, 21),)})
