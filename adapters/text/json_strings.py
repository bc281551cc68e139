"""Where the strings of a JSON text are that comes piece by piece."""

import re
from typing import Final

_MARK: Final = re.compile(r'["\\]')


class JsonStrings:
    """Tells whether a place lies inside a string; looks at every character once."""

    def __init__(self) -> None:
        self._at = 0
        self._inside = False

    def inside(self, text: str, end: int) -> bool:
        """Whether `end` lies inside a string, if the text up to there is the start of JSON.

        Args:
            text: begins as it did in the calls before.
            end: not below that of the calls before.
        """
        while (mark := _MARK.search(text, self._at, end)) is not None:
            self._at = mark.end()
            if mark[0] == '"':
                self._inside = not self._inside
            elif self._inside:
                self._at += 1  # what stands behind a backslash ends nothing
        self._at = max(self._at, end)
        return self._inside
