"""What the pages of the browser edition compute from a run, beside what the library computes from the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel, ModelRun, Target, ablate_heads, capture, find_heads, pruned, token_scores
from bert_core.analysis.attribution import scaled_rows
from bert_core.analysis.heads import most_relevant_head
from bert_core.csv_cells import as_csv
from bert_core.records import word_target
from tests.near import assert_near
from tests.test_javascript import node

COMPUTE = """
import { readFileSync } from "node:fs";
import { contributionsOf } from "./viz_app/site/app/ablations.js";
import { removablePositions, sharesOf } from "./viz_app/site/app/attributions.js";
import { csvText } from "./viz_app/site/app/csv.js";
import { currentEdge, findHeads, openingHead } from "./viz_app/site/app/find_heads.js";
import { tokenLabel } from "./viz_app/site/app/encodings.js";
import { gradientXAttention } from "./viz_app/site/engine/integrated_gradients.js";

const { run, edge, values } = JSON.parse(readFileSync(process.argv[1], "utf8"));
const floats = (array) => Float32Array.from(array, (number) => number ?? Number.NaN);
for (const name of ["attention", "attentionGradient", "headMaskGradient"]) run[name] = floats(run[name]);
const length = run.encoding.tokens.length;
const dims = [run.layers, run.heads, length, length];
const scores = gradientXAttention({
  attention: { data: run.attention, dims }, attentionGradient: { data: run.attentionGradient, dims },
});
console.log(JSON.stringify({
  heads: findHeads(run, edge),
  opening: openingHead(run),
  edge: currentEdge(run, openingHead(run), null),
  scores: [...scores],
  shares: [...sharesOf(scores)],
  contributions: [...contributionsOf(run, { value: floats(values) })],
  removable: removablePositions(run.encoding, run.target),
  labels: run.encoding.tokens.map((_, position) => tokenLabel(run.encoding, position, "{piece} (masked)")),
  csv: csvText([["=1", 'a "b"', "c,d", null], ["-e", "f", "'+g", ""]]),
}));
"""
EDGE = (2, 1)


def flat(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [None if np.isnan(value) else float(value) for value in np.asarray(values).ravel()]


def javascript(run: ModelRun, values: np.ndarray, folder: Path) -> dict[str, Any]:
    """What the modules of the pages compute from a run and the values of its target without each head."""
    encoding, target, (layers, heads) = run.encoding, run.target, run.head_mask.shape
    assert target is not None
    content = {
        "run": {
            "layers": layers,
            "heads": heads,
            "attention": flat(run.attention),
            "attentionGradient": flat(run.select_map("gradient")),
            "headMaskGradient": flat(run.gate_gradient),
            "target": {
                "value": run.target_value,
                "terms": {"terms": [{"position": position} for position, _ in target.target_pieces]},
            },
            "encoding": {
                "text": encoding.text,
                "pair": encoding.pair,
                "tokens": encoding.tokens,
                "sides": encoding.sides,
                "roles": encoding.roles,
                "words": encoding.words,
                "offsets": encoding.offsets,
                "maskPositions": encoding.mask_positions,
            },
        },
        "edge": EDGE,
        "values": flat(values),
    }
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    results: dict[str, Any] = json.loads(node("--input-type=module", "-e", COMPUTE, folder / "run.json"))
    return results


def runs(model: LoadedModel) -> dict[str, ModelRun]:
    """Runs with a word, a contrast and the next sentence as the target, with masked words and without a mask."""
    tokenizer = model.tokenizer
    single = tokenizer.mask_words(tokenizer.encode("The zebra sat on an old mat."), [1, 5])
    pair = tokenizer.encode("She opened the [MASK].", "It was the door of a house.")
    unmasked = tokenizer.encode("The cat sat.", "It was a dog.")
    position = single.mask_positions[-1]
    return {
        "word": capture(model, single, target=Target("mlm", position, tokenizer.id_of("old"))),
        "contrast": capture(model, pair, target=word_target(tokenizer, pair, "door", against="house")),
        "next sentence": capture(model, pair, target=Target("nsp")),
        "no mask": capture(model, unmasked, target=Target("nsp")),
    }


@pytest.fixture(scope="module", params=["all heads", "pruned heads"])
def model(request: pytest.FixtureRequest, tiny_loaded: LoadedModel) -> LoadedModel:
    """The tiny model, with all heads and without some of them."""
    return tiny_loaded if request.param == "all heads" else pruned(tiny_loaded, [(0, 1), (1, 0)])


@pytest.mark.parametrize("kind", ["word", "contrast", "next sentence", "no mask"])
def test_pages_compute_what_the_library_computes(model: LoadedModel, kind: str, tmp_path: Path) -> None:
    """Found heads, the head that opens, gradient x attention, contributions, and the names of tokens."""
    run = runs(model)[kind]
    encoding, target, gate_gradient = run.encoding, run.target, run.gate_gradient
    assert target is not None and gate_gradient is not None
    ablations = ablate_heads(model, encoding, target=target)
    assert ablations.values is not None and ablations.effect is not None
    result = javascript(run, ablations.values, tmp_path)

    expected = find_heads(run, *EDGE)
    assert [(head["layer"], head["head"]) for head in result["heads"]] == [(head.layer, head.head) for head in expected]
    for name in ("weight", "percentile"):
        assert_near([head[name] for head in result["heads"]], [getattr(head, name) for head in expected], 1e-6)
    is_word = ~np.array(encoding.special)
    queries = list(encoding.mask_positions) or np.flatnonzero(is_word).tolist()
    opening = most_relevant_head(run.attention, queries, is_word, gate_gradient)
    assert tuple(result["opening"]) == opening
    weights = np.where(
        is_word & (np.arange(len(encoding)) != np.array(queries)[:, None]), run.attention[opening][queries], -1
    )
    query, key = np.unravel_index((weights[:1] if encoding.mask_positions else weights).argmax(), weights.shape)
    assert result["edge"] == [queries[query], key]

    scores = token_scores(model, encoding, target, ["gradient x attention"], run=run)[0]
    assert_near(result["scores"], scores, 1e-5)
    assert_near(result["shares"], scaled_rows(scores), 1e-5)
    assert_near([np.nan if value is None else value for value in result["contributions"]], -ablations.effect.ravel())
    assert tuple(result["removable"]) == target.removable(encoding)
    assert tuple(result["labels"]) == encoding.labels
    assert result["csv"] == as_csv([["=1", 'a "b"', "c,d", None], ["-e", "f", "'+g", ""]])


def test_methods_are_those_of_the_library() -> None:
    """The names of the methods, which all have a sign."""
    module = '"./viz_app/site/app/attributions.js"'
    code = f"import {{ METHOD_NAMES }} from {module}; console.log(JSON.stringify(METHOD_NAMES));"
    names = json.loads(node("--input-type=module", "-e", code))
    signed = [method.name for method in bert_core.METHODS if method.signed]
    assert len(names) == 4 and set(names) <= set(signed)
