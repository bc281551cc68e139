"""What it is worth to keep something: entries in memory or on a medium, and anchors in a slot."""

from typing import Final

DAY_S: Final = 86_400.0


def saving(tokens: int, hits: int, half_lives: float, odds: float = 1.0) -> float:
    """Tokens that it is expected to save: as often as it was used, and once more.

    Args:
        tokens: that a resume saves.
        hits: how often it was resumed from.
        half_lives: for how long nobody has; an entry's is a day.
        odds: of being used at all, where that is known to be less likely than for others.
    """
    return (hits + odds) * tokens * 0.5**half_lives


def days(now_s: float, last_used_s: float) -> float:
    """For how long something was not used; a clock that went back makes nothing older."""
    return max(now_s - last_used_s, 0.0) / DAY_S
