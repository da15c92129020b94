"""All numbers of the browser engine in Chromium against bert_core, on fifty texts, and how it reads them."""

from __future__ import annotations

import base64
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
from tests.browser_texts import fields, texts
from tests.conftest import built_once

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
    """Fifty texts that the model reads, of 3 to 512 tokens, with up to three masked words each."""
    pairs = [
        ("bank", ""),
        *texts()[: COUNT - 8],
        *((LONG * count, LONG) for count in (1, 2, 4, 8, 12)),
        (LONG * 30, ""),
    ]
    generator, chosen = np.random.default_rng(0), list[Encoding]()
    for text, pair in pairs:
        encoding = loaded.tokenizer.encode(text, pair or None)
        words = generator.permutation(encoding.word_count)[: 1 + len(chosen) % 3].tolist()
        chosen.append(loaded.tokenizer.mask_words(encoding, sorted(words)))
    return [*chosen, *chosen[: COUNT - len(chosen)]]


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    probabilities: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return probabilities


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())


def target_of(number: int, encoding: Encoding, guesses: list[list[int]]) -> tuple[Target, dict[str, Any]]:
    """A target for a text, in Python and for the engine: a word, a contrast, several words, or the next sentence.

    guesses: for each mask the two most likely tokens.
    """
    first = encoding.mask_positions[0]
    (word, other), kind = guesses[0], number % 4
    if kind == 3 and encoding.pair is not None:
        return Target("nsp"), {"nextSentence": [1, -1]}
    if kind == 2:
        tokens = [(position, guess[0]) for position, guess in zip(encoding.mask_positions, guesses, strict=True)]
        terms = [{"position": position, "token": token, "weight": 1} for position, token in tokens]
        return Target("joint", pieces=tuple(tokens)), {"terms": terms}
    terms = [{"position": first, "token": word, "weight": 1}]
    if kind == 1:
        terms.append({"position": first, "token": other, "weight": -1})
        return Target("contrast", first, word, against=other), {"terms": terms}
    return Target("mlm", first, word), {"terms": terms}


def test_fifty_texts_have_the_numbers_of_the_library(loaded: LoadedModel, page: Page) -> None:
    """Tokens are equal; probabilities are within 5e-5, maps and gradients within 1e-4 of the largest value.

    Some texts have a second sentence, some have heads that are off, and the targets are of every kind.
    """
    generator, largest, kinds, lengths = np.random.default_rng(1), dict[str, float](), Counter[str](), list[int]()
    for number, encoding in enumerate(encodings(loaded)):
        words = sorted({encoding.words[position] for position in encoding.mask_positions})
        in_page = page.evaluate(ENCODE, [encoding.text, encoding.pair or "", words])
        assert {name: in_page[name] for name in fields(encoding)} == json.loads(json.dumps(fields(encoding)))
        plain = bert_core.capture(loaded, encoding, top_k=2)
        guesses = [[token for token, _ in prediction.top] for prediction in plain.predictions]
        target, in_engine = target_of(number, encoding, guesses)
        shape = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
        head_mask = np.where(generator.random(shape) < 0.15, 0, 1).astype(np.float32) if number % 2 else None
        run = bert_core.capture(loaded, encoding, target=target, head_mask=head_mask)
        request = {
            "inputIds": encoding.input_ids, "tokenTypeIds": encoding.token_type_ids, "gradients": True,
            "positions": encoding.mask_positions, "target": in_engine,
            **({} if head_mask is None else {"headMask": head_mask.ravel().tolist()}),
        }  # fmt: skip
        result = {
            name: np.frombuffer(base64.b64decode(values["data"]), np.float32).reshape(values["dims"])
            for name, values in page.evaluate(RUN, request).items()
        }
        assert run.gradient is not None and run.gate_gradient is not None and run.target_value is not None
        attribution = bert_core.input_x_gradient(loaded, encoding, target, head_mask=head_mask)
        probabilities = np.stack([prediction.probabilities for prediction in run.predictions])
        errors = {
            "attention": error(result["attention"], run.attention),
            "attention gradient": error(result["attentionGradient"], run.gradient),
            "head mask gradient": error(result["headMaskGradient"], run.gate_gradient),
            "input x gradient": error(
                (result["embeddings"] * result["embeddingGradient"]).sum(-1), np.asarray(attribution.scores)
            ),
            "target value": abs(float(result["targetValue"]) - run.target_value) / max(1, abs(run.target_value)),
            "probability": float(np.abs(softmax(result["logits"]) - probabilities).max()),
        }
        if run.nsp is not None:
            errors["next sentence"] = abs(softmax(result["nextSentenceLogits"])[0] - run.nsp)
        for name, value in errors.items():
            largest[name] = max(largest.get(name, 0), value)
            assert value < TOLERANCES.get(name, 1e-4), (number, name, value, encoding.text[:60])
        kinds[target.kind] += 1
        lengths.append(len(encoding))
    print("largest differences:", {name: f"{value:.0e}" for name, value in largest.items()}, dict(kinds))
    assert sum(kinds.values()) == COUNT and len(kinds) == 4
    assert min(lengths) == 3 and max(lengths) == 512
