"""Clients that ask a server for thousands of things that have nothing in common."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

import httpx

Body: TypeAlias = dict[str, Any]

PATIENCE_S: Final = 120.0
PAUSES_S: Final = {"queue_full": 0.1, "memory_short": 1.0}
"""Before a request is made again that was refused for so long as others run; a client that honours
the `Retry-After` of the answer waits for 5 and 10 s."""

LEAVES_EVERY: Final = 10
"""One in so many requests is given up once its response has begun."""

_PATH: Final = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of what is asked, by how many at once.

    Attributes:
        small_tokens: lengths of small prompts, from and to.
        long_tokens: lengths of long ones, from and to.
        answer_tokens: of each answer, at most.
        vocabulary: ids are drawn from it.
    """

    small: int
    long: int
    clients: int
    small_tokens: tuple[int, int]
    long_tokens: tuple[int, int]
    answer_tokens: int
    vocabulary: int

    @property
    def total(self) -> int:
        """Requests."""
        return self.small + self.long

    def is_long(self, number: int) -> bool:
        """Whether a request is a long one: they are spread evenly over all."""
        return (number + 1) * self.long // self.total > number * self.long // self.total

    def body(self, number: int) -> Body:
        """One request; each has other ids from its first token on, and the same in every run."""
        chance = random.Random(number)
        length = chance.randint(*(self.long_tokens if self.is_long(number) else self.small_tokens))
        ids = [chance.randrange(20, self.vocabulary) for _ in range(length)]
        return {"prompt": ids, "max_tokens": self.answer_tokens, "temperature": 0}


@dataclass(slots=True)
class Traffic:
    """All requests of a load, in their order, from a few clients at once.

    Attributes:
        done: requests by how they ended: `served`, `left`, or the code of an error.
        refused: answers with the status 503 by code; asked again after a pause.
    """

    url: str
    load: Load
    shown: Callable[[int], None]
    done: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    _numbers: "count[int]" = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Ask them all.

        Raises:
            httpx.HTTPError: the server is gone, or too slow.
        """
        with ThreadPoolExecutor(self.load.clients) as clients:
            running = [clients.submit(self._client) for _ in range(self.load.clients)]
            for client in running:
                client.result()

    def _client(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            while (number := self._next()) < self.load.total:
                ended = self._ask(client, number)
                with self._lock:
                    self.done[ended] += 1
                    self.shown(self.done.total())

    def _next(self) -> int:
        with self._lock:
            return next(self._numbers)

    def _ask(self, client: httpx.Client, number: int) -> str:
        body = self.load.body(number)
        leaves = number % LEAVES_EVERY == 0
        began_s = time.monotonic()
        while True:
            code = _left(client, body) if leaves else _served(client, body)
            if code not in ("served", "left"):
                with self._lock:
                    self.refused[code] += 1
            if code not in PAUSES_S or time.monotonic() - began_s > PATIENCE_S:
                return code
            time.sleep(PAUSES_S[code])


def _served(client: httpx.Client, body: Body) -> str:
    response = client.post(_PATH, json=body)
    return "served" if response.status_code == 200 else _code(response)


def _left(client: httpx.Client, body: Body) -> str:
    """Go away once the response has begun."""
    with client.stream("POST", _PATH, json={**body, "stream": True}) as response:
        if response.status_code == 200:
            return "left"
        response.read()
        return _code(response)


def _code(response: httpx.Response) -> str:
    return response.json()["error"]["code"] or str(response.status_code)
