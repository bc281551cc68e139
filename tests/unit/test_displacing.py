"""What becomes of a conversation whose slot a request takes, before a row of it is overwritten."""

from dataclasses import replace
from typing import Final

import pytest

from anchorline.application.ram_entry import RamEntry
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Decision
from anchorline.application.slots import Preparation
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import Role, Tier
from anchorline.domain.entry_value import DAY_S
from anchorline.domain.taint_line import Gate
from anchorline.domain.write_guard import WriteCause
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History
from support.builders import random_ids

PLENTY: Final = 1 << 20
LONG: Final = 40 * GRID


def ids(seed: int, count: int) -> list[int]:
    return random_ids(count, seed=seed).tolist()


def turn(
    server: History, prompt: list[int], *, session: str | None = None, salt: str = ""
) -> tuple[Decision, list[int]]:
    """What was decided, and all tokens that the slot holds afterwards."""
    request = server.submit(prompt, max_tokens=4, session=session, salt=salt)
    server.run()
    finished = server.finished(request)
    assert finished is not None
    return finished.decision, server.sequences[request].tolist()


def memory(server: History) -> RamTier:
    assert server.scheduler.ram is not None
    return server.scheduler.ram


def roles(server: History) -> dict[Role, int]:
    """The lines of what is kept, by role."""
    return {entry.role: entry.line for entry in memory(server).entries}


def bytes_of(rows: int, anchors: int = 8) -> int:
    """What a conversation of so many rows takes."""
    layout = History(grid=GRID).engine.profile.layout
    return rows * layout.row_bytes + anchors * layout.section_bytes


# --- in memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "role"),
    [
        (LONG, 3 * GRID, Role.STASH),
        (LONG, 20 * GRID, Role.PARK),
        (5 * GRID, 20 * GRID, Role.SNAPSHOT),
        (5 * GRID, GRID, Role.STASH),
    ],
)
def test_whoever_comes_the_conversation_is_kept_and_told_why(
    first: int, second: int, role: Role
) -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    _, held = turn(server, ids(1, first))

    turn(server, ids(2, second))

    assert roles(server) == {role: len(held)}


def test_a_guests_own_conversation_is_kept_when_the_long_one_comes_back() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    _, long = turn(server, ids(1, LONG))
    _, chat = turn(server, ids(2, 3 * GRID))

    _, long = turn(server, [*long, 1])
    decision, _ = turn(server, [*chat, 2])

    assert (decision.tier, decision.cached) == (Tier.RAM, len(chat))
    assert roles(server)[Role.STASH] == len(long)


def test_a_conversation_that_goes_on_is_kept_nowhere_else() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    _, held = turn(server, ids(1, LONG))

    turn(server, [*held, 1])

    assert memory(server).entries == ()


def test_with_an_idle_slot_nothing_is_displaced() -> None:
    server = History(slots=2, window=1024, grid=GRID, ram_bytes_max=PLENTY)
    turn(server, ids(1, LONG), session="one")

    turn(server, ids(2, 3 * GRID), session="two")

    assert memory(server).entries == ()


def test_a_branch_that_its_own_session_has_left_pushes_nobody_out() -> None:
    server = History(
        window=1024,
        grid=GRID,
        anchors=AnchorBudget(bytes_max=0, count_min=60),
        ram_bytes_max=bytes_of(LONG + 20, 14),
    )
    _, other = turn(server, ids(1, LONG), session="other")
    _, mine = turn(server, ids(2, LONG), session="mine")

    turn(server, [*mine[: 6 * GRID], *ids(3, 30 * GRID)], session="mine")
    decision, _ = turn(server, [*other, 1], session="other")

    assert (decision.tier, decision.cached) == (Tier.RAM, len(other))


def test_the_same_hint_of_another_user_is_another_session() -> None:
    """Hints are no identity: a stranger's same hint must not have a conversation given up."""
    server = History(window=1024, grid=GRID, ram_bytes_max=bytes_of(LONG + 20))
    turn(server, ids(1, LONG), session="s", salt="one")
    _, mine = turn(server, ids(2, LONG), session="s", salt="two")

    turn(server, ids(3, LONG), session="s", salt="three")

    assert [entry.ids.tolist() for entry in memory(server).entries] == [mine]


def test_the_least_valuable_one_goes_where_there_is_no_disk() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=bytes_of(2 * LONG + 30, 16))
    _, used = turn(server, ids(1, LONG))
    _, unused = turn(server, ids(2, LONG))
    for number in range(3):  # it comes back and leaves again
        _, used = turn(server, [*used, number])
        turn(server, ids(10, 4 * GRID))

    turn(server, ids(3, LONG))
    kept, _ = turn(server, [*used, 1])
    gone, _ = turn(server, [*unused, 1])

    assert (kept.tier, gone.gate) == (Tier.RAM, Gate.COLD)


def test_where_the_whole_does_not_fit_its_head_is_pinned() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=bytes_of(20 * GRID))
    prompt = ids(1, LONG)
    turn(server, prompt)
    lines = server.scheduler.slots[0].resident.lines

    turn(server, ids(2, LONG))
    decision, _ = turn(server, [*prompt[: 20 * GRID], 96, 95])

    head = max(line for line in lines if line <= 20 * GRID)
    assert (decision.tier, decision.cached) == (Tier.RAM, head)


def test_what_stands_above_a_guest_is_moved_when_the_next_one_reaches_it() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    _, held = turn(server, ids(1, LONG))
    turn(server, ids(2, 3 * GRID))
    in_place = sum(block.handle is None for block in memory(server).entries[0].blocks)

    turn(server, ids(3, LONG + 3 * GRID))
    decision, _ = turn(server, [*held, 1])

    assert in_place > 30
    assert decision.cached == len(held)


def test_a_client_that_leaves_while_its_state_comes_in_costs_nobody_theirs() -> None:
    for steps in range(12):
        server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
        _, one = turn(server, ids(1, 6 * GRID), session="one")
        _, two = turn(server, ids(2, 7 * GRID), session="two")
        request = server.submit([*one, 5], session="one")
        for _ in range(steps):
            server.step()
        if not server.ended(request):
            server.cancel(request)

        for held in (two, one):
            decision, _ = turn(server, [*held, 6])
            assert decision.cached == len(held)


# --- with a disk --------------------------------------------------------------------------------


def a_box(ram_bytes_max: int) -> Box:
    return Box(window=1024, ram_bytes_max=ram_bytes_max, evicted_tokens_min=PLENTY)


def settled(box: Box, prompt: list[int]) -> list[int]:
    _, held = turn(box.server, prompt)
    box.settle()
    return held


def test_what_would_be_lost_is_durable_before_it_leaves_memory() -> None:
    box = a_box(bytes_of(LONG + 20))
    one = settled(box, ids(1, LONG))
    settled(box, ids(2, LONG))
    [entry] = memory(box.server).entries
    request = box.server.submit(ids(3, LONG), max_tokens=4)

    in_memory = True
    for _ in range(5000):
        box.jobs.step()
        box.server.step()
        if in_memory and not memory(box.server).has(entry):
            in_memory = False
            assert one == stored_ids(box, entry)
        if box.server.ended(request):
            break

    assert not in_memory
    decision, _ = turn(box.server, [*one, 1])
    assert (decision.tier, decision.cached) == (Tier.DISK, len(one))


@pytest.mark.parametrize("rows", range(LONG - 3 * GRID, LONG + 4 * GRID, GRID))
def test_what_a_request_resumes_from_is_durable_before_it_makes_room_itself(rows: int) -> None:
    box = a_box(bytes_of(rows))
    settled(box, ids(1, LONG))
    guest = settled(box, ids(2, 2 * GRID))
    settled(box, ids(3, 2 * GRID))
    unwritten: list[RamEntry] = []
    memory(box.server).left = lambda entry: (
        None if memory(box.server).is_safe(entry) else unwritten.append(entry)
    )

    settled(box, [*guest, *ids(4, LONG)])

    assert unwritten == []


def stored_ids(box: Box, entry: RamEntry) -> list[int]:
    """An entry's tokens, if the medium has all of them up to its end."""
    keys = {stored.blocks[-1].key for stored in box.disk.tier.entries() if stored.end is not None}
    return entry.ids.tolist() if entry.chain.key(entry.line) in keys else []


def test_a_client_that_leaves_while_others_are_saved_displaces_nobody() -> None:
    box = a_box(bytes_of(LONG + 20))
    one, two = settled(box, ids(1, LONG)), settled(box, ids(2, LONG))
    request = box.server.submit(ids(3, LONG), max_tokens=4)
    preparation = waiting(box)

    box.server.cancel(request)

    assert preparation.saves
    for held in (two, one):
        decision, _ = turn(box.server, [*held, 1])
        assert decision.cached == len(held)
        box.settle()


def waiting(box: Box) -> Preparation:
    """A request that waits for a write."""
    (slot,) = box.server.scheduler.slots
    while slot.preparing is None:
        box.server.step()
    return slot.preparing


def test_what_is_durable_already_leaves_and_nobody_waits() -> None:
    box = a_box(bytes_of(LONG + 20))
    settled(box, ids(1, LONG))
    settled(box, ids(2, LONG))
    box.flush()
    written = box.disk.writes.counts.committed

    box.server.submit(ids(3, LONG), max_tokens=4)
    box.server.step()

    (slot,) = box.server.scheduler.slots
    assert slot.running is not None
    assert box.disk.writes.counts.committed == written


def test_what_the_medium_gave_up_for_others_is_not_written_again() -> None:
    box = a_box(bytes_of(LONG + 20))
    settled(box, ids(1, LONG))
    settled(box, ids(2, LONG))
    box.flush()
    written = box.disk.writes.counts.committed
    [entry] = memory(box.server).entries
    crowd_out(box, entry)

    assert not memory(box.server).is_safe(entry)
    assert memory(box.server).given_up(entry)
    box.server.submit(ids(3, LONG), max_tokens=4)
    box.server.step()

    (slot,) = box.server.scheduler.slots
    assert slot.running is not None
    assert box.disk.writes.counts.committed == written


def a_stored_entry() -> tuple[Box, RamEntry]:
    """One of two conversations that memory and medium both have."""
    box = a_box(bytes_of(LONG + 20))
    settled(box, ids(1, LONG))
    settled(box, ids(2, LONG))
    box.flush()
    [entry] = memory(box.server).entries
    return box, entry


def test_what_was_cleared_from_the_medium_is_written_again() -> None:
    box, entry = a_stored_entry()

    box.disk.tier.clear()

    assert not memory(box.server).is_safe(entry)
    assert not memory(box.server).given_up(entry)


def test_what_was_let_go_before_a_clear_is_written_again_after_it() -> None:
    box, entry = a_stored_entry()
    crowd_out(box, entry)

    box.disk.tier.clear()

    assert not memory(box.server).given_up(entry)


def test_what_has_expired_on_the_medium_is_written_again() -> None:
    box, entry = a_stored_entry()
    box.clock.advance(3 * DAY_S)

    box.disk.tier.tidy()

    assert not box.disk.tier.entries()
    assert not memory(box.server).given_up(entry)


def test_what_was_used_after_the_medium_let_it_go_is_written_again() -> None:
    box, entry = a_stored_entry()
    crowd_out(box, entry)

    box.clock.advance(1.0)
    memory(box.server).used(entry)

    assert not memory(box.server).given_up(entry)
    assert entry in memory(box.server).unsafe_victims(memory(box.server).bytes_max)


def crowd_out(box: Box, entry: RamEntry) -> None:
    """Use what else is stored, and shrink the medium's share until this one has gone."""
    tier, key = box.disk.tier, entry.chain.key(entry.line)
    for other in tier.entries():
        if other.blocks[-1].key != key:
            tier.used(other.id)
    nbytes = tier.limits.shares.pool
    while nbytes and any(one.blocks[-1].key == key for one in tier.entries()):
        nbytes //= 2
        shares = Shares(heads_bytes_max=0, conversations_bytes_max=nbytes)
        tier.limits = replace(tier.limits, shares=shares)
        tier.make_room(Role.CONVERSATION, 0)


def test_above_a_pinned_head_a_conversation_goes_to_the_disk() -> None:
    box = Box(window=1024, ram_bytes_max=bytes_of(20 * GRID), evicted_tokens_min=GRID)
    held = settled(box, ids(1, LONG))

    settled(box, ids(2, LONG))
    decision, _ = turn(box.server, [*held, 1])

    assert (decision.tier, decision.cached) == (Tier.DISK, len(held))


def test_what_memory_has_no_room_for_at_all_goes_to_the_disk() -> None:
    box = Box(window=1024, ram_bytes_max=1, evicted_tokens_min=GRID)
    held = settled(box, ids(1, LONG))

    settled(box, ids(2, LONG))
    decision, _ = turn(box.server, [*held, 1])

    assert memory(box.server).counts.kept == 0
    assert (decision.tier, decision.cached) == (Tier.DISK, len(held))


def test_a_long_conversation_is_written_behind_everybodys_back() -> None:
    box = Box(window=1024, ram_bytes_max=PLENTY, evicted_tokens_min=GRID)
    held = settled(box, ids(1, LONG))

    settled(box, ids(2, LONG))
    box.kill()
    decision, _ = turn(box.server, [*held, 1])

    assert (decision.tier, decision.cached) == (Tier.DISK, len(held))


@pytest.mark.parametrize(("buffers", "steps"), [(60, 0), (3, 21), (3, 70), (8, 49)])
def test_a_write_from_a_slot_copies_nothing_of_what_comes_in_from_memory(
    buffers: int, steps: int
) -> None:
    """It is cut short before the first row that is not its conversation's any more."""
    box = Box(window=1024, ram_bytes_max=PLENTY, evicted_tokens_min=PLENTY, staging_count=buffers)
    back = settled(box, ids(1, LONG))
    _, here = turn(box.server, ids(2, LONG))
    [slot] = box.server.scheduler.slots
    write = box.disk.conversations.save(0, slot.resident, None, WriteCause.EVICTION)
    assert write is not None
    for number in range(steps):
        write.work.step()
        if number % 5 == 4:
            box.jobs.step()
    assert not write.work.copied

    turn(box.server, [*back, 1])
    box.settle()
    box.kill()

    for prompt in ([*here, 1], [*back, 2]):  # whatever is there is right: the oracle sees to it
        decision, _ = turn(box.server, prompt)
        assert decision.quarantined == 0
