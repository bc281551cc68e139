"""How fast a drive reads: measured at start, for the choice of the codec."""

import time
from typing import Final

from ...ports.block_storage import BlockStorage, ByteRange, object_name

PROBE_BYTES: Final = 32 << 20
PROBE_NAME: Final = object_name("0" * 64 + "/probe")
TRIES: Final = 3


def read_rate(storage: BlockStorage) -> float:
    """Bytes a second of the best of some reads of an object that is written for it.

    Raises:
        StorageError: the medium cannot be written to.
    """
    buffer = storage.buffer(PROBE_BYTES)[:PROBE_BYTES]
    storage.delete(PROBE_NAME)
    storage.put(PROBE_NAME, [buffer])
    best_s = float("inf")
    for _ in range(TRIES):
        began_s = time.perf_counter()
        storage.read_into(PROBE_NAME, [ByteRange(0, PROBE_BYTES)], [buffer])
        best_s = min(best_s, time.perf_counter() - began_s)
    storage.delete(PROBE_NAME)
    return PROBE_BYTES / max(best_s, 1e-9)
