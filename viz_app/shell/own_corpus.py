"""The index of a corpus that a visitor uploads, which is kept while the visitor is connected.

An index is a temporary folder. Visitors who upload the same file share an index, which is removed when all of them have
left.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from hashlib import sha256

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes, tokens_at_once
from bert_core.studies.index import incomplete_note, index_file
from bert_core.studies.index_cost import LONG_CORPUS_ADVICE, IndexCost, bytes_per_token, index_cost
from bert_core.studies.index_reader import Index, open_index
from bert_core.studies.settings import IndexSettings
from viz_app.lessons import TREES
from viz_app.shell.controls import Upload, example_button, file_control, set_choice
from viz_app.shell.jobs import LONG_SECONDS, SessionId
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.temporary import LockedFolder
from viz_app.shell.view import write_note
from viz_app.shell.work import Work, duration_text, is_confirmed, poll, queue, withdraw_request
from viz_app.streamlit_compat import is_session_active, session_id

SETTINGS = IndexSettings()
MAX_TOKENS = 50_000  # of a corpus: one or two minutes for the bundled model on a laptop
MAX_BYTES = 1 << 29  # of an index, which limits the tokens for a large model
MAX_TOTAL_BYTES, MAX_INDEXES = 1 << 31, 16  # bytes on disk of all visitors' indexes, and how many of them
MAX_MEGABYTES = 5  # of a file; a treebank has about 100 bytes per token
SHARD_CHARACTERS = 1 << 13  # about 2,000 tokens, after which the work can be stopped
MAX_ABSENT_SECONDS = 120.0  # after which a disconnected session is considered closed
SWEEP_INTERVAL = 15.0  # seconds between two checks of the sessions
UPLOAD = "corpus_upload"


@dataclass(eq=False)
class OwnIndex:
    """An index of an uploaded file.

    folder: its temporary folder. nbytes: its size on disk. last_seen: when each session that uses it was last
    connected.
    """

    index: Index
    folder: LockedFolder
    nbytes: int
    last_seen: dict[SessionId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.remove = weakref.finalize(self, self.folder.remove)


_lock = threading.Lock()
_indexes: dict[Hashable, OwnIndex] = {}  # by model and file


def sweep(time_now: float, is_here: Callable[[SessionId], bool]) -> None:
    """Remove the indexes whose sessions have all been disconnected for `MAX_ABSENT_SECONDS`."""
    with _lock:
        for key, entry in list(_indexes.items()):
            entry.last_seen = {
                session: time_now if is_here(session) else last
                for session, last in entry.last_seen.items() if is_here(session) or time_now - last < MAX_ABSENT_SECONDS
            }  # fmt: skip
            if not entry.last_seen:
                _indexes.pop(key).remove()


def _watch() -> None:
    while _indexes:
        time.sleep(SWEEP_INTERVAL)
        sweep(time.monotonic(), is_session_active)


def _join_index(key: Hashable) -> OwnIndex | None:
    """Return the index of a model and a file, and register the session as its user; None if there is none."""
    with _lock:
        entry = _indexes.get(key)
        if entry is not None:
            entry.last_seen[session_id()] = time.monotonic()
        return entry


def release_indexes(*, kept_key: Hashable = None) -> None:
    """Unregister the session from all indexes but one, and remove those that no session uses."""
    with _lock:
        for key, entry in list(_indexes.items()):
            if key != kept_key and entry.last_seen.pop(session_id(), None) is not None and not entry.last_seen:
                _indexes.pop(key).remove()


def max_tokens(loaded: LoadedModel) -> int:
    """Return the maximum number of tokens of a corpus that this server indexes for a visitor."""
    return min(MAX_TOKENS, MAX_BYTES // bytes_per_token(loaded, SETTINGS) // 1000 * 1000)


def own_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the visitor's corpus for this model; None if there is none."""
    upload: Upload | None = st.session_state.get(UPLOAD)
    entry = None if upload is None else _join_index(_key(loaded, upload))
    return None if entry is None else entry.index


def remove_corpus_button(loaded: LoadedModel) -> None:
    """Draw the button that removes the visitor's corpus, if it is indexed."""
    upload: Upload | None = st.session_state.get(UPLOAD)
    index = own_index(loaded)
    if upload is not None and index is not None:
        st.button(
            f"{escape_markdown(upload.name)} ({index.tokens:,} tokens)",
            key="corpus_away", icon=":material/close:", help="Take this corpus away", on_click=_remove_corpus,
        )  # fmt: skip


def index_controls(loaded: LoadedModel) -> None:
    """Draw the controls that index a visitor's corpus; when the index is complete, the page is drawn again.

    loaded: the model without changes.
    """
    max_count = max_tokens(loaded)
    upload = file_control(
        st, "A corpus: a text, one paragraph a line, or a treebank (CoNLL-U)", UPLOAD, types=["txt", "conllu"],
        megabytes=MAX_MEGABYTES,
    )  # fmt: skip
    if upload is None:
        release_indexes()
        write_note(f"Up to {max_count:,} tokens are indexed here. For a longer corpus, {LONG_CORPUS_ADVICE}.")
        example_button(
            "No corpus yet.", "Take sixty example sentences", set_choice, UPLOAD, Upload(TREES.name, TREES.read_bytes())
        )
        return
    try:
        is_made = _make_index(loaded, upload, max_count)
    except Refused as error:
        st.info(with_help(f"{escape_markdown(str(error))}."), icon=":material/info:")
        return
    if is_made:
        st.rerun()


def _make_index(loaded: LoadedModel, upload: Upload, max_count: int) -> bool:
    """State the cost of the index, create it after a click on the button, and return whether it exists."""
    cost = poll(_cost_work(loaded, upload, max_count)).value
    if cost is None:
        return False
    write_note(
        f"{escape_markdown(upload.name)} has {cost.tokens:,} tokens{incomplete_note(cost.counts)}. Their index takes "
        f"{max(cost.nbytes / 1e6, 1):,.0f} MB on the disk of this server as long as you are here, and about "
        f"{duration_text(cost.seconds)}: so quickly was its beginning read here a moment ago."
    )
    work = _index_work(loaded, upload, cost)
    if not is_confirmed("own_index", work.key, "Index it", cost.seconds, quick=0):
        return False
    release_indexes(kept_key=_key(loaded, upload))
    is_made = poll(work, request_slot="own_index").value is not None
    if is_made:
        queue().forget(work.key)  # the index is kept here, not in the queue
        withdraw_request("own_index")
    return is_made


def _cost_work(loaded: LoadedModel, upload: Upload, max_count: int) -> Work[IndexCost]:
    """Return the work that measures the cost of an index, with as many cores as the index itself will have."""

    def ask(report: Progress) -> IndexCost:
        with upload.on_disk() as path:
            return index_cost(path, loaded, SETTINGS, max_tokens=max_count, report=report)

    key = ("cost of an index", *_key(loaded, upload))
    return Work(key, f"{shown_name(loaded.name)} tries {upload.name}", ask, 1.5 * LONG_SECONDS, memory=_memory(loaded))


def _index_work(loaded: LoadedModel, upload: Upload, cost: IndexCost) -> Work[int]:
    """Return the work that creates the index for the session; its result is the number of tokens."""
    key, session = _key(loaded, upload), session_id()

    def make(report: Progress) -> int:
        _check_room(cost.nbytes)
        place = LockedFolder()
        try:
            with upload.on_disk() as path:
                index_file(
                    path, place.path, loaded, SETTINGS, characters=SHARD_CHARACTERS,
                    on_progress=lambda counts, share: report(share, f"{counts['tokens']:,} tokens"),
                )  # fmt: skip
            nbytes = sum(file.stat().st_size for file in place.path.glob("*/*"))
            entry = OwnIndex(open_index(place.path), place, nbytes, {session: time.monotonic()})
        except BaseException:
            place.remove()
            raise
        with _lock:
            _indexes[key] = entry
            if len(_indexes) == 1:
                threading.Thread(target=_watch, name="headlight-own-corpora", daemon=True).start()
        return entry.index.tokens

    label = f"{shown_name(loaded.name)} indexes {upload.name}"
    return Work(("own index", *key), label, make, cost.seconds, memory=_memory(loaded))


def _check_room(nbytes: int) -> None:
    """Raise Refused if there is no room for an index of this size."""
    with _lock:
        total_bytes = sum(entry.nbytes for entry in _indexes.values())
    if len(_indexes) >= MAX_INDEXES or total_bytes + nbytes > MAX_TOTAL_BYTES:
        raise Refused(
            f"this server keeps {MAX_INDEXES} corpora of visitors at most, {MAX_TOTAL_BYTES / 1e6:,.0f} MB of them, "
            f"and has {len(_indexes)} of {total_bytes / 1e6:,.0f} MB: take a smaller one, or come back when somebody "
            "has left"
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if nbytes > free / 2:
        raise Refused(f"the index would take {nbytes / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB of disk are free here")


def _remove_corpus() -> None:
    st.session_state.pop(UPLOAD, None)
    release_indexes()


def _key(loaded: LoadedModel, upload: Upload) -> tuple[Hashable, ...]:
    return (loaded.identity, upload.name, sha256(upload.data).digest())


def _memory(loaded: LoadedModel) -> int:
    longest = SETTINGS.max_length
    return forward_bytes(loaded, longest, tokens_at_once(loaded.device) // longest)
