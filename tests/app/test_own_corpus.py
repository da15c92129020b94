"""A corpus of a visitor's own: its cost first, then its index, searched and counted, which goes with its visitor."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import LoadedModel, head_profiles, load, neuron_profiles, search, token_profiles
from bert_core.refused import Refused
from bert_core.studies.index_cost import IndexCost
from bert_core.studies.treebank import read_treebank
from tests.visit import at, exported_files, settled, visited, words
from viz_app.export.profiles import in_words, neuron_in_words, token_in_words
from viz_app.lessons import TREES
from viz_app.shell import own_corpus
from viz_app.shell.controls import Upload
from viz_app.shell.jobs import JobStopped
from viz_app.shell.own_corpus import OwnIndex, max_tokens

TEXT = Upload("my corpus.txt", b"The old king saw a red door.\nA queen went to Paris. Her cat stayed at home.\n")
COST = IndexCost(30, 100_000, 1.0)


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    own_corpus.sweep(float("inf"), lambda _: False)


def folders(there: Path) -> list[Path]:
    """The indexes that are there now."""
    return list(there.glob("headlight-index-*"))


def made(loaded: LoadedModel, upload: Upload = TEXT) -> OwnIndex:
    """An index of a corpus, as the queue makes it."""
    own_corpus._index_work(loaded, upload, COST).compute(lambda done, what="": None)
    return own_corpus._indexes[own_corpus._key(loaded, upload)]


def test_an_index_finds_what_stands_in_the_file(tiny_loaded: LoadedModel, there: Path) -> None:
    """By its name; its bytes are those of its folder, the only one."""
    own = made(tiny_loaded)
    assert folders(there) == [own.index.folder.parent]
    assert own.nbytes == sum(path.stat().st_size for path in own.index.folder.glob("*/*"))
    encoding = tiny_loaded.tokenizer.encode("The old king saw a red door.")
    best = search(own.index, tiny_loaded, encoding, [3], depth=1).matches[0]
    assert (best.document, best.line, best.word) == (TEXT.name, 1, "king")


def test_an_index_goes_when_the_last_who_brought_it_is_gone_for_long(tiny_loaded: LoadedModel, there: Path) -> None:
    """Not while one of two is there, nor in the two minutes in which who is gone may come back."""
    own, away = made(tiny_loaded), own_corpus.MAX_ABSENT_SECONDS
    own.last_seen = {"one": 0.0, "other": 0.0}
    own_corpus.sweep(away, lambda visitor: visitor == "one")
    assert set(own.last_seen) == {"one"} and folders(there)
    own_corpus.sweep(away * 1.9, lambda _: False)
    own_corpus.sweep(away * 1.95, lambda visitor: visitor == "one")  # back again
    own_corpus.sweep(away * 2.9, lambda _: False)
    assert own_corpus._indexes and folders(there)
    own_corpus.sweep(away * 3, lambda _: False)
    assert not own_corpus._indexes and not folders(there)


def test_stopped_or_broken_it_leaves_nothing(tiny_loaded: LoadedModel, there: Path) -> None:
    """Neither the folder nor a name under which somebody would find half an index."""

    def stops(done: float | None, what: str = "") -> None:
        raise JobStopped("it was stopped")

    with pytest.raises(JobStopped):
        own_corpus._index_work(tiny_loaded, TEXT, COST).compute(stops)
    with pytest.raises(Refused, match=r"line 1 of a\.conllu has 1 columns"):
        made(tiny_loaded, Upload("a.conllu", b"the cat\n"))
    assert not own_corpus._indexes and not list(there.iterdir())


def test_there_is_room_for_some(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many indexes, and so many bytes; what is larger is refused with what there is."""
    held = made(tiny_loaded)
    monkeypatch.setattr(own_corpus, "MAX_INDEXES", 1)
    with pytest.raises(Refused, match="already holds 1 corpora"):
        made(tiny_loaded, Upload("b.txt", b"A cat."))
    monkeypatch.setattr(own_corpus, "MAX_INDEXES", 2)
    monkeypatch.setattr(own_corpus, "MAX_TOTAL_BYTES", held.nbytes + COST.nbytes - 1)
    with pytest.raises(Refused, match="use a smaller file, or try again later"):
        made(tiny_loaded, Upload("b.txt", b"A cat."))
    own_corpus.release_indexes()
    assert not own_corpus._indexes
    monkeypatch.setattr(own_corpus, "MAX_TOTAL_BYTES", COST.nbytes)
    assert made(tiny_loaded, Upload("b.txt", b"A cat.")).index.tokens == 5


def test_a_larger_model_reads_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bundled model so many tokens as are said in the guide; of any as many as fit the bytes."""
    assert max_tokens(load("headlight-mini", device="cpu")) == own_corpus.MAX_TOKENS == 50_000
    monkeypatch.setattr(own_corpus, "MAX_BYTES", 20_000_000)
    assert max_tokens(load("headlight-mini", device="cpu")) == 3_000


def asked(**address: str) -> AppTest:
    """Corpus search, on a server without an index."""
    return settled(visited("search", text="The old cat sat.", **address), "stop_here")


def buttons(app: AppTest) -> dict[str, str]:
    """Label by key."""
    return {str(one.key): one.label for one in app.button}


def test_an_uploaded_corpus_is_indexed_after_its_cost(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled sentences first; an upload's tokens, MB and time; then its index, for this visitor and no other.

    When it is removed, the bundled sentences are searched again.
    """
    app = asked(query_position="3")
    trees = [*read_treebank(TREES.read_text("utf-8").splitlines(), TREES.name)]
    loaded = load("headlight-mini", device="cpu")
    tokens = sum(len(loaded.tokenizer.encode(tree.text)) for tree in trees)
    assert len(trees) == own_corpus.BUNDLED_SENTENCES and tokens <= own_corpus.BUNDLED_TOKENS
    assert not app.exception and f"60 sentences: {tokens} tokens." in words(app) and len(folders(there)) == 1
    assert "Limit: 50,000 tokens" in words(app) and "headlight index corpus.txt" in words(app)
    assert app.dataframe[0].value["source"][0].startswith("trees.conllu")
    upload = Upload("mine.txt", TEXT.data + b"The end.\n")
    app.session_state[own_corpus.UPLOAD] = upload
    app = settled(app.run(), "stop_here")
    assert "mine.txt has 31 tokens. The index needs 1 MB on this server" in words(app)
    assert not app.dataframe and len(folders(there)) == 1
    (go,) = (one for one in app.button if one.label.startswith("Build the index, about "))
    app = settled(go.click().run(), "stop_here")
    assert not app.exception and not app.error and len(folders(there)) == 1
    assert app.dataframe[0].value["match"][0] == "cat"
    with monkeypatch.context() as other:
        other.setattr(own_corpus, "session_id", lambda: "another")
        assert asked().dataframe[0].value["source"][0].startswith("trees.conllu")
    for page in ("predict", "search"):  # it stays over other pages
        app = settled(at(app, page).run(), "stop_here")
    assert app.dataframe[0].value["match"][0] == "cat" and not app.exception
    app = settled(app.button(key="corpus_upload#away").click().run(), "stop_here")
    assert app.dataframe[0].value["source"][0].startswith("trees.conllu") and not app.exception


def test_what_cannot_be_indexed_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much, no text, another form; and where many share a server what takes too long is not begun."""
    app = asked()

    def said(name: str, data: bytes) -> str:
        app.session_state[own_corpus.UPLOAD] = Upload(name, data)
        settled(app.run(), "stop_here")
        assert not app.exception and not app.error
        assert not any(one.startswith("Build the index") for one in buttons(app).values())
        return words(app)

    assert "a.txt has no sentence that can be read." in said("a.txt", b" \n")
    assert "a.txt is not UTF-8" in said("a.txt", "Ein Käse.".encode("latin-1"))
    assert "line 1 of t.conllu has 1 columns" in said("t.conllu", b"the cat")
    monkeypatch.setattr(own_corpus, "MAX_TOKENS", 20)
    assert "my corpus.txt has more than 20 tokens: make an index with `headlight index" in said(TEXT.name, TEXT.data)
    monkeypatch.setattr(own_corpus, "MAX_TOKENS", 50_000)
    monkeypatch.setattr(own_corpus, "index_cost", lambda *given, **more: IndexCost(30, 100_000, 700.0))
    monkeypatch.setenv("HEADLIGHT_SHARED", "1")
    app.session_state[own_corpus.UPLOAD] = TEXT
    settled(app.run(), "stop_here")
    (go,) = (one for one in app.button if one.label == "Build the index, about 12 min")
    assert go.disabled and not app.exception


@pytest.mark.parametrize("name", ["../../a.txt", "a\x00b/c.txt", "x" * 400 + ".txt", "C:\\d.txt", "ä" * 200 + ".txt"])
def test_any_name_is_that_of_a_file(name: str) -> None:
    """Of an upload, as near to its own as a disk allows."""
    with Upload(name, b"A cat.").on_disk() as path:
        assert path.read_bytes() == b"A cat." and path.suffix == ".txt"
        folder = path.parent
    assert not folder.exists()


def test_profiles_are_counted_over_it(there: Path) -> None:
    """Of heads, tokens and any neuron, as the library counts them; all that was counted is one file."""
    loaded = load("headlight-mini", device="cpu")
    upload = Upload(TREES.name, TREES.read_bytes())

    def asked(kind: str, **address: str) -> AppTest:
        app = visited("profiles", counted="corpus", profile_of=kind, **address)
        app.session_state[own_corpus.UPLOAD] = upload
        app = settled(app.run(), "stop_here")
        while go := [one for one in app.button if one.label.startswith(("Count ", "Read "))]:
            app = settled(go[0].click().run(), "stop_here")
        assert not app.exception and not app.error
        return app

    app = settled(visited("profiles", counted="corpus"), "stop_here")
    assert "60 sentences: 753 tokens." in words(app) and not app.exception
    own = made(loaded, upload)
    app = asked("head", head="3.8")
    (found,) = head_profiles(own.index, [(3, 8)]).heads
    assert in_words(found) in words(app) and f"Corpus: trees.conllu, {found.tokens:,} tokens." in words(app)
    exported_files(app)
    (file,) = (one for one in app.get("download_button") if "JSON" in one.proto.label)
    assert file.proto.label == f"All {len(own.index.all_heads)} profiles, to open here again (JSON)"
    app = asked("token", piece="the")
    (token,) = token_profiles(own.index, ["the"])
    assert token_in_words(token) in words(app)
    app = asked("neuron", firing="2.77")
    (neuron,) = neuron_profiles(own.index, loaded, [(2, 77)])
    assert neuron_in_words(neuron) in words(app)
    (listed,) = (one for one in app.selectbox if one.label == "Neuron")
    assert len(listed.options) == 33 and all(one.startswith("L2 neuron ") for one in listed.options)
    for firing, says in (("9.0", "has no L9 neuron 0: choose another one"), ("0.5000", "has no L0 neuron 5000")):
        app = asked("neuron", firing=firing)
        assert says in words(app) and not app.get("plotly_chart")
    assert buttons(app)["corpus_upload#away"].replace("\\", "").startswith("trees.conllu")
