"""A wrong state is told to a person: in the log, and in a file to make it again from."""

import json
import logging
from dataclasses import replace

import pytest

from anchorline.adapters.telemetry.mismatch_log import LOGGED_IDS_MAX, MismatchLog, dumped
from anchorline.domain.entry import Tier
from anchorline.domain.errors import StorageUnavailable
from anchorline.domain.fingerprint import Fingerprint
from anchorline.domain.mismatch import Difference, Kind, Mismatch
from anchorline.domain.namespace import Namespace
from anchorline.domain.taint_line import Gate
from support.builders import random_ids

MISMATCH = Mismatch(
    entry="slot-0",
    tier=Tier.SLOT,
    difference=Difference(Kind.BITWISE_ROWS, 600, "layer3.keys", 570),
    fingerprint=Fingerprint("ab" * 32),
    namespace=Namespace(salt="a secret", adapter="tuned"),
    ids=random_ids(600),
    grid=64,
)


def test_the_file_has_all_that_the_state_was_made_of_but_its_salt() -> None:
    record = json.loads(dumped(MISMATCH))

    assert record["token_ids"] == MISMATCH.ids.tolist()
    assert (record["line"], record["part"], record["row"]) == (600, "layer3.keys", 570)
    assert (record["fingerprint"], record["grid"], record["adapter"]) == ("ab" * 32, 64, "tuned")
    assert "a secret" not in dumped(MISMATCH).decode()


def test_equal_namespaces_have_equal_digests_and_others_have_others() -> None:
    other = replace(MISMATCH, namespace=Namespace(salt="another", adapter="tuned"))

    assert MISMATCH.namespace_digest == replace(MISMATCH, entry="slot-1").namespace_digest
    assert MISMATCH.namespace_digest != other.namespace_digest


def test_the_log_names_the_file_and_shows_no_token(caplog: pytest.LogCaptureFixture) -> None:
    kept: dict[str, bytes] = {}

    def keep(leaf: str, data: bytes) -> str:
        kept[leaf] = data
        return f"0000000007-{leaf}"

    assert MismatchLog(keep)(MISMATCH) == "0000000007-verify.json"

    assert kept == {"verify.json": dumped(MISMATCH)}
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert "0000000007-verify.json" in line.getMessage()
    assert "layer3.keys, row 570, below line 600" in line.getMessage()
    assert str(MISMATCH.ids[-2:].tolist())[1:-1] not in line.getMessage()


def test_where_no_file_can_be_the_last_tokens_stand_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(leaf: str, data: bytes) -> str:
        del leaf, data
        raise StorageUnavailable("the drive is gone")

    def is_full(leaf: str, data: bytes) -> None:
        del leaf, data

    logs = MismatchLog(None), MismatchLog(fails), MismatchLog(is_full)

    assert [log(MISMATCH) for log in logs] == [None] * 3
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(lines) == 3
    ids = MISMATCH.ids[-LOGGED_IDS_MAX:].tolist()
    assert all(str(ids) in line for line in lines)
    assert any("the drive is gone" in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize(
    ("kind", "gate"),
    [
        (Kind.BITWISE_ROWS, Gate.BITWISE),
        (Kind.BITWISE_SECTIONS, Gate.BITWISE),
        (Kind.PRESERVED_ROWS, Gate.PRESERVED),
        (Kind.PRESERVED_SECTIONS, Gate.PRESERVED),
    ],
)
def test_each_kind_breaks_the_promise_of_one_gate(kind: Kind, gate: Gate) -> None:
    assert kind.gate is gate
