"""Worlds as the command line asks for them: plain values in, plain values out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .action import Action, as_lines
from .minimise import minimise
from .run import Failure, Report, replay, simulate, traits_of


class Worlds:
    """Implements `adapters.cli.simulate_command.Worlds`."""

    def live(
        self, seed: int, steps: int, shown: Callable[[int], None], *, exact: bool = False
    ) -> tuple[str, Mapping[str, Any] | None]:
        """Live through a seed; its figures in a line, and the failure if there was one."""
        report = simulate(seed, steps, on_progress=shown, exact=exact)
        failure = report.violations
        return line_of(report), None if failure is None else failure.as_json()

    def shorten(
        self, failure: Mapping[str, Any], shown: Callable[[int, int], None]
    ) -> Mapping[str, Any]:
        """The same failure with as short a history as can be found."""
        whole = failure_of(failure)
        traits = traits_of(whole.seed, exact=whole.exact)
        history = minimise(
            whole.seed, whole.history, rule=whole.rule, on_progress=shown, traits=traits
        )
        violation = replay(whole.seed, history, traits=traits)
        assert violation is not None, "a minimised history breaks its rule"
        short = replace(whole, history=history, message=violation.message)
        return replace(short, step=violation.step or 0).as_json()

    def replay(self, failure: Mapping[str, Any]) -> str | None:
        """Live through a failure's history; the violation it ends in, if it does."""
        read = failure_of(failure)
        violation = replay(read.seed, read.history, traits=traits_of(read.seed, exact=read.exact))
        return None if violation is None else f"step {violation.step}: {violation}"

    def told(self, failure: Mapping[str, Any]) -> list[str]:
        """A failure's history, to read."""
        return as_lines(failure_of(failure).history)


def failure_of(values: Mapping[str, Any]) -> Failure:
    """What `Failure.as_json` gave.

    Raises:
        ValueError: it is nothing of the kind.
    """
    try:
        return Failure(
            seed=int(values["seed"]),
            step=int(values["step"]),
            rule=str(values["rule"]),
            message=str(values["message"]),
            history=[Action.from_json(one) for one in values["history"]],
            exact=bool(values.get("exact", False)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no recorded history: {error!r}") from error


def line_of(report: Report) -> str:
    """A world's figures."""
    tokens = report.tokens_cached + report.tokens_reread
    share = 100 * report.tokens_cached // max(tokens, 1)
    return (
        f"seed {report.seed}: {report.steps} steps, {report.requests} requests, "
        f"{share} % of {tokens} prompt tokens cached"
    )
