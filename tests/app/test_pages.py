"""The pages without a browser: what they say, and what bad input gives."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import LoadedModel, checkpoint, iter_heads
from bert_core.analysis.roles import (
    ROLE_DESCRIPTIONS,
    THRESHOLDS,
    head_distances,
    head_figures,
    nearest_heads,
    roles_of_heads,
)
from bert_core.analysis.sinks import sinks
from bert_core.fingerprint import fingerprint
from bert_core.loading import load
from bert_core.records import HeadTable
from bert_core.run.capture import capture
from bert_core.run.decomposition import head_values
from bert_core.studies.head_tables import write_table
from bert_core.studies.relations import track_relations
from bert_core.studies.settings import CorpusSettings
from tests.core.test_relations import conllu, sentences
from tests.selection import mark_cases
from tests.visit import ENTRY, at, key_of, said, settled, visited, words
from viz_app import access
from viz_app.access import MAX_TEXT_CHARACTERS
from viz_app.pages import PAGES as DECLARED
from viz_app.pages import compare
from viz_app.pages.roles import treebank
from viz_app.shell import downloads, examples, selection, sentence_pair
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.model_names import added_models
from viz_app.texts import page_texts

TOO_LONG = "word " * 700
FIRST_EXAMPLE = examples.first_example()
UNUSUAL_TEXTS = {
    TOO_LONG: "are left out", "x" * 100_000: "[UNK]", "😀 🦊 𒀀 𐎀": "[UNK]", "word " * 20_000: "are left out",
}  # fmt: skip
EXAMPLE_TEXT = compare.TEXTS["example_text"]
KINDS = ("everyday", "facts")  # of measured statements
PAGES = ("predict", "attention", "compare", "why", "layers", "causes", "neurons", "heads", "roles", "prune", "inside")


def start(**address: str) -> AppTest:
    """The app as someone sees it who follows a link."""
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update(address)
    return settled(app.run())


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_on_an_example(page: str) -> None:
    """No page starts blank, and none shows an error."""
    app = settled(visited(page))
    assert not app.exception and not app.error
    assert len(app.title) == 1
    (example,) = (one.example for one in DECLARED if one.path == page)
    assert app.session_state.text == (example or FIRST_EXAMPLE).text
    assert "How to read this" in words(app) and "How it can mislead" in words(app)


@pytest.mark.parametrize(
    ("text", "pair", "sentence"),
    [
        ("", "", "There is no text: type at least one word."),
        ("    ", "", "There is no text: type at least one word."),
        ("", "It follows.", "There is a second sentence but no first one"),
    ],
)
def test_missing_text_gets_one_sentence_and_loses_nothing(text: str, pair: str, sentence: str) -> None:
    """Without a first sentence the page says so, and the rest of what was chosen stays."""
    app = start(text="A word.", pair=pair, off="2.4")
    app.text_input(key=key_of(app, "text")).set_value(text).run()
    assert not app.exception
    assert [said(e) for e in app.error if said(e).startswith(sentence)]
    assert app.session_state.pair == pair and app.session_state.off == ((2, 4),)
    app.text_input(key=key_of(app, "text")).set_value("A word again.").run()
    assert not app.error and app.session_state.off == ((2, 4),)


@pytest.mark.parametrize(
    ("page", "text", "notice"),
    mark_cases(
        [(page, text, notice) for text, notice in UNUSUAL_TEXTS.items() for page in PAGES],
        pytest.mark.slow,
        lambda page, text, _: page != "predict" and text != TOO_LONG,
    ),
    ids=lambda value: value if len(value) < 30 else f"{value[:8]}... ({len(value):,} characters)",
)
def test_text_that_does_not_fit_is_shown_with_a_notice(page: str, text: str, notice: str) -> None:
    """Overlong and unknown text is read as far as it can be, and the page says what was not."""
    app = start(text="A word.")
    app.text_input(key=key_of(app, "text")).set_value(text).run()
    settled(at(app, page).run())
    assert not app.exception and not app.error
    assert notice in words(app)


def test_more_text_than_can_be_given_is_refused_in_one_sentence() -> None:
    """Past the limit nothing is computed, and the sentence names what was given and what is allowed."""
    app = start(text="A word.")
    app.text_input(key=key_of(app, "text")).set_value("a " * 150_000).run()
    assert [said(e) for e in app.error] == ["The text has 300,000 characters: at most 200,000 can be read."]
    app.text_input(key=key_of(app, "text")).set_value("a" * (MAX_TEXT_CHARACTERS + 1)).run()  # as a longer one is cut
    assert [said(e) for e in app.error] == ["The text has more than 200,000 characters: at most 200,000 can be read."]


@pytest.mark.parametrize(
    ("address", "notice"),
    [
        ({"off": "99.1"}, "L99 H1 does not exist"),
        ({"head": "2.77"}, "L2 H77 does not exist"),
        ({"head": "x"}, "not possible"),
        ({"masked": "a,b"}, "not possible"),
        ({"model": "/etc"}, "not possible"),
        ({"show": "everything"}, "not possible"),
        ({"target": "99:nothing"}, ""),
        ({"masked": "500"}, ""),
    ],
)
def test_a_wrong_address_is_said_and_left_out(address: dict[str, str], notice: str) -> None:
    """A link that names what is not there opens all the same, with one sentence."""
    app = start(text="The cat sat on the mat.", **address)
    assert not app.exception and not app.error
    assert app.session_state.text == "The cat sat on the mat."
    assert notice in words(app)


def test_masking_a_word_gives_its_rank_and_the_button_puts_the_explained_word_into_the_text() -> None:
    """A masked word has a rank; the explained word replaces it in the text, and the mask is gone."""
    app = start(text="She opened the door and walked in.", masked="3", target="4:room")
    assert "**Masked word “door” (position 4)** ranks **1st** of 30,522, probability **0." in words(app)
    app.button(key="put_4").click().run()
    assert not app.exception
    assert app.session_state.text == "She opened the room and walked in." and app.session_state.masked == ()


def test_a_head_that_is_off_leaves_the_explained_word() -> None:
    """Without a target in the link it is the first guess with all heads on, though another is first now."""
    app = visited("heads", text="She gave the book to her brother.", masked="5", off="5.8")
    assert not app.exception and app.session_state.target == "6:her"
    assert re.search(r"With L5 H8 off, the prediction changes from “her” \(0\.\d+\) to “his” \(0\.\d+\)", words(app))
    app.session_state.off = ()
    app.run()
    assert app.session_state.target == "6:her" and "All heads are on: the prediction is “her” (0." in words(app)


def test_the_limits_of_the_bundled_model_are_those_of_its_card() -> None:
    """One line with the measured figures where it predicts a masked word, and none without a mask."""
    measures = json.loads((Path(bert_core.__file__).parent / "assets/headlight-mini/measures.json").read_text())
    everyday, facts = ([sum(column) for column in zip(*measures[kind].values(), strict=True)] for kind in KINDS)
    capitals = measures["facts"]["capital"]
    app = start(text="She opened the door and walked in.", masked="3")
    limits = page_texts("predict")["limits.headlight-mini"]
    assert limits in words(app)
    for share, size in ((everyday[0], everyday[2]), (facts[0], facts[2])):
        assert f"{share / size:.0%} of {size} " in limits
    assert f"{capitals[0]} of {capitals[2]} capitals" in limits
    assert limits not in words(start(text="She opened the door and walked in."))


def test_swapping_exchanges_the_sentences() -> None:
    """The swap button makes B the first sentence and A the second."""
    app = start(text="One is here.", pair="Two is there.")
    next(b for b in app.button if b.label == "Swap A and B").click().run()
    assert (app.session_state.text, app.session_state.pair) == ("Two is there.", "One is here.")


def test_an_example_has_a_title_and_closes_the_list() -> None:
    """Each says what it hides and whether B follows, none twice; one that is taken stands on the page."""
    app = start(text="A word.")
    assert not [b for b in app.button if (b.key or "").startswith("The second")], "what is closed is not drawn"
    app.session_state[selection.EXAMPLES] = True
    app.run()
    by_kind = examples.by_kind(page.example for page in DECLARED if page.example and page.example.remark)
    offered = [b for b in app.button if (b.key or "").rsplit(" ", 1)[0] in by_kind]
    assert len(offered) == len({b.label for b in offered}) == sum(map(len, by_kind.values())) > 10
    assert all(b.label.startswith("**") and "\\(masked\\)" in b.label.partition("** ")[0] for b in offered)
    taken = next(b for b in offered if b.label.startswith("**capital \\(masked\\)\\; B follows**"))
    taken.click().run()
    assert app.session_state.text == "Paris is the capital of France." and app.session_state.masked == (3,)
    assert app.session_state[selection.EXAMPLES] is False


@pytest.mark.parametrize(
    ("page", "address", "sentence", "filled"),
    [
        ("predict", {"text": "A small word."}, "Click a word above to mask it", ("masked", (1,))),
        ("predict", {"text": "A word.", "masked": "1"}, "Add a second sentence", ("pair", FIRST_EXAMPLE.pair)),
        ("predict", {"text": " "}, "There is no text", ("text", FIRST_EXAMPLE.text)),
        ("why", {"text": "A small word."}, "There is no prediction to explain yet", ("masked", (1,))),
        ("heads", {"text": "A small word."}, "There is nothing to predict yet", ("masked", (1,))),
        ("roles", {"text": "A small word.", "removal": "importance"}, "There is no target yet, so", ("masked", (1,))),
        ("attention", {"text": "A small word.", "show": "gradient"}, "A gradient needs", ("masked", (1,))),
        ("compare", {"text": "A small word."}, "No word is masked", ("masked", (1,))),
        ("compare", {"text": "[MASK]", "against": "text"}, "Type another text", ("other", EXAMPLE_TEXT)),
        ("compare", {"text": "A word.", "against": "heads", "head": "2.3"}, "All heads are on", ("off", ((2, 3),))),
        ("layers", {"layers_view": "sentences", "sentences": "one"}, "Enter at least two", ("common_word", "bank")),
        ("layers", {"text": "A small word.", "layers_view": "kinds"}, "A gradient needs", ("masked", (1,))),
        ("score", {"sentence_a": ""}, "The first sentence is empty", ("sentence_a", sentence_pair.EXAMPLE.text)),
    ],
)  # fmt: skip
def test_what_is_missing_is_filled_in_by_one_click(
    page: str, address: dict[str, str], sentence: str, filled: tuple[str, object]
) -> None:
    """Wherever a page has nothing to show it says so, beside a button; after a click on it there is something."""
    app = settled(visited(page, **address), "stop_here")
    assert not app.exception and sentence in words(app)
    (button,) = [
        b for b in app.button if ((b.key or "").startswith("fill: ") and sentence in b.key) or b.key == "begin"
    ]
    settled(button.click().run(), "stop_here")
    assert not app.exception and not app.error and sentence not in words(app)
    name, value = filled
    assert app.session_state[name] == value


def test_every_shipped_example_is_right() -> None:
    """The bundled model's first word is the hidden one on every shipped example, and there are at least ten."""
    loaded = load("headlight-mini")
    right = 0
    for example in examples.all_examples():
        original = loaded.tokenizer.encode(example.text, example.pair)
        run = capture(loaded, loaded.tokenizer.mask_words(original, example.masked))
        assert run.predictions
        assert all(p.top[0][0] == original.input_ids[p.position] for p in run.predictions), example
        right += 1
    assert right >= 10


def test_a_model_without_heads_says_so_and_predicts_nothing(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An untrained head's output is never shown: the page names what is missing."""
    weights = {k: v for k, v in checkpoint.read_weights(tiny_model_folder).items() if not k.startswith("cls.")}
    bare = tmp_path / "bare"
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_model_folder), bare)
    for name in ("vocab.txt", "tokenizer_config.json", "tokenizer.json"):
        if (tiny_model_folder / name).is_file():
            (bare / name).write_bytes((tiny_model_folder / name).read_bytes())
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(bare)]))
    for page in PAGES:
        app = start(text="a b c", pair="b c", masked="1", model=str(bare))
        settled(at(app, page).run())
        assert not app.exception and not app.error
        assert "has no trained output for words or two sentences" in words(app)
        assert "rank" not in words(app) and "Does B follow A?\n" not in words(app)


def test_a_broken_folder_named_at_start_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing a folder that is no checkpoint says why, and the way out."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tmp_path)]))
    app = start(text="a b c", model=str(tmp_path))
    assert not app.exception
    assert len(app.error) == 1 and "has no weights" in said(app.error[0])
    assert "Choose another model" in said(app.error[0])
    assert app.session_state.text == "a b c"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/no/such/folder", "must be a folder, a .zip file or a bundled model"),
        ("  ", "name is empty"),
        ("/no/such/model.zip", "/no/such/model.zip cannot be unpacked: No such file"),
    ],
)
def test_naming_a_model_that_is_not_there_keeps_the_one_before(name: str, reason: str) -> None:
    """The sentence says why, the model and the text stay, and the page goes on."""
    app = start(text="A word.", masked="1")
    app.text_input(key="another_model").set_value(name)
    next(b for b in app.button if b.label == "Load").click().run()
    assert not app.exception
    assert not app.sidebar.error and len(app.main.error) == 1 and reason in said(app.main.error[0])
    assert app.session_state.model == "headlight-mini" and app.session_state.text == "A word."
    assert "How to read this" in words(app)
    app.text_input(key=key_of(app, "text")).set_value("Another word.").run()
    assert reason in said(app.error[0]), "it stays until it is put away"
    app.button(key="close_problem").click().run()
    assert not app.error


@pytest.mark.parametrize("packed", [False, True])
def test_naming_a_folder_loads_it(tiny_model_folder: Path, tmp_path: Path, packed: bool) -> None:
    """On this machine any checkpoint folder, or one in a .zip, can be opened, and the page then shows that model."""
    if packed:
        tiny_model_folder = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tiny_model_folder))
    app = start(text="a b c", masked="1")
    app.text_input(key="another_model").set_value(str(tiny_model_folder))
    next(b for b in app.button if b.label == "Load").click().run()
    assert not app.exception and not app.error
    assert app.session_state.model == str(tiny_model_folder)
    assert f"{tiny_model_folder.name} 2 × 4" in words(app)
    added_models.clear()  # for other tests


def test_a_page_for_others_loads_nothing_but_what_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Served beyond this machine, there is no control to name a model, and an address cannot name one either."""
    monkeypatch.setattr(access, "get_option", lambda name: "0.0.0.0" if name == "server.address" else None)
    app = start(text="A word.", model="/etc")
    assert not [b for b in app.button if b.label == "Load"]
    assert app.session_state.model == "headlight-mini"


def test_text_in_a_notice_is_shown_as_written() -> None:
    """A link or picture in an address or a name is not one on the page."""
    app = start(text="A word.", model="![x](http://example.org/x.png)", head="[a](b)")
    raw = "\n".join(str(element.value) for element in app.warning)
    assert "![x](http://example.org/x.png)" in words(app)
    assert "](" not in raw and "\\]\\(" in raw


@pytest.mark.parametrize("address", ["http://e.org", "HTTPS://e.org/x", "www.e.org", "WWW.e.org", "a@e.org"])
def test_an_address_is_taken_apart(address: str) -> None:
    """What Markdown makes a link of without being asked has a joiner in it that nobody sees, and nothing else new."""
    written = escape_markdown(address).replace("\\", "")
    assert address not in written and written.replace("\u2060", "") == address


# ---------------------------------------------------------------------------- a fine-tuned model


def with_classes(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str, **address: str) -> AppTest:
    """A page of the app that was started with this model and opened by a link that names it."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = start(text="the cat sat on the mat", model=str(folder), **address)
    return settled(at(app, page).run())


def target_of(app: AppTest) -> tuple[str, list[str]]:
    """The chosen target, and how all of them are written."""
    control = app.selectbox(key=key_of(app, "target"))
    return str(control.value), list(control.options)


def test_a_fine_tuned_model_shows_its_classes(tiny_classifier_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict names the likeliest class with its probability as the library has it, and the other heads stay."""
    app = with_classes(tiny_classifier_folder, monkeypatch, "predict", masked="1")
    loaded = load(str(tiny_classifier_folder))
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode("the cat sat on the mat"), [1])
    found = capture(loaded, encoding).classes
    assert found is not None and found.probabilities is not None and not app.exception and not app.error
    best = found.order[0]
    assert f"#### {found.labels[best]}: {found.probabilities[best]:.2f}" in words(app)
    assert "all 3 add up to 1" in words(app) and "may be worse than before" in words(app)
    assert "Which class is it?" in words(app)


def test_classes_are_targets_and_stay_in_the_link(
    tiny_classifier_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mask the likeliest class is the target; a link can name another, and gradients are then of that one."""
    app = with_classes(tiny_classifier_folder, monkeypatch, "attention", show="gradient")
    loaded = load(str(tiny_classifier_folder))
    found = capture(loaded, loaded.tokenizer.encode("the cat sat on the mat")).classes
    assert found is not None and not app.exception and not app.error
    order = list(found.order)
    assert target_of(app) == (f"class:{order[0]}", [f"Explain class “{found.labels[n]}”" for n in order])
    assert "how the explained output changes" in words(app)
    linked = with_classes(tiny_classifier_folder, monkeypatch, "attention", target=f"class:{order[2]}", show="product")
    assert target_of(linked)[0] == f"class:{order[2]}"
    at(linked, "heads").run()
    assert not linked.exception and target_of(linked)[0] == f"class:{order[2]}"
    assert "All heads are on: the prediction is “" in words(linked)
    wrong = with_classes(tiny_classifier_folder, monkeypatch, "attention", target="class:7")
    assert not wrong.exception and not wrong.error and target_of(wrong)[0] == f"class:{order[0]}"


def test_a_mask_comes_before_the_classes(tiny_classifier_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was hidden on purpose is the first target; classes, and questions about both texts, come after it."""
    app = with_classes(tiny_classifier_folder, monkeypatch, "attention", masked="1", pair="the dog ran")
    value, options = target_of(app)
    assert value.startswith("2:")
    assert options[-3:] == ["Explain “B follows A”", "Explain similarity (in A)", "Explain similarity (in B)"]
    assert [option.startswith("Explain class") for option in options[-6:-3]] == [True] * 3


def test_a_published_classifier_shows_its_classes_alone(
    tiny_classifier_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint without the other heads says so, and asks nothing that it cannot answer, on every page."""
    weights = checkpoint.read_weights(tiny_classifier_folder)
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith("cls.")}
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_classifier_folder), tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_classifier_folder / name).read_bytes())
    for page in PAGES:
        app = with_classes(tmp_path, monkeypatch, page, masked="1", pair="the dog ran", show="gradient")
        assert not app.exception and not app.error
        assert "has no trained output for words or two sentences" in words(app)
        assert "nothing to predict yet" not in words(app) and target_of(app)[0].startswith("class:")
        if page == "predict":
            assert "Which class is it?" in words(app)
        if page == "start":
            assert "This model predicts no masked words" in words(app)


def test_a_number_is_not_shown_as_a_class(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier with one output gives a number: no bar, no probability."""
    config = checkpoint.read_config(tiny_model_folder).with_labels(["grade"])
    head = {"classifier.weight": torch.zeros(1, config.hidden_size), "classifier.bias": torch.tensor([3.25])}
    checkpoint.write_tensors({**checkpoint.read_weights(tiny_model_folder), **head}, config, tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_model_folder / name).read_bytes())
    for page in PAGES:
        app = with_classes(tmp_path, monkeypatch, page)
        assert not app.exception and not app.error
    app = with_classes(tmp_path, monkeypatch, "predict")
    assert "#### grade: 3.25" in words(app) and "Which number is it?" in words(app)


def test_heads_can_be_removed_one_by_one() -> None:
    """Ablation colours the grid by the contribution of each head, compared with the estimate from the gradient."""
    app = at(start(), "heads").run()
    assert "Gradient estimate against ablation" not in words(app)
    app.segmented_control(key=key_of(app, "colour")).set_value("removal").run()
    for _ in range(60):  # the page shows the queue until it is done, and comes back by itself only in a browser
        if "(zero ablation). Warm" in words(app):
            break
        app.run()
    assert not app.exception and not app.error
    assert "its fall when this head alone is ablated (zero ablation)." in words(app)
    assert re.search(r"Gradient estimate against ablation: rank correlation [+-][01]\.\d\d", words(app))
    app.segmented_control(key=key_of(app, "instead")).set_value("mean").run()
    saying(app, "ablated (mean ablation).")
    app.text_area(key=key_of(app, "reference")).set_value(" ").run()
    assert not app.exception
    assert [said(error) for error in app.error] == ["There are 0 reference texts: give 1 to 64, one per line."]
    linked = start(**{"text": "A word.", "colour": "nonsense"})
    assert "colour='nonsense', which is not possible: one of slope, removal" in words(linked)


def saying(app: AppTest, sentence: str) -> AppTest:
    """The page once it says this: it shows the queue first, and comes back by itself only in a browser."""
    for _ in range(200):
        if sentence in words(app):
            break
        app.run()
    assert not app.exception and not app.error
    assert sentence in words(app)
    return app


def roles_page(**address: str) -> AppTest:
    return at(start(**address), "roles").run()


def test_the_card_of_a_head_is_that_of_the_library() -> None:
    """The chosen head's role and figures are those of its maps; a nearest head can be chosen from there."""
    app = saying(roles_page(head="2.4", text="The cat sat on the mat.", masked="1"), "Jensen-Shannon")
    loaded = load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode("The cat sat on the mat."), [1])
    attention = capture(loaded, encoding).attention
    figures = head_figures(attention, encoding)
    role = roles_of_heads(figures)[2][4]
    assert role is not None and f"L2 H4 {ROLE_DESCRIPTIONS[role.name]}" in words(app)
    assert f"{role.score:.0%} of its attention" in words(app) or f"{role.score:.2f}" in words(app)
    assert f"confidence **{figures['confidence'][2, 4]:.2f}**" in words(app)
    other = nearest_heads(head_distances(attention), 2 * 12 + 4)[0]
    saying(app.button(key=f"near_{other // 12}_{other % 12}").click().run(), f"L{other // 12} H{other % 12} ")
    assert app.session_state.head == divmod(other, 12)


def test_the_card_of_a_head_says_what_its_sink_does() -> None:
    """A head that looks mostly at one token: which, how much, and what that brings; nothing of one that does not."""
    text = "The cat sat on the mat."
    loaded = load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(text), [1])
    found = sinks(capture(loaded, encoding).attention, head_values(loaded, encoding, projected=True))
    kinds = {found.kind(layer, head): (layer, head) for layer in range(6) for head in range(12)}
    layer, head = kinds["nothing"]
    app = saying(roles_page(head=f"{layer}.{head}", text=text, masked="1"), "Jensen-Shannon")
    said = words(app)
    assert f"**Attention sink:** {found.share[layer, head]:.0%} of its attention goes to" in said
    assert "almost no effect (no-op)" in said and f"{found.length[layer, head]:.2f} times as long" in said
    layer, head = kinds[""]
    app = saying(roles_page(head=f"{layer}.{head}", text=text, masked="1"), "Jensen-Shannon")
    assert "sink" not in words(app)


def test_one_control_selects_what_is_shown_of_every_head() -> None:
    """The map of roles first, then importance, confidence, and ablation with how well the others rank it."""
    app = saying(roles_page(), "Its importance for the target is")
    assert "Rank correlation with ablation" not in words(app) and "close together" in words(app)
    shown = app.segmented_control(key=key_of(app, "removal"))
    saying(shown.set_value("importance").run(), "absolute gradient of the target")
    saying(app.segmented_control(key=key_of(app, "removal")).set_value("1").run(), "Without it the target changes by")
    assert "Rank correlation with ablation (Spearman): importance" in words(app)
    without = saying(roles_page(text="A word.", removal="importance"), "There is no target yet, so heads have no")
    assert "confidence" in words(without)


def test_a_table_over_a_file_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path) -> None:
    """A table in the folder named at start is shown; one of another model, or none at all, gets one sentence."""
    rng = np.random.default_rng(0)
    figures = {name: rng.random((6, 12)) for name in ("importance", "loss_change", "confidence", *THRESHOLDS)}
    folder = tmp_path / "tables"
    folder.mkdir()
    write_table(HeadTable("headlight-mini", 12, 340, figures, 2.5, "class", "mean"), folder / "a.csv")
    write_table(HeadTable("another", 12, 340, figures, 2.5), folder / "b.parquet")
    (folder / "c.csv").write_text("no,table\n")
    own = HeadTable("headlight-mini", 12, 340, figures, 2.5, weights=fingerprint(load("headlight-mini", device="cpu")))
    write_table(own, folder / "d.parquet")
    write_table(dataclasses.replace(own, weights="0" * 16), folder / "e.csv")
    monkeypatch.setenv("HEADLIGHT_TABLES", str(folder))
    app = saying(roles_page(over="file"), "Rank correlation of the gradient with the change of the loss")
    assert "12 texts with 340 tokens, whose loss is 2.500 nats per text" in words(app)
    assert "Change of the loss without it, mean ablation" in app.selectbox(key=key_of(app, "file_figure")).options
    app.selectbox(key=key_of(app, "table")).set_value("b.parquet").run()
    assert not app.exception
    assert "The table was made with another (6 layers of 12 heads), but the model here is headlight-mini" in words(app)
    app.selectbox(key=key_of(app, "table")).set_value("c.csv").run()
    assert not app.exception and "The file c.csv is not a table of heads" in words(app)
    app.selectbox(key=key_of(app, "table")).set_value("e.csv").run()
    assert not app.exception and f"headlight-mini of fingerprint {'0' * 16}" in words(app)
    saying(app.selectbox(key=key_of(app, "table")).set_value("d.parquet").run(), "12 texts with 340 tokens")


def test_a_text_file_is_measured_when_its_button_is_clicked(tmp_path: Path) -> None:
    """The first lines of a file give the same table as the library; what it costs stands on the button."""
    text = "The cat sat on the mat.\n\nA dog ran to the river and the old king saw it.\n"
    app = roles_page(over="file")
    app.file_uploader(key="table_upload#file").upload("lines.txt", text.encode(), "text/plain").run()
    ask = next(button for button in app.button if button.label.startswith("Measure the first 3 lines, about "))
    saying(ask.click().run(), "a mean over 2 texts with ")
    path = tmp_path / "lines.txt"
    path.write_text(text, encoding="utf-8")
    settings = CorpusSettings(ablation=False)
    *_, (sums, _) = iter_heads(path, "headlight-mini", settings, device="cpu")
    expected = sums.table("headlight-mini", settings)
    assert f"a mean over 2 texts with {expected.tokens} tokens" in words(app) and expected.loss_text in words(app)
    app.file_uploader(key="table_upload#file").upload("empty.txt", b"\n\n", "text/plain").run()
    app = settled(next(b for b in app.button if b.label.startswith("Measure the first")).click().run(), "stop_here")
    assert not app.exception and "No text in 2 lines" in said(app.error[0])
    saying(roles_page(over="file"), "a mean over 4 texts with ")


def test_the_example_treebank_is_analysed_at_once() -> None:
    """Sixty sentences with their trees, the table of relations, and a sentence about the best head."""
    app = saying(roles_page(over="treebank"), "60 sentences. “found” is the share of words")
    assert re.search(r"\*\*det\*\*: L\d+ H\d+ finds", words(app)) and "It is the best of all 72 heads." in words(app)
    shown = app.dataframe[0].value
    assert {"det", "nsubj", "obj", "case", "amod", "conj"} <= set(shown["relation"]) and not app.error


def test_a_treebank_gives_the_table_of_relations(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those of the library; a head's card says what it finds; a broken file is one sentence."""
    app = settled(roles_page(over="treebank"))
    app.file_uploader(key="treebank#file").upload("trees.conllu", "\n".join(conllu()).encode(), "text/plain").run()
    saying(app, "12 sentences. “found” is the share of words")
    loaded = load("headlight-mini", device="cpu")
    rows = track_relations(loaded, sentences()).rows()
    shown = app.dataframe[0].value
    assert shown["relation"].tolist() == [row.relation for row in rows]
    assert shown["found"].tolist() == pytest.approx([row.accuracy for row in rows])
    monkeypatch.setattr(treebank, "MIN_COUNT", 3)  # twelve sentences ask little twenty times
    best = next(row for row in track_relations(loaded, sentences()).rows(3) if row.accuracy > row.offset_accuracy)
    app.session_state["head"] = (best.layer, best.head)
    app.segmented_control(key=key_of(app, "over")).set_value("text").run()
    saying(app, f"**{best.relation}** ({best.accuracy:.2f}; fixed offset {best.offset_accuracy:.2f})")
    app.segmented_control(key=key_of(app, "over")).set_value("treebank").run()
    app.file_uploader(key="treebank#file").upload("![x](y).conllu", "\n".join(conllu()).encode(), "text/plain").run()
    labels = [block.proto.popover.label for block in app.get("popover")]
    assert any(label.startswith("\\!\\[x\\]") for label in labels), labels
    app.file_uploader(key="treebank#file").upload("trees.conllu", b"1 The\n", "text/plain").run()
    for _ in range(60):
        if app.error:
            break
        app.run()
    assert [said(error) for error in app.error] == [
        "Line 1 of trees.conllu has 1 columns: CoNLL-U has 10, separated by tabs."
    ]


def test_roles_of_a_model_that_has_lost_heads(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer without heads and a gap in another: the rest is on the map, and a head that is there is chosen."""
    folder = tmp_path / "fewer"
    bert_core.save(bert_core.pruned(tiny_loaded, [(0, 0), (0, 2), *((1, head) for head in range(4))]), folder)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = saying(roles_page(model=str(folder), text="the cat sat", masked="1", removal="1"), "Rank correlation with")
    assert app.session_state.head == (0, 1) and "L0 H1 " in words(app)
    assert [button.key for button in app.button if str(button.key).startswith("near_")] == ["near_0_3"]
    gone = saying(roles_page(model=str(folder), text="the cat sat", head="1.2"), "L1 H2 was pruned")
    assert "Jensen-Shannon" not in words(gone)


@pytest.mark.parametrize(("page", "address", "labels"), [
    ("attention", {"head": "2.5", "also": "1"}, ["PNG", "SVG", "PDF", "CSV", "NPZ", "Python", "HTML"]),
    ("predict", {"masked": "3"}, ["Predictions (CSV)", "CSV"]),
    ("heads", {}, ["Heads (CSV)"]),
])  # fmt: skip
def test_numbers_and_pictures_can_be_taken_along(page: str, address: dict[str, str], labels: list[str]) -> None:
    """Each page with numbers offers them as files; on Attention for the chosen heads, and as BertViz's views too."""
    app = at(start(text="She opened the door and walked in.", **address), page).run()
    app.session_state[downloads.OPEN_KEY] = True
    app.run()
    assert not app.exception and not app.error
    offered = [button.label for button in app.get("download_button")]
    assert [label for label in offered if not label.startswith("BertViz")] == labels
    if page == "attention":
        assert "BertViz draws these pages, not Headlight" in words(app)
        assert "One map:" not in words(app)
        app = at(start(text="She opened the door.", combine="average", **address), "attention").run()
        app.session_state[downloads.OPEN_KEY] = True
        app.run()
        assert "One map: average of L2 H5, H1." in words(app).replace("\\", "")


def test_a_folder_is_offered_by_its_name(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much of the path's end as tells it from the others; the whole path on hover; a choice by it stays."""
    added_models.clear()  # by other tests
    same, twin = (tmp_path / where / tiny_model_folder.name for where in ("one", "two"))
    for folder in (same, twin):
        shutil.copytree(tiny_model_folder, folder)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(same), str(twin), "some/where"]))
    app = start(text="the cat sat", model=str(twin))
    box = app.selectbox(key=key_of(app, "model"))
    assert box.options[-3:] == ["one/tiny-bert", "two/tiny-bert", "some/where"]
    assert box.value == str(twin) and box.proto.help == escape_markdown(str(twin))
    assert "two/tiny-bert 2 × 4" in words(app)
    settled(box.set_value(str(same)).run())
    settled(app.run())
    assert app.session_state.model == app.selectbox(key=key_of(app, "model")).value == str(same)
    assert "one/tiny-bert 2 × 4" in words(app) and app.query_params["model"] in (str(same), [str(same)])
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    app = start(text="the cat sat")
    assert (
        app.selectbox(key=key_of(app, "model")).options[-1] == "tiny-bert"
        and not app.selectbox(key=key_of(app, "model")).proto.help
    )


def test_the_line_of_the_model_says_what_its_file_leaves_over(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors that are not used and heads that are missing stand under the text, on every page about it."""
    weights = checkpoint.read_weights(tiny_model_folder)
    kept = {name: tensor for name, tensor in weights.items() if name != "cls.seq_relationship.bias"}
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "lora"))
    checkpoint.write_tensors({**kept, "adapter.down": torch.zeros(2)}, checkpoint.read_config(folder), folder)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder), str(tiny_model_folder)]))
    app = start(text="a b c", model=str(folder))
    shown = words(app)
    assert "1 tensor of its file is not used: adapter.down" in shown and "missing in its file: cls.seq" in shown
    assert "not used" not in words(start(text="a b c", model=str(tiny_model_folder)))


@pytest.mark.parametrize(
    ("page", "address"),
    [
        ("compare", {"against": "text", "other": "ភាសា ខ្មែរ"}),
        ("causes", {"masked": "1", "source": "ភាសា ខ្មែរ កម្ពុជា"}),
        ("score", {"sentence_a": "ភាសា ខ្មែរ", "sentence_b": "a b c"}),
        ("layers", {"layers_view": "sentences", "sentences": "a b c\na ភាសា ខ្មែរ កម្ពុជា", "common_word": "a"}),
    ],
)
def test_a_second_text_that_is_mostly_unknown_is_said(
    page: str, address: dict[str, str], tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning names that text; one that is known gets none."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    for warned in (True, False):
        known = {name: value.replace("ភាសា ខ្មែរ", "a b").replace("កម្ពុជា", "c") for name, value in address.items()}
        given = address if warned else known
        app = start(text="a b c", model=str(tiny_model_folder), **given)
        settled(at(app, page).run())
        assert not app.exception
        assert any("Mostly [UNK]" in said(one) or "mostly [UNK]" in said(one) for one in app.warning) == warned, words(
            app
        )
