"""The index of a corpus that a visitor uploads, which is kept while the visitor is connected.

Without an upload the corpus is the bundled sentences. An index is a temporary folder. Visitors with the same file share
an index, which is removed when all of them have left.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache

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
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.jobs import LONG_SECONDS, SessionId
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.temporary import LockedFolder
from viz_app.shell.view import write_note
from viz_app.shell.work import Work, duration_text, estimate_seconds, is_confirmed, poll, queue, withdraw_request
from viz_app.streamlit_compat import is_session_active, session_id

SETTINGS = IndexSettings()
MAX_TOKENS = 50_000  # of a corpus: one or two minutes for the bundled model on a laptop
MAX_BYTES = 1 << 29  # of an index, which limits the tokens for a large model
MAX_TOTAL_BYTES, MAX_INDEXES = 1 << 31, 16  # bytes on disk of all visitors' indexes, and how many of them
MAX_MEGABYTES = 5  # of a file; a treebank has about 100 bytes per token
SHARD_CHARACTERS = 1 << 13  # about 2,000 tokens, after which the work can be stopped
MAX_ABSENT_SECONDS = 120.0  # after which a disconnected session is considered closed
SWEEP_INTERVAL = 15.0  # seconds between two checks of the sessions
BUNDLED_SENTENCES, BUNDLED_TOKENS = 60, 1_200  # the bundled corpus, at most so many tokens
MAX_BUNDLED_SECONDS = 15.0  # estimated, within which it is indexed without a click
UPLOAD = "corpus_upload"  # session key of the visitor's file


@dataclass(eq=False)
class OwnIndex:
    """An index of an uploaded file, or of the bundled sentences.

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


@cache
def bundled_corpus() -> Upload:
    """Return the treebank of the lessons as a corpus."""
    return Upload(TREES.name, TREES.read_bytes())


def selected_corpus() -> Upload:
    """Return the file of the visitor, or else the bundled sentences."""
    upload: Upload | None = st.session_state.get(UPLOAD)
    return upload or bundled_corpus()


def own_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the selected corpus for this model; None if it does not exist yet."""
    entry = _join_index(_key(loaded, selected_corpus()))
    return None if entry is None else entry.index


def corpus_control(loaded: LoadedModel) -> None:
    """Draw a popover with the control of the visitor's file, its limit, and the corpus that is selected."""
    corpus, index = selected_corpus(), own_index(loaded)
    name = f"{BUNDLED_SENTENCES} sentences" if corpus is bundled_corpus() else escape_markdown(corpus.name)
    if corpus is bundled_corpus():
        release_indexes(kept_key=_key(loaded, corpus))
    with st.popover(name, icon=":material/library_books:", key="corpus", width="content"):
        if index is not None:
            write_note(f"{name}: {index.tokens:,} tokens.")
        label = "Your own corpus: plain text, one paragraph per line, or a treebank (CoNLL-U)"
        file_control(st, label, UPLOAD, types=["txt", "conllu"], megabytes=MAX_MEGABYTES)
        write_note(f"Limit: {max_tokens(loaded):,} tokens. For a longer corpus, {LONG_CORPUS_ADVICE}.")


def index_controls(loaded: LoadedModel) -> None:
    """Index the selected corpus, an uploaded one after a click; when the index is complete, draw the page again.

    loaded: the model without changes.
    """
    try:
        is_made = _make_index(loaded, selected_corpus(), max_tokens(loaded))
    except Refused as error:
        st.info(with_help(f"{escape_markdown(str(error))}."), icon=":material/info:")
        return
    if is_made:
        st.rerun()


def _make_index(loaded: LoadedModel, upload: Upload, max_count: int) -> bool:
    """Create the index once it is confirmed, and return whether it exists.

    That of the bundled sentences needs no confirmation if it is quick; the cost of any other is stated first.
    """
    if upload is bundled_corpus():
        seconds = estimate_seconds(loaded, BUNDLED_TOKENS // BUNDLED_SENTENCES, BUNDLED_SENTENCES)
        cost = IndexCost(BUNDLED_TOKENS, BUNDLED_TOKENS * bytes_per_token(loaded, SETTINGS), seconds)
        label, quick = f"Index {BUNDLED_SENTENCES} bundled sentences", MAX_BUNDLED_SECONDS
    else:
        measured = poll(_cost_work(loaded, upload, max_count)).value
        if measured is None:
            return False
        cost, label, quick = measured, "Build the index", 0.0
        write_note(
            f"{escape_markdown(upload.name)} has {cost.tokens:,} tokens{incomplete_note(cost.counts)}. The index needs "
            f"{max(cost.nbytes / 1e6, 1):,.0f} MB on this server while you are here, and takes about "
            f"{duration_text(cost.seconds)} to build (estimated from the first lines)."
        )
    work = _index_work(loaded, upload, cost)
    if not is_confirmed("own_index", work.key, label, cost.seconds, quick=quick):
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
    label = f"{shown_name(loaded.name)} estimates the index of {upload.name}"
    return Work(key, label, ask, 1.5 * LONG_SECONDS, memory=_memory(loaded))


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
            f"this server already holds {len(_indexes)} corpora ({total_bytes / 1e6:,.0f} of "
            f"{MAX_TOTAL_BYTES / 1e6:,.0f} MB, at most {MAX_INDEXES}): use a smaller file, or try again later"
        )
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if nbytes > free / 2:
        raise Refused(f"the index needs {nbytes / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB of disk space is free")


def _key(loaded: LoadedModel, upload: Upload) -> tuple[Hashable, ...]:
    return (loaded.identity, upload.name, upload.identity)


def _memory(loaded: LoadedModel) -> int:
    longest = SETTINGS.max_length
    return forward_bytes(loaded, longest, tokens_at_once(loaded.device) // longest)
