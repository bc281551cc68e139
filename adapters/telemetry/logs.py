"""The process's log: one handler, one line per record, no line twice."""

import json
import logging
import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TextIO, TypeAlias, cast

from .log_text import escaped
from .prometheus import JOURNAL_FIELDS

_HANDLER_NAME: Final = "anchorline"
_SET_IN: Final = "    "

_Error: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)

QUIET_LOGGERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio", "httpx")
"""Loggers of libraries; below a warning they repeat what the server says itself."""


class PlainLines(logging.Formatter):
    """Time, level, logger and message; a message is one line whatever it holds.

    A traceback follows in lines of its own, each set in: none of them looks like a record, whatever
    an error's text holds.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, the base's name
        return escaped(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        # What another formatter has left for all is not escaped.
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: _Error) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"{_SET_IN}{escaped(line)}" for line in lines)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        local = time.strftime(datefmt or "%Y-%m-%dT%H:%M:%S", self.converter(record.created))
        return f"{local}.{int(record.msecs):03d}"


class JsonLines(logging.Formatter):
    """One JSON object per record; the values of a journal record stand beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = cast("dict[str, object] | None", getattr(record, JOURNAL_FIELDS, None))
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if fields is None:
            line["message"] = record.getMessage()
        else:
            line |= {name: value for name, value in fields.items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, allow_nan=False)


def configure_logging(level: str, *, json_lines: bool, stream: TextIO) -> None:
    """Send the whole process's log to `stream`.

    A second call replaces what the first one set up; handlers of others stay. uvicorn is started
    without a log configuration of its own, so its records come through here as well.

    Args:
        level: debug, info, warning or error: the least that is shown.
        json_lines: one JSON object per line in place of plain text.
    """
    handler = logging.StreamHandler(stream)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(JsonLines() if json_lines else PlainLines())
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER_NAME]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    least = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(least)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(least, logging.WARNING))
