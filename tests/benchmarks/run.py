"""Measure the server on this machine; prints one Markdown table, and its progress on stderr.

    make bench ARGS="--only decode --models toy"

Every figure is a ratio between two things measured in turn in the same run: medians of what each
repetition found. Nothing here is a test, as times on a shared machine are no facts about code.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

# Read when huggingface_hub, tokenizers and torch are first imported, so set before any of them;
# the last two as anchorline sets them, so that all that is compared runs under the same.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ["GOMP_SPINCOUNT"] = "0"

import decode
import exact
import interruptions
import memory
import planning
import policy
import storage_decode
import storage_rates
import storage_resume
import storage_start
import streaming
import traces
import ttft
from report import Figure, Options, print_table

from anchorline.adapters.gpu.model_store import BUILT_IN

BENCHMARKS: Final[Mapping[str, Callable[[Options], Iterator[Figure]]]] = {
    "ttft": ttft.figures,
    "decode": decode.figures,
    "exact": exact.figures,
    "planning": planning.figures,
    "policy": policy.figures,
    "streaming": streaming.figures,
    "interruptions": interruptions.figures,
    "traces": traces.figures,
    "memory": memory.figures,
    "storage-rates": storage_rates.figures,
    "storage-decode": storage_decode.figures,
    "storage-resume": storage_resume.figures,
    "storage-start": storage_start.figures,
}
"""A further benchmark is a further module with such a function."""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--only", choices=BENCHMARKS, action="append", help="run this one; may be given again"
    )
    parser.add_argument(
        "--models",
        default="toy,smollm2",
        help="built-in models, with commas between them [%(default)s]; fetched if need be",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few short repetitions, to see that all works"
    )
    arguments = parser.parse_args()
    models = tuple(arguments.models.split(","))
    known = [model.name for model in BUILT_IN]
    if unknown := set(models) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: the models are {', '.join(known)}")
    options = Options(models, arguments.quick, progress=_progress)
    names = arguments.only or list(BENCHMARKS)
    print_table(figure for name in names for figure in BENCHMARKS[name](options))


def _progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
