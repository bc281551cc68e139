"""The whole program, in processes that are stopped and killed, over one disk.

Each server is `anchorline serve` with its flags, its log and its signals. Importing torch takes
longer than all that a server does here, so one launcher imports it once and forks the servers; one
of them is started as `python -m anchorline`, and resumes from the others' disk as they do.
"""

import contextlib
import itertools
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import numpy as np
import pytest

from anchorline.domain.sums import Sums, sums_of
from support.loop_mount import mounted, why_no_loop_mounts

Body: TypeAlias = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENT: Final = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / '.path'}:{ROOT / 'tests'}",  # this checkout comes first
    # Threads of a linear algebra library do not survive a fork.
    "OPENBLAS_NUM_THREADS": "1",
}

PATIENCE_S: Final = 120.0
"""How long a test waits for what must happen; only a failing one waits so long."""

PRELOADED: Final = ("anchorline.container", "transformers.models.qwen3_5.modeling_qwen3_5")
READY: Final = re.compile(r" serves toy on (http://\S+)")
WITHOUT_TIER: Final = "serving without the disk tier: "

FLAGS: Final = ("--port=0", "--threads=1")
DISK: Final = (
    "--disk-free-min=0",
    "--disk-heads-bytes-max=1GiB",
    "--disk-conversations-bytes-max=1GiB",
)

FACTS: Final = (
    "You know these facts. Anna lives in Rome. Ben has a red lamp. The code of Carla is 42. "
    "David likes soup. Emma works as a baker. Felix is 31 years old. The favourite colour of "
    "Grace is green. Hugo lives in Oslo. Iris has a blue kite. Jack likes pears. Kira works as a "
    "pilot. The code of Leo is 77."
)
QUESTIONS: Final = (
    "Where does Anna live?",
    "What is the capital of France?",
    "What does Ben have?",
    "What is 3 + 4?",
    "Where does Hugo live?",
    "What does Iris have?",
)


# --- servers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A server process that accepts connections.

    Attributes:
        lines: its log so far.
    """

    pid: int
    url: str
    lines: list[str]
    reader: threading.Thread

    @contextlib.contextmanager
    def http(self) -> Generator[httpx.Client]:
        with httpx.Client(
            base_url=self.url,
            timeout=PATIENCE_S,
            verify=False,  # noqa: S501, no certificate is there, and loading roots takes long
        ) as client:
            yield client

    def post(self, path: str, body: Body | None = None) -> Body:
        """The body of an answer that is as it should be."""
        with self.http() as client:
            response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        answer: Body = response.json()
        return answer

    def complete(self, prompt: Sequence[int], **fields: object) -> Body:
        body = {"prompt": list(prompt), "max_tokens": 4, "temperature": 0, **fields}
        return self.post("/v1/completions", body)

    def disk(self) -> Body | None:
        """The figures of the disk tier."""
        with self.http() as client:
            stats: Body = client.get("/v1/cache/stats").json()
        return stats["disk"]

    def passed_over(self) -> list[str]:
        """What the last request found and did not take, with the reasons."""
        with self.http() as client:
            stats: Body = client.get("/v1/cache/stats").json()
        refused = stats["last"][-1]["decision"]["refused"]
        return [f"{one['source']}@{one['line']}: {one['why']}" for one in refused]

    def settle(self) -> None:
        """Return once no write is under way."""
        for _ in range(10_000):
            disk = self.disk()
            if disk is None or disk["pending_writes"] == 0:
                return
        raise AssertionError("writes never end")

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait until the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        self.reader.join(PATIENCE_S)
        assert not self.reader.is_alive(), "the server goes on"

    def warnings(self) -> list[str]:
        return [line for line in self.lines if " WARNING " in line or " ERROR " in line]


class Launcher:
    """Starts servers, and ends what was left running."""

    def __init__(self, process: "subprocess.Popen[str]", directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._numbers = itertools.count()
        self._started: list[Server] = []
        self._modules: list[subprocess.Popen[bytes]] = []

    def start(self, cache: Path | None, *flags: str, as_module: bool = False) -> Server:
        """A server over a cache directory; one without a cache if there is none."""
        where = [f"--cache-dir={cache}", *DISK] if cache is not None else ["--cache=off"]
        command = ["serve", "toy", *FLAGS, *where, *flags]
        log = self._directory / f"log-{next(self._numbers)}"
        os.mkfifo(log)
        lines: list[str] = []
        ready: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            with log.open() as pipe:  # its end is the end of the process
                for line in pipe:
                    lines.append(line)
                    if found := READY.search(line):
                        ready.put(found[1])
            ready.put(None)

        reader = threading.Thread(target=read, name=str(log))
        reader.start()
        pid = self._as_module(command, log) if as_module else self._forked(command, log)
        url = ready.get(timeout=PATIENCE_S)
        assert url is not None, f"the server did not start:\n{''.join(lines)}"
        server = Server(pid, url, lines, reader)
        self._started.append(server)
        return server

    def end_all(self) -> None:
        for server in self._started:
            server.end(signal.SIGKILL)
        for module in self._modules:
            module.wait(PATIENCE_S)

    def _forked(self, command: list[str], log: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def _as_module(self, command: list[str], log: Path) -> int:
        with log.open("w") as pipe:
            module = subprocess.Popen(
                [sys.executable, "-m", "anchorline", *command],
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                env=ENVIRONMENT,
            )
        self._modules.append(module)
        return module.pid


def launch() -> None:
    """The launcher's own end: fork a server for each line, and tell its process number."""
    for module in PRELOADED:
        __import__(module)
    from anchorline.__main__ import main  # noqa: PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever has ended is gone
    for line in sys.stdin:
        work: Body = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(work["log"], os.O_WRONLY)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for fd, place in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(fd, place)
            os.close(log)
            sys.argv = ["anchorline", *work["command"]]
            main()  # exits
        print(child, flush=True)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Generator[Launcher]:
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        made = Launcher(process, tmp_path_factory.mktemp("logs"))
        try:
            yield made
        finally:
            made.end_all()
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="module")
def cold(launcher: Launcher) -> Server:
    """A server without a cache: what answers have to be."""
    return launcher.start(None)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


# --- clients ------------------------------------------------------------------------------------


@dataclass
class Talk:
    """One conversation, sent back whole with each question."""

    system: str = FACTS
    messages: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def question(self, question: str) -> Body:
        """The body of the next request."""
        history = self.messages or [{"role": "system", "content": self.system}]
        messages = [*history, {"role": "user", "content": question}]
        return {"messages": messages, "max_tokens": 48, "temperature": 0}

    def answered(self, body: Body, answer: Body) -> None:
        """Take an answer into the conversation, as its client received it."""
        message = answer["choices"][0]["message"]
        reply = {
            "role": "assistant",
            "content": message["content"],
            "reasoning_content": message.get("reasoning_content") or "",
        }
        self.messages = [*body["messages"], reply]

    def ask(self, server: Server, question: str) -> Body:
        body = self.question(question)
        answer = server.post("/v1/chat/completions", body)
        self.answered(body, answer)
        return answer


def cache_of(answer: Body) -> Body:
    report: Body = answer["usage"]["anchorline"]["cache"]
    return report


def origin(answer: Body) -> tuple[str, str, str]:
    report = cache_of(answer)
    return report["tier"], report["source"], report["gate"]


def said(answer: Body) -> tuple[object, ...]:
    """What an answer says, whatever it was resumed from."""
    choice, usage = answer["choices"][0], answer["usage"]
    message = choice.get("message") or {"content": choice["text"]}
    told = (message["content"], message.get("reasoning_content"), choice["finish_reason"])
    return (*told, usage["prompt_tokens"], usage["completion_tokens"])


def ids(seed: int, count: int) -> list[int]:
    """Some tokens of toy's vocabulary, none of which has a meaning of its own."""
    chance = random.Random(seed)
    return [chance.randrange(300, 1900) for _ in range(count)]


# --- a conversation -----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["flush, kill", "stop"])
def test_after_a_restart_the_next_turn_of_a_conversation_reads_only_itself(
    launcher: Launcher, cold: Server, cache: Path, ending: signal.Signals
) -> None:
    flushed = ending is signal.SIGKILL
    talk = Talk()
    server = launcher.start(cache, as_module=flushed)
    usage: dict[str, int] = {}
    for question in QUESTIONS[:5]:
        usage = talk.ask(server, question)["usage"]
    held = usage["prompt_tokens"] + usage["completion_tokens"] - 1
    if flushed:
        assert server.post("/v1/cache/flush")["durable"]
    server.end(ending)

    server = launcher.start(cache)
    body = talk.question(QUESTIONS[5])
    answer = server.post("/v1/chat/completions", body)

    assert cache_of(answer)["cached"] == held
    assert origin(answer) == ("disk", "conversation", "preserved")
    assert said(answer) == said(cold.post("/v1/chat/completions", body))


# --- a head -------------------------------------------------------------------------------------


def test_a_head_that_two_sessions_read_cold_serves_all_others_and_outlives_a_kill(
    launcher: Launcher, cold: Server, cache: Path
) -> None:
    head = ids(1, 1000)
    server = launcher.start(cache, "--ram-bytes-max=0")
    for session in range(10):
        if session == 8:
            server.end(signal.SIGKILL)
            server = launcher.start(cache, "--ram-bytes-max=0")
        prompt = [*head, *ids(10 + session, 12)]
        answer = server.complete(prompt, session_id=f"session {session}")

        assert said(answer) == said(cold.complete(prompt))
        if session < 2:
            assert cache_of(answer)["cached"] == 0
        elif cache_of(answer)["cached"]:
            assert cache_of(answer)["cached"] == 960
            assert origin(answer) == ("disk", "head", "bitwise")
        else:  # the restores before it met a busy machine, and this one was not tried
            assert session not in (2, 8)
            assert "head@960: slower" in server.passed_over()
        server.settle()
        server.complete(ids(100 + session, 130))  # it takes the slot


# --- what stands on the disk --------------------------------------------------------------------


def test_the_reader_of_the_format_document_reads_what_a_server_wrote(
    launcher: Launcher, cache: Path
) -> None:
    document = (ROOT / "docs/storage-format.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", document, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)  # noqa: S102 - our own document
    prompt = ids(2, 200)
    server = launcher.start(cache, "--disk-codec=on")
    server.complete(prompt)
    server.end(signal.SIGTERM)

    read: list[tuple[Path, Body]] = []
    for path in [*cache.rglob("*.blk"), *cache.rglob("*.anc")]:
        header, parts = names["read_object"](path.read_bytes())
        for _, _, raw, plain, weighted in parts.values():
            assert sums_of(np.frombuffer(raw, dtype=np.uint8)) == Sums(plain, weighted)
        read.append((path, header))
        assert path.stem.endswith(names["chain_of"](header, parts))

    blocks = {path.stem for path, header in read if header["kind"] == "block"}
    for path, header in read:
        below = header["previous"] if header["kind"] == "block" else header["key"]
        rows = header["start"] if header["kind"] == "block" else header["end"]
        assert rows == 0 or f"{below}-{header['below']}" in blocks
        assert header["token_ids"][: 200 - header["start"]] == tuple(
            prompt[header["start"] : header["end"]]
        )
        assert path.name.startswith(header["key"])
        assert path.relative_to(cache / "state").parts[0] == header["fingerprint"]
    kinds = Counter(header["kind"] for _, header in read)
    assert kinds == {"block": 4, "grid": 3, "end": 1}


def test_a_store_with_a_small_cap_is_used(launcher: Launcher, cache: Path) -> None:
    small = ("--disk-heads-bytes-max=4MiB", "--disk-conversations-bytes-max=16MiB")
    server = launcher.start(cache, *small)

    assert server.disk() is not None


# --- directories --------------------------------------------------------------------------------


def test_a_second_server_on_the_directory_says_so_and_serves_without_the_tier(
    launcher: Launcher, cold: Server, cache: Path
) -> None:
    first = launcher.start(cache)
    talk = Talk()
    talk.ask(first, QUESTIONS[0])

    second = launcher.start(cache)
    body = Talk().question(QUESTIONS[1])
    answer = second.post("/v1/chat/completions", body)

    (told,) = second.warnings()
    assert WITHOUT_TIER in told
    assert f"{cache}/state is in use by another server (process {first.pid})" in told
    assert second.disk() is None
    assert said(answer) == said(cold.post("/v1/chat/completions", body))
    assert first.post("/v1/cache/flush")["durable"]
    talk.ask(first, QUESTIONS[1])
    assert first.warnings() == []


@contextlib.contextmanager
def unusable(kind: str, directory: Path) -> Generator[Path]:
    """A cache directory in which no state can be kept."""
    cache = directory / "cache"
    match kind:
        case "a file":
            cache.mkdir()
            (cache / "state").write_text("not a directory")
        case "a file above it":
            cache.write_text("not a directory")
        case "a symbolic link":
            (directory / "elsewhere").mkdir()
            cache.mkdir()
            (cache / "state").symlink_to(directory / "elsewhere")
        case _:
            if why := why_no_loop_mounts():
                pytest.skip(f"nothing can be made read-only: {why}")
            with mounted(directory, 16) as disk:
                disk.make_read_only()
                yield disk.path / "cache"
            return
    yield cache


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("a file", "opening the cache directory {}/state: Not a directory"),
        ("a file above it", "making the directory {}/state: Not a directory"),
        ("a symbolic link", "the cache directory {}/state is a symbolic link; name "),
        ("a read-only disk", "making the directory {}: Read-only file system"),
    ],
)
def test_a_directory_that_cannot_be_used_is_told_and_serving_goes_on(
    launcher: Launcher, cold: Server, tmp_path: Path, kind: str, message: str
) -> None:
    with unusable(kind, tmp_path) as cache:
        server = launcher.start(cache)
        talk = Talk()
        body = talk.question(QUESTIONS[0])
        answer = server.post("/v1/chat/completions", body)
        talk.answered(body, answer)
        next_answer = talk.ask(server, QUESTIONS[1])
        disk = server.disk()
        server.end(signal.SIGKILL)

    (told,) = server.warnings()
    assert WITHOUT_TIER + message.format(cache) in told
    assert disk is None
    assert said(answer) == said(cold.post("/v1/chat/completions", body))
    assert origin(next_answer) == ("slot", "end", "preserved")


def test_a_directory_that_cannot_be_used_is_told_once_and_left_alone_at_the_stop(
    launcher: Launcher, cache: Path
) -> None:
    with unusable("a file", cache.parent):
        server = launcher.start(cache)
        (cache / "state").unlink()
        server.end(signal.SIGTERM)

    assert len(server.warnings()) == 1
    assert not (cache / "state").exists()


# --- kills in traffic ---------------------------------------------------------------------------


class Traffic:
    """Conversations that go on at once, over kills, and all that was answered in them."""

    def __init__(self, talks: int) -> None:
        chance = random.Random(1)
        self._talks = [Talk(system=" ".join(facts(chance, 40))) for _ in range(talks)]
        self._lock = threading.Lock()
        self.answers: list[tuple[Body, Body]] = []
        self.lost = 0

    def run(self, server: Server, count: int) -> None:
        """Everyone asks until so many answers have come; at the last one the server is killed."""
        wanted = len(self.answers) + count

        def converse(talk: Talk) -> None:
            while len(self.answers) < wanted:
                turn = len(talk.messages) // 2
                body = talk.question(QUESTIONS[turn % len(QUESTIONS)])
                try:
                    answer = server.post("/v1/chat/completions", body)
                except httpx.TransportError:
                    with self._lock:
                        self.lost += 1
                    return
                talk.answered(body, answer)
                with self._lock:
                    self.answers.append((body, answer))
                    if len(self.answers) == wanted:
                        server.end(signal.SIGKILL)

        with ThreadPoolExecutor(len(self._talks)) as clients:
            for client in [clients.submit(converse, talk) for talk in self._talks]:
                client.result()


def facts(chance: random.Random, count: int) -> list[str]:
    names = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jack")
    cities = ("Rome", "Oslo", "Cairo", "Lima", "Paris", "Madrid", "Berlin", "Vienna")
    return [f"{chance.choice(names)} lives in {chance.choice(cities)}." for _ in range(count)]


def test_every_answer_between_kills_in_the_middle_of_traffic_is_what_it_has_to_be(
    launcher: Launcher, cold: Server, cache: Path
) -> None:
    eager = ("--slots=2", "--disk-admit-after=1", "--disk-save-tokens-min=1")
    traffic = Traffic(talks=3)
    for count in (2, 4, 4, 5):
        traffic.run(launcher.start(cache, "--ram-bytes-max=0", *eager), count)

    assert traffic.lost > 0
    assert {"none", "disk"} <= {origin(answer)[0] for _, answer in traffic.answers}
    for body, answer in traffic.answers:
        assert said(answer) == said(cold.post("/v1/chat/completions", body))


if __name__ == "__main__":
    launch()
