"""Objects as files on a local drive, written and read around the page cache."""

from collections.abc import Callable
from pathlib import Path

from .file_access import BufferedAccess, DirectAccess, FileAccess, takes_direct
from .file_storage import FileStorage
from .root_directory import RootDirectory


class NvmeStorage(FileStorage):
    """Implements `ports.block_storage.BlockStorage` with O_DIRECT.

    Gigabytes of state then displace nothing that somebody needs from the page cache, and memory
    that is counted stays all that is used. Where the file system refuses it, which is tried once
    when the root is opened, files are buffered, and `notices` says so.
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
            choose_access=_direct_if_possible,
            on_step=on_step,
        )

    @property
    def notices(self) -> list[str]:
        if self.direct:
            return super().notices
        return [
            *super().notices,
            f"the file system of {self.path} refuses direct I/O; its page cache is used",
        ]


def _direct_if_possible(root: RootDirectory) -> FileAccess:
    return DirectAccess() if takes_direct(root) else BufferedAccess()
