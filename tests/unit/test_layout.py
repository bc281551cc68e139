"""The shape of a model's state."""

import pytest

from anchorline.domain.errors import StateError
from anchorline.domain.layout import Layout, Section, View

KEYS = View("layer0.k", "bfloat16", (2, 16), "kv:plain")
VALUES = View("layer0.v", "bfloat16", (2, 16), "kv:plain")
STATE = Section("layer1.state", "float32", (1, 4, 8, 8), "recurrent:state")
CONV = Section("layer1.conv", "bfloat16", (1, 24, 3), "recurrent:conv")


def test_bytes_are_items_times_their_size() -> None:
    assert KEYS.row_bytes == 2 * 16 * 2
    assert STATE.nbytes == 4 * 8 * 8 * 4
    assert View("hash", "uint64", (), "check:hash").row_bytes == 8


def test_a_layout_adds_up_its_parts() -> None:
    layout = Layout((KEYS, VALUES), (STATE, CONV))

    assert layout.row_bytes == KEYS.row_bytes + VALUES.row_bytes
    assert layout.section_bytes == STATE.nbytes + CONV.nbytes


def test_a_model_may_lack_either_kind_of_parts() -> None:
    assert Layout((), (STATE,)).row_bytes == 0
    assert Layout((KEYS,), ()).section_bytes == 0


def test_two_parts_never_share_a_name() -> None:
    with pytest.raises(StateError, match=r"layer0\.k"):
        Layout((KEYS, KEYS), ())
    with pytest.raises(StateError, match="share a name"):
        Layout((KEYS,), (Section("layer0.k", "float32", (1,), "recurrent:state"),))


def test_a_part_of_unknown_meaning_is_an_error_and_never_a_guess() -> None:
    with pytest.raises(StateError, match="kv:secret"):
        Layout((View("k", "float32", (1,), "kv:secret"),), ())
    with pytest.raises(StateError, match="complex128"):
        Layout((), (Section("s", "complex128", (1,), "recurrent:state"),))


def test_a_digest_tells_layouts_apart() -> None:
    layout = Layout((KEYS, VALUES), (STATE, CONV))
    others = [
        Layout((VALUES, KEYS), (STATE, CONV)),
        Layout((KEYS, VALUES), (CONV, STATE)),
        Layout((KEYS, VALUES), (STATE,)),
        Layout((KEYS, View("layer0.v", "float16", (2, 16), "kv:plain")), (STATE, CONV)),
        Layout((KEYS, View("layer0.v", "bfloat16", (16, 2), "kv:plain")), (STATE, CONV)),
        Layout((KEYS, View("layer0.v", "bfloat16", (2, 16), "kv:sliding")), (STATE, CONV)),
        Layout((KEYS, View("layer0.w", "bfloat16", (2, 16), "kv:plain")), (STATE, CONV)),
    ]

    assert layout.digest() == Layout((KEYS, VALUES), (STATE, CONV)).digest()
    assert len({layout.digest(), *(other.digest() for other in others)}) == len(others) + 1
