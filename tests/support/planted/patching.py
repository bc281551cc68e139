"""How a fault is planted: a function of the real code is replaced, and put back afterwards."""

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.simulation.action import Kind
from anchorline.simulation.traits import QUICK_STEP_S, Traits

Plant: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Makes what plants a fault while it is entered."""


def as_drawn(traits: Traits) -> Traits:
    """The world of the seed."""
    return traits


def many_slots(traits: Traits) -> Traits:
    """One where batches are forwarded, and forwards fail."""
    return replace(traits, slots=3, clients=6, damage=3.0, queue=8)


def one_head(traits: Traits) -> Traits:
    """One whose clients all begin alike, so that heads are written."""
    return replace(traits, heads=1, clients=4, parts=Parts.HYBRID, row_invariant=False)


def little_written(traits: Traits) -> Traits:
    """One whose drive is spared."""
    return replace(one_head(traits), day_bytes=1 << 18, share_bytes=1 << 22)


def rough(traits: Traits) -> Traits:
    """One where processes end all the time, over a sound and large medium."""
    return replace(traits, crashes=6.0, damage=0.0, share_bytes=1 << 24, disk=True)


def damaged(traits: Traits) -> Traits:
    """One whose medium is small, and often changes what it holds."""
    return replace(traits, damage=4.0, share_bytes=1 << 19, disk=True)


def one_head_and_rough(traits: Traits) -> Traits:
    """One whose clients begin alike on a machine that starts again and again."""
    return replace(rough(one_head(traits)), clients=2)


def failing_reads(traits: Traits) -> Traits:
    """One where the same tokens are read again and again, now from the medium and now cold."""
    large = replace(traits, damage=4.0, share_bytes=1 << 24, day_bytes=1 << 40, disk=True)
    hybrid = replace(large, parts=Parts.HYBRID, row_invariant=False, cache=True)
    return replace(hybrid, slots=1, clients=2, anchors=3, newest=2, crashes=1.0)


def without_rows(traits: Traits) -> Traits:
    """One whose state is sections alone: all rows are equal there."""
    return replace(traits, parts=Parts.RECURRENT, row_invariant=False, damage=0.0)


def two_lives(traits: Traits) -> Traits:
    """One where the same tokens are decoded in one slot and read in another, and both are kept."""
    sound = replace(traits, damage=0.0, crashes=0.5, share_bytes=1 << 24, day_bytes=1 << 40)
    kept = replace(sound, disk=True, cache=True, compress=False, catalog_fails=False)
    hybrid = replace(kept, parts=Parts.HYBRID, row_invariant=False, grid=8, window=192)
    lost = (Kind.BURST, Kind.BURST, Kind.FLUSH, Kind.LOSE_CATALOG)
    back = (Kind.BRANCH, Kind.RETRY, Kind.RETURN)
    return replace(hybrid, slots=3, clients=4, queue=8, alike=0.6, plan=(*lost, *back))


def two_lives_without_rows(traits: Traits) -> Traits:
    """The same where the two differ in sections alone, and slots keep few of them."""
    few = replace(two_lives(traits), parts=Parts.RECURRENT, anchors=3, newest=2, heads=3)
    alike = replace(few, clients=3, alike=0.9, crashes=0.0, idle_s=None, lanes_place=False)
    return replace(alike, plan=(Kind.BURST, Kind.BURST, Kind.FLUSH, Kind.KILL))


def nearly_full(traits: Traits) -> Traits:
    """One whose small medium keeps much of what it moved aside, and is always full."""
    small = replace(traits, share_bytes=1 << 19, quarantined=24, day_bytes=1 << 40, crashes=0.2)
    kept = replace(small, disk=True, cache=True, compress=False, catalog_fails=False)
    hybrid = replace(kept, parts=Parts.HYBRID, row_invariant=True, grid=8, window=128)
    long = replace(hybrid, slots=1, clients=6, heads=1, anchors=12, newest=4, save_tokens=16)
    begun = (Kind.BEGIN, Kind.FLUSH, Kind.BEGIN, Kind.FLUSH)
    found = (*(4 * (Kind.DAMAGE,)), Kind.LOSE_CATALOG)
    return replace(long, plan=(*begun, *found, Kind.BEGIN, Kind.FLUSH, Kind.TURN, Kind.FLUSH))


def remembering(traits: Traits) -> Traits:
    """One whose few slots many conversations share, and whose memory keeps most of them."""
    kept = replace(traits, ram_bytes=1 << 14, step_s=QUICK_STEP_S, heal_idle_s=None, cache=True)
    hybrid = replace(kept, parts=Parts.HYBRID, row_invariant=False, window=192, grid=8)
    return replace(hybrid, slots=2, clients=4, damage=1.0, crashes=0.2)


def short_of_memory(traits: Traits) -> Traits:
    """The same where memory keeps one or two of them, over a sound and large medium."""
    sound = replace(remembering(traits), damage=0.0, catalog_fails=False, disk=True)
    large = replace(sound, share_bytes=1 << 24, day_bytes=1 << 40, save_tokens=16)
    return replace(large, ram_bytes=3 << 10)


def no_room_to_move(traits: Traits) -> Traits:
    """One where the same tokens are kept twice, and rows change places for want of room."""
    alone = replace(remembering(traits), disk=False, damage=0.0, clients=3, queue=8, alike=0.9)
    return replace(alone, ram_bytes=2400, plan=(Kind.BURST, Kind.OTHER, Kind.RETRY))


def crowded(traits: Traits) -> Traits:
    """The same where others take all of the machine's memory now and then."""
    kept = replace(remembering(traits), host_bytes=1 << 19, damage=0.0, slots=1, clients=4)
    return replace(kept, plan=(Kind.OTHER, Kind.OTHER, Kind.CHAT, Kind.OTHER, Kind.SHRINK))


def saving_all_the_time(traits: Traits) -> Traits:
    """The same where a slow medium is written to whenever nobody asks for anything."""
    sound = replace(remembering(traits), damage=0.0, catalog_fails=False, disk=True)
    slow = replace(sound, share_bytes=1 << 24, day_bytes=1 << 40, staging=1, compress=False)
    kept = replace(slow, slots=1, save_tokens=16, idle_s=2 * QUICK_STEP_S)
    return replace(kept, plan=(Kind.TURN, Kind.IDLE, Kind.OTHER, Kind.IDLE))


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault that a programmer could have made.

    Attributes:
        mistake: what the programmer would have done.
        where: the function that is replaced, under the package.
        world: what the seed's world is made to be, where few worlds can show the fault.
        tolerated: rules that the circumstances break by themselves, so that they prove nothing.
    """

    name: str
    mistake: str
    where: str
    plant: Plant
    world: Callable[[Traits], Traits] = as_drawn
    tolerated: frozenset[str] = frozenset()

    def traits(self, seed: int) -> Traits:
        """Of the world that is to show the fault."""
        return self.world(Traits.draw(seed))


@contextmanager
def replaced(owner: object, name: str, faulty: object) -> Generator[None]:
    """A class or module whose own attribute is another one."""
    original: object = vars(owner)[name]
    setattr(owner, name, faulty)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def everywhere(name: str, original: object, faulty: object) -> Generator[None]:
    """A function that is another one in every module of the package that has imported it."""
    with ExitStack() as stack:
        for module_name, module in list(sys.modules.items()):
            is_ours = module_name.partition(".")[0] == "anchorline"
            if is_ours and vars(module).get(name) is original:
                stack.enter_context(replaced(module, name, faulty))
        yield


@contextmanager
def together(*plants: AbstractContextManager[None]) -> Generator[None]:
    """Faults that are one: each alone would be caught by the other's check."""
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield
