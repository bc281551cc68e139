"""Random histories: prompts, edits, cancels and generations never reach a wrong state.

Every check is in `anchorline.simulation.history.History`: the state is that of its own tokens, the
gate that was told is true, the anchor budget holds, no copy leaks, nothing waits for ever.
"""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.simulation.history import History
from support.verified import VerifiedHistory

WINDOW = 256
SALTS = st.sampled_from(["", "", "", "a", "b"])
RECENT = st.integers(0, 3)
RUNS = st.sampled_from([True, True, False])
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([7, 8, 9, 63, 64, 65, 128]))


class Histories(RuleBasedStateMachine):
    """One server, many clients."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.known: list[list[int]] = []
        self.fresh = 0

    @initialize(
        slots=st.sampled_from([1, 1, 2, 3]),
        parts=st.sampled_from(list(Parts)),
        row_invariant=st.sampled_from([False, False, True]),
        count=st.sampled_from([3, 5, 8]),
        cache_enabled=st.sampled_from([True, True, True, True, False]),
    )
    def start(
        self, slots: int, parts: Parts, row_invariant: bool, count: int, cache_enabled: bool
    ) -> None:
        self.history = History(
            slots=slots,
            window=WINDOW,
            parts=parts,
            row_invariant=row_invariant,
            anchors=AnchorBudget(bytes_max=0, count_min=count, count_max=count, newest_kept=2),
            cache_enabled=cache_enabled,
        )

    def _ids(self, count: int) -> list[int]:
        """Tokens that look like no other prompt's, of a small vocabulary."""
        self.fresh += 1
        return [(self.fresh * 31 + at * at) % 97 for at in range(count)]

    def _submit(self, ids: list[int], max_tokens: int, salt: str, runs: bool) -> None:
        ids = ids[: WINDOW - 1]
        self.history.submit(ids, max_tokens=max_tokens, salt=salt, last_user=len(ids) // 2)
        self.known.append(ids)
        if runs:
            self.history.run()

    @rule(length=LENGTHS, max_tokens=st.integers(0, 12), salt=SALTS, runs=RUNS)
    def a_new_conversation(self, length: int, max_tokens: int, salt: str, runs: bool) -> None:
        self._submit(self._ids(length), max_tokens, salt, runs)

    @rule(which=RECENT, more=st.integers(0, 30), max_tokens=st.integers(0, 12), runs=RUNS)
    def a_next_turn(self, which: int, more: int, max_tokens: int, runs: bool) -> None:
        if self.history.sequences:
            names = list(self.history.sequences)
            name = names[-1 - which % len(names)]
            ids = self.history.sequences[name].tolist() + self._ids(more + 1)
            salt = self.history.requests[name].namespace.salt
            self._submit(ids, max_tokens, salt, runs)

    @rule(which=RECENT, cut=st.integers(0, 40), more=st.integers(0, 30), salt=SALTS, runs=RUNS)
    def an_edit(self, which: int, cut: int, more: int, salt: str, runs: bool) -> None:
        if self.known:
            known = self.known[-1 - which % len(self.known)]
            self._submit(known[: max(1, len(known) - cut)] + self._ids(more), 3, salt, runs)

    @rule(which=RECENT, max_tokens=st.integers(0, 12), salt=SALTS, runs=RUNS)
    def the_same_again(self, which: int, max_tokens: int, salt: str, runs: bool) -> None:
        if self.known:
            known = self.known[-1 - which % len(self.known)]
            self._submit(known, max_tokens, salt, runs)

    @rule(steps=st.integers(1, 12))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.history.step()

    @rule()
    def everything_runs(self) -> None:
        self.history.run()

    @rule(which=RECENT)
    def a_client_leaves(self, which: int) -> None:
        names = list(self.history.requests)
        if names:
            self.history.scheduler.cancel(names[-1 - which % len(names)])
            for slot in self.history.scheduler.slots:
                self.history.check(slot)

    @rule(after=st.integers(0, 5))
    def a_forward_fails(self, after: int) -> None:
        self.history.engine.fail_next_forward(after=after)

    @invariant()
    def every_slot_is_sound(self) -> None:
        for slot in self.history.scheduler.slots:
            self.history.check(slot)

    def teardown(self) -> None:
        self.history.run()


Histories.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomHistories = Histories.TestCase


class Client:
    """One agent: its conversation grows, is edited, is left; all by one source of randomness."""

    def __init__(self, history: History, rng: random.Random, salt: str) -> None:
        self.history = history
        self.rng = rng
        self.salt = salt
        self.conversation: list[int] = self._words(1, 60)

    def act(self) -> None:
        """One turn, of a kind that happens."""
        roll = self.rng.random()
        if roll < 0.2:
            self.conversation = self.conversation[: self.rng.randint(0, len(self.conversation))]
        elif roll < 0.3:
            self.conversation = self._words(1, 60)
        elif roll < 0.4:
            self._ask(self._words(1, 30), leaves=False)
        if len(self.conversation) > WINDOW - 60:
            self.conversation = self.conversation[: self.rng.randint(1, 60)]
        self.conversation = [*self.conversation, *self._words(1, 40)]
        self._ask(self.conversation, leaves=self.rng.random() < 0.15)

    def _ask(self, ids: list[int], *, leaves: bool) -> None:
        history, rng = self.history, self.rng
        if rng.random() < 0.03:
            history.engine.fail_next_forward(after=rng.randint(0, 6))
        request = history.submit(
            ids,
            max_tokens=rng.randint(0, 10),
            salt=self.salt,
            last_user=rng.randint(0, len(ids)),
        )
        if leaves:
            for _ in range(rng.randint(0, 6)):
                history.step()
            history.scheduler.cancel(request)
        elif rng.random() < 0.7:
            history.run()
        if request in history.sequences and ids is self.conversation:
            self.conversation = history.sequences[request].tolist() or ids

    def _words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]


@pytest.mark.parametrize("seed", range(18))
def test_agents_that_share_a_server_never_meet_a_wrong_state(seed: int) -> None:
    rng = random.Random(seed)
    history = History(
        slots=rng.choice([1, 1, 2, 3]),
        window=WINDOW,
        parts=list(Parts)[seed % 3],
        row_invariant=seed % 6 == 5,
        anchors=AnchorBudget(bytes_max=0, count_min=4, count_max=rng.choice([4, 8]), newest_kept=2),
    )
    agents = [Client(history, rng, salt) for salt in ("", "", "a")]
    for _ in range(120):
        rng.choice(agents[: rng.choice([1, 1, 3])]).act()
    history.run()


@pytest.mark.parametrize("seed", range(6))
def test_a_server_that_verifies_what_it_keeps_finds_nothing_and_is_in_nobodys_way(
    seed: int,
) -> None:
    rng = random.Random(seed)
    history = VerifiedHistory(
        slots=rng.choice([1, 1, 2, 3]),
        window=WINDOW,
        parts=list(Parts)[seed % 3],
        row_invariant=seed % 6 == 5,
        anchors=AnchorBudget(bytes_max=0, count_min=4, count_max=rng.choice([4, 8]), newest_kept=2),
    )
    agents = [Client(history, rng, salt) for salt in ("", "", "a")]
    for _ in range(50):
        rng.choice(agents[: rng.choice([1, 1, 3])]).act()
        for _ in range(rng.randint(0, 40)):
            history.step()
    history.run()

    stats = history.scheduler.stats().verify
    assert stats is not None
    assert stats.mismatches == {}
    assert stats.samples > 5
