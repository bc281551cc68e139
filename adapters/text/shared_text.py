"""How far two texts agree."""


def common_prefix(a: str, b: str) -> int:
    """The number of leading characters that are equal.

    By halving: slices are compared at memory speed, and prompts are long.
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(a: str, b: str) -> int:
    """The number of trailing characters that are equal."""
    return common_prefix(a[::-1], b[::-1])


def overlap(text: str, mark: str) -> int:
    """How many of the last characters of `text` may be the start of a `mark` that goes on."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
