"""What was found about one model's exact arithmetic on one machine, kept between starts.

A proof takes seconds, and a cost is measured and never the same twice: what was found once holds
for as long as nothing that it depends on has changed.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model's exact arithmetic is row-invariant, and what it costs.

    Attributes:
        departed: what is not row-invariant, in words; None where the proof passed.
        decode_cost: time of a decoded token, as a multiple of the model's own arithmetic's.
        prefill_cost: time of a prefill likewise.
        seconds: how long it took to find out.
    """

    departed: str | None
    decode_cost: float
    prefill_cost: float
    seconds: float

    @property
    def passed(self) -> bool:
        return self.departed is None

    def in_words(self) -> str:
        """For people, in one line."""
        if self.departed is not None:
            return f"not row-invariant: {self.departed}"
        return (
            f"proved row-invariant in {self.seconds:.1f} s; a decoded token costs "
            f"{self.decode_cost:.2f} and a prefill {self.prefill_cost:.2f} of the model's own time"
        )


class VerdictStore:
    """Verdicts by what they depend on, one small file each; without a directory it keeps none."""

    def __init__(self, directory: Path | None, facts: Mapping[str, str]) -> None:
        """Takes what the verdict depends on; the directory need not exist."""
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self._path = None if directory is None else directory / f"{digest}.json"

    def find(self) -> Verdict | None:
        """The verdict, if there is one; a file that cannot be read is none."""
        if self._path is None:
            return None
        with contextlib.suppress(OSError, ValueError, TypeError):
            values = cast("dict[str, Any]", json.loads(self._path.read_bytes()))
            return Verdict(**values)
        return None

    def keep(self, verdict: Verdict) -> None:
        """Remember the verdict; where that fails it is found out again at the next start."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(asdict(verdict)))
            part.replace(self._path)
        except OSError as error:
            _log.warning("the proof is not remembered: %s", error)
