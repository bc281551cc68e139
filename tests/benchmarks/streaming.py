"""What HTTP costs: tokens streamed by a server process, against the scheduler alone.

The server runs in a process of its own, and this one is its client: it reads the raw stream and
does nothing with it but look for its first event and its last.
"""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence

import httpx
from report import Figure, Options, against
from served import Cost, Moment, decode_cost, ids_request, parts_of, random_ids, settings_of

PROMPT_TOKENS = 64
TOKENS = {"toy": 512, "smollm2": 64}
TOKENS_OTHER = 128
TOKENS_QUICK = 16
REPETITIONS = 7
REPETITIONS_QUICK = 3
START_S = 300.0


def figures(options: Options) -> Iterator[Figure]:
    """Time of a token by the client's clock, and of all cores of the server's process."""
    for model in options.models:
        tokens = TOKENS_QUICK if options.quick else TOKENS.get(model, TOKENS_OTHER)
        repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
        parts = parts_of(model)
        scheduler, admission = parts.scheduler(), parts.admission()
        vocabulary = parts.engine().profile.vocabulary
        prompt = random_ids(PROMPT_TOKENS, below=vocabulary, seed=1)
        streamed: list[Cost] = []
        alone: list[Cost] = []
        options.progress(f"streaming: {model}, the server starts")
        with _served(model) as server:
            for number in range(repetitions + 1):  # the first round only warms up
                options.progress(f"streaming: {model}, {number} of {repetitions}")
                streamed.append(server.cost([int(index) for index in prompt], tokens))
                request = ids_request(admission, prompt, max_tokens=tokens, salt="streaming")
                alone.append(decode_cost(scheduler, request))
        yield _figure(model, "wall", streamed[1:], alone[1:], lambda cost: cost.wall_s)
        yield _figure(model, "CPU", streamed[1:], alone[1:], lambda cost: cost.cpu_s)


class ServedModel:
    """A server in another process."""

    def __init__(self, client: httpx.Client, pid: int) -> None:
        self._client = client
        self._pid = pid

    def cost(self, prompt: list[int], tokens: int) -> Cost:
        """Stream an answer of exactly `tokens` tokens; what each after the first cost."""
        body = {
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        moments: list[Moment] = []
        lines: list[str] = []
        with self._client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                if not lines or line == "data: [DONE]":
                    moments.append(self._now())
                lines.append(line)
        assert f'"completion_tokens":{tokens},' in lines[-2], lines[-2]
        return moments[0].until(moments[-1], tokens - 1)

    def _now(self) -> Moment:
        # Linux's clock of another process's CPU time, as its MAKE_PROCESS_CPUCLOCK makes it.
        return Moment(time.perf_counter(), time.clock_gettime((~self._pid << 3) | 2))


@contextlib.contextmanager
def _served(model: str) -> Generator[ServedModel]:
    """`anchorline serve` on a free port, until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = settings_of(model)
    command = [sys.executable, "-m", "anchorline", "serve", model, "--port", str(port)]
    options = ["--dtype", settings.dtype, "--disk", settings.disk, "--log-level", "warning"]
    process = subprocess.Popen([*command, *options])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=START_S) as client:
            _wait_until_it_answers(client, process)
            yield ServedModel(client, process.pid)
    finally:
        process.terminate()
        process.wait(START_S)


def _wait_until_it_answers(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server did not answer within {START_S:g} s")


def _figure(
    model: str,
    clock: str,
    streamed: Sequence[Cost],
    alone: Sequence[Cost],
    seconds_of: Callable[[Cost], float],
) -> Figure:
    ours, other = [seconds_of(cost) for cost in streamed], [seconds_of(cost) for cost in alone]
    return Figure(
        model,
        f"time of a token, streamed over HTTP / scheduler alone, {clock}",
        ours,
        other,
        against(ours, other, what=" a token"),
    )
