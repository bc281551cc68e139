"""Faults of the disk tier that were met in the field elsewhere, and are excluded here.

Each test is named for its rule; a comment has the number of its case. Rules that other tests hold
are not repeated:

| case | rule | held by |
|-|-|-|
| 5 | state after a restart is the state before it | `http/test_restart.py`, byte for byte |
| 9 | a damaged or missing block costs what stands on it | `unit/test_disk_tier.py` too |
| 13 | state of other weights is neither offered nor lost | `unit/test_disk_tier.py` |
| 13 | rope, dtype, kernels, threads, sources are facts | `engine/test_facts.py` |
| 17 | colliding keys confuse neither index nor storage | `unit/test_disk_index.py`, `contract/` |
| 18 | a kill leaves all that was put, and no orphan | `crash/test_kill.py` |
| 32 | no step of a write exceeds the cap | `crash/test_budgets.py` |
| 34 | a kill at any step of a put | `crash/test_kill.py` |
| 34 | a power cut at any step of a put | `crash/test_power_cut.py` |
| 34 | kills of a server that is being used | `http/test_disk_process.py` |
| 35 | truncated, zeroed, swapped, flipped | `crash/test_damage.py`, `unit/test_object_store.py` |
| 39 | links, files, modes, direct I/O refused, two servers | `contract/file_storage_contract.py` |
| 39 | another user's directory | `crash/test_budgets.py` |
| 39 | a clear message, and serving goes on | `http/test_disk_process.py` |

`property/test_random_restarts.py` meets all of them at random.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from tokenizers import Tokenizer

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.adapters.memory.crashable_storage import PUT_STEPS, CrashableStorage, CrashedHere
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.adapters.text.tokenizer import load_tokenizer
from anchorline.domain import prefix_key
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import EntryId, Tier
from anchorline.domain.errors import (
    ObjectCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_format import decode_header, encode_header
from anchorline.domain.object_header import PartRecord
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import StoredEntry
from anchorline.domain.sums import sums_of
from anchorline.domain.tokens import token_ids
from anchorline.ports import telemetry as names
from anchorline.ports.block_storage import ObjectName
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.oracle import Oracle
from support.disk_use import disk_use
from support.tiny_tokenizer import CHATML, FORGETFUL, byte_level, saved


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def converse(box: Box, turns: int, start: int = 0) -> list[int]:
    """A conversation of some turns; its tokens so far, the end not forwarded."""
    sequence = ids(start, 20)
    for turn in range(turns):
        request = box.server.submit([*sequence, *ids(turn + start, 9)], max_tokens=5)
        box.server.run()
        sequence = box.server.sequences[request].tolist()
    return sequence


def stored(box: Box) -> StoredEntry:
    """The one entry there is."""
    (entry,) = box.disk.tier.entries()
    return entry


def needed(box: Box) -> set[str]:
    """The objects that entries need."""
    entries = box.disk.tier.entries()
    return {part.name for entry in entries for part in (*entry.blocks, *entry.anchors)}


# --- A: a wrong state after a hit ---------------------------------------------------------------


# Case 5.
@pytest.mark.parametrize("parts", list(Parts))
def test_prompts_asked_again_after_a_stop_write_the_same_texts(parts: Parts) -> None:
    box = Box(parts=parts)
    prompts = [ids(start, 60 + start) for start in (0, 11, 22, 33)]

    def texts() -> list[str]:
        requests: list[str] = []
        for prompt in prompts:
            requests.append(box.server.submit(prompt, max_tokens=6))
            box.server.run()
            box.settle()
        return [box.server.text(request) for request in requests]

    before = texts()
    box.stop()

    assert texts() == before
    assert {started.decision.tier for started in box.server.scheduler.stats().last} == {Tier.DISK}


FAILURES: list[StorageError] = [
    StorageFull("no room"),
    StorageReadOnly("nothing may be written"),
    StorageUnavailable("the drive failed"),
]


# Case 6.
@pytest.mark.parametrize("step", PUT_STEPS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_store_that_failed_is_not_to_be_seen_is_counted_and_works_the_next_time(
    step: str, failure: StorageError
) -> None:
    box = Box()
    sequence = converse(box, 4)
    puts = 0

    def fail_the_third(reached: str) -> None:
        nonlocal puts
        puts += reached == "create"
        if puts == 3 and reached == step:
            raise failure

    box.storage.on_step = fail_the_third
    report = box.flush()
    failed = (report.durable, report.failed, report.missing)
    skipped = box.server.telemetry.counted_in_all(names.WRITES_SKIPPED)
    kept = box.disk.tier.entries(), box.names
    again = box.flush()
    box.kill()

    assert failed == (False, 1, 1)
    assert skipped == 1
    assert kept == ((), [])
    assert again.durable
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


# Case 6.
def test_an_entry_that_the_catalog_refuses_is_not_offered_and_leaves_no_object() -> None:
    class Refusing(MemoryCatalog):
        refuses = True

        def put(self, entry: StoredEntry, replaces: Sequence[EntryId] = ()) -> None:  # type: ignore[override]
            if self.refuses:
                raise StorageUnavailable("the journal cannot be written")
            super().put(entry, replaces)

    catalog = Refusing()
    box = Box(catalog=catalog)
    sequence = converse(box, 4)

    refused = box.flush()
    left = box.names
    catalog.refuses = False
    taken = box.flush()
    box.kill()

    assert (refused.durable, refused.failed, refused.missing) == (False, 1, 1)
    assert left == []
    assert taken.durable
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


# Case 9.
@pytest.mark.parametrize("parts", list(Parts))
def test_without_an_anchor_the_one_before_it_serves(parts: Parts) -> None:
    box = Box(parts=parts)
    prompt = ids(0, 100)
    box.server.ask(prompt)
    box.flush()
    anchors = list(stored(box).anchors)

    while len(anchors) > 1:
        box.storage.delete(anchors.pop().name)
        box.kill()

        answer = box.server.ask([*prompt[: anchors[-1].line + GRID], 96, 96], max_tokens=0)

        assert answer.decision.cached == anchors[-1].line


# Case 9.
@pytest.mark.parametrize("number", [1, 6, 9, 10, 11])
def test_without_a_block_the_highest_anchor_below_it_serves(number: int) -> None:
    box = Box()
    prompt = ids(0, 100)
    box.server.ask(prompt)
    box.flush()
    entry = stored(box)
    gone = entry.blocks[number]
    box.storage.delete(gone.name)
    box.kill()

    answer = box.server.ask([*prompt, 1, 2])

    below = [anchor.line for anchor in entry.anchors if anchor.line <= gone.end - GRID]
    assert answer.decision.cached == max(below, default=0)
    assert answer.decision.quarantined == 1


def changed(content: bytes, *, reseal: bool, resum: bool) -> bytes:
    """An object with a not-a-number in each part, and the checksums made to agree with it.

    Args:
        reseal: the checksums of parts and header are those of the new bytes.
        resum: the sums in the header are as well.
    """
    checksum = PlainCodec().checksum
    header = decode_header(content, checksum)
    data = bytearray(content)
    parts: list[PartRecord] = []
    for part in header.parts:
        place = slice(part.offset, part.offset + part.stored_bytes)
        raw = np.frombuffer(bytes(data[place]), dtype=np.uint8).copy()
        if len(raw) >= 4:
            raw[:4].view("<u4")[:] = 0x7FC00000
        data[place] = raw.tobytes()
        parts.append(
            replace(
                part,
                crc32c=checksum(raw) if reseal else part.crc32c,
                sums=sums_of(raw) if resum else part.sums,
            )
        )
    lines = encode_header(replace(header, parts=tuple(parts)), checksum)
    return lines + bytes(data[len(lines) :])


# Case 10.
@pytest.mark.parametrize(
    ("reseal", "resum", "seen_by"),
    [
        (False, False, "has the checksum"),
        (True, False, "the sums of the bytes in place"),
        (True, True, "says that it is"),
    ],
    ids=["bytes", "and checksums", "and sums"],
)
@pytest.mark.parametrize("what", ["block", "anchor"])
def test_a_not_a_number_in_stored_state_never_reaches_a_forward(
    what: str, reseal: bool, resum: bool, seen_by: str
) -> None:
    box = Box()
    sequence = converse(box, 5)
    box.flush()
    entry = stored(box)
    bad = entry.blocks[1] if what == "block" else entry.anchors[-1]
    content = box.storage.content(bad.name)
    box.storage.overwrite(bad.name, changed(content, reseal=reseal, resum=resum))
    box.kill()

    def read() -> str:
        try:
            box.disk.tier.store.read(bad.name, bad.nbytes, box.storage.buffer(bad.nbytes))
        except ObjectCorrupt as error:
            return str(error)
        return "the sums of the bytes in place"

    assert seen_by in read()
    answer = box.server.ask([*sequence, 1, 2])

    assert answer.decision.cached < len(sequence)
    assert answer.decision.quarantined == 1
    assert box.server.telemetry.counted(names.QUARANTINED) == 1
    assert bad.name not in needed(box)


# Case 10.
def test_a_damaged_object_is_kept_aside_with_its_reason() -> None:
    box = Box()
    sequence = converse(box, 5)
    box.flush()
    bad = stored(box).blocks[1]
    content = box.storage.content(bad.name)
    box.storage.overwrite(bad.name, changed(content, reseal=True, resum=False))
    box.kill()
    box.server.ask([*sequence, 1, 2])

    ((name, reason),) = box.storage.quarantined
    assert name == bad.name
    assert "its bytes do not stand in the engine as they were written" in reason


# Case 12.
def test_offers_and_requests_agree_on_the_line_below_an_anchor_that_is_gone() -> None:
    box = Box()
    prompt = ids(0, 100)
    box.server.ask(prompt, max_tokens=0)
    box.flush()
    *_, low, middle, high = stored(box).anchors
    box.storage.delete(middle.name)
    box.kill()
    edited = [*prompt[: high.line - 1], 96, 96]

    def offered() -> int:
        chain = PromptChain(token_ids(edited), Namespace(), box.server.engine.profile.grid)
        return box.disk.offers(chain, 0)[0].offer.line

    answer = box.server.ask(edited)

    assert (answer.decision.cached, answer.decision.quarantined) == (low.line, 1)
    assert offered() == low.line
    box.kill()
    assert box.server.ask(edited).decision.cached == offered() == low.line


# --- B: identity --------------------------------------------------------------------------------


def facts_with(directory: Path, backend: Tokenizer, template: str) -> dict[str, str]:
    directory.mkdir()
    return dict(load_tokenizer(saved(backend, directory, template=template)).facts)


def with_merges_in_another_order(tokenizer: Tokenizer) -> Tokenizer:
    """The same vocabulary, and the last two merges exchanged."""
    state = json.loads(tokenizer.to_str())
    merges = state["model"]["merges"]
    merges[-2:] = merges[:-3:-1]
    return Tokenizer.from_str(json.dumps(state))


# Case 13.
def test_only_other_merges_or_only_another_template_make_another_fingerprint(
    tmp_path: Path,
) -> None:
    same = byte_level()
    other = with_merges_in_another_order(same)
    assert other.get_vocab() == same.get_vocab()

    found = [
        fingerprint_of(facts_with(tmp_path / name, backend, template))
        for name, backend, template in (
            ("one", same, CHATML),
            ("one again, elsewhere", same, CHATML),
            ("merges", other, CHATML),
            ("template", same, FORGETFUL),
        )
    ]

    assert found[0] == found[1]
    assert len(set(found)) == 3


# Case 17.
@pytest.mark.parametrize(
    ("parts", "count"), [(Parts.HYBRID, 500), (Parts.ATTENTION, 120), (Parts.RECURRENT, 120)]
)
def test_keys_of_8_bits_cost_misses_and_never_a_wrong_state(
    monkeypatch: pytest.MonkeyPatch, parts: Parts, count: int
) -> None:
    monkeypatch.setattr(prefix_key, "KEY_BYTES", 1)
    chance = random.Random(parts.value)
    box = Box(parts=parts, evicted_tokens_min=1)
    quarantined = hits = 0

    # `History` holds every state against that of the prompt's own tokens.
    for number in range(count):
        prompt = [chance.randrange(97) for _ in range(chance.randrange(1, 4) * GRID + 3)]
        first = box.server.ask(prompt, max_tokens=1).decision
        box.settle()
        if number % 50 == 49:
            box.kill()
        if number % 5 == 4:
            again = box.server.ask([*prompt, 1], max_tokens=0).decision
            hits += again.cached > 0
        quarantined += first.quarantined
        assert first.cached == 0, "a random prompt continues nothing"

    assert hits > count // 10
    assert quarantined > count // 20


# Case 18.
def test_after_saves_and_a_kill_the_index_is_there_disk_use_unchanged_and_orphans_gone() -> None:
    box = Box()
    conversations: list[list[int]] = []
    for start in range(0, 60, 12):
        conversations.append(converse(box, 2, start=start))
        box.flush()
    before = box.names, box.storage.space().used
    block = next(name for name in box.names if "/blocks/" in name)
    orphan = ObjectName(f"{block.rpartition('-')[0]}-{'0' * 32}.blk")
    box.storage.put(orphan, [box.storage.buffer(GRID * 4096)])
    box.kill()

    assert (box.names, box.storage.space().used) == before
    for sequence in conversations:
        assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


# --- D: budgets, faults, reporting --------------------------------------------------------------


MB = 1_000_000


# Case 32.
def test_disk_use_never_exceeds_the_cap_nor_a_smaller_one_after_a_restart() -> None:
    box = Box(shares=Shares(MB, 4 * MB), window=512)
    most = 0

    def look(_: str) -> None:
        nonlocal most
        most = max(most, box.storage.space().used)

    def write(nbytes: int) -> None:
        box.storage.on_step = look
        chance = random.Random(nbytes)
        while box.disk.tier.counters.bytes_written < nbytes:
            box.server.ask([chance.randrange(97) for _ in range(400)], max_tokens=1)
            box.flush()

    write(12 * MB)
    assert 3 * MB < most <= 5 * MB

    box.shares = Shares(MB // 2, 2 * MB)
    box.storage = box.storage.kill(bytes_max=5 * MB // 2)
    box.kill()
    most = box.storage.space().used
    write(5 * MB)
    assert MB < most <= 2.5 * MB


@dataclass
class DirectoryBox(Box):
    """A box whose store is a directory, with its catalog in it."""

    root: Path = Path()

    def __post_init__(self) -> None:
        self.lives = 0
        self.oracle = Oracle(self.parts, row_invariant=self.row_invariant)
        self.open()

    def open(self) -> None:
        storage = NvmeStorage(self.root, bytes_max=self.shares.pool)
        self.storage = cast("CrashableStorage", storage)
        self.catalog = cast("MemoryCatalog", SqliteCatalog(self.root / "catalog.db"))
        self.server = self.start()


# Case 32.
def test_a_start_brings_the_directory_with_its_catalog_under_a_smaller_cap(tmp_path: Path) -> None:
    box = DirectoryBox(shares=Shares(MB, 2 * MB), root=tmp_path)
    for start in range(12):
        box.server.ask(ids(start, 20), max_tokens=0)
        box.flush()
    box.disk.tier.close()
    entries = len(box.disk.tier.entries())
    held = box.disk.tier.index.nbytes

    box.shares = Shares(0, held)
    box.open()
    box.disk.tier.close()

    assert entries == 12
    assert disk_use(tmp_path) <= held


# Case 34.
@pytest.mark.parametrize("end", [Box.kill, Box.cut_power], ids=["kill", "power cut"])
def test_a_save_that_is_stopped_at_any_step_leaves_its_entry_absent_or_exact(
    end: Callable[[Box], None],
) -> None:
    step = 0
    outcomes: list[bool] = []
    while not outcomes or not outcomes[-1]:
        step += 1
        box = Box()
        sequence = converse(box, 2)
        crash = Crash(at=step)
        box.storage.on_step = crash
        try:
            box.flush()
        except CrashedHere:
            end(box)
        else:
            assert crash.steps < step
            end(box)
        assert set(box.names) <= needed(box)
        cached = box.server.ask([*sequence, 1, 2]).decision.cached
        assert cached in (0, len(sequence))
        outcomes.append(cached > 0)

    assert len(outcomes) > 40


@dataclass
class Crash:
    """A step hook that stops everything at one step."""

    at: int
    steps: int = 0

    def __call__(self, _: str) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise CrashedHere


# Case 38.
@pytest.mark.parametrize("ending", ["nothing", "stop", "flush and kill", "flush and power cut"])
def test_an_agents_trace_hits_after_a_restart_what_it_hits_without_one(ending: str) -> None:
    box = Box(window=512)
    head = ids(0, 80)
    agents = {name: [*head, *ids(start, 20)] for name, start in (("a", 31), ("b", 57))}

    def trace(turns: int) -> list[int]:
        cached: list[int] = []
        for turn in range(turns):
            for name, sequence in agents.items():
                prompt = [*sequence, *ids(turn, 11)]
                request = box.server.submit(prompt, max_tokens=4, session=name)
                box.server.run()
                box.settle()
                agents[name] = box.server.sequences[request].tolist()
                finished = box.server.finished(request)
                assert finished is not None
                cached.append(finished.decision.cached - len(sequence))
        return cached

    trace(3)
    match ending:
        case "stop":
            box.stop()
        case "flush and kill":
            box.flush()
            box.kill()
        case "flush and power cut":
            box.flush()
            box.cut_power()
        case _:
            pass

    # All of the conversation up to its end, every time.
    assert trace(3) == [0] * 6
