"""What direct logit attribution costs: bert_core and transformers with hooks, taking turns in one run.

    python benchmarks/direct.py            print the table
    python benchmarks/direct.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/direct.py --quick    the smallest size, to check that it works

The model is random, of the size of ModernBERT-base. Both sides must find the same contributions before a clock starts.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from encoder import MALLOC, TOKEN, Findings, encoding_of, in_turns, require_same, sentence
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

from bert_core import LoadedModel, Target, direct_logit
from bert_core.loading import ASSETS, LoadReport, best_device
from bert_core.modeling import BertForMaskedLM
from bert_core.tokenizer import Tokenizer

REPEATS = {16: 1} if QUICK else {16: 11, 128: 7, 512: 5}  # tokens -> how often each side runs
SPECIAL = {"vocab_size": 30522, "pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102}  # of BERT's vocabulary
ROWS = (
    ("the model alone", "theirs_plain"),
    ("by hooks, heads from the outputs of attention", "theirs_contributions"),
)


def ours(loaded: LoadedModel, ids: Tensor) -> Findings:
    """The contributions to the logit in the middle."""
    encoding = encoding_of(ids)
    direct = direct_logit(loaded, encoding, Target("mlm", len(encoding) // 2, TOKEN))
    return {
        "heads": [direct.heads], "feed_forward": [direct.feed_forward], "embedding": [torch.tensor(direct.embedding)]
    }  # fmt: skip


@torch.no_grad()
def theirs(model: Any, ids: Tensor) -> Findings:
    """The same by hooks: what each module adds at one position, through the norms and the head of words."""
    position, seen, hooks = ids.shape[1] // 2, dict[str, Tensor](), []

    def keep_input(name: str, _: object, inputs: tuple[Tensor, ...]) -> None:
        seen[name] = inputs[0][0, position]

    def keep_output(name: str, _: object, __: object, output: Tensor) -> None:
        seen[name] = output[0, position]

    hooks.append(model.model.embeddings.register_forward_hook(partial(keep_output, "embedding")))
    hooks.append(model.model.final_norm.register_forward_pre_hook(partial(keep_input, "residual")))
    hooks.append(model.head.dense.register_forward_hook(partial(keep_output, "dense")))
    for number, layer in enumerate(model.model.layers):
        hooks.append(layer.attn.Wo.register_forward_pre_hook(partial(keep_input, f"attention {number}")))
        hooks.append(layer.mlp.register_forward_hook(partial(keep_output, f"feed-forward {number}")))
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    layers, heads = len(model.model.layers), model.config.num_attention_heads
    parts = [seen["embedding"][None]]
    for number, layer in enumerate(model.model.layers):
        weight = layer.attn.Wo.weight
        by_head = weight.view(len(weight), heads, -1)
        parts.append(torch.einsum("hd,ohd->ho", seen[f"attention {number}"].view(heads, -1), by_head))
    parts += [seen[f"feed-forward {number}"][None] for number in range(layers)]
    vectors = torch.cat(parts)

    def through(norm: Any, vectors: Tensor, summed: Tensor) -> Tensor:
        spread = (summed.var(unbiased=False) + norm.eps).sqrt()
        return (vectors - vectors.mean(-1, keepdim=True)) / spread * norm.weight

    vectors = through(model.model.final_norm, vectors, seen["residual"])
    activated = F.gelu(seen["dense"])
    vectors = F.linear(vectors, model.head.dense.weight) * (activated / seen["dense"])
    contributions = through(model.head.norm, vectors, activated) @ model.decoder.weight[TOKEN]
    return {
        "heads": [contributions[1 : 1 + layers * heads].view(layers, heads)],
        "feed_forward": [contributions[1 + layers * heads :]],
        "embedding": [contributions[0]],
    }


@torch.no_grad()
def plain(model: Any, ids: Tensor) -> Findings:
    """A forward pass without hooks."""
    return {"scores": [model(ids).logits]}


def measure() -> list[tuple[str, str, float, float, str]]:
    """What was timed, tokens, median milliseconds of ours and of theirs, and the machine meanwhile."""
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config, device = transformers.ModernBertConfig(**SPECIAL, **SIZES), best_device()
    with tempfile.TemporaryDirectory() as folder:
        transformers.ModernBertForMaskedLM(config).save_pretrained(folder)
        peer = transformers.ModernBertForMaskedLM.from_pretrained(folder).to(device).eval()
        model = BertForMaskedLM.from_pretrained(folder).requires_grad_(False).to(device)
    tokenizer = Tokenizer.from_folder(ASSETS / "headlight-mini")
    loaded = LoadedModel("random", model, tokenizer, LoadReport("random", (), ()), device)
    runs = {"theirs_plain": partial(plain, peer), "theirs_contributions": partial(theirs, peer)}
    results = []
    for tokens, times in REPEATS.items():
        ids = sentence(tokens)
        require_same(ours(loaded, ids), theirs(peer, ids), f"{tokens} tokens")
        for label, right in ROWS:
            ms, machine = in_turns({"ours": partial(ours, loaded), right: runs[right]}, ids, times)
            results.append((label, str(tokens), ms["ours"], ms[right], machine))
    return results


def table() -> str:
    """The table of all rows as Markdown."""
    repeats = ", ".join(f"{times} (at {tokens} tokens)" for tokens, times in REPEATS.items())
    lines = [
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()}, "
        f"{torch.get_num_threads()} threads; Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}; medians of {repeats} runs a side; {time.strftime('%Y-%m-%d')}.\n",
        "| theirs | tokens | ours, ms | theirs, ms | ratio | load; others' CPUs |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for label, tokens, left, right, machine in in_own_process(__file__, malloc=MALLOC["default"]):
        lines.append(f"| {label} | {tokens} | {left:.1f} | {right:.1f} | {left / right:.3f} | {machine} |")
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "direct logit attribution, side by side", table, measure)
