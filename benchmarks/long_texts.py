"""Time and memory of long texts in a model of the size of ModernBERT-base: bert_core and transformers in one run.

    python benchmarks/long_texts.py            print the table
    python benchmarks/long_texts.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/long_texts.py --quick    the smallest size, to check that it works

Each row has a process for each side, which computes the rows of the MLM head at one position only. The time is the
median of the runs; the memory is the peak above the loaded model (VmHWM; Linux only). The maps, gradients and states of
both sides are compared at 300 tokens first.
"""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from checkpointing import resident, trimmed_memory
from encoder import MALLOC, TOKEN, Findings, require_same, seconds_of, sentence
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

from bert_core.modeling import BertForPreTraining
from bert_core.recording import record

BLOCK = 512  # queries and keys whose part of each map is kept
COMPARED = 300  # tokens
LONG, LONGEST = (320, 400) if QUICK else (2048, 8192)
# What is measured: label, tokens, ours and theirs (None: transformers has no way to do it), runs of each side.
ROWS: tuple[tuple[str, int, str, str | None, int], ...] = (
    ("no maps", LONG, "ours_plain", "theirs_fused", 5),
    ("all maps", LONG, "ours_maps", "theirs_maps", 3),
    ("all maps and gradients", LONG, "ours_gradients", "theirs_gradients", 3),
    (f"ours: {BLOCK} tokens of all maps", LONG, "ours_block", "theirs_maps", 3),
    (f"ours: {BLOCK} tokens of all maps and gradients", LONG, "ours_block_gradients", "theirs_gradients", 3),
    ("no maps", LONGEST, "ours_plain", "theirs_fused", 3),
    ("ours: the maps of one global layer", LONGEST, "ours_layer", None, 2),
    (f"ours: {BLOCK} tokens of all maps", LONGEST, "ours_block", None, 2),
    (f"ours: {BLOCK} tokens of all maps and gradients", LONGEST, "ours_block_gradients", None, 2),
)


def variants() -> dict[str, Callable[[], Callable[[Tensor], Findings]]]:
    """Name -> function that loads a model and returns what is measured: the results for ids (1, tokens)."""
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    # At the published standard deviation, all maps of a random model are flat.
    sizes: dict[str, Any] = {"max_position_embeddings": 8192, "initializer_range": 0.05, **SIZES}
    config = transformers.ModernBertConfig(**sizes)
    folder = tempfile.mkdtemp()
    transformers.ModernBertForMaskedLM(config).save_pretrained(folder)

    def ours(run: Callable[[Any, Tensor], Findings]) -> Callable[[], Callable[[Tensor], Findings]]:
        def load() -> Callable[[Tensor], Findings]:
            model = BertForPreTraining.from_pretrained(folder).eval().requires_grad_(False)
            return lambda ids: run(model, ids)

        return load

    def theirs(attention: str, run: Callable[[Any, Tensor], Findings]) -> Callable[[], Callable[[Tensor], Findings]]:
        def load() -> Callable[[Tensor], Findings]:
            peer = transformers.ModernBertForMaskedLM
            model = peer.from_pretrained(folder, attn_implementation=attention).eval().requires_grad_(False)
            return lambda ids: run(model, ids)

        return load

    def block(ids: Tensor) -> tuple[int, int]:
        return (0, min(BLOCK, ids.shape[1]))

    return {
        "ours_plain": ours(lambda model, ids: our_maps(model, ids, layers=())),
        "ours_maps": ours(our_maps),
        "ours_layer": ours(lambda model, ids: our_maps(model, ids, layers=(0,))),
        "ours_block": ours(lambda model, ids: our_maps(model, ids, token_range=block(ids))),
        "ours_gradients": ours(our_gradients),
        "ours_block_gradients": ours(lambda model, ids: our_gradients(model, ids, token_range=block(ids))),
        "theirs_fused": theirs("sdpa", lambda model, ids: their_maps(model, ids, output_attentions=False)),
        "theirs_maps": theirs("eager", their_maps),
        "theirs_gradients": theirs("eager", their_gradients),
    }


@torch.no_grad()
def our_maps(model: BertForPreTraining, ids: Tensor, **recorded: Any) -> Findings:
    """The states of the last layer, and the recorded maps."""
    with record(**recorded) as recording:
        states = model.bert(ids).last_hidden_state
    return {"hidden": [states], "maps": list(recording.attention.values())}


def our_gradients(model: BertForPreTraining, ids: Tensor, **recorded: Any) -> Findings:
    """The recorded maps with their gradients, for one log-probability in the middle of the text."""
    embeddings = model.get_input_embeddings()(ids).requires_grad_()
    with record(**recorded) as recording:
        states = model.bert(inputs_embeds=embeddings).last_hidden_state
    explained = model.cls.predictions(states[0, ids.shape[1] // 2]).log_softmax(-1)[TOKEN]
    maps = [recording.attention[layer] for layer in sorted(recording.attention)]
    if recorded:
        torch.autograd.grad(explained, embeddings)
        gradients = [recording.gradients[layer] for layer in sorted(recording.gradients)]
    else:
        gradients = list(torch.autograd.grad(explained, maps))
    return {"value": [explained], "maps": maps, "gradients": gradients}


@torch.no_grad()
def their_maps(model: Any, ids: Tensor, *, output_attentions: bool = True) -> Findings:
    """The states of the last layer, and all maps."""
    output = model.base_model(ids, output_attentions=output_attentions)
    return {"hidden": [output.last_hidden_state], "maps": output.attentions or ()}


def their_gradients(model: Any, ids: Tensor) -> Findings:
    """All maps with their gradients, for one log-probability in the middle of the text."""
    embeddings = model.get_input_embeddings()(ids).requires_grad_()
    output = model.base_model(inputs_embeds=embeddings, output_attentions=True)
    state = output.last_hidden_state[0, ids.shape[1] // 2]
    explained = model.decoder(model.head(state)).log_softmax(-1)[TOKEN]
    gradients = torch.autograd.grad(explained, output.attentions)
    return {"value": [explained], "maps": output.attentions, "gradients": gradients}


def measure(name: str, tokens: int, repeats: int) -> tuple[float, float]:
    """Return the median seconds of a variant, and its peak memory in MiB above the loaded model."""
    run = variants()[name]()
    run(sentence(16))
    known = Path("/proc/self/clear_refs").exists()
    before = trimmed_memory() if known else float("nan")
    seconds = [seconds_of(run, sentence(tokens)) for _ in range(repeats)]
    return statistics.median(seconds), (resident("VmHWM") if known else float("nan")) - before


def check() -> None:
    """Stop unless both sides have the same states, maps and gradients; of a block, the same part."""
    ids, runs = sentence(COMPARED), variants()
    for left, right in (("ours_plain", "theirs_fused"), ("ours_maps", "theirs_maps")):
        require_same(runs[left]()(ids), runs[right]()(ids), left)
    whole = runs["theirs_gradients"]()(ids)
    require_same(runs["ours_gradients"]()(ids), whole, "ours_gradients")
    require_same(runs["ours_block_gradients"]()(ids), whole, "ours_block_gradients")


def table() -> str:
    """The whole measurement as Markdown."""
    check()
    lines = [
        f"{platform.machine()}, {torch.get_num_threads()} threads; Python {platform.python_version()}, torch "
        f"{torch.__version__}, transformers {transformers.__version__}; {time.strftime('%Y-%m-%d')}.\n",
        "| | tokens | ours, s | theirs, s | ratio | ours, MiB | theirs, MiB | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    results: dict[tuple[str, int], tuple[float, float]] = {}
    for label, tokens, left, right, repeats in ROWS:
        for name in (left, right):
            if name is not None and (name, tokens) not in results:
                results[name, tokens] = in_own_process(__file__, name, tokens, repeats, malloc=MALLOC["default"])
        seconds, mib = results[left, tokens]
        if right is None:
            lines.append(f"| {label} | {tokens:,} | {seconds:.2f} | | | {mib:,.0f} | | |")
        else:
            their_seconds, their_mib = results[right, tokens]
            lines.append(
                f"| {label} | {tokens:,} | {seconds:.2f} | {their_seconds:.2f} | {seconds / their_seconds:.3f} "
                f"| {mib:,.0f} | {their_mib:,.0f} | {mib / their_mib:.3f} |"
            )
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "long texts, side by side", table, measure)
