"""Read ahead into memory and brought in from there, a conversation goes on bit for bit."""

import pytest

from anchorline.application.request import Finished
from anchorline.domain.entry import Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from contract.readings import differences, read, some_ids, without_logits
from support import tiny_models
from support.torch_serving import GRID, HYBRIDS, Serving, alone, engine_of

PLENTY = 1 << 28


@pytest.mark.parametrize("architecture", [*HYBRIDS, "llama"])
def test_what_was_read_ahead_goes_on_as_if_it_had_never_left(architecture: str) -> None:
    first, more, others = (
        some_ids(count, seed=seed, vocabulary=tiny_models.VOCABULARY)
        for seed, count in ((1, 3 * GRID + 5), (2, GRID), (3, GRID))
    )
    serving = Serving(engine_of(architecture, 1), disk=True, ram_bytes_max=PLENTY)
    serving.ask(first, max_tokens=5)
    held = serving.held(0)
    serving.ask(others)
    serving.scheduler.clear_ram()
    scheduler = serving.scheduler
    prefetch, disk, ram = scheduler.prefetch, scheduler.disk, scheduler.ram
    assert prefetch is not None
    assert disk is not None
    assert ram is not None
    for rate in (disk.tier.rate, ram.rate):
        rate.observe(1, 1, 1e-9)  # objects cost nothing: tiny models prefill as fast as one is read
    running = serving.submit(others, max_tokens=6 * GRID)
    serving.scheduler.step()

    request = serving.submit([*held, *more], max_tokens=0)
    while not prefetch.counts.arrived:
        serving.jobs.step()
        serving.scheduler.step()
    assert not isinstance(serving.events[running][-1], Finished)
    serving.run()

    decision = serving.decision(request)
    assert (decision.tier, decision.source) == (Tier.RAM, Source.PARK)
    assert (decision.cached, decision.gate) == (len(held), Gate.PRESERVED)
    found = read(serving.engine.slots[0])
    answer = token_ids(held[len(first) :])
    expected = alone(engine_of(architecture, 1), first, answer, more)
    assert differences(found, without_logits(expected)) == []
