"""A conversation that outlives its server: what it costs to keep, and how soon it goes on."""

from collections.abc import Iterator
from statistics import median

from report import Figure, Options, against
from served import Outcome, a_system_prompt, chat_request, ids_request, random_ids, serve
from storage_drive import scratch
from storage_served import DiskServer, disk_server

from anchorline.domain.conversation import Message
from anchorline.domain.entry import Tier
from anchorline.domain.tokens import token_ids

ANSWER_TOKENS_MAX = 32
SIZES = (1_024, 4_096)
SIZES_QUICK = (512,)
TURN_TOKENS = 200
REPETITIONS = 5
REPETITIONS_QUICK = 2

QUESTION = Message("user", "What is the capital of France?")
NEXT = Message("user", "What is the capital of Italy?")


def figures(options: Options) -> Iterator[Figure]:
    """The first token after a restart, and the bytes of one more turn."""
    for model in options.models:
        for tokens in SIZES_QUICK if options.quick else SIZES:
            yield _restarted(options, model, tokens)
        yield from _saved_again(options, model, (SIZES_QUICK if options.quick else SIZES)[-1])


def _restarted(options: Options, model: str, tokens: int) -> Figure:
    """Next turns of stored conversations in a fresh process's place, against the same cold."""
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    histories: list[tuple[Message, ...]] = []
    with scratch() as directory:
        with disk_server(model, directory) as server:
            for number in range(repetitions):
                options.progress(f"resume: {model}, {tokens} tokens, saves {number + 1}")
                system = a_system_prompt(server.admission, tokens, tokens + number)
                first = _ask(server, (system, QUESTION), f"kept {number}")
                server.flush()
                server.forget()
                histories.append((system, QUESTION, first.message))
        from_disk: list[float] = []
        cold: list[float] = []
        with disk_server(model, directory) as server:
            for number, history in enumerate(histories):
                options.progress(f"resume: {model}, {tokens} tokens, {number + 1} of {repetitions}")
                outcome = _ask(server, (*history, NEXT), f"kept {number}")
                assert outcome.finished.decision.tier is Tier.DISK, outcome.finished.decision
                from_disk.append(outcome.finished.timings.ttft_s)
                server.forget()
                outcome = _ask(server, (*history, NEXT), f"cold {number}")
                assert outcome.finished.decision.tier is Tier.NONE, outcome.finished.decision
                cold.append(outcome.finished.timings.ttft_s)
                server.forget()
    what = f"TTFT from disk after a restart / cold, {tokens:,} tokens"
    return Figure(model, what, from_disk, cold, against(from_disk, cold))


def _ask(server: DiskServer, messages: tuple[Message, ...], salt: str) -> Outcome:
    request = chat_request(server.admission, messages, max_tokens=ANSWER_TOKENS_MAX, salt=salt)
    return serve(server.scheduler, request)


def _saved_again(options: Options, model: str, tokens: int) -> Iterator[Figure]:
    """Bytes of a conversation that grew by a turn, against the turn's own and against all."""
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    written: list[float] = []
    own: list[float] = []
    whole: list[float] = []
    with scratch() as directory, disk_server(model, directory) as server:
        profile = server.parts.engine().profile
        grid, layout = profile.grid, profile.layout
        for number in range(repetitions):
            options.progress(f"resume: {model}, saved again, {number + 1} of {repetitions}")
            prompt = random_ids(tokens + number, below=profile.vocabulary, seed=number)
            salt = f"again {number}"
            serve(server.scheduler, ids_request(server.admission, prompt, max_tokens=16, salt=salt))
            first = server.flush()
            before = server.scheduler.slots[0].resident.ids.copy()
            new = random_ids(TURN_TOKENS, below=profile.vocabulary, seed=-number % 1000 + 7)
            prompt = token_ids([*before, *new])
            serve(server.scheduler, ids_request(server.admission, prompt, max_tokens=16, salt=salt))
            written.append(float(server.flush()))
            end = server.scheduler.slots[0].resident.length
            lines = len(list(grid.lines(len(before), end)))
            rows = (end - grid.floor(len(before))) * layout.row_bytes
            own.append(float(rows + (lines + 1) * layout.section_bytes))
            whole.append(float(first + written[-1]))
            server.forget()
    shown = f"{median(written) / 1e6:.3g} against"
    yield Figure(
        model,
        f"bytes of a save after {TURN_TOKENS + 16} more tokens / the turn's own rows and anchors",
        written,
        own,
        f"{shown} {median(own) / 1e6:.3g} MB",
    )
    yield Figure(
        model,
        f"the same / both saves of {tokens:,} tokens",
        written,
        whole,
        f"{shown} {median(whole) / 1e6:.3g} MB",
    )
