"""What a directory takes on its disk, asked of the disk."""

import os
from pathlib import Path

OUR_OWN = {"lock"}


def disk_use(root: Path) -> int:
    """Bytes of all files below, temporary ones included; the lock's own page is left out."""
    nbytes = 0
    for directory, _, names in os.walk(root):
        for name in names:
            if Path(directory) == root and name in OUR_OWN:
                continue
            found = os.lstat(Path(directory) / name)
            nbytes += max(found.st_blocks * 512, found.st_size)
    return nbytes
