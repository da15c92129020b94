"""Every state of a base-size BERT patched from another text: all of them together, and by one hooked pass a place.

    python benchmarks/patching.py            print the table
    python benchmarks/patching.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/patching.py --quick    the smallest size, to check that it works

Both sides hold the same weights, patch every depth at every position, ask for one word at one position there, and must
find the same log-probabilities, to 1e-5 of the largest, before a clock starts. Each number of tokens has a process of
its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from encoder import KEPT, SEED, TOKEN, in_turns
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, Target, checkpoint
from bert_core.config import BertConfig
from bert_core.modeling import BertForPreTraining

TARGETS = {16: 6.0, 32: 5.0}  # tokens -> how many times faster than one hooked pass a place
REPEATS = {16: 1} if QUICK else {16: 3, 32: 3}
SENTENCE = "the teacher of the young children has seen that old house by the river on a very cold morning"
WORDS = SENTENCE.split(" ")


def loaded_model(folder: Path) -> LoadedModel:
    """A model of base size from a seed, with the vocabulary of the bundled one."""
    torch.manual_seed(SEED)
    ours = BertForPreTraining(BertConfig(initializer_range=0.05, **SIZES))
    checkpoint.write_tensors(dict(ours.state_dict()), ours.config, folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        bundled = Path(bert_core.__file__).parent / "assets" / "headlight-mini" / name
        if bundled.exists():
            shutil.copy(bundled, folder / name)
    return bert_core.load(folder)


def text_of(loaded: LoadedModel, tokens: int, first: int) -> Encoding:
    """So many tokens, the words from this one on, with [MASK] in the middle."""
    words = [WORDS[(first + place) % len(WORDS)] for place in range(tokens - 2)]
    words[tokens // 2 - 1] = "[MASK]"
    encoding = loaded.tokenizer.encode(" ".join(words))
    assert len(encoding) == tokens
    return encoding


@torch.no_grad()
def hooked(model: transformers.BertForPreTraining, source: Encoding, text: Encoding, target: Target) -> np.ndarray:
    """Theirs: a hook puts one state of the source in, and one pass is run for each; (depth, position)."""
    device = next(model.parameters()).device
    modules = [model.bert.embeddings, *model.bert.encoder.layer]
    source_states: list[Tensor] = []

    def first(out: Tensor | tuple[Tensor, ...]) -> Tensor:
        return out if isinstance(out, Tensor) else out[0]

    def run(encoding: Encoding) -> Tensor:
        states = model.bert(
            torch.tensor([encoding.input_ids], device=device),
            token_type_ids=torch.tensor([encoding.token_type_ids], device=device),
        ).last_hidden_state[:, target.position]
        scores: Tensor = model.cls.predictions(states).log_softmax(-1)[0, target.token_id]
        return scores

    hooks = [
        module.register_forward_hook(lambda _, __, out: source_states.append(first(out).clone())) for module in modules
    ]
    run(source)
    for hook in hooks:
        hook.remove()
    effects = np.empty((len(modules), len(text)))
    for depth, position in np.ndindex(effects.shape):

        def change(_module: object, _inputs: object, out: Tensor, depth: int = depth, index: int = position) -> Tensor:
            first(out)[:, index] = source_states[depth][:, index]
            return out

        hook = modules[depth].register_forward_hook(change)
        effects[depth, position] = run(text).item()
        hook.remove()
    return effects


def peer_of(loaded: LoadedModel) -> transformers.BertForPreTraining:
    """The model of transformers with the same weights."""
    theirs = transformers.BertForPreTraining(transformers.BertConfig(attn_implementation="sdpa", **SIZES)).eval()
    theirs.load_state_dict(loaded.model.state_dict())
    return theirs.to(loaded.device)


def measure(tokens: int, repeats: int) -> dict[str, object]:
    """Median milliseconds of each side, and the largest difference."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_model(Path(folder))
    theirs = peer_of(loaded)
    text, source = text_of(loaded, tokens, 0), text_of(loaded, tokens, 7)
    target = Target("mlm", tokens // 2, TOKEN)
    ids = torch.tensor([text.input_ids], device=loaded.device)
    sides: dict[str, Callable[[Tensor], np.ndarray]] = {
        "ours": lambda _: bert_core.patch(loaded, source, text, target).values,
        "transformers, one hooked pass a place": lambda _: hooked(theirs, source, text, target),
    }
    ours, peers = (side(ids) for side in sides.values())
    difference = float(np.abs(ours - peers).max() / np.abs(peers).max())
    if difference > 1e-5:
        raise SystemExit(f"{tokens} tokens: the sides differ by {difference} of the largest")
    ms, machine = in_turns(sides, ids, repeats)
    return {
        "places": ours.size,
        "ms": ms,
        "apart": difference,
        "machine": machine,
    }


def passes_table(
    script: str, repeats: dict[int, int], targets: dict[int, float], unit: str, peer: str, *, malloc: dict[str, str]
) -> str:
    """Return the measurement of a script beside one hooked pass each as Markdown, a row for each number of tokens.

    repeats, targets: tokens -> runs of each side, and how many times faster than the peer. unit: what a pass is of, the
    key of their number. peer: heading of the peer.
    """
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of "
        f"{', '.join(f'{n} (at {t} tokens)' for t, n in repeats.items())} runs a side.\n",
        f"| tokens | {unit} | ours, ms | {peer}, ms | times faster | target | apart, of the largest | "
        "load; others' CPUs |",
        "| ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for tokens, runs in repeats.items():
        result = in_own_process(script, tokens, runs, malloc=malloc)
        ours, peers = result["ms"].values()
        status = "met" if peers / ours >= targets[tokens] else "**missed**"
        lines.append(
            f"| {tokens} | {result[unit]} | {ours:.0f} | {peers:.0f} | {peers / ours:.2f} | "
            f"{targets[tokens]:g} {status} | {result['apart']:.0e} | {result['machine']} |"
        )
    return "\n".join(lines) + "\n"


def table() -> str:
    """The whole measurement as Markdown."""
    return passes_table(__file__, REPEATS, TARGETS, "places", "one hooked pass a place", malloc=KEPT)


if __name__ == "__main__":
    command(__file__, "Patching of every state.", table, measure)
