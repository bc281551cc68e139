"""The cycle collector is kept out of the way while an index is loaded, and not longer."""

import gc
from collections.abc import Generator

import pytest

from anchorline.adapters.system.collection import no_collection


@pytest.fixture(autouse=True)
def as_it_was() -> Generator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


def test_nothing_is_collected_inside_and_all_goes_on_afterwards() -> None:
    gc.enable()

    with no_collection():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_it_goes_on_after_an_error_too() -> None:
    gc.enable()

    with pytest.raises(OSError, match="full"), no_collection():
        raise OSError("full")

    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()

    with no_collection():
        pass

    assert not gc.isenabled()
