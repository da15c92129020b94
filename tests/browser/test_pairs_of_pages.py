"""Walking between pages as a person does: what was chosen on each stays, and Back takes back one step at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from tests.browser.conftest import WINDOW
from tests.browser.reader import address_of, opened, reaches_address, settled
from tests.browser.test_app import PAIR, TEXT, TITLES

PAGES = TITLES
# Every control of a page by its kind and name, with what it shows; and which of them can be changed.
CONTROLS = """() => {
  const seen = [];
  const add = (kind, root, label, value, on) => {
    if (!root.checkVisibility()) return;
    root.dataset.control = `${kind} ${label}`;
    seen.push({kind, label, value, on});
  };
  const of = (test) => document.querySelectorAll(`[data-testid=${test}]`);
  const label = (root) => root.querySelector("[data-testid=stWidgetLabel]")?.innerText.trim() ?? "";
  for (const root of of("stButtonGroup")) {
    const options = [...root.querySelectorAll("[role=radio], [role=option], [role=row], button")];
    const lit = options.filter((one) => one.matches("[data-selected], [aria-selected=true], [aria-checked=true]"));
    const off = root.querySelector("[aria-disabled=true], [data-disabled]");
    add("group", root, label(root), lit.map((option) => option.innerText), !off);
  }
  for (const root of of("stCheckbox")) {
    const box = root.querySelector("input");
    add("toggle", root, root.innerText.trim(), box.checked, !box.disabled);
  }
  for (const root of of("stSelectbox")) {
    const box = root.querySelector("input");
    add("select", root, box.getAttribute("aria-label") ?? label(root), box.value, !box.disabled);
  }
  for (const root of of("stMultiSelect")) {
    const tags = root.querySelector("[data-testid=stMultiSelectTagsContainer]")?.innerText.trim() ?? "";
    add("several", root, label(root), tags, true);
  }
  for (const root of of("stSlider")) {
    const thumbs = [...root.querySelectorAll("[role=slider], input[type=range]")];
    add("slider", root, label(root), thumbs.map((t) => t.getAttribute("aria-valuenow") ?? t.value), true);
  }
  for (const root of [...of("stTextInput"), ...of("stTextArea"), ...of("stNumberInput")]) {
    const field = root.querySelector("input, textarea");
    add("text", root, field.getAttribute("aria-label") ?? label(root), field.value, !field.disabled);
  }
  return seen;
}"""
# Whether no run is under way, and the controls show what is wanted.
SHOWS = f"""(wanted) => {{
  if (document.querySelector("[data-testid=stApp]")?.dataset.testScriptState !== "notRunning") return false;
  const seen = Object.fromEntries(({CONTROLS})().map((one) => [`${{one.kind}} ${{one.label}}`, one.value]));
  return Object.keys(wanted).every((name) => JSON.stringify(seen[name]) === JSON.stringify(wanted[name]));
}}"""
OPENED = "path => location.pathname === '/' + path && location.search !== ''"
SENTENCE = """text => {
  const fields = [...document.querySelectorAll("input[aria-label=Sentence]")];
  return fields.length === 1 && fields[0].value === text;
}"""
SHARED = {"Sentence", "Second sentence", "Model", "Lecture mode", "Language", "Checkpoint folder or hub id"}
NOT_LINKED = ("text Pairs, one per line", "text Sensitivity below", "select Colour by")  # kept, but in no address
LAST = ("group", "text", "several")  # what may take other controls away, or brings some, is changed last


def controls(page: Page) -> list[dict]:
    """What every control of the page shows."""
    return list(page.evaluate(CONTROLS))


def shown(page: Page) -> dict[str, object]:
    """The same by name."""
    return {f"{control['kind']} {control['label']}": control["value"] for control in controls(page)}


def comes_to_show(page: Page, wanted: dict[str, object]) -> dict[str, object]:
    """What these controls show, once it is what is wanted and no run is under way, or else in the end."""
    with suppress(TimeoutError):
        page.wait_for_function(SHOWS, arg=wanted, polling=50, timeout=30_000)
    return {name: value for name, value in shown(page).items() if name in wanted}


def go(page: Page, path: str) -> None:
    """Follow the link in the side bar, and wait for the page."""
    click_to(page, path)
    settled(page)


def click_to(page: Page, path: str) -> int:
    """Follow the link in the side bar, until the address is that of the page; how many clicks were lost.

    On a busy machine about one click in several hundred is lost: the page that should be left stays. The cause is not
    known. A visitor then clicks again.
    """
    link = page.get_by_test_id("stSidebarNav").get_by_role("link", name=PAGES[path], exact=True)
    for lost in range(3):
        page.keyboard.press("Escape")  # a list that is still open would take the click
        link.click()
        with suppress(TimeoutError):
            page.wait_for_function(OPENED, arg=path, timeout=30_000)
            return lost
    page.wait_for_function(OPENED, arg=path)
    return 3


def change(page: Page, control: dict) -> None:
    """Give a control another value, with the hand."""
    root = page.locator(f'[data-control="{control["kind"]} {control["label"]}"]').first
    if control["kind"] == "group":
        options = root.locator("[role=radio], [role=option]").or_(root.get_by_role("radio"))
        texts = [option.inner_text() for option in options.all()]
        options.nth((texts.index(control["value"][0]) + 1) % len(texts)).click()
    elif control["kind"] == "toggle":
        root.locator("label").first.click()
    elif control["kind"] in ("select", "several"):
        listed = page.get_by_role("option")
        for _ in range(20):  # a list that opens while its page is drawn anew may close again
            try:
                root.locator("input").first.click(timeout=3_000)
                listed.first.wait_for(timeout=3_000)
                break
            except TimeoutError:
                settled(page)
                controls(page)  # what was drawn anew is marked anew
        others = [option for option in listed.all() if option.inner_text() != control["value"]]
        (others[-1] if others else listed.first).click()
        page.keyboard.press("Escape")
    elif control["kind"] == "slider":
        thumb = root.locator("[role=slider], input[type=range]").first
        is_last = thumb.evaluate("(node) => (node.ariaValueNow ?? node.value) === (node.ariaValueMax ?? node.max)")
        thumb.press("ArrowLeft" if is_last else "ArrowRight")
    else:
        field = root.locator("input, textarea").first
        number = field.get_attribute("type") == "number"
        field.fill("0.5" if number else "The cat sat on the mat." if len(control["value"]) != 4 else "mat")
        field.press("Enter" if field.evaluate("field => field.tagName") == "INPUT" else "Control+Enter")
    settled(page)


def change_all(page: Page, most: int | None = None) -> set[str]:
    """Change every control of a page once; those that appear on the way too. The names of the changed.

    most: how many are changed, if not all.
    """
    done: set[str] = set()
    while most is None or len(done) < most:
        there = [c for c in controls(page) if c["on"] and c["label"] not in SHARED]
        left = [c for c in there if f"{c['kind']} {c['label']}" not in done]
        if not left:
            return done
        control = min(left, key=lambda c: LAST.index(c["kind"]) + 1 if c["kind"] in LAST else 0)
        done.add(f"{control['kind']} {control['label']}")
        if control["kind"] == "group" and not control["value"]:
            continue  # an offer, nothing that is chosen
        change(page, control)
    return done


def tour(paths: list[str]) -> Iterator[str]:
    """A walk that goes from every page to every other exactly once (Hierholzer's circuit), without its beginning."""
    left = {path: [other for other in paths if other != path] for path in paths}
    stack, circuit = [paths[0]], []
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            circuit.append(stack.pop())
    yield from circuit[::-1][1:]


@pytest.mark.smoke
def test_a_page_that_is_left_and_entered_again_shows_what_was_chosen(
    app: str, page: Page, tiny_model_folder: Path
) -> None:
    """A control of every page is changed; after that each page shows the same when it is entered in another order."""
    opened(page, app, text="the cat sat on the mat", pair="it was old", masked="1", model=str(tiny_model_folder))
    changed = 0
    for path in PAGES:
        go(page, path)
        changed += len(change_all(page, most=1))
    assert changed >= 12
    chosen = {}
    for path in PAGES:  # a choice may be shown on several pages: only now does none of them change any more
        click_to(page, path)
        settled(page)
        chosen[path] = shown(page)
    for path in reversed(PAGES):
        if path != list(PAGES)[-1]:
            click_to(page, path)
        assert comes_to_show(page, chosen[path]) == chosen[path], (path, page.url)
        expect(page.get_by_test_id("stException")).to_have_count(0)
    assert not page.problems, page.problems


@pytest.mark.release
@pytest.mark.timeout(2400)  # over 600 steps
def test_every_page_shows_what_was_chosen_however_one_comes_to_it(
    app: str, page: Page, browser: Browser, tiny_model_folder: Path
) -> None:
    """Every control of every page changed, then every ordered pair of pages: as a fresh browser shows its address."""
    opened(page, app, text="the cat sat on the mat", pair="it was old", masked="1", model=str(tiny_model_folder))
    before, changed = {}, {}
    for path in PAGES:
        go(page, path)
        before[path] = shown(page)
        changed[path] = change_all(page)
    assert sum(map(len, changed.values())) > 40, changed
    # What was chosen on one page is seen on others: only now does none of them change any more.
    fresh = {}
    other = browser.new_context(viewport=WINDOW, color_scheme="light").new_page()
    for path in PAGES:
        go(page, path)
        # The target and the compared tokens are selected on several pages, and may have come round to what they were.
        several = {"select Explain", "select From (query)", "select To (key)"}
        assert shown(page) != before[path] or changed[path] <= several, (path, changed[path])
        fresh[path] = shown(page)
        other.goto(page.url)  # another visitor each time: nothing of one opening is in the next but its address
        expect(other.get_by_test_id("stHeading").first).to_be_visible()
        linked = {name: value for name, value in fresh[path].items() if not name.startswith(NOT_LINKED)}
        assert comes_to_show(other, linked) == linked, (path, page.url)
        settled(other)
        assert set(shown(other)) == set(fresh[path]), (path, page.url)
    other.context.close()
    steps = lost_clicks = 0
    for path in tour(list(PAGES)):
        lost_clicks += click_to(page, path)
        assert comes_to_show(page, fresh[path]) == fresh[path], (path, page.url)
        assert not [name for name, value in fresh[path].items() if name.startswith("group") and value == []], path
        expect(page.get_by_test_id("stException")).to_have_count(0)
        steps += 1
    assert steps == len(PAGES) * (len(PAGES) - 1)
    assert lost_clicks <= 2, f"{lost_clicks} of {steps} clicks were lost"
    assert not page.problems, page.problems


@pytest.mark.smoke
def test_one_press_of_back_takes_back_one_step(app: str, page: Page) -> None:
    """A word hidden, another, a page, a head, a page, a text: back one by one, and forward again."""
    opened(page, app, text=TEXT, pair=PAIR)
    length = page.evaluate("history.length")
    walked = [page.url]

    def did(what: Callable[[], object]) -> None:
        before = page.url
        what()
        page.wait_for_function("url => location.href !== url && location.search !== ''", arg=before)
        settled(page)
        walked.append(page.url)

    def word(text: str) -> Callable[[], object]:
        return lambda: page.get_by_role("button", name=re.compile(rf"\b{text}\b")).first.click()

    def link(name: str) -> Callable[[], object]:
        return lambda: page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True).click()

    def typed() -> None:
        page.get_by_label("Sentence", exact=True).fill("The queen opened the door.")
        page.get_by_label("Sentence", exact=True).press("Enter")

    did(word("river"))
    did(word("night"))
    did(link("Attention"))
    did(page.get_by_role("button", name=re.compile(r"^L3 H5\b")).click)
    page.get_by_text("Matrix", exact=True).click()  # no step: it belongs to the one before
    assert reaches_address(page, lambda address: address.get("view") == "matrix")
    walked[-1] = page.url
    did(link("Layers & logit lens"))
    did(typed)
    assert page.evaluate("history.length") == length + len(walked) - 1, walked
    for url in walked[-2::-1]:
        page.go_back()
        page.wait_for_url(url)
        settled(page)
        assert page.url == url, "and stays so when the page has run"
        says = address_of(page)
        page.wait_for_function(SENTENCE, arg=says["text"])
        hidden = len(says["masked"].split(",")) if "masked" in says else 0
        expect(page.locator(".strip button.masked, .strip .masked")).to_have_count(hidden)
    for url in walked[1:]:
        page.go_forward()
        page.wait_for_url(url)
        settled(page)
        assert page.url == url
    expect(page.get_by_label("Sentence", exact=True)).to_have_value("The queen opened the door.")


def test_no_page_swaps_the_text_for_its_example(app: str, page: Page) -> None:
    """An untouched pair stays on the way to pages that have examples of their own."""
    opened(page, app, "attention")
    sentence, second = page.get_by_label("Sentence", exact=True), page.get_by_label("Second sentence")
    expect(sentence).not_to_have_value("")
    expect(second).not_to_have_value("")
    texts = sentence.input_value(), second.input_value()
    for path in ("why", "layers", "predict"):
        go(page, path)
        expect(sentence).to_have_value(texts[0])
        expect(second).to_have_value(texts[1])


@pytest.mark.smoke
def test_a_file_and_a_typed_table_stay_when_the_page_is_left(app: str, page: Page, tmp_path: Path) -> None:
    """Pairs that were typed and a file that was given are there again; shapes, one after another, keep the picture."""
    opened(page, app, "score", compared="table")
    page.get_by_label(re.compile("^Pairs, one per line")).fill("The cat sat. | The cat sit.")
    page.get_by_label(re.compile("^Pairs, one per line")).press("Control+Enter")
    settled(page)
    pairs = tmp_path / "mine.csv"
    pairs.write_text("A dog ran.,A dog run.\nIt is.,It are.\n", encoding="utf-8")
    page.locator("input[type=file]").set_input_files(pairs)
    expect(page.get_by_role("button", name="Score 2 pairs")).to_be_visible()
    go(page, "images")
    page.get_by_text("Your shapes", exact=True).click()
    settled(page)
    for _ in range(2):
        page.get_by_test_id("stMultiSelect").locator("input").click()
        page.get_by_role("option").first.click()
        page.keyboard.press("Escape")
        settled(page)
        expect(page.get_by_text("is unknown")).to_have_count(0)
        groups = [control for control in controls(page) if control["kind"] == "group"]
        assert groups and all(control["value"] for control in groups), groups
    go(page, "score")
    expect(page.get_by_label(re.compile("^Pairs, one per line"))).to_have_value("The cat sat. | The cat sit.")
    expect(page.get_by_role("button", name=re.compile("mine.csv"))).to_be_visible()
    expect(page.get_by_role("button", name="Score 2 pairs")).to_be_visible()
    page.get_by_role("button", name=re.compile("mine.csv")).click()
    expect(page.get_by_role("button", name="Score 1 pair")).to_be_visible()
