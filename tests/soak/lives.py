"""The server under load: it lives, is killed or stopped, and lives again."""

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from soak.processes import ServerProcess, verify
from soak.replies import Body, Refused

FAULTS_MAX: Final = 100
"""More of them say nothing new."""

EXPECTED: Final = (
    "unfinished files of a killed server were deleted",
    "socket.send() raised exception",  # asyncio's own, once a client has gone
)
"""Warnings that kills and clients who go away bring about; they are counted."""


@dataclass(frozen=True, slots=True)
class Life:
    """How long a server lives, and what ends it."""

    seconds: float
    ending: signal.Signals


def plan(minutes: float, kill_minutes: float, chance: random.Random) -> Generator[Life]:
    """Short lives for the first half of the time, which kills end; then a single long one.

    Memory, threads and descriptors can only be seen to be flat in a life that is long. Each
    fourth short life is stopped in good order, and so is the long one.
    """
    left, number = minutes * 60 / 2, 0
    while left > 0:
        seconds = min(left, chance.uniform(0.5, 1.5) * kill_minutes * 60)
        number += 1
        yield Life(seconds, signal.SIGKILL if number % 4 else signal.SIGTERM)
        left -= seconds
    yield Life(minutes * 60 / 2, signal.SIGTERM)


@dataclass(slots=True)
class Faults:
    """What went wrong, each with a file that holds what it takes to see it again."""

    directory: Path
    found: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, **evidence: object) -> None:
        with self._lock:
            if len(self.found) >= FAULTS_MAX:
                return
            path = self.directory / f"fault-{len(self.found)}.json"
            path.write_text(json.dumps({"what": what, **evidence}, default=repr), encoding="utf-8")
            self.found.append(f"{what} ({path.name})")
            print(f"fault: {what[:500]}, see {path}", flush=True)


class Lives:
    """Runs the plan, and hands agents a client of the server that lives now."""

    def __init__(
        self, cache: Path, flags: Sequence[str], faults: Faults, chance: random.Random
    ) -> None:
        self._cache = cache
        self._flags = flags
        self._faults = faults
        self._chance = chance
        self._changed = threading.Condition()
        self._server: ServerProcess | None = None
        self._over = False
        self.number = 0
        self.endings: Counter[str] = Counter()
        self.flushes: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.verified: list[str] = []
        self.start_s: list[float] = []

    # --- what agents and the sampler see ----------------------------------------------------------

    def current(self) -> ServerProcess | None:
        """The server that lives, waited for if need be; None once all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._server is not None or self._over)
            return self._server

    def is_current(self, server: ServerProcess) -> bool:
        """False from just before its end on."""
        return self._server is server

    # --- the plan ---------------------------------------------------------------------------------

    def run(self, lives: Sequence[Life]) -> None:
        """Live all lives; agents find none afterwards."""
        for life in lives:
            server = self._begin()
            self._live(server, life.seconds)
            self._end(server, life.ending)
            if life is lives[-1]:
                self.finish()
            if life.ending is signal.SIGTERM or self._chance.random() < 0.5:
                self._verify()

    def _begin(self) -> ServerProcess:
        self.number += 1
        before = time.monotonic()
        log = self._faults.directory / f"server-{self.number}.log"
        server = ServerProcess(log, f"--cache-dir={self._cache}", *self._flags)
        self.start_s.append(time.monotonic() - before)
        self._set(server)
        return server

    def _live(self, server: ServerProcess, seconds: float) -> None:
        """Let it serve; now and then ask for what administrators ask for."""
        until = time.monotonic() + seconds
        with server.client() as client:
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, self._chance.uniform(5, 40)))
                try:
                    self._administer(client)
                except (httpx.TransportError, Refused) as error:
                    self._faults.add(f"an administrator met {error!r}")

    def _administer(self, client: httpx.Client) -> None:
        match self._chance.randrange(3):
            case 0:
                flushed = client.post("/v1/cache/flush")
                body: Body = flushed.json()
                code = body.get("error", {}).get("code", "durable")
                self.flushes[code] += 1
                # In traffic a conversation goes on before it is copied, or finds no room in a full
                # store; what matters is that it is told.
                if code not in ("durable", "not_durable", "flush_pending"):
                    raise Refused(f"a flush: {flushed.text}")
            case 1:
                entries: list[Body] = client.get("/v1/cache/entries").json()["entries"]
                if not all(entry["tokens"] >= 0 for entry in entries):
                    raise Refused(f"entries of less than nothing: {entries}")
            case _:
                if b"anchorline_requests_total" not in client.get("/metrics").content:
                    raise Refused("there are no metrics")

    def _end(self, server: ServerProcess, ending: signal.Signals) -> None:
        self._set(None)
        server.end(ending)
        self.endings[ending.name] += 1
        for line in server.warnings:
            expected = next((words for words in EXPECTED if words in line), None)
            if expected is None:
                self._faults.add(f"the log of life {self.number} says {line}", log=str(server.log))
            else:
                self.warnings[expected] += 1

    def _verify(self) -> None:
        whole, said = verify(self._cache)
        self.verified.append(said)
        if not whole:
            self._faults.add(f"after life {self.number} the store is not whole: {said}")

    def _set(self, server: ServerProcess | None) -> None:
        with self._changed:
            self._server = server
            self._changed.notify_all()

    def finish(self) -> None:
        """There will be no server any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
