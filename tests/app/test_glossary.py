"""The glossary: its sentences, where pages say its words, its page, and its document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.visit import settled, visited, words
from viz_app.glossary import find_terms, first_uses, terms
from viz_app.pages import PAGES
from viz_app.shell.markdown import escape_markdown, help_on_terms, mark_terms, protect_terms, with_help
from viz_app.texts import LANGUAGES

ROOT = Path(__file__).parents[2]
# What pages say that does not stand in their own folder.
BESIDE = {
    "why": ("bert_core/methods.py",), "images": ("viz_app/export/captions.py",),
    "heads": ("viz_app/shell/downloads.py",),
    "attention": ("viz_app/export/page.py", "viz_app/texts/en/frame.toml"),  # the notices of a text
}  # fmt: skip
# Words that no reader of seventeen need know, as pages say them.
TECHNICAL = """
ablation, activation, activation function, activation patching, ALTI, AOPC, attribution, attention knockout, baseline,
confusion matrix, contribution graph, macro F1, steering, surprisal,
CKA, control task, faithfulness, hidden state, LEACE, MLM, MLM head, multi-head attention, NSP, residual stream,
value-weighted attention, word embedding, word head,
attention, band, [CLS], comprehensiveness, confidence, cosine, decoder, DecompX, dependency
trees, depth, dot product, effective attention, effective rank, embedding, embeddings, entropy, feed-forward,
feed-forward neuron,
fine-tuning, flow, gate, GlobEnc, gradient, gradients, head, heads, importance, integrated gradients, Jensen-Shannon,
key, KL, layer, layers, layer norm, value-weighted attention, linear probe, probes, log-probability, logit, logit lens,
loss, masked out, [MASK],
nats, norms of attention, occlusion, [PAD], padding, parameters, patch, patches, perplexity, piece, pieces, plan,
pooled vector, pre-training, PCA, probability, prune, pruned, pseudo-log-likelihood, query, random orders, random
rankings, rank, rank correlation, residual connection, role, rollout, saliency, segment, selectivity,
sensitive,
sensitivity, [SEP], sink, slope, softmax, Spearman, standard deviation, state, states, sufficiency, target, token,
tokens, treebank, trustworthiness,
tuned lens, UMAP, [UNK], value vectors, value zeroing, variance, vector, vectors, vocabulary
"""
SYNONYMS = {"ablation": "ablation", "BertViz": "attention", "multi-head": "multi-head attention", "removal": "ablation"}
# A word in two senses is marked on the pages of its sense alone: (word, page) and the term, or None.
SENSES = {
    ("the band goes from its worst split", "probes"): None, ("inside the band", "why"): "band",
    ("the words are a slope", "neurons"): None, ("its slope", "heads"): "slope",
    ("a patch of the picture", "images"): "patch", ("a patch", "causes"): None,
    ("the word head", "finetune"): "MLM head", ("its activation", "profiles"): "activation",
}  # fmt: skip
HOSTILE = '<img src=x onerror=alert(1)> </abbr><script>alert(1)</script> \\<b> `<i>` " onfocus=alert(1) head &lt;u&gt;'


def strings(path: Path) -> Iterator[str]:
    """The texts in a file of code, without its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    apart = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


# Terms that are looked up, and that their page need not say.
LOOKED_UP = {
    *("ablation", "activation patching", "attention knockout", "faithfulness", "residual stream", "MLM", "MLM head"),
    *("NSP", "CKA", "LEACE", "control task", "multi-head attention", "word embedding", "value-weighted attention"),
    *("activation function", "attribution"),
}


def said_on(path: str) -> set[str]:
    """The terms that a page says, by their names."""
    names = (f"viz_app/texts/en/{path}.toml", *BESIDE.get(path, ()))
    files = [*(ROOT / "viz_app" / "pages" / path).glob("*.py"), *(ROOT / name for name in names)]
    texts = [
        text for file in files for text in ([file.read_text("utf-8")] if file.suffix == ".toml" else strings(file))
    ]
    return {term.name for text in texts for *_, term in first_uses(text, page=path)}


@pytest.mark.parametrize("tag", LANGUAGES)
def test_every_term_is_one_sentence_and_no_form_stands_for_two(tag: str) -> None:
    """Each begins with a capital, ends with its only full stop, and fits into a bubble; its name is found whole."""
    of_forms: dict[str, str] = {}
    for term in terms(tag):
        for form in {form.casefold() for form in term.forms}:
            assert of_forms.setdefault(form, term.name) == term.name, form
        assert re.fullmatch(r"[A-ZÄÖÜ](?:[^.?!]|\.(?=\d))*\.", term.meaning), term.name
        assert len(term.meaning) <= 200 and bool(term.source) == term.link.startswith("https://"), term.name
        assert [found[:2] for found in first_uses(term.name, tag)] == [(0, len(term.name))]
        assert not {name.casefold() for name in term.synonyms} & of_forms.keys(), term.name


@pytest.mark.parametrize("path", sorted({term.page for term in terms()}))
def test_the_page_of_a_term_says_it(path: str) -> None:
    """No entry leads to a page that does not use the word, and none to a page that is not there."""
    assert path in {page.path for page in PAGES}
    assert {term.name for term in terms() if term.page == path} - LOOKED_UP <= said_on(path)


def test_every_technical_word_has_its_entry_and_every_entry_is_such_a_word() -> None:
    """The words above are in the glossary whole, and the glossary has no term but theirs."""
    found = set()
    for word in (" ".join(one.split()) for one in TECHNICAL.split(",")):
        ((start, end, term),) = first_uses(word)
        assert (start, end) == (0, len(word)), word
        found.add(term.name)
    assert {term.name for term in terms()} - found == {"attention weight", "calibrated confidence", "slice"}


def test_a_text_marks_each_term_once_and_its_longest_form() -> None:
    """Code, links, icons, formulas and the words of others are left as they are, and terms that were said before."""
    marked = mark_terms("The tuned lens reads heads, a head, `head`, [a head](https://a.b), $head$ and [CLS].")
    assert re.findall(r">([^<]*)</abbr>", marked) == ["tuned lens", "heads", "[CLS]"]
    assert "<abbr" not in mark_terms("A header, a subhead, arrow keys.")
    assert mark_terms(f"It guesses “{protect_terms('head')}”.") == "It guesses “head”."
    said = {"head"}
    assert re.findall(r">([^<]*)</abbr>", mark_terms("A head of a layer.", said)) == ["layer"]
    assert said == {"head", "layer"} and "<abbr" not in mark_terms("Layers have heads.", said)
    assert re.findall(r"\*\*(.*?)\*\*", help_on_terms("Logit lens and entropy") or "") == ["logit lens", "entropy"]
    assert help_on_terms("Nothing of this kind") is None


@pytest.mark.parametrize(("text", "path"), SENSES)
def test_a_word_in_another_sense_is_not_explained(text: str, path: str) -> None:
    """A page that uses a word in a sense of its own has no tooltip of the other sense."""
    found = [term.name for *_, term in first_uses(text, page=path)]
    wanted = SENSES[text, path]
    assert wanted in found if wanted else not {"band", "slope", "patch"} & set(found)


@pytest.mark.parametrize("written", [escape_markdown(HOSTILE), HOSTILE])
def test_what_was_typed_opens_no_tag(written: str) -> None:
    """Also of a text that nobody has made safe, no sign but those of the marks themselves opens a tag."""
    marked = mark_terms(written)
    assert "head</abbr>" in marked
    rest = re.sub(r'<abbr tabindex="0" data-says="[^"<>]*">|(?<=head)</abbr>', "", marked)
    assert not re.search(r"(?<!\\)<", re.sub(r"(?<!\\)`[^`]*`|\\\\", "", rest))


def test_a_coloured_box_says_its_terms_behind_a_sign() -> None:
    """Each once, also in words made safe, as paragraphs that survive being read twice; nothing where there is none."""
    for line in (
        "A head of [CLS], a head.",
        escape_markdown("A head of [CLS], a head."),
        "A **head** of `state` [CLS].",
    ):
        text, _, sign = with_help(line).partition(" :help[")
        assert text == line and sign.endswith("]") and "\n" not in sign, line
        read = re.sub(r"\\(.)", r"\1", sign[:-1]).replace("&#10;", "\n")
        assert read == help_on_terms("head [CLS]"), line
    assert with_help("Nothing of this kind.") == "Nothing of this kind."
    assert with_help(f"It guesses “{protect_terms('head')}”.") == "It guesses “head”."
    assert with_help(escape_markdown(HOSTILE)).partition(" :help[")[0] == escape_markdown(HOSTILE)


def test_every_coloured_box_has_its_terms_explained() -> None:
    """Whatever a page says in a box goes through `with_help`."""
    kinds = {"info", "success", "warning", "error"}
    found = 0
    for path in sorted((ROOT / "viz_app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or "logger" in ast.unparse(node.func):
                continue
            names = [one.attr for one in ast.walk(node.func) if isinstance(one, ast.Attribute)]
            if kinds & set(names[:1]) or (isinstance(node.func, ast.IfExp) and kinds & set(names)):
                assert ast.unparse(node.args[0]).startswith("with_help("), f"{path.name}:{node.lineno}"
                found += 1
    assert found > 50


def test_what_is_looked_for_finds_its_word_first() -> None:
    """The address names a word, in any case and form; what nothing is like gets one sentence."""
    assert [term.name for term in find_terms("HEADS")] == ["head", "MLM head"]
    assert [term.name for term in find_terms("lens")] == ["logit lens", "tuned lens"]
    for typed, name in SYNONYMS.items():
        assert find_terms(typed)[0].name == name, typed
    assert find_terms("attention")[0].name == "attention" and list(find_terms("")) == list(terms())
    app = settled(visited("glossary", term="entropy"))
    assert "**entropy**: How spread out" in words(app) and "**head**" not in words(app)
    assert app.query_params["term"] == "entropy"
    none = settled(visited("glossary", term="<b>zebra"))
    assert "words here is like “<b>zebra”" in words(none) and not none.exception
    long = settled(visited("glossary", term="a" * 41))
    assert "at most 40 characters" in words(long)


def test_the_page_has_all_words_and_leads_to_their_pages() -> None:
    """In alphabetical order, each with its sentence."""
    app = settled(visited("glossary"))
    said = words(app)
    assert not app.exception and "How it can mislead" in said
    places = [said.index(f"**{term.name}**") for term in terms()]
    assert places == sorted(places)
    assert len(app.get("page_link")) == len(terms())


def test_pages_explain_their_words() -> None:
    """A caption marks its terms, and a control says what those of its label mean."""
    app = settled(visited("layers", text="She opened the door."))
    marks = [mark for element in app.caption for mark in re.findall(r">([^<]*)</abbr>", element.value)]
    assert {"token", "depth", "tuned lens"} <= set(marks)
    (lens,) = (one for one in app.get("button_group") if one.label == "Lens")
    assert "**logit lens**: Reading the hidden state" in lens.proto.help
