"""The real program in processes of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import Final

import httpx

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 180.0
"""How long one waits for what must happen; only a failing run waits so long."""

_READY: Final = re.compile(r" serves \S+ on (http://\S+)")
_ENVIRONMENT: Final = {
    **os.environ,
    "PYTHONPATH": str(ROOT / ".path"),  # this checkout comes first
    "HF_HUB_OFFLINE": "1",
}
_PROGRAM: Final = (sys.executable, "-m", "anchorline")


class ServerProcess:
    """`anchorline serve toy`, from its start to its end."""

    def __init__(self, log: Path, *flags: str) -> None:
        """Start it, and wait until it accepts connections.

        Args:
            log: gets all that it prints.
            flags: beside those that name the model and a free port.
        """
        command = [*_PROGRAM, "serve", "toy", "--port=0", "--threads=1", *flags]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_ENVIRONMENT,
        )
        self.log = log
        self.warnings: list[str] = []
        ready: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        url = ready.get(timeout=PATIENCE_S)
        if url is None:
            raise RuntimeError(f"the server did not start, see {log}")
        self.url: Final = url

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self) -> httpx.Client:
        """A client of it, which its owner closes."""
        return client_of(self.url)

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait until the process is gone and its log is read."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def _read(self, ready: "Queue[str | None]") -> None:
        assert self._process.stdout is not None
        with self._process.stdout, self.log.open("a", encoding="utf-8") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if " WARNING " in line or " ERROR " in line or "Traceback" in line:
                    self.warnings.append(line.rstrip())
                if found := _READY.search(line):
                    ready.put(found[1])
        ready.put(None)


def client_of(url: str) -> httpx.Client:
    """A client that waits long, and trusts nobody: there is no certificate on this machine."""
    return httpx.Client(base_url=url, timeout=PATIENCE_S, verify=False)  # noqa: S501


def verify(cache: Path) -> tuple[bool, str]:
    """What `anchorline verify` says of the store of a server that has ended."""
    done = subprocess.run(
        [*_PROGRAM, "verify", f"--cache-dir={cache}"],
        capture_output=True,
        text=True,
        check=False,
        env=_ENVIRONMENT,
    )
    return done.returncode == 0, done.stdout.strip().replace("\n", "; ")
