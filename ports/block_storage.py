"""Named, immutable objects on something that outlives the process.

Knows names and bytes, nothing about tokens. A name is made of the object's content, so an object
is written once and never changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

ObjectName = NewType("ObjectName", str)
"""A relative path of lower-case letters, digits, `-`, `.`, `_` and `/`; no part starts with `.`."""

ByteArray: TypeAlias = npt.NDArray[np.uint8]
"""Flat, contiguous bytes."""

ALIGNMENT = 4096
"""Bytes that offsets and lengths are multiples of where nothing is to be copied."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and the bytes it takes on the medium."""

    name: ObjectName
    nbytes: int


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes on the medium.

    Attributes:
        used: by this storage: objects, quarantined and temporary ones included.
        free: that could still be written, by whatever measure the medium has.
        total: of the medium.
    """

    used: int
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The half-open range of an object's bytes [start, end)."""

    start: int
    end: int


class BlockStorage(Protocol):
    """Objects by name. Callable from any thread; every call blocks until it is done.

    After a crash or a power cut at any moment, each object is there whole or not at all, and one
    whose `put` had returned is there.
    """

    def buffer(self, nbytes: int) -> ByteArray:
        """A zeroed buffer of at least `nbytes`, of whole pages, that moves without a copy."""
        ...

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> None:
        """Write the parts, one after the other, as one object; durable on return.

        An object of that name that is there already is left as it is. On any error nothing of the
        object is to be seen, and what was written of it is reclaimed now or at the next start.

        Args:
            parts: each a multiple of `ALIGNMENT` long; free again on return.

        Raises:
            StorageFull: the medium, or this storage's limit, has no room for it.
            StorageReadOnly: nothing may be written here.
            StorageUnavailable: the medium failed.
        """
        ...

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        """Read one range into each buffer; the buffers belong to the caller.

        Args:
            ranges: aligned to `ALIGNMENT` at both ends, inside the object.
            buffers: each as long as its range.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: the object is shorter than the range.
            StorageUnavailable: the medium failed.
        """
        ...

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        """The first `nbytes` of an object, fewer if it is shorter; for headers, small.

        Raises:
            ObjectMissing: there is no such object.
            StorageUnavailable: the medium failed.
        """
        ...

    def delete(self, name: ObjectName) -> int:
        """Remove an object; the bytes that became free, 0 if it was not there.

        Raises:
            StorageReadOnly, StorageUnavailable.
        """
        ...

    def quarantine(self, name: ObjectName, reason: str) -> None:
        """Move an object aside: it is never read again, and kept for a person to look at.

        The oldest quarantined objects are deleted when they exceed the storage's bound.
        """
        ...

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        """The objects whose names start with `prefix`, in no order; temporary ones excluded."""
        ...

    def space(self) -> Space:
        """Current figures; cheap."""
        ...
