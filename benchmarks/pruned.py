"""What pruning saves and masking does not: a base-size BERT with some of its heads, whole, masked and pruned.

    python benchmarks/pruned.py            print the table
    python benchmarks/pruned.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/pruned.py --quick    the smallest size, to check that it works

The heads that go are drawn with a seed; the masked and the pruned model must agree to 1e-5 before a clock starts.
"""

from __future__ import annotations

import os
import platform

import numpy as np
import torch
from encoder import KEPT, SEED, busy_and_own
from tables import QUICK, SIZES, command, in_own_process

from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel, best_device, load
from bert_core.modeling import BertForPreTraining
from bert_core.pruning import pruned
from bert_core.run.costs import pruning_costs

SHARES = (0.25, 0.5, 0.75)
TOKENS, REPEATS = (16, 1) if QUICK else (128, 5)


def base() -> LoadedModel:
    """A model of base size with random weights, and the bundled tokenizer, whose text is as good as any."""
    torch.manual_seed(SEED)
    model = BertForPreTraining(BertConfig(initializer_range=0.05, **SIZES)).eval().requires_grad_(False)
    device = best_device()
    return LoadedModel("base", model.to(device), load(device="cpu").tokenizer, LoadReport("", (), ()), device)


def measure(share: float) -> dict[str, object]:
    """Sizes and median milliseconds of the three at each batch size."""
    loaded = base()
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    all_heads = list(np.ndindex(layers, heads))
    sample = np.random.default_rng(SEED).permutation(len(all_heads))[: round(share * len(all_heads))]
    pruned_heads = [all_heads[number] for number in sample]
    encoding = loaded.tokenizer.encode("word " * TOKENS, max_length=TOKENS)
    gates = torch.ones(layers, heads, device=loaded.device)
    for head in pruned_heads:
        gates[head] = 0
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    with torch.no_grad():
        smaller = pruned(loaded, pruned_heads).model.bert(ids).last_hidden_state
        masked = loaded.model.bert(ids, head_mask=gates).last_hidden_state
    if (difference := float((smaller - masked).abs().max())) > 1e-5 * float(masked.abs().max()):
        raise SystemExit(f"the pruned model differs from the masked one by {difference}")
    before = busy_and_own()
    costs = pruning_costs(loaded, pruned_heads, encoding, repeats=REPEATS)
    after = busy_and_own()
    return {
        "costs": [{**vars(cost), "seconds": dict(cost.seconds)} for cost in costs],
        "others": (after[0] - before[0]) - (after[1] - before[1]),
    }


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}; "
        f"malloc as `headlight` sets it. Medians of {REPEATS} runs a side, {TOKENS} tokens.\n",
        "| heads gone | model | parameters, M | MiB | batch 1, ms | batch 8, ms | batch 32, ms | faster at 32 |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for share in SHARES:
        costs = in_own_process(__file__, share, malloc=KEPT)["costs"]
        full = costs[0]["seconds"]["32"]
        for cost in costs if share == SHARES[0] else costs[1:]:
            times = " | ".join(f"{1000 * cost['seconds'][size]:.1f}" for size in ("1", "8", "32"))
            sizes = f"{cost['parameters'] / 1e6:.1f} | {cost['nbytes'] / 2**20:.0f}"
            pruned_share = "none" if cost["variant"] == "full" else f"{share:.0%}"
            lines.append(
                f"| {pruned_share} | {cost['variant']} | {sizes} | {times} | {full / cost['seconds']['32']:.2f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Full, masked and pruned.", table, measure)
