"""To look at, or change, a copy of sections where it stands in a slot."""

from collections.abc import Callable

from anchorline.domain.anchor import Anchor
from anchorline.ports.gpu_state import SlotState


def with_sections_of(state: SlotState, anchor: Anchor, act: Callable[[], None]) -> None:
    """Run `act` while an anchor's sections stand in place, and put back what stood there."""
    line = state.length
    before = state.capture_sections()
    state.restore_sections(anchor.handle)
    try:
        act()
    finally:
        state.restore_sections(before)
        state.release_sections(before)
        state.resume_at(line)
