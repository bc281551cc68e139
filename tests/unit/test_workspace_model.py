"""Scratch memory of a prefill, as it is estimated and observed."""

from anchorline.domain.workspace_model import NO_WORKSPACE, WorkspaceModel

MODEL = WorkspaceModel(floor_bytes=1000, row_bytes=10, bytes_max=5000)


def test_it_grows_with_the_context_up_to_its_cap() -> None:
    assert [MODEL.nbytes(context) for context in (0, 100, 400, 401, 100_000)] == [
        1000,
        2000,
        5000,
        5000,
        5000,
    ]


def test_a_prefill_that_takes_more_raises_longer_ones_by_as_much() -> None:
    raised = MODEL.observed(100, 2600)

    assert [raised.nbytes(context) for context in (32, 100, 200, 100_000)] == [
        1320,
        2600,
        3600,
        5600,
    ]


def test_one_that_takes_less_changes_nothing() -> None:
    assert MODEL.observed(100, 2000) is MODEL


def test_the_highest_observation_of_a_power_of_two_is_the_one_that_is_kept() -> None:
    raised = MODEL.observed(100, 2600).observed(120, 3500).observed(127, 2800)

    assert raised.raised == ((64, 1300),)


def test_a_shorter_prefill_that_took_more_replaces_the_longer_ones_it_exceeds() -> None:
    raised = MODEL.observed(300, 4100).observed(1000, 9000).observed(20, 2000)

    assert raised.raised == ((16, 800), (512, 4000))


def test_a_pool_in_which_no_forward_runs_needs_none() -> None:
    assert NO_WORKSPACE.nbytes(1 << 20) == 0
