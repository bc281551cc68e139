"""A tier in memory over the checkable engine's slots, without a scheduler."""

from collections.abc import Sequence

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.application.held_sections import HeldSections
from anchorline.application.ram_entry import RamEntry
from anchorline.application.ram_tier import RamTier, RamWay
from anchorline.application.resident_prefix import ResidentPrefix
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Role
from anchorline.domain.namespace import Namespace
from anchorline.domain.offers import COLD
from anchorline.domain.prompt import Prompt
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.ram_retention import Retention
from anchorline.domain.tokens import token_ids
from anchorline.ports.engine import DecodeInput
from contract.readings import Reading, read
from support.builders import a_prompt

GRID = 8
WINDOW = 512
PLENTY = 1 << 20


class Remembering:
    """Slots in which conversations are read, kept, and left.

    A conversation is told by its tokens: the same ones are the same conversation.
    """

    def __init__(
        self,
        *,
        slots: int = 1,
        bytes_max: int = PLENTY,
        parts: Parts = Parts.HYBRID,
        row_invariant: bool = False,
        retention: Retention = Retention.VALUE,
        anchors: int = 24,
    ) -> None:
        self.engine = CheckableEngine(
            slots=slots, window=WINDOW, grid=GRID, parts=parts, row_invariant=row_invariant
        )
        profile = self.engine.profile
        self.clock = ManualClock()
        self.sections = HeldSections(self.engine.copies, profile.layout.section_bytes)
        self.tier = RamTier(self.engine, self.sections, self.clock, bytes_max, retention)
        budget = AnchorBudget(bytes_max=0, count_min=anchors)
        self.residents = [
            ResidentPrefix(state, profile, budget, self.sections) for state in self.engine.slots
        ]

    @property
    def row_bytes(self) -> int:
        return self.engine.profile.layout.row_bytes

    @property
    def section_bytes(self) -> int:
        return self.engine.profile.layout.section_bytes

    def reads(
        self, slot: int, ids: Sequence[int], *, answer: Sequence[int] = (), salt: str = ""
    ) -> None:
        """A request's prompt and answer, from the best that stands in the slot."""
        prompt, namespace = a_prompt(ids), Namespace(salt=salt)
        resident = self.residents[slot]
        offers = resident.survey(prompt, namespace).offers
        offer = max(offers, key=lambda one: one.line, default=COLD)
        resident.begin(prompt, namespace, offer)
        for chunk in self.engine.profile.grid.chunks(offer.line, len(ids)):
            self.tier.blocks.vacate(slot, chunk.start, chunk.end)
            self.engine.prefill(slot, prompt.ids[chunk.start : chunk.end])
            resident.advanced(chunk, prompt)
        for token in answer:
            self.tier.blocks.vacate(slot, resident.length, resident.length + 1)
            self.engine.decode([DecodeInput(slot, token)])
            resident.decoded(token)
        assert resident.keep_end(len(ids))

    def keeps(
        self,
        slot: int,
        *,
        role: Role = Role.PARK,
        session: str | None = None,
        line: int | None = None,
    ) -> RamEntry:
        """Keep what stands in a slot."""
        resident = self.residents[slot]
        at = resident.highest if line is None else line
        return self.tier.keep(slot, resident, at, role, session)

    def leaves(self, slot: int) -> None:
        """The slot is somebody else's: its rows are about to be written over."""
        self.residents[slot].forget()
        self.engine.slots[slot].resume_at(0)
        self.tier.blocks.vacate(slot, 0, WINDOW)

    def parked(
        self,
        ids: Sequence[int],
        *,
        slot: int = 0,
        role: Role = Role.PARK,
        session: str | None = None,
        salt: str = "",
    ) -> RamEntry:
        """A conversation that was read, kept, and left."""
        self.reads(slot, ids, salt=salt)
        entry = self.keeps(slot, role=role, session=session)
        self.leaves(slot)
        return entry

    def ways(self, ids: Sequence[int], *, salt: str = "") -> list[RamWay]:
        """How memory continues a prompt."""
        prompt = a_prompt(ids)
        return self.tier.ways(prompt, self.chain(prompt, salt))

    def chain(self, prompt: Prompt, salt: str = "") -> PromptChain:
        grid = self.engine.profile.grid
        return PromptChain(prompt.key_ids, Namespace(salt=salt), grid)

    def state(self, slot: int) -> Reading:
        return read(self.engine.slots[slot])

    def assert_counted(self) -> None:
        """The budget holds, and counts what there is."""
        counts = self.engine.copies.counts()
        assert self.tier.blocks.nbytes == counts.row_bytes
        assert self.tier.nbytes <= self.tier.bytes_max
        held = {anchor.handle for entry in self.tier.entries for anchor in entry.state.anchors}
        assert self.tier.nbytes == counts.row_bytes + len(held) * self.section_bytes


def with_other_media(ids: Sequence[int], *, at: int) -> Prompt:
    """A prompt whose token at a place is of another picture than its id says."""
    keys = [*ids]
    keys[at] += 1 << 20
    return Prompt(token_ids(list(ids)), token_ids(keys))
