"""All numbers of the browser engine in Chromium against bert_core, on fifty texts, and how it reads them."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import bert_core
from bert_core import Encoding, LoadedModel, Refused, Target
from tests.browser.conftest import opened_tab
from tests.browser.static_site import build_site, serve_site
from tests.browser_texts import texts
from tests.conftest import built_once
from viz_app.site.stored_runs import encoding_fields

LONG = "The old man who lived by the sea told the children stories about ships and storms every evening. "
COUNT = 50
TOLERANCES = {"probability": 5e-5, "next sentence": 5e-5, "attention": 1e-4}  # of others: 1e-4 of the largest value

LOAD = """async () => {
  const [{ Engine }, { Tokenizer }] = await Promise.all([import("/engine/engine.js"), import("/engine/tokenizer.js")]);
  globalThis.engine = new Engine();
  await globalThis.engine.load({ folder: "/model/" });
  const read = async (name) => (await fetch(`/model/${name}`)).json();
  globalThis.tokenizer = new Tokenizer(await read("tokenizer.json"), { names: await read("tokenizer_config.json") });
}"""
ENCODE = """([text, pair, words]) => {
  const { encode, maskWords } = globalThis.tokenizer;
  const encoding = encode.call(globalThis.tokenizer, text, pair);
  return words.length ? maskWords.call(globalThis.tokenizer, encoding, words) : encoding;
}"""
RUN = """async (request) => {
  const headMask = request.headMask && Float32Array.from(request.headMask);
  const result = await globalThis.engine.run({ ...request, headMask });
  const text = ({ buffer, byteOffset, byteLength }) => {
    const bytes = new Uint8Array(buffer, byteOffset, byteLength);
    let characters = "";
    for (let start = 0; start < bytes.length; start += 30000) {
      characters += String.fromCharCode(...bytes.subarray(start, start + 30000));
    }
    return btoa(characters);
  };
  return Object.fromEntries(Object.entries(result).map(([name, { data, dims }]) => [name, { dims, data: text(data) }]));
}"""


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page in which the engine has loaded the model."""
    with serve_site(built_once("engine-site", build_site)) as site:
        tab = opened_tab(browser)
        tab.goto(site.address)
        tab.evaluate(LOAD)
        yield tab
        tab.context.close()


def encodings(loaded: LoadedModel) -> list[Encoding]:
    """Fifty texts that the model reads, of 3 to 512 tokens, with up to three masked words, but a single word is not."""
    long_texts = [*((LONG * count, LONG) for count in (1, 2, 4, 8, 12)), (LONG * 40, "")]
    generator, chosen = np.random.default_rng(0), list[Encoding]()
    for text, pair in [("bank", ""), *long_texts, *reversed(texts())]:
        try:
            encoding = loaded.tokenizer.encode(text, pair or None)
        except Refused:
            continue
        words = generator.permutation(encoding.word_count)[: 1 + len(chosen) % 3].tolist()
        chosen.append(loaded.tokenizer.mask_words(encoding, sorted(words) if encoding.word_count > 1 else []))
    assert len(chosen) > COUNT
    return chosen[:COUNT]


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    probabilities: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return probabilities


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())


def target_of(
    number: int, encoding: Encoding, positions: tuple[int, ...], words: list[list[int]]
) -> tuple[Target, dict[str, Any]]:
    """A target for a text, in Python and for the engine: a word, a contrast, several words, or the next sentence.

    positions, words: where words are predicted, and for each position two tokens.
    """
    first = positions[0]
    (word, other), kind = words[0], number % 4
    if kind == 3 and encoding.pair is not None:
        return Target("nsp"), {"nextSentence": [1, -1]}
    if kind == 2:
        tokens = [(position, token) for position, (token, _) in zip(positions, words, strict=True)]
        terms = [{"position": position, "token": token, "weight": 1} for position, token in tokens]
        return Target("joint", pieces=tuple(tokens)), {"terms": terms}
    terms = [{"position": first, "token": word, "weight": 1}]
    if kind == 1:
        terms.append({"position": first, "token": other, "weight": -1})
        return Target("contrast", first, word, against=other), {"terms": terms}
    return Target("mlm", first, word), {"terms": terms}


@pytest.mark.release
def test_fifty_texts_have_the_numbers_of_the_library(loaded: LoadedModel, page: Page) -> None:
    """Tokens are equal; probabilities are within 5e-5, maps and gradients within 1e-4 of the largest value.

    Some texts have a second sentence, some have heads that are off, and the targets are of every kind. The reference is
    the library in float64. Gradients may have the error of PyTorch in float32 in addition: it is up to 1e-4 for texts
    of three tokens, where the rounding of the logits matters most.
    """
    exact = dataclasses.replace(loaded, model=copy.deepcopy(loaded.model).double())
    above = 0  # texts with a gradient that differs by more than 1e-4
    generator, largest, kinds, lengths = np.random.default_rng(1), dict[str, float](), Counter[str](), list[int]()
    for number, encoding in enumerate(encodings(loaded)):
        positions = encoding.mask_positions or (1,)
        masked = sorted({encoding.words[position] for position in encoding.mask_positions})
        in_page = page.evaluate(ENCODE, [encoding.text, encoding.pair or "", masked])
        assert {name: in_page[name] for name in encoding_fields(encoding)} == json.loads(
            json.dumps(encoding_fields(encoding))
        )
        words = generator.integers(1000, 30000, (len(positions), 2)).tolist()
        target, in_engine = target_of(number, encoding, positions, words)
        shape = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
        head_mask = np.where(generator.random(shape) < 0.15, 0, 1).astype(np.float32) if number % 2 else None
        run = bert_core.capture(exact, encoding, target=target, positions=positions, head_mask=head_mask)
        request = {
            "inputIds": encoding.input_ids, "tokenTypeIds": encoding.token_type_ids, "gradients": True,
            "positions": positions, "target": in_engine,
            **({} if head_mask is None else {"headMask": head_mask.ravel().tolist()}),
        }  # fmt: skip
        result = {
            name: np.frombuffer(base64.b64decode(values["data"]), np.float32).reshape(values["dims"])
            for name, values in page.evaluate(RUN, request).items()
        }
        assert run.gradient is not None and run.gate_gradient is not None and run.target_value is not None
        attribution = bert_core.input_x_gradient(exact, encoding, target, head_mask=head_mask)
        probabilities = np.stack([prediction.probabilities for prediction in run.predictions])
        products = result["embeddings"] * result["embeddingGradient"]  # (token, embedding)
        errors = {
            "attention": error(result["attention"], run.attention),
            "attention gradient": error(result["attentionGradient"], run.gradient),
            "head mask gradient": error(result["headMaskGradient"], run.gate_gradient),
            # Relative to the sums of magnitudes, because the products of a token cancel.
            "input x gradient": float(
                np.abs(products.sum(-1) - np.asarray(attribution.scores)).max() / np.abs(products).sum(-1).max()
            ),
            "target value": abs(float(result["targetValue"]) - run.target_value) / max(1, abs(run.target_value)),
            "probability": float(np.abs(softmax(result["logits"]) - probabilities).max()),
        }
        if run.nsp is not None:
            errors["next sentence"] = abs(softmax(result["nextSentenceLogits"])[0] - run.nsp)
        in_float32 = bert_core.capture(loaded, encoding, target=target, positions=positions, head_mask=head_mask)
        assert in_float32.gradient is not None
        rounding = error(in_float32.gradient, run.gradient)
        above += max(errors[name] for name in errors.keys() - TOLERANCES.keys()) > 1e-4
        for name, value in errors.items():
            largest[name] = max(largest.get(name, 0), value)
            assert value < TOLERANCES.get(name, 1e-4 + rounding), (number, name, value, encoding.text[:60])
        kinds[target.kind] += 1
        lengths.append(len(encoding))
    print("largest differences:", {name: f"{value:.0e}" for name, value in largest.items()}, dict(kinds), above)
    assert sum(kinds.values()) == COUNT and len(kinds) == 4
    assert min(lengths) == 3 and max(lengths) == 512
