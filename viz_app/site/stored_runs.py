"""Stored runs: the results of the model for the texts of a site, which its pages show before the model is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import Z_DEFAULT_STRATEGY

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.methods import token_scores
from bert_core.records import HeadSweep, ModelRun, Target
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture
from bert_core.run.inputs import head_mask_without
from bert_core.run.perturbation import input_x_gradient, integrated_gradients, occlusion
from bert_core.tokenizer import Encoding
from viz_app.components.attention_view.packing import deflated
from viz_app.site.lessons import StoredView

TOP_TOKENS = 20  # of the prediction at each mask


def stored_key(view: StoredView) -> str:
    """Return the key of the run of a text in `site.json`, which `storedKey` of stored_runs.js also returns."""
    return json.dumps(view, ensure_ascii=False, separators=(",", ":"))


def stored_run(loaded: LoadedModel, view: StoredView) -> bytes:
    """Compute the results for a text with all heads on and the default target, as the content of a file.

    The target is the most probable token at the first mask, or that the second text follows. Without masks and a second
    text, there is no target, and no result that depends on one.
    Raises Refused for a text that the tokenizer refuses, and for a masked word that does not exist.
    """
    original = loaded.tokenizer.encode(view.text, view.pair or None)
    encoding = loaded.tokenizer.mask_words(original, view.masked)
    run = capture(loaded, encoding, top_k=TOP_TOKENS)
    target = _default_target(run)
    header: dict[str, Any] = {
        "encoding": encoding_fields(encoding),
        "original": encoding_fields(original),
        "predictions": [
            {
                "position": prediction.position,
                "top": [
                    {"id": token, "token": loaded.tokenizer.token_of(token), "probability": probability}
                    for token, probability in prediction.top
                ],
            }
            for prediction in run.predictions
        ],
        "nextSentence": run.nsp,
        "target": None,
        "first": [],
        "gaps": {},
        "methods": [],
    }
    arrays = {"attention": run.attention, "headMask": run.head_mask}
    if target is None:
        return _packed(header, arrays)
    run = capture(loaded, encoding, target=target, top_k=TOP_TOKENS)
    header["target"] = _target_fields(loaded, run, target)
    sweep = ablate_heads(loaded, encoding, target=target)
    header["first"] = _first_tokens(loaded, run, sweep)
    path = integrated_gradients(loaded, encoding, target)
    scores = {
        "gradient x attention": token_scores(loaded, encoding, target, ["gradient x attention"], run=run)[0],
        "input x gradient": input_x_gradient(loaded, encoding, target).scores,
        path.method: path.scores,
        "occlusion": occlusion(loaded, encoding, target).scores,
    }
    header["gaps"], header["methods"] = {path.method: path.gap}, list(scores)
    assert run.gradient is not None and run.gate_gradient is not None and sweep.values is not None  # of the target
    gradients = {"attentionGradient": run.gradient, "headMaskGradient": run.gate_gradient}
    ablations = {"value": sweep.values, "probability": _probabilities(sweep, target)}
    return _packed(header, {**arrays, **gradients, **ablations, **scores})


def encoding_fields(encoding: Encoding) -> dict[str, Any]:
    """Return the fields of an encoding under the names that they have in engine/tokenizer.js."""
    return {
        "text": encoding.text,
        "pair": encoding.pair,
        "tokens": list(encoding.tokens),
        "inputIds": list(encoding.input_ids),
        "tokenTypeIds": list(encoding.token_type_ids),
        "offsets": [list(span) for span in encoding.offsets],
        "words": list(encoding.words),
        "sides": list(encoding.sides),
        "roles": list(encoding.roles),
        "maskPositions": list(encoding.mask_positions),
        "wordCount": encoding.word_count,
        "fullLength": encoding.full_length,
        "truncatedCount": encoding.truncated_count,
    }


def _default_target(run: ModelRun) -> Target | None:
    if run.predictions:
        return Target("mlm", run.predictions[0].position, run.predictions[0].top[0][0])
    return None if run.nsp is None else Target("nsp")


def _target_fields(loaded: LoadedModel, run: ModelRun, target: Target) -> dict[str, Any]:
    """Return the fields of `ResolvedTarget` in app/types.d.ts."""
    fields = {"position": target.position, "tokenId": target.token_id, "againstId": None, "value": run.target_value}
    if target.kind == "nsp":
        description = {"target": "nsp", "label": "B follows A", "terms": {"nextSentence": [1, -1]}}
        return {**fields, **description, "probability": run.nsp}
    token_id, probability = run.predictions[0].top[0]
    word = loaded.tokenizer.token_of(token_id)
    term = {"position": target.position, "token": token_id, "weight": 1}
    named_target = {"position": target.position, "word": word}
    description = {"target": named_target, "label": word, "terms": {"terms": [term]}}
    return {**fields, **description, "probability": probability}


def _probabilities(sweep: HeadSweep, target: Target) -> np.ndarray:
    """Return the probability of the target without each head, (layer, head)."""
    if target.kind == "nsp" and sweep.nsp is not None:
        return sweep.nsp
    assert sweep.values is not None  # of the target
    probabilities: np.ndarray = np.exp(sweep.values)
    return probabilities


def _first_tokens(loaded: LoadedModel, run: ModelRun, sweep: HeadSweep) -> list[str]:
    """Return the most probable token at the first mask without each head, layer by layer; "" for none."""
    if sweep.flips is None:
        return [""] * run.head_mask.size
    tokens = np.full(sweep.flips.shape, loaded.tokenizer.token_of(run.predictions[0].top[0][0]), dtype=object)
    tokens[np.isnan(sweep.flips)] = ""
    for layer, head in np.argwhere(sweep.flips > 0).tolist():
        mask = head_mask_without(loaded.config, [(layer, head)])
        without_head = capture(loaded, sweep.encoding, positions=sweep.positions, head_mask=mask, top_k=1)
        tokens[layer, head] = loaded.tokenizer.token_of(without_head.predictions[0].top[0][0])
    names: list[str] = tokens.ravel().tolist()
    return names


def _packed(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a header and arrays of float32, as `unpack` of message.js reads them after decompression."""
    shapes: list[tuple[str, Sequence[int]]] = []
    content = bytearray()
    for name, values in arrays.items():
        shapes.append((name, values.shape))
        content += np.ascontiguousarray(values, "<f4").tobytes()
    text = json.dumps({**header, "arrays": shapes}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    return deflated(len(text).to_bytes(4, "little") + text + bytes(content), Z_DEFAULT_STRATEGY)
