"""What the answers to "why this word?" cost, at base size, beside the usual way to get them.

    python benchmarks/why.py            print the table
    python benchmarks/why.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/why.py --quick    a small model and few steps, to try a change

Weights are random and seeded; each side has a process of its own, one run each. Where there are two sides they must
find the same numbers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from captum.attr import LayerIntegratedGradients
from checkpointing import held_now, resident
from encoder import SEED, sentence
from tables import write_table

from bert_core.analysis.flow import attention_flow, layer_mixing
from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import ASSETS, LoadedModel
from bert_core.modeling import BertForPreTraining
from bert_core.record import Target
from bert_core.run.capture import capture
from bert_core.run.decomposition import alti, attention_norms, decompx
from bert_core.run.layers import layer_passes
from bert_core.run.perturbation import integrated_gradients, pseudo_log_likelihood, value_zeroing
from bert_core.tokenizer import Encoding, Tokenizer

TOLERANCE = 1e-4
QUICK = "--quick" in sys.argv
STEPS = 5 if QUICK else 50
CONFIG = BertConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4) if QUICK else BertConfig()


def model() -> LoadedModel:
    torch.manual_seed(SEED)
    made = BertForPreTraining(CONFIG).eval().requires_grad_(False)
    tokenizer = Tokenizer.from_folder(ASSETS / "headlight-mini")
    return LoadedModel("random", made, tokenizer, LoadReport("random", (), ()), torch.device("cpu"))


def text(loaded: LoadedModel, tokens: int) -> Encoding:
    """Random words between [CLS] and [SEP]."""
    ids = [loaded.tokenizer.id_of("[CLS]"), *sentence(tokens - 2)[0].tolist(), loaded.tokenizer.id_of("[SEP]")]
    inner = tokens - 2
    return Encoding(
        text="", pair="", tokens=("",) * tokens, input_ids=tuple(ids), token_type_ids=(0,) * tokens,
        offsets=((0, 0),) * tokens, words=(None, *range(inner), None), sides=(None, *("A",) * inner, None),
        full_length=tokens,
    )  # fmt: skip


def gradients_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return integrated_gradients(loaded, encoding, Target("nsp"), steps=STEPS).scores


def gradients_captum(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    """As transformers-interpret calls it: all steps in one batch, through a model whose weights want gradients, with
    the convergence delta (our side finds its gap, too)."""
    settings = {name: getattr(CONFIG, name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")}
    theirs = transformers.BertForNextSentencePrediction(transformers.BertConfig(**settings)).eval()
    theirs.load_state_dict(loaded.model.state_dict(), strict=False)

    def follows(ids: torch.Tensor) -> torch.Tensor:
        logits = theirs(ids).logits
        return logits[:, 0] - logits[:, 1]

    ids = torch.tensor([encoding.input_ids])
    start = torch.full_like(ids, CONFIG.pad_token_id)
    start[0, [0, -1]] = ids[0, [0, -1]]
    captum = LayerIntegratedGradients(follows, theirs.bert.embeddings.word_embeddings)
    scores, _ = captum.attribute(ids, start, n_steps=STEPS, return_convergence_delta=True)
    return scores[0].sum(-1).detach().numpy()


def flow_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return attention_flow(capture(loaded, encoding, positions=()).attention, normalise=False)


def flow_networkx(loaded: LoadedModel, encoding: Encoding, method: Callable[..., object] | None = None) -> np.ndarray:
    """By Edmonds and Karp, as published; one row of the map: all rows are reckoned to take as many times longer."""
    method = networkx.algorithms.flow.edmonds_karp if method is None else method
    mixing = layer_mixing(capture(loaded, encoding, positions=()).attention)
    graph = networkx.DiGraph()
    for (layer, query, key), capacity in np.ndenumerate(mixing):
        graph.add_edge((layer + 1, query), (layer, key), capacity=float(capacity))
    ends = (((len(mixing), 0), (0, key)) for key in range(len(encoding)))
    row = [networkx.maximum_flow_value(graph, top, bottom, flow_func=method) for top, bottom in ends]
    return np.array(row)[None]


def flow_networkx_push(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    """The same by networkx's quicker way, which the published code does not take."""
    return flow_networkx(loaded, encoding, networkx.algorithms.flow.preflow_push)


def norms_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return attention_norms(loaded, encoding).maps


def norms_naive(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    """The vectors themselves, query x key x hidden in every layer."""
    found = []
    for one in layer_passes(loaded, encoding):
        vectors = one.mixing[..., None] * one.head_outputs[:, None]
        found.append(vectors.sum(0).norm(dim=-1).numpy())
    return np.stack(found)


def score_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return pseudo_log_likelihood(loaded, encoding).log_probabilities[1:-1]


@torch.no_grad()
def score_one_by_one(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    mask, found = loaded.tokenizer.id_of("[MASK]"), []
    for position in range(1, len(encoding) - 1):
        ids = torch.tensor([encoding.input_ids])
        token, ids[0, position] = ids[0, position].item(), mask
        logits = loaded.model(ids, token_type_ids=torch.zeros_like(ids)).prediction_logits[0, position]
        found.append(F.log_softmax(logits, -1)[token].item())
    return np.array(found)


Side = Callable[[LoadedModel, Encoding], np.ndarray]
# Ratios to stay under, of seconds and of MiB; the latter of integrated gradients alone has one.
MEMORY_AIMS = {gradients_ours: 0.4}
# What, tokens, ours, the usual way, and the ratio of times to stay under.
CASES: tuple[tuple[str, int, Side, Side | None, float | None], ...] = (
    ("integrated gradients, beside captum", 18, gradients_ours, gradients_captum, 0.5),
    ("integrated gradients, beside captum", 128, gradients_ours, gradients_captum, 0.5),
    ("whole flow, beside networkx as published", 24, flow_ours, flow_networkx, 0.001),
    ("whole flow, beside networkx at its best", 24, flow_ours, flow_networkx_push, None),
    ("whole flow", 128, flow_ours, None, None),
    ("norms of attention, beside the whole tensor", 128, norms_ours, norms_naive, None),
    ("norms of attention, beside the whole tensor", 512, norms_ours, norms_naive, None),
    ("DecompX", 128, lambda loaded, encoding: decompx(loaded, encoding, Target("nsp")).scores, None, None),
    ("ALTI", 128, lambda loaded, encoding: alti(loaded, encoding).maps, None, None),
    ("value zeroing", 128, lambda loaded, encoding: value_zeroing(loaded, encoding).maps, None, None),
    ("pseudo-log-likelihood, beside one mask at a time", 64, score_ours, score_one_by_one, None),
)


def measure(case: int, usual: bool, folder: Path) -> dict[str, float]:
    """Seconds and peak MiB above the model, of one side; what it found is left in the folder."""
    _, tokens, ours, theirs, _ = CASES[case]
    side = theirs if usual and theirs is not None else ours
    loaded = model()
    encoding = text(loaded, min(tokens, 24) if QUICK else tokens)
    side(loaded, text(loaded, 5))  # whatever is set up once
    held = held_now()
    start = time.perf_counter()
    found = side(loaded, encoding)
    seconds = time.perf_counter() - start
    if side in (flow_networkx, flow_networkx_push):
        seconds *= len(encoding)
    np.save(folder / f"{case}-{usual:d}.npy", found)
    return {"seconds": seconds, "MiB": resident("VmHWM") - held}


def table(folder: Path) -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, default malloc; one run each, MiB above the "
        "model at the peak. networkx: one row, times the number of rows.\n",
        "| what | tokens | ours, s | usual, s | ratio | aim | ours, MiB | usual, MiB | ratio | aim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, (what, tokens, side, theirs, aim) in enumerate(CASES):
        sides = []
        for usual in (0, 1) if theirs is not None else (0,):
            command = [sys.executable, __file__, "--measure", str(case), str(usual), str(folder)]
            done = subprocess.run([*command, *["--quick"] * QUICK], stdout=subprocess.PIPE, check=True, text=True)
            sides.append(json.loads(done.stdout))
        ours = sides[0]
        cells = [what, f"{tokens}", f"{ours['seconds']:.2f}", "", "", "", f"{ours['MiB']:.0f}", "", "", ""]
        if theirs is not None:
            one, other = (np.load(folder / f"{case}-{usual}.npy") for usual in (0, 1))
            if np.abs(one[: len(other)] - other).max() > TOLERANCE * np.abs(other).max():
                raise SystemExit(f"{what}, {tokens} tokens: the two sides differ")
            usual = sides[1]
            cells[3], cells[4] = f"{usual['seconds']:.2f}", f"{ours['seconds'] / usual['seconds']:.4f}"
            cells[5], cells[7] = "" if aim is None else f"{aim}", f"{usual['MiB']:.0f}"
            if side in MEMORY_AIMS:
                cells[8], cells[9] = f"{ours['MiB'] / usual['MiB']:.3f}", f"{MEMORY_AIMS[side]}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The methods: seconds and memory.")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--quick", action="store_true", help="a small model and few steps, to try a change")
    parser.add_argument("--measure", nargs=3, metavar=("CASE", "USUAL", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        case, usual, folder = arguments.measure
        print(json.dumps(measure(int(case), bool(int(usual)), Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = table(Path(folder))
    print(found)
    if arguments.write:
        write_table(__file__, found)


if __name__ == "__main__":
    main()
