"""A page with slow work, for the test of how it waits: something that it needs, something it can do without."""

import os
import time
from pathlib import Path

import streamlit as st

from bert_core.progress import Progress
from viz_app.shell import address, work
from viz_app.shell.work import Work, is_confirmed, poll, wait_for

work.WAIT_BEFORE_PROGRESS = 0.2
address.restore_params({})
gate = Path(os.environ["GATE"])


def waits(report: Progress) -> str:
    """Until the file of the test is there, and a moment at least; each beginning is a line of another file."""
    with gate.with_name("begun").open("a") as beginnings:
        beginnings.write("begun\n")
    begun = time.monotonic()
    while not gate.exists() or time.monotonic() < begun + 1:
        report(0.5)
        time.sleep(0.05)
    return "it is done"


work.begin_run()
try:
    st.text_input("Typed", key="typed")
    st.write(f"Typed: {st.session_state.typed}")
    if st.session_state.typed != "need":
        if is_confirmed("slow", "slow", "Do it", 60.0):
            given = poll(Work(("slow",), "Slow work", waits, 60.0), slot="slow", request_slot="slow")
            st.write(f"Beside it: {given.state.value}, {given.value}")
        st.write("The end of the page")
    else:
        first, second = (wait_for(Work((name,), f"{name} work", waits)) for name in ("Needed", "More"))
        st.write(f"Needed: {first}, {second}")
finally:
    work.end_of_run()
