"""What finding and ranking costs: a long prompt against a thousand entries and all their lines.

A lookup in the index of a tier, the line up to which rows are shared, a price for each choice and
the ranking. The prompt's keys are known by then: hashing them is what it is held against, once a
prompt, and by far the most of what a request pays beside the comparison of its tokens.

In time of the thread, whatever other processes do meanwhile.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

import numpy as np
from report import Figure, Options, seconds

from anchorline.application.disk_offer import disk_offer
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.disk_index import DiskIndex
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid
from anchorline.domain.measured_rate import MeasuredRate
from anchorline.domain.namespace import Namespace
from anchorline.domain.offers import rank, usable_line
from anchorline.domain.prefill_rate import PrefillRate
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import TokenIds, token_ids

ENTRIES: Final = 1_000
ENTRIES_QUICK: Final = 50
LINES: Final = 100
"""Anchors of each entry, at lines of its own."""

VOCABULARY: Final = 150_000
NEW_TOKENS: Final = 300
"""Of a next turn."""

PROMPTS: Final = 25
ROUNDS: Final = 20
ROUNDS_QUICK: Final = 4
"""Lookups of each prompt in a repetition."""

REPETITIONS: Final = 7
REPETITIONS_QUICK: Final = 2
TARGET: Final = "p99 below 1 ms"


@dataclass(frozen=True, slots=True)
class Case:
    """Entries, and prompts that are looked up among them.

    Attributes:
        tokens: of each prompt.
        shared: tokens that all entries and prompts begin with.
        lengths: of the entries, from and to.
        follows: whether a prompt goes on from an entry; else it is new behind what is shared.
    """

    name: str
    grid: Grid
    tokens: int
    shared: int
    lengths: tuple[int, int]
    follows: bool


LONG: Final = 131_072
SHORT: Final = 32_768
LONGS: Final = (LONG - 2_048, LONG - 512)
SHORTS: Final = (SHORT - 2_048, SHORT - 512)
CASES: Final = (
    Case("next turn, all else differs", Grid(1024), LONG, 0, LONGS, follows=True),
    Case("next turn, one head", Grid(1024), LONG, LONG // 4, LONGS, follows=True),
    Case("new session, one head", Grid(1024), LONG, LONG // 4, LONGS, follows=False),
    Case("next turn, one history", Grid(1024), LONG, LONG - 4_096, LONGS, follows=True),
    Case("new session, short chats", Grid(1024), LONG, 200, (300, 1_023), follows=False),
    Case("next turn, one head", Grid(64), SHORT, SHORT // 4, SHORTS, follows=True),
    Case("new session, one head", Grid(64), SHORT, SHORT // 4, SHORTS, follows=False),
    Case("next turn, one history", Grid(64), SHORT, SHORT - 4_096, SHORTS, follows=True),
)


def figures(options: Options) -> Iterator[Figure]:
    """The slowest lookup of a hundred, against hashing the prompt's ids once."""
    for case in CASES:
        options.progress(f"planning: {case.name}, grid {case.grid.step}")
        bench = _Bench(case, ENTRIES_QUICK if options.quick else ENTRIES)
        yield bench.figure(options)


class _Bench:
    """An index full of entries, and prompts."""

    def __init__(self, case: Case, entries: int) -> None:
        self._case = case
        self._draw = np.random.default_rng(1)
        self._head = self._ids(case.shared)
        self._index = DiskIndex()
        self._rate, self._prefill = MeasuredRate(), PrefillRate(1000.0)
        for start in range(0, case.tokens, 1024):
            self._prefill.observe(start, 1024, 1.0 + start / case.tokens)
        self._prompts: list[TokenIds] = []
        asked = set(range(0, entries, max(entries // PROMPTS, 1)))
        for number in range(entries):
            length = int(self._draw.integers(*case.lengths))
            ids = np.concatenate((self._head, self._ids(length - case.shared)))
            self._index.add(_an_entry(number, ids, case.grid, self._draw))
            if number in asked:
                start = ids if case.follows else self._head
                new = self._ids(NEW_TOKENS if case.follows else case.tokens - case.shared)
                self._prompts.append(token_ids(np.concatenate((start, new))))
        self._lines = sum(len(entry.anchors) for entry in self._index.entries())

    def figure(self, options: Options) -> Figure:
        """All repetitions, after one that counts for nothing."""
        repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
        rounds = ROUNDS_QUICK if options.quick else ROUNDS
        typical_s, slow_s, hashed_s = list[float](), list[float](), list[float]()
        for _ in range(repetitions + 1):
            chains, hashing_s = self._hashed()
            spent_s = [self._lookup_s(chain) for _ in range(rounds) for chain in chains]
            typical_s.append(median(spent_s))
            slow_s.append(quantiles(spent_s, n=100)[-1])
            hashed_s.append(median(hashing_s))
        case, choices = self._case, self._choices(self._chain(self._prompts[0]))
        return Figure(
            "none",
            f"p99 of a lookup and its ranking / hashing the prompt, {case.name}, grid "
            f"{case.grid.step:,}, {case.tokens:,} tokens, {len(self._index):,} entries of "
            f"{self._lines:,} lines",
            slow_s[1:],
            hashed_s[1:],
            f"p50 {seconds(median(typical_s[1:]))}, p99 {seconds(median(slow_s[1:]))} against "
            f"{seconds(median(hashed_s[1:]))}; {choices} choices",
            TARGET,
        )

    def _hashed(self) -> tuple[list[PromptChain], list[float]]:
        """Chains whose keys are known, and what each of them took."""
        chains, spent_s = list[PromptChain](), list[float]()
        for prompt in self._prompts:
            start_s = time.thread_time()
            chain = self._chain(prompt)
            chain.key(chain.grid.floor(len(prompt)))
            spent_s.append(time.thread_time() - start_s)
            chains.append(chain)
        return chains, spent_s

    def _lookup_s(self, chain: PromptChain) -> float:
        start_s = time.thread_time()
        self._choices(chain)
        self._index.shared_line(chain)
        return time.thread_time() - start_s

    def _choices(self, chain: PromptChain) -> int:
        """Looks up, prices and ranks; between how many there was a choice."""
        found = self._index.choices(chain, usable_line(chain.length))
        offers = [disk_offer(one, 0, self._rate, row_invariant=False).offer for one in found]
        return len(rank(offers, chain.length, self._prefill.seconds))

    def _chain(self, prompt: TokenIds) -> PromptChain:
        return PromptChain(prompt, Namespace(), self._case.grid)

    def _ids(self, count: int) -> TokenIds:
        return token_ids(self._draw.integers(0, VOCABULARY, count))


def _an_entry(number: int, ids: TokenIds, grid: Grid, draw: np.random.Generator) -> StoredEntry:
    """A conversation of these tokens, with its end, and anchors at any of its grid lines."""
    chain, length = PromptChain(ids, Namespace(), grid), len(ids)
    lines = list(grid.lines(0, length))
    kept = sorted(draw.permutation(lines)[: LINES - 1])
    anchors = [(int(line), AnchorKind.GRID) for line in kept]
    anchors.append((length, AnchorKind.END))

    def name(line: int, kind: str) -> ObjectName:
        return ObjectName(f"{chain.key(line).hex()}.{kind}")

    return StoredEntry(
        id=EntryId(f"entry-{number}"),
        role=Role.CONVERSATION,
        fingerprint=fingerprint_of({}),
        blocks=tuple(
            StoredBlock(name(span.end, "blk"), chain.key(span.end), span.end, 1 << 20)
            for span in grid.chunks(0, length)
        ),
        anchors=tuple(
            StoredAnchor(name(line, kind.value), chain.key(line), line, kind, 1 << 20)
            for line, kind in anchors
        ),
        taint=length,
        end=End(length),
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )
