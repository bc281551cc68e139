"""Objects as files on any file system, through the page cache."""

from collections.abc import Callable
from pathlib import Path

from .file_access import BufferedAccess, FileAccess
from .file_storage import FileStorage
from .root_directory import RootDirectory


class BufferedStorage(FileStorage):
    """Implements `ports.block_storage.BlockStorage` for drives that gain nothing from O_DIRECT.

    A network's file system, for example, or one that compresses.
    """

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int,
        free_min: int = 0,
        quarantined_max: int = 64,
        quarantine_bytes_max: int = 1 << 30,
        on_step: Callable[[str], None] = lambda _: None,
    ):
        """As of `FileStorage`."""
        super().__init__(
            path,
            bytes_max=bytes_max,
            free_min=free_min,
            quarantined_max=quarantined_max,
            quarantine_bytes_max=quarantine_bytes_max,
            choose_access=_buffered,
            on_step=on_step,
        )


def _buffered(_: RootDirectory) -> FileAccess:
    return BufferedAccess()
