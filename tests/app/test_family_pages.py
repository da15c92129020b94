"""Every page with a model of another family: what the family lacks is absent, and nothing breaks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_core.loading import load
from bert_core.run.capture import capture
from tests.app.test_pages import PAGES
from tests.families import save_family, save_published_deberta
from tests.selection import covering_array, mark_cases
from tests.visit import settled, visited, words
from viz_app.export import page
from viz_app.figures.style import plain
from viz_app.maps import MapView

TEXT, PAIR = "The old man walked along the river.", "Er brachte frisches Brot."


KINDS = {
    "words": "ForMaskedLM", "classes": "ForSequenceClassification", "detector": "ForPreTraining",
    "words and order": "ForPreTraining", "tags": "ForTokenClassification",
    "choices": "ForMultipleChoice",
}  # fmt: skip
MODELS = [
    *((family, head) for family in ("distilbert", "roberta", "electra") for head in ("words", "classes")),
    ("electra", "detector"),
    *((family, "words") for family in ("bertweet", "xlm-roberta", "camembert", "mpnet")),
    ("albert", "words and order"),
    ("roberta", "tags"),
    ("electra", "choices"),
    ("mpnet", "classes"),
    ("deberta-v2", "words"),
    ("deberta-v2", "detector"),
    ("modernbert", "words"),
]
WITHOUT_SEGMENTS = (
    "distilbert",
    "roberta",
    "bertweet",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "deberta-v2",
    "modernbert",
)
WITHOUT_POOLER = (
    "distilbert",
    "roberta",
    "bertweet",
    "xlm-roberta",
    "camembert",
    "electra",
    "mpnet",
    "deberta-v2",
    "modernbert",
)
PIECES = {
    "distilbert": "word pieces", "electra": "word pieces", "roberta": "byte pairs", "bertweet": "byte pairs with </w>",
    "xlm-roberta": "unigrams", "camembert": "unigrams", "albert": "unigrams", "mpnet": "word pieces",
    "deberta-v2": "unigrams", "modernbert": "byte pairs",
}  # fmt: skip


def properties_of(family: str, head: str) -> set[str]:
    """In what this model may differ from the bundled one on a page: its outputs, and with them those that it lacks;
    how its vocabulary writes pieces; and the parts that its encoder lacks.
    """
    properties = {f"output: {head}", PIECES[family]}
    if family in WITHOUT_SEGMENTS:
        properties |= {"segments"}
    if family in WITHOUT_POOLER:
        properties |= {"pooler"}
    if family == "mpnet":
        properties |= {"a bias for distances"}
    if family == "deberta-v2":
        properties |= {"projected distances", "no positions"}
    if family == "modernbert":
        properties |= {"rotary positions", "no positions", "gated neurons", "norms before each part"}
    return properties


# Every page meets every property at least once, with about half of the models.
COVERING = covering_array({model: properties_of(*model) for model in MODELS}, PAGES)
LIKE_ROBERTA = ("roberta", "bertweet", "xlm-roberta", "camembert", "mpnet")


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, head = request.param
    if (family, head) == ("deberta-v2", "detector"):
        return save_published_deberta(tmp_path_factory.mktemp(f"{family}-{head[:8]}") / family)
    return save_family(family, tmp_path_factory.mktemp(f"{family}-{head[:8]}") / family, KINDS[head])


def test_score_needs_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without an MLM head is said to score no sentences; it is no error."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("score", model=str(folder), one=TEXT, two=TEXT.replace("old", "young")))
    assert [one.value for one in (*app.exception, *app.error)] == []
    assert ("so it cannot score sentences" in words(app)) == (not load(str(folder)).has_mlm)


def test_the_covering_array_has_every_property_on_every_page() -> None:
    """Each page is opened with each kind of output and vocabulary, without segments and without a pooler."""
    properties = set().union(*(properties_of(*model) for model in MODELS))
    for path in PAGES:
        met = set().union(*(properties_of(*model) for page, model in COVERING if page == path))
        assert met == properties, path
    assert len(COVERING) < len(PAGES) * len(MODELS)


@pytest.mark.parametrize(
    ("folder", "path"),
    mark_cases(
        [(model, path) for model in MODELS for path in PAGES],
        pytest.mark.slow,
        lambda model, path: (path, model) not in COVERING,
    ),
    indirect=["folder"],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_every_page_opens(path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pair and a hidden word no page shows an error, and none speaks of a next sentence."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    source = {"source": TEXT.replace("old", "young")} if path == "causes" else {}
    choices = {"choices": f"{PAIR}\nThe river."} if path == "predict" else {}
    app = settled(visited(path, model=str(folder), text=TEXT, pair=PAIR, masked="2", **source, **choices))
    assert [one.value for one in (*app.exception, *app.error)] == []
    assert app.session_state.model == str(folder)
    # Neither has the classifier a word to follow through two texts, nor has it or the detector one loss of any text.
    if "words" in str(folder.parent) or path not in ("causes", "prune"):
        assert "How to read this" in words(app) and "How it can mislead" in words(app)
    if folder.name in LIKE_ROBERTA:
        assert not re.search(r"\[(CLS|SEP|MASK|PAD|UNK)\]|[ĠĊ▁]", words(app))
    if folder.name == "albert":
        assert not re.search(r"\[(PAD|UNK)\]|▁", words(app))
    assert "Does B follow A" not in words(app) and "output for two sentences" not in words(app)


def test_exported_pages_write_what_the_model_writes(tmp_path: Path) -> None:
    """What the page of a text's maps says of them names the model's own special tokens, and none of BERT's."""
    loaded = load(str(save_family("roberta", tmp_path / "roberta")))
    run, view = capture(loaded, loaded.tokenizer.encode("The old man [MASK] home.")), MapView(hide_special=True)
    assert "without <s> and </s>" in page._summary(run, view.maps(run), view)
    titles, orders = page._titles_and_sorts(run)
    assert "% to </s>" in titles[0][0] and "by share to </s>" in orders
    assert not re.search(r"\[(CLS|SEP)\]", f"{titles} {list(orders)}")


def test_the_answer_is_drawn_in_words_that_can_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict names the likeliest word, or the likeliest class, of the model."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("predict", model=str(folder), text=TEXT, masked="2"))
    loaded = load(str(folder))
    said = words(app)
    if loaded.has_detector:
        assert "Which token was replaced?" in said and "What belongs in the gap" not in said
    elif loaded.has_chooser:
        assert "Which answer does the model choose?" in said and "What belongs in the gap" not in said
    elif loaded.has_tagger:
        assert "How is each word tagged?" in said and "What belongs in the gap" not in said
    elif loaded.has_classifier:
        assert any(label in said for label in loaded.labels)
    else:
        tokenizer = loaded.tokenizer
        top = capture(loaded, tokenizer.mask_words(tokenizer.encode(TEXT), [2])).predictions[0].top
        (figure, *_) = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
        assert plain(tokenizer.token_of(top[0][0])) in re.sub(r"</?[bu]>", "", figure["layout"]["yaxis"]["ticktext"][0])


def test_an_albert_says_whether_two_texts_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others say whether B follows A, Predict asks for the order, and its words are those of a swap."""
    folder = save_family("albert", tmp_path / "albert", "ForPreTraining")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("predict", model=str(folder), text=TEXT, pair=PAIR))
    loaded = load(str(folder))
    follows = capture(loaded, loaded.tokenizer.encode(TEXT, PAIR)).nsp
    assert follows is not None
    assert "sentence order (SOP)" in words(app)
    assert f"{'In order' if follows >= 0.5 else 'Swapped'}: B follows A with probability" in words(app)
    alone = settled(visited("predict", model=str(folder), text=TEXT))
    assert "whether the two are in order or swapped" in words(alone)


def test_a_smaller_albert_says_that_it_is_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune warns that layers which share their weights get their own, and that gates cost nothing."""
    folder = save_family("albert", tmp_path / "albert", "ForPreTraining")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("prune", model=str(folder), text=TEXT, off="0.1"))
    assert "share one set of weights" in words(app)


@pytest.mark.parametrize(
    ("family", "head", "last"), [("xlm-roberta", "ForMaskedLM", "heads"), ("albert", "Model", "pooler")]
)
def test_step_by_step_has_only_the_stages_that_there_are(
    family: str, head: str, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model without a pooler, or without outputs, ends before them, also where a link asks for them."""
    folder = save_family(family, tmp_path / family, head)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("inside", model=str(folder), text=TEXT, stage="heads" if last == "pooler" else "pooler"))
    assert [one.value for one in (*app.exception, *app.error)] == []
    assert app.session_state.stage == last and app.button(key="on").disabled
    assert "There is nothing to show" not in words(app)
    assert "B follows A" not in "".join(formula.value for formula in app.latex)


def test_attribution_says_why_a_method_has_no_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DecompX does not support gated neurons: the reason is one sentence, and another method is shown."""
    folder = save_family("modernbert", tmp_path / "modernbert")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("why", model=str(folder), text=TEXT, masked="2", target="3:river"))
    refusal = (
        "DecompX replaces each activation function by a factor of one input, and the neurons of this model have two"
    )
    assert [one.value for one in (*app.exception, *app.error)] == []
    assert f"{refusal}: choose another method." in words(app) and "By gradient x attention, of all words" in words(app)
