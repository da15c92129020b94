"""Write docs/reference/url-parameters.md from the declarations of the pages: `python docs/make_url_parameters.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from viz_app.moved_pages import MOVED_PAGES, MOVED_VIEWS
from viz_app.pages import PAGES
from viz_app.shell.frame import params_of_pages
from viz_app.shell.params import Param

DOCUMENT = Path(__file__).parent / "reference" / "url-parameters.md"
MAX_OPTIONS = 20  # that are listed
MAX_DEFAULT = 50  # characters of a default that is shown
OPENING = """# URL parameters

Write a link that opens a page with a text, a model and a view of your choice, for a handout, a lesson or a frame in
another page. The address bar of the app always contains the current view: copy it, or write it by hand.

```text
http://localhost:8501/attention?text=She+opened+the+door.&masked=3&view=matrix&head=3.8
```

- The path is the page. The parameters come after `?`, with `&` between them, in any order.
- A parameter that is missing has its default. A value that is not possible is named on the page, and its default is
  used.
- Layers, heads, tokens and words are numbered from 0. Token 0 is the first special token, such as `[CLS]`.
- Texts of more than 2,000 characters are too long for the address bar, which then contains neither the texts nor what
  refers to them.
- A link with a text and without `masked` masks no word. An address without a text opens an example.
- Names of version 0.2 still work.

`python docs/make_url_parameters.py` writes this document from the declarations of the pages.
"""
TABLE = "\n| Name | Meaning | Values | Default | Name in 0.2 |\n| --- | --- | --- | --- | --- |\n"
MEANINGS = {
    # all pages
    "text": "The text.",
    "pair": "The second text, or nothing.",
    "masked": "Numbers of the masked words of both texts, with commas, such as `3,5`.",
    "words": "Whether views show words instead of tokens.",
    "model": "The model: a bundled one, a hub id, or another one that the server offers.",
    "target": "The explained prediction, such as `4:door`, `nsp` or `class:positive`, see `headlight patch --target`.",
    "contrast": "The word whose logit is subtracted from that of the target.",
    "off": "Heads that are switched off, as `layer.head` with commas, such as `0.3,2.11`.",
    "head": "The selected head, as `layer.head`; without it, pages open the head that affects the target most.",
    "other_heads": "Numbers of further heads of the same layer that are drawn, with commas.",
    "tokens": "Selected tokens, as queries (`q4`) or as keys (`k2,7`).",
    "kept_share": "Share of each row that the drawn curves add up to, in percent.",
    "token_range": "The tokens of a long text that are drawn, as the first position and the one after the last: "
    "`512.1024`.",
    "edge": "Query and key of which the heads are ranked, as `query.key`, such as `6.1`.",
    "cut": "Blocked attention edges, such as `2.3:q4>k7,8:r`, with `_` between several, see `headlight predict --cut`.",
    "scaled": "Scaled MLP neurons, as `layer.neuron:factor`, such as `3.120:0`, with `_` between several.",
    "put": "A patched activation, such as `state.3@2` (depth 3, token 2) or `head.5.8`; `~3` adds noise instead.",
    "put_from": "The text from which the activation is patched.",
    "instead": "Output of an ablated head.",
    "reference": "Texts for mean and resample ablation, one per line.",
    "lesson": "The open lesson, by its name.",
    "step": "The step of the lesson.",
    "class": "The code of a class that a student joins.",
    "teach": "Whether the page *Lessons* asks for the teacher's code.",
    "lecture": "Whether text and figures are large, for a projector.",
    "lang": "The language of the app.",
    # pages
    "find": "The words that are searched for.",
    "calibrated": "Whether the confidence of the top guess is calibrated.",
    "choices": "Answer options, one per line.",
    "sort": "Order of the heads of a layer.",
    "rows": "Order of the layers.",
    "view": "The view.",
    "show": "The value that is shown.",
    "part": "Sentences of queries and keys.",
    "hide": "Whether [CLS] and [SEP] are left out.",
    "share": "Whether rows are rescaled to 1 where tokens are left out.",
    "combine": "Combination of several heads into one map.",
    "among": "Heads that are combined.",
    "weights": "Weights of the combined heads, with commas; by default their gradient importance.",
    "stage": "The stage of the forward pass.",
    "token": "Position of the selected token; by default the first masked one.",
    "engine": "The implementation of the model.",
    "pads": "Whether three [PAD] tokens are added.",
    "picture": "The kind of picture.",
    "seed": "Random seed of the scene.",
    "count": "Number of shapes of the scene.",
    "shapes": "Shapes of a composed scene, with commas, such as `large-blue-circle,small-red-star`.",
    "word": "Number of the selected word of the caption.",
    "look": "The selected cross-attention head, as `layer.head`; by default the mean of all.",
    "heat": "The value that is shown.",
    "boxes": "Whether the bounding boxes of the shapes are drawn.",
    "edges": "Whether the map of every word and every patch is drawn.",
    "attributed": "What a prediction is attributed to: words, heads and MLPs, or edges of the contribution graph.",
    "graph_method": "The method of the shares of the contribution graph.",
    "graph_window": "Number of tokens around the target in the contribution graph.",
    "graph_threshold": "Smallest drawn share, in percent; by default one that draws some 45 edges.",
    "graph_edge": "The selected edge, as `layer.query.key`; by default the largest into the target.",
    "method": "The attribution method.",
    "measure": "The measure of faithfulness.",
    "score_side": "The vector of an attention score that is split into contributions.",
    "layers_view": "The view.",
    "lens": "The lens that reads hidden states.",
    "rank_by": "The value of the colours.",
    "projection": "The layout of the points.",
    "cell": "The selected cell, as `depth.position`.",
    "depth": "The depth: 0 for the embeddings, n + 1 for the output of layer n; by default the last.",
    "sentences": "The sentences, one per line.",
    "common_word": "The word that is compared in all sentences.",
    "ranked": "The value by which neurons are ranked.",
    "neuron_cell": "The selected cell, as `layer.position`.",
    "neuron": "The selected neuron, as `layer.neuron`.",
    "times": "The factor of the activation of the selected neuron.",
    "label": "The probed label, by its name in the file; by default the first.",
    "seeds": "Number of random splits of the sentences.",
    "probes_view": "The view: accuracy of the probe, also with the label erased, or a steered prediction.",
    "erased_at": "The depth at which the label is erased.",
    "steer_depth": "The depth at which the steering vector is added.",
    "steer_factor": "The factor of the steering vector.",
    "steer_direction": "The kind of direction.",
    "steer_from": "The value of the label that the direction begins at; by default the first.",
    "steer_to": "The value of the label that it leads to; by default the second.",
    "colour": "The contribution of the heads: gradient importance or ablation.",
    "source": "The source text of the activations.",
    "origin": "The kind of source.",
    "noise": "Noise, in standard deviations of the word embeddings.",
    "patched": "The patched activation.",
    "direction": "The direction of patching.",
    "estimated": "Whether effects are estimated by attribution patching.",
    "around": "Position of the token in the middle of the map of a long text.",
    "place": "The selected cell, as `row.column`.",
    "differs": "The value that is compared.",
    "against": "What is compared with the text.",
    "compare_view": "The view.",
    "other": "The other text.",
    "other_model": "The other model.",
    "over": "The source of the roles.",
    "normal": "Whether importance is normalised in each layer.",
    "removal": "The value that is shown.",
    "profile_of": "The kind of profile.",
    "counted": "The source of the profile.",
    "piece": "The token of the vocabulary.",
    "firing": "The neuron, as `layer.neuron`.",
    "aspect": "The property of the attended tokens.",
    "whole": "Whether all tokens are counted, instead of the 10% with the largest head output.",
    "tenth": "The decile of the activations; 1 is the weakest.",
    "hidden": "Whether the profile is hidden until it is guessed.",
    "plane_text": "The line of the text whose queries and keys are marked in their plane, from 1; 0 for none.",
    "plane_colour": "The colour of queries and keys in their plane.",
    "alike": "The similarity of tokens.",
    "query_position": "Position of the query token; by default that of the target or the masked word.",
    "dataset": "The example, while there is no file of your own.",
    "slices": "The column of the slices; by default one with few values, or the length of the texts.",
    "slice_measure": "The measure of the slices.",
    "slice": "The slice whose texts are listed; empty for texts with an empty field.",
    "expected": "The expected answer of the listed texts.",
    "predicted": "The prediction for the listed texts.",
    "outcome": "Whether wrong or correct texts are listed.",
    "row_text": "A part of the listed texts.",
    "row_order": "The order of the list.",
    "row_page": "The part of the list, of 50 texts each.",
    "data_row": "Number of the selected row of the table, from 0; by default the first of the list.",
    "compared": "Two sentences, a table of pairs, or the bias of pairs with categories.",
    "sentence_a": "The first sentence, also on *Sentence similarity*.",
    "sentence_b": "The second sentence, also on *Sentence similarity*.",
    "variant": "The masking.",
    "bias_measure": "What *Bias* compares: the shared words, or whole sentences.",
    "bias_category": "The category whose pairs are listed; by default all.",
    "bias_order": "The order of the listed pairs.",
    "bias_page": "The part of the list, of 50 pairs each.",
    "tuned": "The folder of the run; by default the recorded run.",
    "tuned_step": "The step of the run.",
    "tuned_by": "The value of the heads that is shown.",
    "parts": "The pruned parts.",
    "order": "The order of pruning.",
    "pruned_percent": "The pruned share, in percent.",
    "figure": "The value of the curve.",
    "term": "The word that is searched for.",
}


def document() -> str:
    """Return the whole document. Raises KeyError unless `MEANINGS` has exactly the parameters of the pages."""
    params = params_of_pages(PAGES)
    if unknown := MEANINGS.keys() - params.keys():
        raise KeyError(f"no page declares {', '.join(sorted(unknown))}")
    of_pages = {param.name for page in PAGES for param in page.params}
    embed = "| `embed` | Whether the page shows its figure alone, for a frame in another page. | `true` |  |  |\n"
    shared = [param for name, param in params.items() if name not in of_pages]
    sections = [OPENING, "\n## All pages\n", TABLE, *rows(shared), embed]
    for page in PAGES:
        sections.append(f"\n## {page.title}\n\nAddress: `/{page.path}`\n")
        sections += [TABLE, *rows(page.params)] if page.params else []
    sections.append("\n## Former addresses\n\n| Address in 0.2 | Now |\n| --- | --- |\n")
    sections += [f"| `/{old}` | `/{new}` |\n" for old, new in MOVED_PAGES.items()]
    sections += [f"| `/{old}?{names[-1]}={value}` | `/{new}` |\n" for (old, names, value), new in MOVED_VIEWS.items()]
    return "".join(sections)


def rows(params: Iterable[Param[Any]]) -> list[str]:
    """Return a row of the table for each parameter."""
    return [
        f"| `{param.name}` | {MEANINGS[param.name]} | {values(param)} | {default(param)} | "
        f"{f'`{param.old_name}`' if param.old_name else ''} |\n"
        for param in params
    ]


def values(param: Param[Any]) -> str:
    """Return the values of a parameter with few of them, with the labels of the control; "" for any other."""
    options, label = param.arguments.get("options", ()), param.arguments.get("format_func", str)
    if param.widget == "toggle":
        return "`0`, `1`"
    if param.widget == "number_input":
        low, high = param.arguments["min_value"], param.arguments["max_value"]
        return f"{low:g} to {high:g}"
    if len(options) > MAX_OPTIONS:
        return ""
    named = ((param.write(option), label(option)) for option in options)
    return ", ".join(
        f"`{name}`" + f" ({text})" * (text.casefold() != name.casefold() and "{" not in text) for name, text in named
    )


def default(param: Param[Any]) -> str:
    """Return the default of a parameter, if it is short."""
    value = param.first(with_text=False)
    text = "" if value in (None, "", (), ("query", ())) else param.write(value)
    return f"`{text}`" if text and len(text) <= MAX_DEFAULT and "\n" not in text else "an example" if text else ""


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
