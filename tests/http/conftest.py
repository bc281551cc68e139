"""Servers for the tests of this folder."""

from collections.abc import Generator

import pytest

from support.server import Options, Running, running_server


@pytest.fixture
def server() -> Generator[Running]:
    """A server of its own, for tests that hold its engine or count what it did."""
    with running_server(Options()) as running:
        yield running


@pytest.fixture(scope="module")
def shared_server() -> Generator[Running]:
    """One server for all tests of a module that only ask and look at the answer."""
    with running_server(Options()) as running:
        yield running
