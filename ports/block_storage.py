"""Named, immutable objects on something that outlives the process.

Knows names and bytes, nothing about tokens. A name is made of the object's content, so an object
is written once and never changed.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..domain.stored_entry import ObjectName

ByteArray: TypeAlias = npt.NDArray[np.uint8]
"""Flat, contiguous bytes."""

ALIGNMENT: Final = 4096
"""Bytes that offsets and lengths are multiples of where nothing is to be copied."""

_OBJECT_NAME: Final = re.compile(r"[0-9a-f]{64}(/[a-z0-9][a-z0-9._-]{0,159}){1,5}", re.ASCII)


def object_name(name: str) -> ObjectName:
    """The name, once it is seen to be one; nothing that passes here leads out of a directory.

    Raises:
        ValueError: it is not made as `ObjectName` says.
    """
    if not _OBJECT_NAME.fullmatch(name) or ".tmp-" in name:
        raise ValueError(f"{name!r} cannot be an object's name")
    return ObjectName(name)


def check_object_names(names: Collection[str]) -> None:
    """Hold many names at once to be some; quicker than one by one.

    Raises:
        ValueError: one is not made as `ObjectName` says.
    """
    if ".tmp-" in "\n".join(names) or not all(map(_OBJECT_NAME.fullmatch, names)):
        for name in names:
            object_name(name)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and the bytes it takes on the medium."""

    name: ObjectName
    nbytes: int


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes on the medium.

    Attributes:
        used: by this storage: objects, quarantined and temporary ones, and what stands beside them.
        free: that `put` would still take: what the limit and the medium leave, 0 at the least.
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
    that was put before a `sync` that returned is there, unless it was deleted: a deleted one may
    come back.

    A name that is not made as `ObjectName` says is a programmer's error: ValueError.
    """

    def buffer(self, nbytes: int) -> ByteArray:
        """A zeroed buffer of at least `nbytes`, of whole pages, that moves without a copy."""
        ...

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        """Write the parts, one after the other, as one object; durable with the next `sync`.

        An object of that name that is there already is left as it is, and the next `sync` makes it
        durable as well. On any error nothing of the object is to be seen, and what was written of
        it is reclaimed now or at the next start. Of several calls for one name at a time, one
        writes and the others wait for it.

        Args:
            parts: at least one; each a multiple of `ALIGNMENT` long; free again on return. Those
                that do not start at a multiple of it in memory are copied on the way.

        Returns:
            The bytes that were written: 0 if the object was there.

        Raises:
            StorageFull: the medium, or this storage's limit, has no room for it.
            StorageReadOnly: nothing may be written here.
            StorageUnavailable: the medium failed.
        """
        ...

    def sync(self) -> None:
        """Make durable all that was put before, by whichever thread or process.

        One for many objects: a medium may be long about it, and as long for one as for all.

        Raises:
            StorageFull, StorageReadOnly, StorageUnavailable: what was put since the last one may
                be lost. The next `sync` tries it again.
        """
        ...

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        """Read one range into each buffer; the buffers belong to the caller.

        Args:
            ranges: aligned to `ALIGNMENT` at both ends, inside the object. Those that follow each
                other are read together.
            buffers: each as long as its range. On an error their content is undefined.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: the object is shorter than the range, or not a file of ours.
            StorageUnavailable: the medium failed.
        """
        ...

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        """The first `nbytes` of an object, fewer if it is shorter; for headers, small.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: what stands under the name is not a file of ours.
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

        Nothing happens if there is none. The oldest quarantined objects are deleted when they
        exceed the storage's bound. Afterwards an object of that name can be put again.

        Raises:
            StorageReadOnly, StorageUnavailable: it stands where it stood.
        """
        ...

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        """The objects whose names start with `prefix`, in no order.

        Temporary and quarantined ones are not among them. Objects that are put or deleted
        meanwhile may or may not be.

        Raises:
            StorageUnavailable: the medium failed.
        """
        ...

    def all_names(self) -> Iterator[ObjectName]:
        """The names that `names` tells, of all objects, without asking the medium for each size.

        Raises:
            StorageUnavailable: the medium failed.
        """
        ...

    def space(self) -> Space:
        """Current figures; cheap."""
        ...

    def close(self) -> None:
        """Let the medium go; another process may use it. Nothing may be called afterwards."""
        ...
