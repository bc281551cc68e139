"""What the world raises when something happened that must never happen."""

from typing import NoReturn


class Violation(AssertionError):
    """A rule was broken.

    Attributes:
        rule: which one, in a word: `state`, `gate`, `durable`, `budget`, `leak`, `progress`, `sum`,
            `namespace`, `counter`, `reread`, `answer`, `index`, `retention`, `guard`, `kept`,
            `peek`, `fault`.
        message: what was seen.
        step: the world's step it happened in; None outside of a world.
    """

    def __init__(self, rule: str, message: str, step: int | None = None) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.message = message
        self.step = step


def violated(rule: str, message: str) -> NoReturn:
    """Raise it.

    Raises:
        Violation: always.
    """
    raise Violation(rule, message)
