"""Metrics, the journal's line, and the log it stands in."""

import io
import json
import logging
import math
from collections.abc import Generator

import pytest

from anchorline.adapters.telemetry.log_text import escaped, key_values, plain_values
from anchorline.adapters.telemetry.logs import QUIET_LOGGERS, configure_logging
from anchorline.adapters.telemetry.metrics import METRICS, PREFIX, Kind
from anchorline.adapters.telemetry.prometheus import CONTENT_TYPE, PrometheusTelemetry
from anchorline.ports import telemetry as names

ALL_NAMES = {
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
}


def text(telemetry: PrometheusTelemetry) -> str:
    return telemetry.exposition().decode()


# --- metrics ------------------------------------------------------------------------------------


def test_every_name_of_the_port_has_a_metric() -> None:
    assert set(METRICS) == ALL_NAMES


def test_every_metric_has_our_prefix_and_counters_say_total() -> None:
    telemetry = PrometheusTelemetry()
    for name, metric in METRICS.items():
        labels = dict.fromkeys(metric.labels, "x")
        match metric.kind:
            case Kind.COUNTER:
                telemetry.count(name, labels=labels)
            case Kind.GAUGE:
                telemetry.gauge(name, 1, labels)
            case Kind.HISTOGRAM:
                telemetry.observe(name, 1, labels)

    shown = text(telemetry)
    for name, metric in METRICS.items():
        suffix = {Kind.COUNTER: "_total", Kind.GAUGE: "", Kind.HISTOGRAM: "_count"}[metric.kind]
        assert f"\n{PREFIX}{name}{suffix}" in shown
        assert f"# HELP {PREFIX}{name}" in shown
    assert all(line.startswith(("#", PREFIX)) for line in shown.splitlines()), (
        "a figure of something else"
    )


def test_metrics_without_labels_are_shown_before_they_move() -> None:
    shown = text(PrometheusTelemetry())

    assert f"{PREFIX}cache_misses_total 0.0" in shown
    assert f"{PREFIX}queue_length 0.0" in shown
    assert f"{PREFIX}inter_token_seconds_count 0.0" in shown


def test_labels_that_a_metric_lacks_are_dropped_and_missing_ones_are_empty() -> None:
    telemetry = PrometheusTelemetry()

    telemetry.count(names.MISSES, labels={"user": "x"})
    telemetry.count(names.HITS, labels={"tier": "slot", "user": "x"})

    assert f"{PREFIX}cache_misses_total 1.0" in text(telemetry)
    assert f'{PREFIX}cache_hits_total{{source="",tier="slot"}} 1.0' in text(telemetry)


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("count", ("no_such_metric",)),
        ("gauge", ("no_such_metric", 1.0)),
        ("observe", ("no_such_metric", 1.0)),
        ("count", (names.QUEUED,)),
        ("gauge", (names.MISSES, 1.0)),
        ("observe", (names.MISSES, 1.0)),
        ("count", (names.MISSES, -1)),
    ],
)
def test_a_figure_that_cannot_be_taken_is_logged_once_and_changes_nothing(
    call: str, args: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = PrometheusTelemetry()

    for _ in range(3):
        getattr(telemetry, call)(*args)

    assert len(caplog.records) == 1
    assert str(args[0]) in caplog.text
    assert f"{PREFIX}cache_misses_total 0.0" in text(telemetry)


def test_two_telemetries_share_no_figures() -> None:
    one, two = PrometheusTelemetry(), PrometheusTelemetry()

    one.count(names.MISSES)

    assert f"{PREFIX}cache_misses_total 0.0" in text(two)


def test_buckets_ascend_and_only_histograms_have_them() -> None:
    for metric in METRICS.values():
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) is (metric.kind is Kind.HISTOGRAM)


def test_the_content_type_is_that_of_the_text() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


# --- the journal's line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (True, "true"),
        (None, "none"),
        (0.25, "0.25"),
        (1234567.0, "1.23457e+06"),
        (math.nan, "nan"),
        ("plain", "plain"),
        ("a/b-c_d.e:f@g+h", "a/b-c_d.e:f@g+h"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("héllo", '"héllo"'),
        ([1, "a b", 2.5], '[1,"a b",2.5]'),
        ((), "[]"),
        ({"a": 1}, "\"{'a': 1}\""),
    ],
)
def test_a_value_is_shown_so_that_it_reads_back(value: object, shown: str) -> None:
    assert key_values({"key": value}) == f"key={shown}"


@pytest.mark.parametrize(
    "evil",
    [
        "a\nINFO anchorline.request forged=1",
        "a\r\nb",
        "a\x1b[2Jb",
        "a\x00b",
        "a\x7fb",
        "a\u2028b",
        "a\u202eb",
        "a\ud800b",
        "a\x85b",
    ],
)
def test_nothing_in_a_value_ends_the_line_or_moves_the_cursor(evil: str) -> None:
    line = key_values({"session": evil, evil: 1, "list": [evil]})

    assert line.isprintable()
    assert len(line.splitlines()) == 1
    line.encode()


def test_no_value_can_look_like_another_pair() -> None:
    line = key_values({"session": 'x" finish=stop y="', "finish": "error"})

    assert line == 'session="x\\" finish=stop y=\\"" finish=error'


def test_long_texts_and_lists_are_cut_and_say_so() -> None:
    record = {"text": "x" * 5000, "list": list(range(100))}

    line = key_values(record)

    assert len(line) < 400
    assert "(5000 characters)" in line
    assert "and 84 more" in line
    assert len(json.dumps(plain_values(record))) < 400


def test_numbers_that_json_lacks_are_texts_there() -> None:
    assert plain_values({"a": math.nan, "b": math.inf, "c": 1.5}) == {
        "a": "nan",
        "b": "inf",
        "c": 1.5,
    }


def test_printable_text_is_left_alone() -> None:
    assert escaped("héllo, wörld") == "héllo, wörld"


# --- the log --------------------------------------------------------------------------------------


@pytest.fixture
def root() -> Generator[logging.Logger]:
    """The root logger, left as it was found."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    quiet = {name: logging.getLogger(name).level for name in QUIET_LOGGERS}
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in quiet.items():
        logging.getLogger(name).setLevel(before)


def test_a_record_is_one_line_and_is_written_once(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", json_lines=False, stream=io.StringIO())
    configure_logging("info", json_lines=False, stream=stream)

    logging.getLogger("anchorline.http").warning("two\nlines from %s", "a client\r")
    logging.getLogger("uvicorn.error").warning("said by uvicorn")
    logging.getLogger("uvicorn.error").info("not said")

    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("WARNING anchorline.http two\\nlines from a client\\r")
    assert lines[1].endswith("WARNING uvicorn.error said by uvicorn")
    assert len([one for one in root.handlers if one.get_name() == "anchorline"]) == 1


def test_the_level_is_the_least_that_is_shown(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("warning", json_lines=False, stream=stream)

    PrometheusTelemetry().journal({"request": "a"})
    logging.getLogger("anchorline").warning("shown")

    assert root.level == logging.WARNING
    assert len(stream.getvalue().splitlines()) == 1


def test_a_journal_record_is_a_line_of_pairs(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", json_lines=False, stream=stream)

    PrometheusTelemetry().journal({"request": "r1", "cached": 64, "refused": ["end@70: slower"]})

    assert root.handlers
    assert stream.getvalue().endswith(
        ' INFO    anchorline.request request=r1 cached=64 refused=["end@70: slower"]\n'
    )


def test_in_json_a_journal_record_is_an_object_with_its_values(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("info", json_lines=True, stream=stream)

    PrometheusTelemetry().journal({"request": "r1", "cached": 64, "level": "mine", "odd": "a\nb"})
    logging.getLogger("anchorline.http").info("plain %d", 1)

    journal, plain = map(json.loads, stream.getvalue().splitlines())
    assert root.handlers
    assert (journal["request"], journal["cached"], journal["odd"]) == ("r1", 64, "a\nb")
    assert (journal["level"], journal["logger"]) == ("info", "anchorline.request")
    assert journal["time"].endswith("+00:00")
    assert plain["message"] == "plain 1"


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_traceback_is_kept(root: logging.Logger, json_lines: bool) -> None:
    stream = io.StringIO()
    configure_logging("info", json_lines=json_lines, stream=stream)

    try:
        print(1 // 0)
    except ZeroDivisionError:
        logging.getLogger("anchorline").exception("failed")

    assert root.handlers
    assert "ZeroDivisionError" in stream.getvalue()
    if json_lines:
        assert len(stream.getvalue().splitlines()) == 1
