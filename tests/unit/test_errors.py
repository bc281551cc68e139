"""One tree of errors."""

import inspect

import pytest

from anchorline.domain import errors
from anchorline.domain.errors import (
    AnchorlineError,
    Draining,
    PromptTooLong,
    QueueFull,
    RequestError,
    StateError,
    Unavailable,
    WrongLine,
)


def drawn_tree() -> dict[str, str]:
    """Parent by child, as the module's docstring draws it."""
    assert errors.__doc__ is not None
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if not name or not ("─" in line or line == "AnchorlineError"):
            continue
        depth = (len(line) - len(line.lstrip(" │├└─"))) // 4
        path[depth:] = [name]
        if depth:
            parents[name] = path[depth - 1]
    return parents


def test_the_tree_is_as_it_is_drawn() -> None:
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if value.__module__ == errors.__name__
    ]

    tree = {each.__name__: each.__bases__[0].__name__ for each in classes}

    assert tree.pop("AnchorlineError") == "Exception"
    assert tree == drawn_tree()


def test_a_request_error_names_the_field_and_the_reason() -> None:
    error = RequestError("no such role", field="messages.2.role", code="unknown_role")

    assert (str(error), error.field, error.code) == (
        "no such role",
        "messages.2.role",
        "unknown_role",
    )
    assert RequestError("bad").field is None


def test_a_prompt_too_long_carries_the_numbers() -> None:
    error = PromptTooLong(5000, 4096)

    assert "5000" in str(error)
    assert "4096" in str(error)
    assert (error.tokens, error.window, error.field) == (5000, 4096, "messages")
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize("kind", [Unavailable, QueueFull, Draining])
def test_who_is_told_to_come_back_is_told_when(kind: type[Unavailable]) -> None:
    error = kind("later", retry_after_s=5)

    assert error.retry_after_s == 5
    assert isinstance(error, AnchorlineError)


def test_a_wrong_line_is_state_that_must_not_reach_a_forward() -> None:
    assert issubclass(WrongLine, StateError)
