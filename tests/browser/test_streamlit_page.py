"""What Headlight's style sheets and scripts select in a page of Streamlit, on a script that draws one of each."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import Serve
from viz_app.streamlit_compat import TEST_IDS

SCRIPT = """
import time
import plotly.graph_objects as go
import streamlit as st

def first():
    st.header("Heading")
    st.caption("Caption")
    left, right = st.columns(2)
    left.metric("Label", 1)
    right.code("code")
    st.error("Alert")
    st.button("Add a parameter", type="primary", on_click=lambda: st.query_params.update(layer="2"))
    st.segmented_control("Control", ["a", "b"])
    st.selectbox("Select", ["a", "b"])
    st.text_input("Text")
    st.session_state.setdefault("number", 1)
    st.number_input("Number", value=None, key="number")
    st.expander("Expander").write("text")
    st.popover("Popover").write("text")
    st.plotly_chart(go.Figure())
    st.page_link(second, label="Link")
    if st.button("Wait"):
        time.sleep(5)
    st.slider("Slider", 0, 9)
    st.file_uploader("File")
    st.dataframe({"a": [1]})
    st.container(horizontal=True).write("text")
    st.container(height=100).write("text")

first, second = st.Page(first, title="First", default=True), st.Page(lambda: None, title="Second", url_path="second")
st.navigation([first, second]).run()
"""


def test_elements_are_found_by_what_streamlit_calls_them(serve: Serve, page: Page, tmp_path: Path) -> None:
    """Each of TEST_IDS and PAGE_ATTRIBUTES is in the page, and a new address is a call of `history.pushState`."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    page.goto(serve(tmp_path / "script.py"))
    expect(page.locator(".js-plotly-plot")).to_be_visible()
    expect(page.locator("[data-test-connection-state=CONNECTED]")).to_have_count(1)
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_have_count(1)
    page.evaluate(
        """() => {
          const add = history.pushState.bind(history);
          window.added = [];
          history.pushState = (state, title, url) => { window.added.push(String(url)); add(state, title, url); };
        }"""
    )
    page.get_by_role("button", name="Add a parameter").click()
    page.wait_for_function("location.search === '?layer=2'")
    assert len(page.evaluate("window.added")) == 1
    page.get_by_role("button", name="Wait").click()
    expect(page.get_by_test_id("stStatusWidget")).to_be_visible()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_have_count(1)
    page.get_by_role("button", name="Popover").click()
    expect(page.get_by_test_id("stPopoverBody")).to_be_visible()
    script = "[...document.querySelectorAll('[data-testid]')].map((element) => element.dataset.testid)"
    present = set(page.evaluate(script))
    expect(page.locator("[data-testid=stSidebar][data-collapsed=false]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_test_id("stSidebar").hover()
    page.get_by_test_id("stSidebarCollapseButton").get_by_role("button").click()
    expect(page.locator("[data-testid=stSidebar][data-collapsed=true]")).to_have_count(1)
    expect(page.get_by_test_id("stExpandSidebarButton")).to_be_visible()
    present |= set(page.evaluate(script))
    present.add("stStatusWidget")  # it was there during a run
    assert present >= TEST_IDS, sorted(TEST_IDS - present)
