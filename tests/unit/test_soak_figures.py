"""What a soak says of a run: growth, and what it never met."""

import random
import signal
from pathlib import Path

import pytest

from anchorline.domain.taint_line import Gate
from soak.judge import Judge, Wrong
from soak.lives import Faults, plan
from soak.processes import client_of
from soak.replies import Reply
from soak.report import Run, document, growth_faults, never_met
from soak.samples import Sample, slope


def a_sample(age_s: float, *, rss_bytes: int = 500 << 20, descriptors: int = 20) -> Sample:
    return Sample(
        at_s=age_s,
        life=3,
        age_s=age_s,
        rss_bytes=rss_bytes,
        descriptors=descriptors,
        threads=12,
        disk_bytes=1 << 20,
        entries=7,
        queued=0,
        requests=int(age_s),
        cached=300,
        reread=100,
        evicted=0,
        restores=0,
    )


def test_the_slope_is_that_of_the_bulk_and_not_of_outliers() -> None:
    points = [(float(at), 3.0 * at) for at in range(20)]
    points[4] = (4.0, 1000.0)
    points[15] = (15.0, -1000.0)

    assert slope(points) == pytest.approx(3.0, rel=0.1)
    assert slope([(1.0, 5.0)]) == 0.0


def test_memory_that_grows_through_a_long_life_is_a_fault() -> None:
    flat = [a_sample(10.0 * at, rss_bytes=(500 + at % 3) << 20) for at in range(200)]
    grows = [a_sample(10.0 * at, rss_bytes=(500 << 20) + at * (100 << 10)) for at in range(200)]
    leaks = [a_sample(10.0 * at, descriptors=20 + at // 60) for at in range(200)]

    assert growth_faults(flat) == []
    assert [fault.split(" grows")[0] for fault in growth_faults(grows)] == ["memory (RSS)"]
    assert [fault.split(" grows")[0] for fault in growth_faults(leaks)] == ["descriptors"]


def test_what_grows_while_it_warms_up_and_in_a_short_life_is_not_judged() -> None:
    warming = [a_sample(10.0 * at, rss_bytes=(500 + min(at, 30)) << 20) for at in range(200)]
    short = [a_sample(10.0 * at, rss_bytes=(500 + at) << 20) for at in range(60)]

    assert growth_faults(warming) == []
    assert growth_faults(short) == []
    assert "too short to say" in document(Run(10, short, {}, {}, []))


def test_a_run_that_never_met_a_kill_is_told_so() -> None:
    assert never_met({"kills": 0, "evictions": 3}) == ["never met: kills"]


def test_lives_end_by_kills_for_half_of_the_time_and_then_there_is_a_long_one() -> None:
    lives = list(plan(60, 3, random.Random(1)))

    *short, long = lives
    assert sum(life.seconds for life in lives) == pytest.approx(3600)
    assert (long.seconds, long.ending) == (1800, signal.SIGTERM)
    assert sum(life.ending is signal.SIGKILL for life in short) > len(short) / 2
    assert signal.SIGTERM in {life.ending for life in short}


def test_faults_are_written_down_with_their_evidence_up_to_a_bound(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    for number in range(120):
        faults.add(f"fault {number}", body={"prompt": number})

    assert len(faults.found) == len(list(tmp_path.iterdir())) == 100
    assert '"prompt": 7' in (tmp_path / "fault-7.json").read_text()


@pytest.mark.parametrize(
    ("cached", "reread", "gate", "told"),
    [
        (5, 4, Gate.BITWISE, "5 cached and 4 reread are not 10"),
        (10, 0, Gate.BITWISE, "10 cached and 0 reread are not 10"),
        (0, 10, Gate.BITWISE, "0 tokens cached under the gate bitwise"),
        (5, 5, Gate.COLD, "5 tokens cached under the gate cold"),
    ],
)
def test_an_answer_whose_figures_cannot_be_true_is_wrong(
    cached: int, reread: int, gate: Gate, told: str
) -> None:
    cache = {"cached": cached, "reread": reread, "gate": gate.value}
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": cached},
        "anchorline": {"cache": cache},
    }

    with client_of("http://127.0.0.1:1") as nobody, pytest.raises(Wrong, match=told):
        Judge(nobody).check({}, Reply("", "", "stop", usage, ()))
