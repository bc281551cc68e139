"""The marks with which models part an answer, as their text shows them."""

from typing import Final

THINK_OPEN: Final = "<think>"
THINK_CLOSE: Final = "</think>"
CALL_OPEN: Final = "<tool_call>"
CALL_CLOSE: Final = "</tool_call>"

ALL: Final = frozenset({THINK_OPEN, THINK_CLOSE, CALL_OPEN, CALL_CLOSE})
