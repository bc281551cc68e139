"""Hours of agents on the real server over a real disk; run by `make soak MINUTES=60`.

Each answer is held against that of a server without a cache. For the first half of the time the
server is killed every few minutes; then one long life shows whether anything grows. The budgets
are small, so that most of what is written has to go again. Ends with a report in Markdown, and
with exit code 1 if there was a fault.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from soak.agents import Agent
from soak.judge import Judge
from soak.lives import Faults, Lives, plan
from soak.processes import PATIENCE_S, ServerProcess
from soak.report import Run, document, growth_faults, never_met
from soak.samples import Sampler

_MIB: Final = 1 << 20
HEADS_BYTES_MAX: Final = 8 * _MIB
CONVERSATIONS_BYTES_MAX: Final = 32 * _MIB

FLAGS: Final = (
    "--slots=2",
    "--window=2048",
    f"--anchor-bytes-max={2 * _MIB}",
    # Filled within minutes, so that growth can be seen, and less than what the medium can hold.
    f"--ram-bytes-max={16 * _MIB}",
    f"--disk-heads-bytes-max={HEADS_BYTES_MAX}",
    f"--disk-conversations-bytes-max={CONVERSATIONS_BYTES_MAX}",
    "--disk-free-min=0",
    "--disk-save-tokens-min=128",
    "--disk-idle-s=3",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    minutes: float
    kill_minutes: float
    agents: int
    pause_s: float
    interval_s: float
    seed: int
    directory: Path
    report: Path | None


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    options.directory.mkdir(parents=True, exist_ok=True)
    print(f"the store, logs and faults are in {options.directory}", flush=True)
    cold = ServerProcess(
        options.directory / "cold.log", "--cache=off", "--window=2048", "--slots=1"
    )
    try:
        run = _soak(options, cold)
    finally:
        cold.end(signal.SIGKILL)
    text = document(run)
    print(text)
    if options.report is not None:
        options.report.write_text(text, encoding="utf-8")
    sys.exit(1 if run.faults else 0)


def _soak(options: Options, cold: ServerProcess) -> Run:
    faults = Faults(options.directory)
    cache = options.directory / "cache"
    lives = Lives(cache, FLAGS, faults, random.Random(options.seed))
    sampler = Sampler(
        lives,
        faults,
        cache / "state",
        bytes_max=HEADS_BYTES_MAX + CONVERSATIONS_BYTES_MAX,
        interval_s=options.interval_s,
    )
    with cold.client() as client:
        judge = Judge(client)
        agents = [
            Agent(number, options.seed, options.pause_s, lives, judge, faults)
            for number in range(options.agents)
        ]
        threads = [sampler.thread(), *(agent.thread() for agent in agents)]
        for thread in threads:
            thread.start()
        began_s = time.monotonic()
        try:
            chance = random.Random(options.seed)
            lives.run(list(plan(options.minutes, options.kill_minutes, chance)))
        finally:
            lives.finish()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            if thread.is_alive():
                faults.add(f"{thread.name} waits for ever")
    minutes = round((time.monotonic() - began_s) / 60, 1)
    return _run(minutes, lives, sampler, judge, agents, faults)


def _run(
    minutes: float,
    lives: Lives,
    sampler: Sampler,
    judge: Judge,
    agents: list[Agent],
    faults: Faults,
) -> Run:
    done = sum((agent.done for agent in agents), start=Counter[str]())
    samples = sampler.samples
    last = {sample.life: sample for sample in samples}.values()
    evicted = sum(sample.evicted for sample in last)
    cached, reread = (
        sum(getattr(sample, name) for sample in last) for name in ("cached", "reread")
    )
    skipped = sum(sampler.skipped.values(), start=Counter[str]())
    compared = sum(judge.verdicts.values())
    must = {
        "answers from disk": sum(judge.origins[key] for key in judge.origins if "disk" in key),
        "answers under the bitwise gate": sum(
            judge.origins[key] for key in judge.origins if "bitwise" in key
        ),
        "answers under the preserved gate": sum(
            judge.origins[key] for key in judge.origins if "preserved" in key
        ),
        "entries evicted": evicted,
        "requests given up": done["give up"],
        "requests that a kill broke off": sum(agent.lost for agent in agents),
        "kills": lives.endings["SIGKILL"],
    }
    counts: dict[str, object] = {
        "lives": lives.number,
        **must,
        "stops in good order": lives.endings["SIGTERM"],
        "median start, s": f"{median(lives.start_s):.1f}" if lives.start_s else "",
        **{f"flushes: {said}": count for said, count in sorted(lives.flushes.items())},
        **{f"warnings: {said}": count for said, count in sorted(lives.warnings.items())},
        "answers compared": compared,
        **{f"of them {name}": count for name, count in sorted(judge.verdicts.items())},
        "largest difference of logits, of their spread": f"{judge.share:.2g}",
        "prompt tokens that needed no forward": f"{cached / max(1, cached + reread):.3f}",
        **{f"writes skipped: {why}": count for why, count in sorted(skipped.items())},
        **{f"resumed from: {name}": count for name, count in sorted(judge.origins.items())},
        **{f"acts: {name}": count for name, count in sorted(done.items())},
        "stores verified": len(lives.verified),
        "the last": lives.verified[-1] if lives.verified else "",
    }
    found = [*faults.found, *growth_faults(samples), *never_met(must)]
    return Run(minutes, samples, counts, must, found)


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="[%(default)s]")
    parser.add_argument(
        "--kill-minutes", type=float, default=3.0, help="between two kills, about [%(default)s]"
    )
    parser.add_argument("--agents", type=int, default=6, help="[%(default)s]")
    parser.add_argument(
        "--pause-s", type=float, default=1.5, help="of an agent between two requests [%(default)s]"
    )
    parser.add_argument(
        "--interval-s", type=float, default=10.0, help="between two samples [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn [%(default)s]")
    parser.add_argument(
        "--directory", type=Path, help="on the disk that is to be used [a new one for each run]"
    )
    parser.add_argument("--report", type=Path, help="a file that the report is written to as well")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="anchorline-soak-"))
    return Options(
        given.minutes,
        given.kill_minutes,
        given.agents,
        given.pause_s,
        given.interval_s,
        given.seed,
        directory.resolve(),
        given.report,
    )


if __name__ == "__main__":
    main()
