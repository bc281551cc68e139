"""What the disk tier takes of memory it takes at the start, before limits are computed."""

import numpy as np
import pytest

from anchorline.application.disk_service import LANES
from anchorline.application.object_store import ObjectStore
from anchorline.application.staging import StagingPool
from anchorline.ports.block_storage import ByteArray
from anchorline.simulation.box import Box


def test_all_buffers_are_made_at_once_and_never_again() -> None:
    made: list[int] = []

    def allocate(nbytes: int) -> ByteArray:
        made.append(nbytes)
        return np.full(nbytes, 7, np.uint8)

    pool = StagingPool(allocate, 64, 3)
    first = pool.acquire()
    assert first is not None

    pool.make_all()

    assert (made, pool.lent, pool.left) == ([64, 64, 64], 1, 2)
    buffers = [pool.acquire() for _ in range(3)]
    assert [buffer is None for buffer in buffers] == [False, False, True]
    assert made == [64, 64, 64]


def test_every_lane_tries_the_codec_once(monkeypatch: pytest.MonkeyPatch) -> None:
    box, tried = Box(), list[int]()
    warm = ObjectStore.warm

    def counted(self: ObjectStore, sample: ByteArray) -> None:
        tried.append(len(sample))
        warm(self, sample)

    monkeypatch.setattr(ObjectStore, "warm", counted)

    box.disk.warm()

    assert len(tried) == len(LANES)
    assert box.disk.pool.lent == 0
    assert box.server.ask([1, 2, 3]).decision.cached == 0
