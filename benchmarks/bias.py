"""What it costs to score the bundled pairs for bias, against a loop over masked sentences.

    python benchmarks/bias.py            print the table
    python benchmarks/bias.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/bias.py --quick    the smallest size, to check that it works

The peer masks one shared token of one sentence at a time and runs `BertForMaskedLM` of transformers on it, as the
script of CrowS-Pairs does. Both must find the same differences within 1e-4 nats first. The library also scores the
words that differ, so that both measures come from one run.
"""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from encoder import KEPT
from search import median_ms
from tables import QUICK, command, in_own_process
from transformers import BertForMaskedLM

import bert_core

PAIRS, REPEATS = (4, 1) if QUICK else (12, 3)
EVALUATED_PAIRS = 200 if QUICK else 1_508  # as many as CrowS-Pairs has


def peer_differences(
    model: BertForMaskedLM, mask_id: int, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> np.ndarray:
    """Return the score of the shared tokens of the first sentence minus that of the second, (pair,).

    pairs: token ids of both sentences, with [CLS] and [SEP].
    """
    differences = np.zeros(len(pairs))
    for number, sentences in enumerate(pairs):
        blocks = difflib.SequenceMatcher(None, *(list(map(str, ids)) for ids in sentences)).get_matching_blocks()
        for block in blocks:
            for offset in range(block.size):
                for ids, position, sign in zip(sentences, (block.a + offset, block.b + offset), (1, -1), strict=True):
                    if 0 < position < len(ids) - 1:
                        masked = torch.tensor([ids])
                        masked[0, position] = mask_id
                        with torch.no_grad():
                            logits = model(masked).logits
                        differences[number] += sign * logits[0, position].log_softmax(-1)[ids[position]].item()
    return differences


def measure() -> dict[str, float]:
    """Return the milliseconds of both sides and of `evaluate_bias`, and the largest difference of their scores."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    model = BertForMaskedLM.from_pretrained(Path(loaded.report.source), dtype=torch.float32)
    model.train(False)
    pairs = bert_core.bundled_bias_pairs()[:PAIRS]
    encodings = [[loaded.tokenizer.encode(text).input_ids for text in (pair.first, pair.second)] for pair in pairs]

    def library() -> np.ndarray:
        evaluation = bert_core.evaluate_bias(bert_core.score_pairs(loaded, pairs))
        return np.array([pair.difference for pair in evaluation.pairs])

    def peer() -> np.ndarray:
        return peer_differences(model, loaded.tokenizer.mask_id, [(first, second) for first, second in encodings])

    error = float(np.abs(library() - peer()).max())
    if error > 1e-4:
        raise SystemExit(f"the scores differ from those of transformers by {error:.2g} nats")
    library_ms, peer_ms = median_ms((library, peer), REPEATS)
    scores = bert_core.score_pairs(loaded, pairs)
    repeated = [scores[number % len(scores)] for number in range(EVALUATED_PAIRS)]
    (evaluation_ms,) = median_ms((lambda: bert_core.evaluate_bias(repeated),), REPEATS)
    return {"library": library_ms, "peer": peer_ms, "evaluation": evaluation_ms, "error": error}


def table() -> str:
    """Return the table, with the machine that it is of."""
    result = in_own_process(__file__, malloc=KEPT)
    library_ms, peer_ms = result["library"], result["peer"]
    return "\n".join(
        [
            f"{platform.machine()}, {os.cpu_count()} CPUs; Python {platform.python_version()}, "
            f"torch {torch.__version__}, transformers {transformers.__version__}; headlight-mini; medians of {REPEATS} "
            f"runs a side; scores equal within {result['error']:.1g} nats.",
            "",
            "| | library, ms | peer, ms | ratio |",
            "| --- | ---: | ---: | ---: |",
            f"| score {PAIRS:,} pairs | {library_ms:,.0f} | {peer_ms:,.0f} | {library_ms / peer_ms:.2f} |",
            "",
            f"`evaluate_bias` of {EVALUATED_PAIRS:,} scored pairs: {result['evaluation']:,.0f} ms.",
            "",
        ]
    )


if __name__ == "__main__":
    command(__file__, "What bias evaluation costs.", table, measure)
