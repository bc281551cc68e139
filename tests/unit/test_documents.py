"""What the documents say of files, settings, routes and fields is true of this checkout."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from litestar.routes import HTTPRoute

from anchorline.adapters.http.errors import ErrorDetail
from anchorline.adapters.http.routes_tokens import DetokenizeBody, TokenizeBody
from anchorline.adapters.http.usage import CacheReport, PartsReport, TimingsBody, UsageBody
from anchorline.adapters.http.wire_chat import ChatBody, MessageBody
from anchorline.adapters.http.wire_completions import CompletionBody
from anchorline.adapters.telemetry.metrics import METRICS
from anchorline.settings import ENVIRONMENT_PREFIX, ServeSettings
from support.server import Options, running_server

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

README_LINES_MAX = 150
PLACES_OF_A_MACHINE = ("/work/", "/root/", "/home/", "/tmp/")  # noqa: S108 - looked for, not used
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}

_LINK = re.compile(r"(?<!!)\[[^\]\[]+\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_ROUTE = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|", re.MULTILINE)


def prose(path: Path) -> str:
    """The text of a document without its blocks of code."""
    return _FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """What may stand behind `#` in a link, as GitHub makes it from headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def broken_links(path: Path) -> Iterator[str]:
    for target in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file) if file else path
        if not place.exists() or (anchor and anchor not in anchors(place)):
            yield target


def table_cells(path: Path) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(path: Path) -> None:
    assert list(broken_links(path)) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_documents_name_no_place_of_one_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [place for place in PLACES_OF_A_MACHINE if place in text] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_every_setting_stands_in_the_settings_document_with_its_three_names() -> None:
    rows = [cells for cells in table_cells(ROOT / "docs/settings.md") if len(cells) == 5]
    documented = {cells[2].strip("`"): cells for cells in rows if cells[2] != "key"}
    names = [field.name for field in msgspec.structs.fields(ServeSettings)]

    assert list(documented) == names
    for name, (flag, variable, *_) in documented.items():
        wanted = "`MODEL` (an argument)" if name == "model" else f"`--{name.replace('_', '-')}`"
        assert (flag, variable) == (wanted, f"`{ENVIRONMENT_PREFIX}{name.upper()}`")


def test_the_api_document_lists_the_routes_there_are() -> None:
    with running_server(Options()) as server:
        served = {
            (method, route.path_format)
            for route in server.app.routes
            if isinstance(route, HTTPRoute)
            for method in route.methods
            if method in METHODS
        }

    documented = _ROUTE.findall((ROOT / "docs/api.md").read_text(encoding="utf-8"))

    assert len(documented) == len(set(documented))
    assert set(documented) == served


@pytest.mark.parametrize(
    "body",
    [
        *(ChatBody, MessageBody, CompletionBody, TokenizeBody, DetokenizeBody),
        *(UsageBody, CacheReport, PartsReport, TimingsBody, ErrorDetail),
    ],
)
def test_every_field_of_a_body_is_in_the_api_document(body: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    fields = [field.encode_name for field in msgspec.structs.fields(body)]
    assert [name for name in fields if not re.search(rf"\b{name}\b", text)] == []


def test_every_metric_is_in_the_api_document() -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert [name for name in METRICS if not re.search(rf"`{name}(_total)?`", text)] == []
