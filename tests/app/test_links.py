"""Links to views that version 0.2 wrote still open what they opened then: tests/data/links_0.2.txt."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest

from bert_core import Refused
from tests.visit import settled, visited, words
from viz_app.moved_pages import MOVED_PAGES, MOVED_VIEWS, moved_address
from viz_app.pages import PAGES
from viz_app.shell.frame import params_of_pages
from viz_app.shell.params import current_names

RECORD = Path(__file__).parents[1] / "data" / "links_0.2.txt"


def read_record() -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Page, address and the address that the page wrote then, of every link."""
    links = []
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            link, _, written = line.partition("\t")
            page, _, address = link.removeprefix("/").partition("?")
            parsed = (dict(parse_qsl(query, keep_blank_values=True)) for query in (address, written))
            links.append((page, *parsed))
    return links  # type: ignore[return-value]


LINKS = read_record()
OF_PAGES = {page: [link[1:] for link in links] for page, links in groupby(LINKS, key=lambda link: link[0])}


def opened(page: str, address: dict[str, str]) -> dict[str, str]:
    """The address that a page writes when it is opened by one: all that is chosen on it and is not the default.

    The target and its contrast are left out where the address names none: a page then takes the model's prediction, or
    those of its example.
    """
    path, params = moved_address(page, address)
    app = settled(visited(path, **params))
    assert not app.exception, (page, address)
    assert "The link says" not in words(app), (page, address, words(app))
    query: dict[str, str | list[str]] = dict(app.query_params)
    written = {name: value if isinstance(value, str) else value[-1] for name, value in query.items()}
    # Profiles shows a head without selecting it; addresses of version 0.2 have it.
    for heading in app.subheader if path == "profiles" else ():
        if head := re.fullmatch(r"L(\d+) H(\d+)", heading.value):
            written.setdefault("head", f"{head[1]}.{head[2]}")
    own = {"target", "contrast"} - address.keys()
    return {name: value for name, value in written.items() if name not in own}


# The name of a run, and parameters that are newer than version 0.2.
NEWER = {
    "tuned", "edge", "find", "attributed", "score_side", "token_range", "dataset", "slices", "slice_measure", "slice",
    "expected", "predicted", "outcome", "row_text", "row_order", "row_page", "data_row", "graph_method", "graph_window",
    "graph_threshold", "graph_edge", "plane_text", "plane_colour", "bias_measure", "bias_category", "bias_order",
    "bias_page", "steer_depth", "steer_factor", "steer_direction", "steer_from", "steer_to",
}  # fmt: skip
NEW_PAGES = {"dataset"}


def test_every_page_and_parameter_of_version_0_2_is_recorded_and_read() -> None:
    """No page is gone, a moved one has a redirect, a renamed parameter has its old name, and no value is refused."""
    opened_paths = {moved_address(page, address)[0] for page, address, _ in LINKS}
    assert opened_paths == {page.path for page in PAGES} - NEW_PAGES
    assert MOVED_PAGES.keys() <= OF_PAGES.keys() and set(MOVED_VIEWS.values()) <= opened_paths
    table = params_of_pages(PAGES)
    names = {name for _, address, _ in LINKS for name in current_names(address, table)}
    assert names == table.keys() - NEWER
    for page, *addresses in LINKS:
        new_addresses = (current_names(moved_address(page, address)[1], table) for address in addresses)
        for name, value in (item for address in new_addresses for item in address.items()):
            try:
                table[name].parse(value)
            except Refused as error:
                raise AssertionError(f"{name}={value!r}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("page", OF_PAGES)
def test_a_link_of_version_0_2_opens_what_it_opened_then(page: str) -> None:
    """The page then writes an address that stands for the same choices as the one that it wrote in version 0.2."""
    same: dict[str, dict[str, str]] = {}  # what is written for an address of the record, which several links share
    for address, written in OF_PAGES[page]:
        if not address:  # what a page shows that no link describes may change
            opened(page, address)
            continue
        key = urlencode(written)
        if key not in same:
            same[key] = opened(page, written)
        assert opened(page, address) == same[key], (page, address)
        assert len(same[key]) >= len(moved_address(page, written)[1]), (page, address)  # none of its choices is gone


@pytest.mark.parametrize(
    ("page", "address", "sentences", "kept"),
    [
        ("dataset", {"slices": "nonsense", "expected": "nonsense"}, [], {}),
        (
            "dataset", {"row_page": "0", "data_row": "-1"},
            ["row_page='0', which is not possible: 1 to 2000", "data_row='-1', which is not possible"], {},
        ),
        ("dataset", {"row_page": "1999", "data_row": "99999"}, [], {"row_page": "5"}),
        (
            "why", {"graph_edge": "-1.2.3", "graph_window": "0"},
            ["graph_edge='-1.2.3', which is not possible", "graph_window='0', which is not possible: one of 16"], {},
        ),
        ("why", {"attributed": "graph", "graph_edge": "99.2.3"}, [], {"attributed": "graph"}),
    ],
)  # fmt: skip
def test_an_impossible_link_is_one_sentence_for_each_value_or_the_default(
    page: str, address: dict[str, str], sentences: list[str], kept: dict[str, str]
) -> None:
    """The figure of the default is drawn, and the address no longer has a value that the page does not show."""
    app = settled(visited(page, **address), "stop_here")
    assert not app.exception and not app.error
    text = words(app)
    assert text.count("The link says") == len(sentences)
    assert all(sentence in text for sentence in sentences)
    assert ("predictions are the expected answer" if page == "dataset" else "“tea") in text
    query: dict[str, str | list[str]] = dict(app.query_params)
    written = {name: value if isinstance(value, str) else value[-1] for name, value in query.items()}
    assert {name: written[name] for name in address.keys() - {"graph_edge", "data_row"} if name in written} == kept
