"""Processes that are killed in the middle of their work.

A server process, started once, forks a child for each piece of work: starting Python with numpy
for each kill would take longer than all the rest. As a module it is the test's end of the pipe; as
a script it is the server.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

if __name__ == "__main__":  # started by path: this checkout comes first
    sys.path[:0] = [str(Path(__file__).parents[2] / ".path"), str(Path(__file__).parents[1])]

from anchorline.adapters.nvme.buffered_storage import BufferedStorage
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.errors import StorageError
from contract.catalog_contract import make_entry
from support.disk_use import disk_use
from support.stored_objects import check_object, make_object

KINDS = {"direct": NvmeStorage, "buffered": BufferedStorage}
ROOM = 1 << 30
LENGTHS = (5000, 70_000, 4096)
"""Of the parts of the objects that are put."""

NOBODY = 65534
Work: TypeAlias = dict[str, Any]


class CrashProcess:
    """Runs work in a child, and says how the child ended."""

    def __init__(self, server: "subprocess.Popen[str]"):
        self._server = server

    def run(self, action: str, **work: object) -> str:
        """Do it: `done`, `killed`, or what was raised."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"action": action, **work}) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline().strip()


@contextmanager
def crash_process() -> Generator[CrashProcess]:
    """A server of children; it ends with the context."""
    server = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Threads of a linear algebra library do not survive a fork.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    with server:
        yield CrashProcess(server)
        assert server.stdin is not None
        server.stdin.close()


def once_command(action: str, **work: object) -> list[str]:
    """The command that does one piece of work and prints what came of it."""
    return [sys.executable, __file__, json.dumps({"action": action, **work})]


class Killer:
    """A step hook that kills its own process before a step: the nth one, or one of a name."""

    def __init__(self) -> None:
        self.at: int | str | None = None
        self._count = 0

    def __call__(self, step: str) -> None:
        self._count += self.at is not None
        if self.at in (self._count, step):
            os.kill(os.getpid(), signal.SIGKILL)


def put(work: Work) -> None:
    """Put objects and sync; with the last one it is killed before a step, if there is that step."""
    hook = Killer()
    storage = KINDS[work["kind"]](Path(work["root"]), bytes_max=ROOM, on_step=hook)
    *others, last = work["seeds"]
    for seed in others:
        storage.put(*make_object(seed, LENGTHS))
    storage.sync()
    hook.at = work.get("step")
    storage.put(*make_object(last, LENGTHS))
    storage.sync()


def open_root(work: Work) -> None:
    """Open a root, as a user if one is named."""
    if "user" in work:
        os.setgid(work["user"])
        os.setuid(work["user"])
    NvmeStorage(Path(work["root"]), bytes_max=ROOM)


def commit(work: Work) -> None:
    """Commit entries, each of which replaces an earlier one, and tell which are committed."""
    catalog = SqliteCatalog(Path(work["catalog"]))
    told = os.open(work["told"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(10_000):
        catalog.put(make_entry(str(number), range(number, number + 40)))
        os.write(told, f"{number}\n".encode())


def put_twice(work: Work) -> None:
    """Put an object and sync, twice, and read it back twice; say what came of each.

    Raises:
        AssertionError: an object is to be seen that is not exact, or the budget is not true.
    """
    root = Path(work["root"])
    storage = KINDS[work["kind"]](root, bytes_max=ROOM)
    name, parts = make_object(1, LENGTHS)
    said: list[str] = []

    def put_and_sync() -> None:
        storage.put(name, parts)
        storage.sync()

    for step in (put_and_sync,) * 2 + (lambda: check_object(storage, name),) * 2:
        try:
            step()
            said.append("done")
        except StorageError as error:
            said.append(type(error).__name__)
        found = [stored.nbytes for stored in storage.names()]
        assert ("done" in said) <= len(found) <= 1, said
        assert storage.space().used == disk_use(root), said
    print(" ".join(said))


def commit_twice(work: Work) -> None:
    """Commit an entry, once more if that fails, and say what came of each."""
    catalog = SqliteCatalog(Path(work["catalog"]))
    said: list[str] = []
    for _ in range(2):
        try:
            catalog.put(make_entry("a"))
            said.append("done")
        except StorageError as error:
            said.append(type(error).__name__)
        assert len(catalog.entries()) == ("done" in said)
    print(" ".join(said))


ACTIONS = {
    "put": put,
    "open": open_root,
    "commit": commit,
    "put twice": put_twice,
    "commit twice": commit_twice,
}


def serve() -> None:
    """Answer each line with how its child ended."""
    for line in sys.stdin:
        work: Work = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                ACTIONS[work["action"]](work)
                os.write(write, b"done")
            except StorageError as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
            os._exit(0)
        os.close(write)
        if "kill_after" in work:
            kill_after(child, Path(work["told"]), work["kill_after"], work["delay_s"])
        with os.fdopen(read) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        print(said or ("killed" if os.WIFSIGNALED(status) else f"status {status}"), flush=True)


def kill_after(child: int, told: Path, count: int, delay_s: float) -> None:
    """Kill the child some time after it told of `count` commits."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            if told.read_bytes().count(b"\n") >= count:
                break
        time.sleep(0.001)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:  # one piece of work, in this process
        once: Work = json.loads(sys.argv[1])
        try:
            ACTIONS[once["action"]](once)
        except StorageError as refused:
            print(f"{type(refused).__name__}: {refused}")
