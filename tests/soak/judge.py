"""Whether an answer is what it has to be, beside that of a server without a cache."""

import threading
from collections import Counter

import httpx

from anchorline.domain.taint_line import Gate
from soak.replies import Body, Reply, ask
from support.near_tie import kinship


class Wrong(Exception):
    """An answer is not what it has to be.

    Attributes:
        cold: what was answered without a cache, where that was asked.
    """

    def __init__(self, why: str, cold: Reply | None = None) -> None:
        super().__init__(why)
        self.cold = cold


class Judge:
    """Compares answers, and counts what they were resumed from and how they compared."""

    def __init__(self, cold: httpx.Client) -> None:
        """Make one.

        Args:
            cold: a client of a server that starts every request at its first token.
        """
        self._cold = cold
        self._lock = threading.Lock()
        self.origins: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.share = 0.0

    def check(self, body: Body, reply: Reply) -> None:
        """Hold an answer against a cold one.

        Raises:
            Wrong: it says other than it has to, or tells of its cache what cannot be true.
        """
        _check_figures(reply)
        asked = {key: value for key, value in body.items() if key not in ("session_id", "stream")}
        cold = ask(self._cold, asked)
        cache = reply.cache
        with self._lock:
            self.origins[f"{cache['tier']} {cache['source']} {cache['gate']}"] += 1
        if cache["gate"] == Gate.PRESERVED.value:
            self._check_near(reply, cold)
        else:
            self._check_equal(reply, cold)

    def _check_equal(self, reply: Reply, cold: Reply) -> None:
        for name in ("steps", "content", "reasoning", "finish"):
            if getattr(reply, name) != getattr(cold, name):
                raise Wrong(f"told {reply.cache['gate']}, and the {name} are not equal", cold)
        self._count("equal")

    def _check_near(self, reply: Reply, cold: Reply) -> None:
        try:
            found = kinship(reply.steps, cold.steps)
        except AssertionError as error:
            raise Wrong(f"told preserved, and is no near tie: {error}", cold) from error
        if found.parts_at is None and reply.content != cold.content:
            raise Wrong("the same tokens are other texts", cold)
        self._count("same tokens" if found.parts_at is None else "parted at a near tie")
        with self._lock:
            self.share = max(self.share, found.share)

    def _count(self, verdict: str) -> None:
        with self._lock:
            self.verdicts[verdict] += 1


def _check_figures(reply: Reply) -> None:
    usage, cache = reply.usage, reply.cache
    cached, prompt = cache["cached"], usage["prompt_tokens"]
    if cached + cache["reread"] != prompt or not 0 <= cached < prompt:
        raise Wrong(f"{cached} cached and {cache['reread']} reread are not {prompt}")
    if usage["prompt_tokens_details"]["cached_tokens"] != cached:
        raise Wrong(f"two counts of cached tokens: {usage}")
    if (cache["gate"] == Gate.COLD.value) != (cached == 0):
        raise Wrong(f"{cached} tokens cached under the gate {cache['gate']}")
    if usage["completion_tokens"] != len(reply.steps):
        raise Wrong(f"{len(reply.steps)} tokens came, and {usage['completion_tokens']} are told")
