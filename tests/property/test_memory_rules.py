"""The workspace model and the memory plan hold for whatever is observed, found and set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.errors import RequestError
from anchorline.domain.memory_plan import (
    LIMITS,
    LimitsWanted,
    MemoryFound,
    memory_plan,
    spare,
    system_floor,
)
from anchorline.domain.workspace_model import WorkspaceModel

BYTES = st.integers(0, 1 << 40)
CONTEXTS = st.integers(0, 1 << 20)
MODELS = st.builds(
    WorkspaceModel, st.integers(0, 1 << 32), st.integers(0, 1 << 18), st.integers(0, 1 << 36)
)
OBSERVED = st.lists(st.tuples(CONTEXTS, st.integers(0, 1 << 36)), max_size=40)


def after(model: WorkspaceModel, observed: list[tuple[int, int]]) -> WorkspaceModel:
    for context, used in observed:
        model = model.observed(context, used)
    return model


@given(MODELS, OBSERVED, CONTEXTS, CONTEXTS)
def test_a_longer_context_never_takes_less(
    model: WorkspaceModel, observed: list[tuple[int, int]], one: int, other: int
) -> None:
    raised = after(model, observed)

    assert raised.nbytes(min(one, other)) <= raised.nbytes(max(one, other))


@given(MODELS, OBSERVED)
def test_what_was_observed_is_expected_from_then_on(
    model: WorkspaceModel, observed: list[tuple[int, int]]
) -> None:
    raised = after(model, observed)

    assert [(context, used) for context, used in observed if raised.nbytes(context) < used] == []


@given(MODELS, OBSERVED, CONTEXTS, BYTES, CONTEXTS)
def test_an_observation_lowers_nothing_and_leaves_shorter_contexts_alone(
    model: WorkspaceModel, observed: list[tuple[int, int]], context: int, used: int, other: int
) -> None:
    before = after(model, observed)

    raised = before.observed(context, used)

    assert raised.nbytes(other) >= before.nbytes(other)
    if 2 * other < context:
        assert raised.nbytes(other) == before.nbytes(other)


@given(MODELS, st.lists(st.tuples(CONTEXTS, BYTES), min_size=60, max_size=90))
def test_the_model_stays_small(model: WorkspaceModel, observed: list[tuple[int, int]]) -> None:
    assert len(after(model, observed).raised) <= (1 << 20).bit_length() + 1


@st.composite
def pools(draw: st.DrawFn) -> MemoryFound:
    total = draw(st.integers(0, 1 << 40))
    held = draw(st.integers(0, total))
    return MemoryFound(
        total=total,
        available=draw(st.integers(0, total - held)),
        held=held,
        unwritten=draw(st.integers(0, 1 << 38)),
        window=draw(st.integers(16, 1 << 20)),
        row_bytes=draw(st.integers(0, 1 << 20)),
        workspace=draw(st.integers(0, 1 << 36)),
        anchors=draw(st.integers(0, 1 << 38)),
        floor=system_floor(total),
    )


@given(pools())
def test_computed_limits_fit_each_other_and_leave_the_system_its_part(found: MemoryFound) -> None:
    plan = memory_plan(found, LimitsWanted())

    figures = {name: figure.bytes for name, figure in plan.figures().items()}
    assert min(figures.values()) >= 0
    assert found.engine <= plan.ceiling.bytes <= plan.peak.bytes
    caches = plan.anchors.bytes + plan.ram_bytes_max.bytes
    assert caches <= max(plan.ceiling.bytes - plan.slack.bytes - found.engine, 0)
    # What is taken beyond the engine leaves the floor, or a part of what others left of it.
    left = max(found.available - found.unwritten, 0)
    assert plan.peak.bytes - found.engine <= spare(left, found.floor)
    assert all(figure.why for figure in plan.figures().values())


@given(pools(), st.sampled_from(LIMITS), st.integers(1, 1 << 40))
def test_a_limit_that_was_set_is_in_force_as_it_was_set_or_refused_by_name(
    found: MemoryFound, name: str, nbytes: int
) -> None:
    ceiling = memory_plan(found, LimitsWanted()).ceiling.bytes
    wanted = LimitsWanted().changed({name: nbytes})
    if nbytes > (min(found.total, ceiling) if name == "slack" else found.total):
        with pytest.raises(RequestError) as refused:
            memory_plan(found, wanted)
        assert refused.value.field == name
        return

    plan = memory_plan(found, wanted)

    assert plan.figures()[name].bytes == nbytes
    assert plan.ceiling.bytes <= plan.peak.bytes
    assert min(figure.bytes for figure in plan.figures().values()) >= 0


@given(pools())
def test_the_shares_of_the_tier_in_memory_are_all_of_it(found: MemoryFound) -> None:
    plan = memory_plan(found, LimitsWanted())
    shares = plan.shares()

    parts = [shares[name] for name in ("snapshots", "stash", "parked", "pinned")]
    assert plan.ram_bytes_max.bytes - len(parts) < sum(parts) <= plan.ram_bytes_max.bytes
