"""Wrong states, told to a person: a line in the log, and a file to make them again from."""

import json
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from ...domain.errors import StorageError
from ...domain.mismatch import Mismatch

LOGGED_IDS_MAX: Final = 256
"""Token ids that stand in the log where no file can hold them: the last ones."""

FILE_LEAF: Final = "verify.json"

KeepAside: TypeAlias = Callable[[str, bytes], str | None]
"""Keeps bytes under a name with this end; the name, or None if there is no room."""

_log = logging.getLogger("anchorline.verify")


class MismatchLog:
    """Takes mismatches; never raises for one."""

    def __init__(self, keep_aside: KeepAside | None) -> None:
        """Takes where files go; None writes none."""
        self._keep_aside = keep_aside

    def __call__(self, mismatch: Mismatch) -> str | None:
        """Write it down; the name of the file, if there is one."""
        name = self._kept(mismatch)
        difference = mismatch.difference
        ids = mismatch.ids[-LOGGED_IDS_MAX:].tolist()
        where = f"file {name} in quarantine/" if name else f"the last {len(ids)} token ids: {ids}"
        _log.error(
            "WRONG STATE of %s: %s depart in %s, row %s, below line %d; given up; %s",
            mismatch.entry,
            difference.kind.value,
            difference.part,
            difference.row,
            difference.line,
            where,
        )
        return name

    def _kept(self, mismatch: Mismatch) -> str | None:
        if self._keep_aside is None:
            return None
        try:
            return self._keep_aside(FILE_LEAF, dumped(mismatch))
        except StorageError as error:
            _log.warning("a wrong state could not be written down: %s", error)
            return None


def dumped(mismatch: Mismatch) -> bytes:
    """A mismatch as JSON: everything but the namespace's salt, of which a digest stands there."""
    record = {
        **mismatch.facts(),
        "adapter": mismatch.namespace.adapter,
        "kv_scheme": mismatch.namespace.kv_scheme,
        "token_ids": mismatch.ids.tolist(),
    }
    return json.dumps(record).encode()
