"""What it saves that neurons or layers are gone: headlight-mini whole and without them, by turns.

    python benchmarks/smaller.py            print the table
    python benchmarks/smaller.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/smaller.py --quick    the smallest size, to check that it works

What goes is drawn with a seed. Before a clock starts, a model without neurons must agree to 1e-5 with the whole one
whose neurons are at zero, and one without layers with those that are left, run by hand.
"""

from __future__ import annotations

import os
import platform
import statistics
import time

import numpy as np
import torch
from encoder import KEPT, SEED, busy_and_own
from tables import QUICK, command, in_own_process

from bert_core.editing import with_neuron_gates
from bert_core.loading import load
from bert_core.pruning import prune_parts
from bert_core.run.losses import existing_parts

SHARES = {"heads": (0.5, 1.0), "neurons": (0.25, 0.5, 0.75, 0.9), "layers": (1 / 6, 1 / 3, 1 / 2)}
TOKENS, BATCHES, REPEATS = 64, (1, 8), 1 if QUICK else 21


@torch.no_grad()
def measure(part_kind: str, share: float) -> dict[str, object]:
    """Parameters, median seconds of a pass of both at each batch size, and the processor time that others took."""
    loaded = load("headlight-mini")
    existing = existing_parts(loaded, part_kind)
    sample = np.random.default_rng(SEED).permutation(existing.size)[: round(share * existing.size)]
    removed = [tuple(map(int, np.unravel_index(number, existing.shape))) for number in sample]
    encoding = loaded.tokenizer.encode("word " * TOKENS, max_length=TOKENS)
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    states = prune_parts(loaded, part_kind, removed).model.bert(ids).last_hidden_state
    if part_kind == "layers":
        bert = loaded.model.bert
        expected = bert.embeddings(ids)
        for number, layer in enumerate(bert.encoder.layer):
            if (number,) not in removed:
                expected = layer(expected).hidden_states
    else:
        gates = torch.ones(existing.shape)
        for layer, number in removed:
            gates[layer, number] = 0
        if part_kind == "heads":
            expected = loaded.model.bert(ids, head_mask=gates).last_hidden_state
        else:
            expected = with_neuron_gates(loaded, list(gates[:, None, None])).model.bert(ids).last_hidden_state
    if (difference := float((states - expected).abs().max())) > 1e-5 * float(expected.abs().max()):
        raise SystemExit(f"the smaller model differs by {difference}")
    sides = {"whole": loaded, "left": prune_parts(loaded, part_kind, removed)}
    times: dict[str, dict[int, list[float]]] = {side: {size: [] for size in BATCHES} for side in sides}
    before = busy_and_own()
    for size in BATCHES:
        texts = ids.expand(size, -1).contiguous()
        for turn in range(1 + REPEATS):
            for side, model in sides.items():
                start = time.process_time()
                model.model.bert(texts)
                if turn:  # the first round warms up
                    times[side][size].append(time.process_time() - start)
    after = busy_and_own()
    return {
        "parameters": sum(parameter.numel() for parameter in sides["left"].model.parameters()),
        "seconds": {
            side: {size: statistics.median(values) for size, values in sizes.items()} for side, sizes in times.items()
        },
        "others": (after[0] - before[0]) - (after[1] - before[1]),
        "own": after[1] - before[1],
    }


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        "| gone | parameters, M | batch 1, ms | whole, ms | times as fast | batch 8, ms | whole, ms | times as fast |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    other_time = own_time = 0.0
    for part_kind, shares in SHARES.items():
        for share in shares:
            result = in_own_process(__file__, part_kind, share, malloc={**KEPT, "OMP_NUM_THREADS": "1"})
            other_time, own_time = other_time + result["others"], own_time + result["own"]
            cells = []
            for size in map(str, BATCHES):
                one_part, all_of_it = (result["seconds"][side][size] for side in ("left", "whole"))
                cells += [f"{1000 * one_part:.1f}", f"{1000 * all_of_it:.1f}", f"{all_of_it / one_part:.2f}"]
            lines.append(f"| {share:.0%} of the {part_kind} | {result['parameters'] / 1e6:.1f} | {' | '.join(cells)} |")
    note = (
        f"{platform.machine()}, {os.cpu_count()} CPUs; processor time of one thread, so that no waiting counts; "
        f"torch {torch.__version__}; malloc as `headlight` sets it. Medians of {REPEATS} runs a side, "
        f"{TOKENS} tokens; meanwhile other programs took {other_time / max(own_time, 1e-9):.1f} times the processor "
        "time of this one.\n\n"
    )
    return note + "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Whole, and without heads, neurons or layers.", table, measure)
