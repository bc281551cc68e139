"""A catalog made again from the objects: what resumes afterwards, and what is not believed."""

import random

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.simulation.faulty_storage import Fault, FaultyStorage
from anchorline.application.durability import FlushReport
from anchorline.application.entry_ids import entry_id
from anchorline.application.object_store import ObjectStore
from anchorline.application.rebuild import RebuildReport, rebuild
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.errors import StorageUnavailable
from anchorline.domain.stored_entry import ObjectName, StoredEntry
from anchorline.domain.taint_line import Gate
from anchorline.ports.block_storage import BlockStorage
from anchorline.simulation.box import GRID, Box

TURNS = 5


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def converse(box: Box, turns: int = TURNS, start: int = 0, session: str | None = None) -> list[int]:
    """A conversation of some turns; its tokens so far, the end not forwarded."""
    sequence = ids(start, 20)
    for turn in range(turns):
        request = box.server.submit(
            [*sequence, *ids(turn + start, 9)], max_tokens=5, session=session
        )
        box.server.run()
        sequence = box.server.sequences[request].tolist()
    return sequence


def lose_catalog(box: Box) -> RebuildReport:
    """The machine restarts without its catalog, which is made again."""
    box.catalog = MemoryCatalog()
    report = rebuild(ObjectStore(box.storage, PlainCodec()), box.catalog, now_s=7.0)
    box.kill()
    return report


def test_what_entries_are_made_of_is_durable_before_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    monkeypatch.setattr(box.storage, "sync", lambda: None)  # killed before it came to that
    converse(box)
    box.flush()
    storage, catalog = box.storage.kill(), MemoryCatalog()

    rebuild(ObjectStore(storage, PlainCodec()), catalog, now_s=7.0)

    entries = catalog.entries()
    needed = {one.name for entry in entries for one in (*entry.blocks, *entry.anchors)}
    assert needed
    assert needed <= {found.name for found in storage.crash().names()}


class _Withholding(FaultyStorage):
    """Fails to read one object's header, as a drive does that times out."""

    def __init__(self, inner: BlockStorage, name: ObjectName) -> None:
        super().__init__(inner, seed=0)
        self._name = name

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        if name == self._name:
            raise StorageUnavailable(f"reading {name} failed (simulated)")
        return super().header(name, nbytes)


def essence(entry: StoredEntry) -> object:
    """What a rebuild must give back: all but hits and ages."""
    return (
        entry.id,
        entry.role,
        entry.fingerprint,
        entry.blocks,
        entry.anchors,
        entry.taint,
        entry.end,
        entry.session,
    )


def essences(box: Box) -> set[object]:
    return {essence(entry) for entry in box.disk.tier.entries()}


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_a_conversation_resumes_at_its_end_as_before(parts: Parts, row_invariant: bool) -> None:
    box = Box(parts=parts, row_invariant=row_invariant)
    sequence = converse(box)
    box.flush()
    report = lose_catalog(box)

    answer = box.server.ask([*sequence, 1, 2, 3])

    assert (report.damaged, report.entries, report.lost) == (0, 1, 0)
    assert answer.decision.tier is Tier.DISK
    assert answer.decision.cached == len(sequence)
    assert answer.decision.gate is (Gate.BITWISE if row_invariant else Gate.PRESERVED)


@pytest.mark.parametrize("parts", list(Parts))
def test_where_nothing_is_tainted_every_entry_comes_back_whole(parts: Parts) -> None:
    box = Box(parts=parts, row_invariant=True)
    for start in range(4):
        converse(box, start=start * 11, session=f"s{start}")
        box.flush()
    before = essences(box)
    lose_catalog(box)

    assert essences(box) == before


def test_a_head_comes_back_and_serves_new_sessions() -> None:
    box = Box()
    head = ids(0, 100)
    for start in (40, 60):
        box.server.ask([*head, *ids(start, 30)])
        box.settle()
        box.server.scheduler.clear_ram()
    before = essences(box)
    lose_catalog(box)

    answer = box.server.ask([*head, *ids(80, 30)])

    assert essences(box) == before
    assert answer.decision.source is Source.HEAD
    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.cached >= 96


def test_an_edit_resumes_at_a_grid_line_as_before() -> None:
    box = Box()
    prompt = ids(0, 150)
    box.server.ask(prompt)
    box.flush()
    lose_catalog(box)

    answer = box.server.ask([*prompt[:134], *ids(50, 16)])

    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.reread <= 16 + GRID


def test_the_newest_conversation_is_read_back_into_a_slot() -> None:
    box = Box()
    sequence = converse(box)
    box.flush()
    lose_catalog(box)

    assert box.server.scheduler.read_back() == len(sequence)
    assert box.server.ask([*sequence, 1]).decision.reread == 1


def test_conversations_and_the_head_below_them_all_come_back() -> None:
    box = Box()
    head = ids(0, 100)
    for start in (40, 60):
        box.server.ask([*head, *ids(start, 31)], max_tokens=6)
        box.flush()
        box.server.scheduler.clear_ram()
    roles = sorted(entry.role.value for entry in box.disk.tier.entries())
    lose_catalog(box)

    assert roles == ["conversation", "conversation", "head"]
    assert sorted(entry.role.value for entry in box.disk.tier.entries()) == roles


def test_ids_are_those_that_conversations_and_heads_have() -> None:
    box = Box()
    converse(box)
    box.flush()

    (entry,) = box.disk.tier.entries()
    last = entry.anchors[-1]
    assert entry.id == entry_id(Role.CONVERSATION, entry.fingerprint, last.key)


def test_what_is_resident_is_not_written_again_after_a_rebuild() -> None:
    box = Box()
    converse(box)
    box.flush()
    names = box.names
    lose_catalog(box)
    box.server.scheduler.read_back()

    assert box.flush().saved == 0
    assert set(box.names) <= set(names)


def test_sessions_and_salts_are_kept() -> None:
    box = Box()
    sequence = converse(box, session="mine")
    box.server.scheduler.clear_ram()
    request = box.server.submit([*ids(30, 40)], max_tokens=5, salt="bob")
    box.server.run()
    salted = box.server.sequences[request].tolist()
    box.flush()
    lose_catalog(box)

    assert {entry.session for entry in box.disk.tier.entries()} == {None}
    assert box.server.ask([*salted, 1], salt="bob").decision.cached == len(salted)
    assert box.server.ask([*salted, 1], salt="eve").decision.cached == 0
    assert box.server.ask([*sequence, 1]).decision.cached == 0, "it was never written"


def test_a_session_comes_back_from_the_headers() -> None:
    box = Box()
    converse(box, session="mine")
    box.flush()
    lose_catalog(box)

    assert [entry.session for entry in box.disk.tier.entries()] == ["mine"]


def test_state_of_other_weights_comes_back_too() -> None:
    box = Box()
    sequence = converse(box)
    box.flush()
    box.weights = "two"
    lose_catalog(box)
    assert box.server.ask([*sequence, 1]).decision.cached == 0
    box.weights = "one"
    box.kill()

    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


# --- several histories of the same tokens ---------------------------------------------------------


def written_twice(box: Box) -> list[int]:
    """One token sequence in two histories: decoded to its end, and half of it read as a prompt.

    Both are tainted from 20 on. The longer one, of 119 tokens, is stored; the other is resident,
    parts from it at 51, and has grid anchors at 40 and 48.
    """
    server = box.server
    request = server.submit(ids(0, 20), max_tokens=20)
    server.run()
    sequence = server.sequences[request].tolist()
    server.scheduler.clear_ram()
    request = server.submit(ids(0, 20), max_tokens=10)
    server.run()
    assert server.sequences[request].tolist() == sequence[:29]
    tail = ids(3, 80)
    server.ask([*sequence, *tail], max_tokens=1)
    assert box.flush().durable
    server.scheduler.clear_ram()
    server.ask(ids(0, 20), max_tokens=20)
    server.ask([*sequence, *tail[:12], *ids(50, 15)], max_tokens=1)
    return [*sequence, *tail]


@pytest.mark.parametrize("parts", [Parts.HYBRID, Parts.ATTENTION])
def test_two_histories_of_the_same_tokens_both_come_back_whole(parts: Parts) -> None:
    box = Box(parts=parts)
    sequence = written_twice(box)
    box.flush()
    before = essences(box)
    report = lose_catalog(box)

    assert (len(before), report.lost) == (2, 0)
    assert essences(box) == before
    for tokens in (sequence, [*sequence[:51], *ids(50, 15)]):
        assert box.server.ask([*tokens, 1]).decision.cached == len(tokens)
        box.server.scheduler.clear_ram()


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("decoded", [range(4, 44, 8), range(40, 0, -9)], ids=["up", "down"])
def test_every_end_of_many_histories_of_the_same_tokens_comes_back(
    parts: Parts, decoded: range
) -> None:
    """Each decodes another number of the same tokens, and reads more of them as a prompt."""
    box = Box(parts=parts)
    server = box.server
    request = server.submit(ids(0, 20), max_tokens=60)
    server.run()
    sequence = server.sequences[request].tolist()
    server.scheduler.clear_ram()
    kept: list[list[int]] = []
    for number, tokens in enumerate(decoded):
        server.ask(ids(0, 20), max_tokens=tokens)
        request = server.submit([*sequence[:70], *ids(number, 7)], max_tokens=3)
        server.run()
        kept.append(server.sequences[request].tolist())
        assert box.flush().durable
        server.scheduler.clear_ram()
    before = ends(box)
    report = lose_catalog(box)

    assert report.lost == 0
    assert ends(box) >= before
    for tokens in kept:
        assert box.server.ask([*tokens, 1]).decision.cached == len(tokens)
        box.server.scheduler.clear_ram()


def ends(box: Box) -> set[tuple[object, ...]]:
    """The conversations that can be resumed where they stopped, with all that they stand on."""
    return {
        (entry.id, entry.anchors[-1].line, entry.anchors[-1].name, entry.blocks, entry.taint)
        for entry in box.catalog.entries()
        if entry.end is not None
    }


@pytest.mark.parametrize("more", range(1, 14))
def test_a_save_that_a_crash_cut_short_takes_no_rows_of_another_history(more: int) -> None:
    """Its anchors are there and its rows are not; another's of the same tokens stand there."""
    box = Box()
    sequence = written_twice(box)
    before, stored = ends(box), len(box.names)
    answers: list[FlushReport] = []
    box.server.scheduler.flush(answers.append)
    while len(box.names) < stored + more and not answers:
        box.jobs.step()
        box.server.step()
    lose_catalog(box)

    assert ends(box) >= before
    # Every state that a forward starts from is held against all that ever were.
    for line in (46, 50, 70):
        box.server.ask([*sequence[:line], *ids(90, 9)])
    box.server.ask([*sequence, 1])


@pytest.mark.parametrize("lost", range(8))
def test_an_end_comes_back_exactly_where_all_of_its_own_objects_are_there(lost: int) -> None:
    """What a power cut took is not made up for by what another history has of the same tokens.

    Both histories are clean up to 57. One decodes 11 tokens; the other decodes 3, reads the same
    ones after them as a prompt, and is stored: it has the same key at 64.
    """
    box = Box()
    server, prompt = box.server, ids(0, 57)
    request = server.submit(prompt, max_tokens=11)
    server.run()
    sequence = server.sequences[request].tolist()
    server.scheduler.clear_ram()
    server.ask(prompt, max_tokens=3)
    server.ask([*sequence[:65], *ids(5, 60)], max_tokens=1)
    assert box.flush().durable
    server.scheduler.clear_ram()
    server.ask(prompt, max_tokens=11)
    before = set(box.names)
    assert box.flush().durable
    end, *blocks = sorted(set(box.names) - before)
    assert len(blocks) == 2, "the other history has its own block up to 64"
    for number, name in enumerate([end, *blocks]):
        if lost >> number & 1:
            box.storage.delete(ObjectName(name))
    lose_catalog(box)

    assert box.server.ask([*sequence, 1]).decision.cached == (56 if lost else 67)


def test_rows_that_are_both_clean_and_tainted_somewhere_serve_both() -> None:
    box = Box()
    first = box.server.submit(ids(0, 20), max_tokens=60)
    box.server.run()
    sequence = box.server.sequences[first].tolist()
    box.flush()
    box.server.scheduler.clear_ram()
    for start in (40, 50):
        box.server.ask([*sequence[:70], *ids(start, 9)])
        box.settle()
        box.server.scheduler.clear_ram()
    lose_catalog(box)

    answer = box.server.ask([*sequence[:70], *ids(60, 9)])

    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.cached == 64
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


# --- what is not believed -------------------------------------------------------------------------


def test_an_anchor_without_all_of_its_rows_is_counted_and_not_used() -> None:
    box = Box()
    sequence = converse(box)
    box.flush()
    (entry,) = box.disk.tier.entries()
    box.storage.delete(entry.blocks[0].name)
    report = lose_catalog(box)

    assert report.entries == 0
    assert report.lost == len(entry.anchors)
    assert box.server.ask([*sequence, 1]).decision.gate is Gate.COLD


def test_a_damaged_header_is_moved_aside_and_takes_along_what_needs_it() -> None:
    box = Box(row_invariant=True)
    sequence = converse(box)
    box.flush()
    (entry,) = box.disk.tier.entries()
    hurt = entry.blocks[-2].name
    content = bytearray(box.storage.content(hurt))
    content[100] ^= 1
    box.storage.overwrite(hurt, bytes(content))
    report = lose_catalog(box)

    answer = box.server.ask([*sequence, 1])

    assert report.damaged == 1
    assert [name for name, _ in box.storage.quarantined] == [hurt]
    assert answer.decision.cached == max(
        anchor.line for anchor in entry.anchors if anchor.line <= entry.blocks[-3].end
    )


def test_an_object_under_another_name_is_damaged() -> None:
    box = Box()
    converse(box)
    box.flush()
    (entry,) = box.disk.tier.entries()
    one, other = (block.name for block in entry.blocks[:2])
    box.storage.overwrite(one, box.storage.content(other))

    assert lose_catalog(box).damaged == 1


def test_an_object_that_was_cut_short_is_damaged() -> None:
    box = Box()
    converse(box)
    box.flush()
    (entry,) = box.disk.tier.entries()
    name = entry.blocks[0].name
    box.storage.overwrite(name, box.storage.content(name)[:4096])

    assert lose_catalog(box).damaged == 1


def test_names_of_others_are_left_alone() -> None:
    box = Box()
    strange = ObjectName("ab" * 32 + "/notes.txt")
    box.storage.put(strange, [box.storage.buffer(4096)])
    report = lose_catalog(box)

    assert (report.damaged, report.entries) == (0, 0)
    assert not box.storage.quarantined


# --- the rebuild itself ---------------------------------------------------------------------------


def test_the_catalog_is_settled_afterwards_and_its_entries_are_new() -> None:
    box = Box()
    converse(box)
    box.flush()
    lose_catalog(box)

    (entry,) = box.catalog.entries()
    assert not box.catalog.needs_rebuild
    assert (entry.hits, entry.created_s, entry.last_used_s) == (0, 7.0, 7.0)


def test_an_entry_that_the_catalog_still_has_keeps_its_hits() -> None:
    box = Box()
    sequence = converse(box)
    box.flush()
    box.kill()
    box.server.ask([*sequence, 1])
    before = {entry.id: entry for entry in box.catalog.entries()}
    rebuild(ObjectStore(box.storage, PlainCodec()), box.catalog, now_s=7.0)

    (entry,) = box.catalog.entries()
    assert entry.hits == 1
    assert entry == before[entry.id]


def test_an_entry_whose_objects_are_gone_leaves_the_catalog() -> None:
    box = Box()
    converse(box)
    box.flush()
    for name in box.names:
        box.storage.delete(ObjectName(name))
    report = rebuild(ObjectStore(box.storage, PlainCodec()), box.catalog, now_s=7.0)

    assert report.entries == 0
    assert not box.catalog.entries()


def test_progress_ends_at_the_number_of_objects() -> None:
    box = Box()
    converse(box)
    box.flush()
    told: list[tuple[int, int]] = []
    store = ObjectStore(box.storage, PlainCodec())
    rebuild(store, MemoryCatalog(), 0.0, lambda done, total: told.append((done, total)))

    count = len(box.names)
    assert told == [(done, count) for done in range(count + 1)]


def test_an_empty_store_is_rebuilt_to_nothing() -> None:
    box = Box()
    assert lose_catalog(box) == RebuildReport(0, 0, 0, 0)


def test_a_medium_that_fails_leaves_the_catalog_to_be_rebuilt() -> None:
    box = Box()
    converse(box)
    box.flush()
    faults = {Fault.FAILED_READ: 1.0, Fault.FAILED_WRITE: 1.0}
    storage = FaultyStorage(box.storage, seed=0, rates=faults)
    catalog = MemoryCatalog()
    before = box.names

    with pytest.raises(StorageUnavailable):
        rebuild(ObjectStore(storage, PlainCodec()), catalog, 0.0)

    assert catalog.needs_rebuild
    assert box.names == before


@pytest.mark.parametrize("in_catalog", [False, True])
def test_an_object_that_the_drive_does_not_give_stays_and_comes_back_with_the_next_start(
    in_catalog: bool,
) -> None:
    box = Box()
    sequence = converse(box)
    box.flush()
    before = set(box.names)
    (entry,) = box.catalog.entries()
    unread = entry.blocks[-2].name
    box.catalog = MemoryCatalog()
    if in_catalog:
        box.catalog.put(entry)
    store = ObjectStore(_Withholding(box.storage, unread), PlainCodec())
    report = rebuild(store, box.catalog, now_s=7.0)
    kept_meanwhile = set(box.names)
    box.kill()  # and a rebuild that reads everything

    assert (report.damaged, report.unread) == (0, 1)
    assert kept_meanwhile == set(box.names) == before
    assert not box.catalog.needs_rebuild
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


def test_a_start_that_could_not_read_everything_takes_nothing_for_a_stray() -> None:
    box = Box()
    converse(box)
    box.flush()
    before = set(box.names)
    (entry,) = box.catalog.entries()
    unread = entry.blocks[0].name
    box.medium = lambda storage: _Withholding(storage, unread)
    box.lose_catalog()

    assert box.disk.tier.entries() == ()
    assert box.catalog.needs_rebuild
    assert set(box.names) == before


# --- random lives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_no_life_with_lost_catalogs_meets_a_wrong_state(seed: int) -> None:
    """Conversations that part, are told again, stopped and cut off, and catalogs that are lost.

    Few different tokens and much retelling, so that the same tokens get many histories. The checks
    of every step are in `anchorline.simulation.history.History`.
    """
    rng = random.Random(seed)
    box = Box(slots=rng.choice([1, 2]), parts=list(Parts)[seed % 3], seed=seed)
    told = [ids(0, 20)]
    for _ in range(60):
        roll = rng.random()
        if roll < 0.6:
            past = rng.choice(told)
            cut = past[: rng.randint(0, len(past))] if rng.random() < 0.4 else past
            prompt = [*cut, *ids(rng.randrange(3), rng.randint(1, 12))][:200]
            request = box.server.submit(prompt, max_tokens=rng.choice([0, 1, 5, 12]))
            box.server.run()
            told = [*told[-7:], [int(one) for one in box.server.sequences.get(request, prompt)]]
        elif roll < 0.75:
            box.server.scheduler.flush(lambda _: None)
            for _ in range(rng.choice([3, 9, 300])):
                box.jobs.step()
                box.server.step()
        elif roll < 0.85:
            box.server.scheduler.clear_ram()
        else:
            if rng.random() < 0.5:
                box.storage = box.storage.crash(rng)
            before = ends(box)
            lose_catalog(box)
            assert {end[:2] for end in ends(box)} >= {end[:2] for end in before}
    box.settle()
