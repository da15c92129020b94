"""What every head is worth: ours beside the plain way, for one sentence and for a file of them.

    python benchmarks/heads.py            print the tables
    python benchmarks/heads.py --write    and put them between the markers of benchmarks/README.md
    python benchmarks/heads.py --quick    the smallest size, to check that it works

One sentence, base size: the slope of a word's log-probability with each of 144 heads, from `capture` (one pass forward,
one back) and from autograd with a gate of its own for every head, one backward pass a gate; both keep no gradient of a
weight. A file, headlight-mini: the mean size of the slope of every head over sentences, as `headlight heads
--importance` finds it, and in a plain loop over transformers: its own loss on the same hidden pieces, its own
attentions, map times gradient. Both sides must find the same numbers (to 1e-4 of the largest) before a clock starts.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import numpy as np
import torch
import transformers
from encoder import KEPT, SEED, TOKEN, TOLERANCE, in_turns, sentence
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

import bert_core
from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel, best_device
from bert_core.modeling import BertForPreTraining
from bert_core.records import Target
from bert_core.run.capture import capture
from bert_core.run.losses import TextExample, gate_gradients, mask_pieces
from bert_core.tokenizer import Encoding

REPEATS = {16: 1} if QUICK else {16: 5, 128: 3}  # tokens -> how often each side runs
SENTENCES, ROUNDS = (4, 1) if QUICK else (256, 3)
WORDS = ("the", "old", "king", "saw", "a", "river", "and", "she", "went", "to", "london", "in", "winter", ".")


def by_capture(loaded: LoadedModel, ids: Tensor) -> np.ndarray:
    """Ours: (layer, head)."""
    middle = ids.shape[1] // 2
    row = tuple(ids[0].tolist())
    encoding = Encoding(
        "", None, ("x",) * len(row), row, (0,) * len(row), ((0, 1),) * len(row), tuple(range(len(row))),
        ("A",) * len(row), len(row),
    )  # fmt: skip
    slopes = capture(loaded, encoding, target=Target("mlm", middle, TOKEN), positions=(middle,)).gate_gradient
    assert slopes is not None  # there is a target
    return slopes


def gate_by_gate(model: BertForPreTraining, ids: Tensor) -> np.ndarray:
    """The plain way: one leaf a head, and one backward pass for each through one forward pass."""
    config, middle = model.config, ids.shape[1] // 2
    shape = (config.num_hidden_layers, config.num_attention_heads)
    leaves = [torch.ones((), device=ids.device, requires_grad=True) for _ in range(shape[0] * shape[1])]
    hidden = model.bert(ids, head_mask=torch.stack(leaves).view(shape)).last_hidden_state[:, middle]
    value = model.cls.predictions(hidden).log_softmax(-1)[0, TOKEN]
    gradients = [torch.autograd.grad(value, leaf, retain_graph=True)[0].item() for leaf in leaves]
    return np.array(gradients, np.float32).reshape(shape)


def corpus(loaded: LoadedModel, count: int) -> list[TextExample]:
    """Sentences of 8 to 40 words drawn from a seed, some pieces hidden."""
    rng = np.random.default_rng(SEED)
    texts = [" ".join(rng.choice(WORDS, rng.integers(8, 41))) for _ in range(count)]
    return [mask_pieces(loaded.tokenizer, loaded.tokenizer.encode(text), rng) for text in texts]


def ours_over(loaded: LoadedModel, texts: Sequence[TextExample]) -> np.ndarray:
    """Mean size of the slopes, (layer, head)."""
    importance: np.ndarray = np.abs(gate_gradients(loaded, texts)[1]).mean(0)
    return importance


def theirs_over(model: transformers.BertForPreTraining, texts: Sequence[TextExample]) -> np.ndarray:
    """The same from transformers' own attentions, one sentence after another."""
    total = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
    for text in texts:
        encoding = text.encoding
        embeddings = model.bert.embeddings.word_embeddings(torch.tensor([encoding.input_ids])).detach().requires_grad_()
        output = model(inputs_embeds=embeddings, output_attentions=True)
        rows = output.prediction_logits[0, list(text.positions)]
        loss = torch.nn.functional.cross_entropy(rows, torch.tensor(text.answers))
        slopes = torch.autograd.grad(loss, output.attentions)
        layer_sums = [(a * g).sum((0, 2, 3)) for a, g in zip(output.attentions, slopes, strict=True)]
        total += torch.stack(layer_sums).detach().numpy().__abs__()
    return total / len(texts)


def check(label: str, ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest value; ends the run where it is too large."""
    difference = float(np.abs(ours - theirs).max() / np.abs(ours).max())
    if difference > TOLERANCE:
        raise SystemExit(f"{label}: the two sides differ by {difference}")
    return difference


def measure_sentence(tokens: int, repeats: int) -> dict[str, object]:
    """Ours and one backward pass a gate, on one sentence."""
    torch.manual_seed(SEED)
    device = best_device()
    model = BertForPreTraining(BertConfig(initializer_range=0.05, **SIZES)).eval().requires_grad_(False).to(device)
    tokenizer = bert_core.load("headlight-mini", device="cpu").tokenizer
    loaded = LoadedModel("base", model, tokenizer, LoadReport("", (), ()), device)
    ids = sentence(tokens)
    difference = check(f"{tokens} tokens", by_capture(loaded, ids), gate_by_gate(model, ids))
    sides = {"ours": lambda ids: by_capture(loaded, ids), "theirs": lambda ids: gate_by_gate(model, ids)}
    ms, machine = in_turns(sides, ids, repeats)
    return {"ms": ms, "machine": machine, "difference": difference}


def measure_corpus(count: int, repeats: int) -> dict[str, object]:
    """Ours in batches and a plain loop over transformers, on sentences."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = transformers.BertConfig(**{name: getattr(loaded.config, name) for name in names})
    peer = transformers.BertForPreTraining._from_config(config, attn_implementation="eager").eval()
    peer.load_state_dict(loaded.model.state_dict())
    peer.requires_grad_(False)
    texts = corpus(loaded, count)
    difference = check("sentences", ours_over(loaded, texts), theirs_over(peer, texts))
    sides = {"ours": lambda _: ours_over(loaded, texts), "theirs": lambda _: theirs_over(peer, texts)}
    ms, machine = in_turns(sides, torch.empty(0), repeats)
    return {"ms": ms, "machine": machine, "difference": difference}


def measure(kind: str, count: int, repeats: int) -> dict[str, object]:
    """One sentence or a file of them, in a process of its own."""
    return {"sentence": measure_sentence, "corpus": measure_corpus}[kind](count, repeats)


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"transformers {transformers.__version__}; malloc as `headlight` sets it. Medians of "
        f"{', '.join(f'{n} (at {t} tokens)' for t, n in REPEATS.items())} runs a side, {ROUNDS} over sentences.\n",
        "| one sentence, base size | ours, ms | one backward pass a gate, ms | times faster | load; others' CPUs |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for tokens, repeats in REPEATS.items():
        result = in_own_process(__file__, "sentence", tokens, repeats, malloc=KEPT)
        ours, theirs = result["ms"]["ours"], result["ms"]["theirs"]
        lines.append(f"| {tokens} tokens | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} | {result['machine']} |")
    result = in_own_process(__file__, "corpus", SENTENCES, ROUNDS, malloc=KEPT)
    ours, theirs = (1000 * SENTENCES / result["ms"][side] for side in ("ours", "theirs"))
    lines += [
        "\n| a file, headlight-mini | ours, sentences/s | transformers, sentences/s | times faster | "
        "load; others' CPUs |",
        "| --- | ---: | ---: | ---: | --- |",
        f"| {SENTENCES} sentences | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {result['machine']} |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Importance of every head.", table, measure)
