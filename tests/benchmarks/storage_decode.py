"""What a save takes from a request that decodes meanwhile.

Two slots: one holds a conversation that is saved, the other one decodes. Compared are the same
steps of the same answer, once with a save under way and once without one. Not earlier and later
steps of one answer: the later ones attend to more rows, and take 4 % longer by that alone (toy).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter, process_time, thread_time

from report import Figure, Options, against
from served import ids_request, random_ids, serve
from storage_drive import scratch
from storage_served import DiskServer, disk_server

from anchorline.application.request import Event, Prefilling
from anchorline.domain.write_guard import WriteCause

KEPT_TOKENS = 4_096
KEPT_TOKENS_QUICK = 1_024
PROMPT_TOKENS = 300
"""More than a grid step, so that each answer goes on in the slot of the one before."""

STEPS = {"toy": 200, "smollm2": 60}
STEPS_OTHER = 60
STEPS_QUICK = 60
BEGINS_AFTER = 10
"""The save, in steps. It goes on beyond the last one: its sync and its commit are not measured."""

REPETITIONS = {"toy": 61, "smollm2": 15}
REPETITIONS_OTHER = 15
REPETITIONS_QUICK = 2
"""Many and short ones: what others do on the machine changes from one second to the next."""

TARGET = "at most 1.02"

CLOCKS = {"wall": perf_counter, "engine thread": thread_time, "all threads": process_time}


def figures(options: Options) -> Iterator[Figure]:
    """Time of a step by three clocks, and that of an answer."""
    for model in options.models:
        often = REPETITIONS.get(model, REPETITIONS_OTHER)
        repetitions = REPETITIONS_QUICK if options.quick else often
        steps = STEPS_QUICK if options.quick else STEPS.get(model, STEPS_OTHER)
        with scratch() as directory, disk_server(model, directory, slots=2) as server:
            saving: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
            alone: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
            saved: list[int] = []
            _keep_one(options, server)
            for number in range(-1, repetitions):
                options.progress(f"decode while saving: {model}, {number + 1} of {repetitions}")
                order = (True, False) if number % 2 else (False, True)
                found = {saves: _steps(server, steps, saves=saves) for saves in order}
                if number < 0:
                    continue
                assert not any(step.saving for step in found[False])
                meanwhile = [at for at, step in enumerate(found[True]) if step.saving]
                for clock in CLOCKS:
                    for saves, into in ((True, saving), (False, alone)):
                        took = (found[saves][at].seconds[clock] for at in meanwhile)
                        into[clock].append(fmean(took))
                saved.append(len(meanwhile))
        of = f", {sorted(saved)[len(saved) // 2]} of {steps} steps saving"
        for clock in CLOCKS:
            ours, other = saving[clock], alone[clock]
            name = f"a decode step while a save runs / without, {clock}"
            yield Figure(model, name, ours, other, against(ours, other) + of, TARGET)


def _keep_one(options: Options, server: DiskServer) -> None:
    """A conversation in the first slot."""
    tokens = KEPT_TOKENS_QUICK if options.quick else KEPT_TOKENS
    prompt = random_ids(tokens, below=server.parts.engine().profile.vocabulary, seed=1)
    serve(server.scheduler, ids_request(server.admission, prompt, max_tokens=8, salt="kept"))


@dataclass(frozen=True, slots=True)
class _Step:
    """What a decode step took by each clock, and whether a save was under way."""

    saving: bool
    seconds: dict[str, float]


def _steps(server: DiskServer, count: int, *, saves: bool) -> list[_Step]:
    """The decode steps of an answer; if it `saves`, that begins after the first ones."""
    scheduler, tier = server.scheduler, server.disk.tier
    prompt = random_ids(PROMPT_TOKENS, below=server.parts.engine().profile.vocabulary, seed=2)
    request = ids_request(server.admission, prompt, max_tokens=count + 1, salt="decodes")
    events: list[Event] = []
    scheduler.submit(request, events.append)
    while not any(
        isinstance(event, Prefilling) and event.done == PROMPT_TOKENS for event in events
    ):
        scheduler.step()
    assert scheduler.slots[1].running is not None, "it decodes where the kept conversation stands"
    found: list[_Step] = []
    for number in range(count):
        if saves and number == BEGINS_AFTER:
            kept = scheduler.slots[0].resident
            assert server.disk.conversations.save(0, kept, None, WriteCause.STOP) is not None
        before = {name: clock() for name, clock in CLOCKS.items()}
        saving = server.disk.writes.pending > 0
        scheduler.step()
        took = {name: clock() - before[name] for name, clock in CLOCKS.items()}
        found.append(_Step(saving, took))
    while scheduler.step():
        pass
    assert not server.disk.writes.pending
    tier.clear()
    return found
