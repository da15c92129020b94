"""What the answers to "why this word?" cost, at base size, beside the usual way to get them.

    python benchmarks/why.py            print the table
    python benchmarks/why.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/why.py --quick    the smallest size, to check that it works

Weights are random and seeded. Each side has a process of its own, and both take turns. Where there are two sides they
must find the same numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import networkx
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from captum.attr import LayerIntegratedGradients
from checkpointing import resident, trimmed_memory
from encoder import SEED, sentence
from tables import QUICK, SIZES, parse_arguments, write_table

from bert_core.analysis.flow import attention_flow, layer_mixing
from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import ASSETS, LoadedModel
from bert_core.modeling import BertForPreTraining
from bert_core.records import Target
from bert_core.run.capture import capture
from bert_core.run.decomposition import alti, attention_norms, decompx
from bert_core.run.perturbation import integrated_gradients, pseudo_log_likelihood, value_zeroing
from bert_core.run.stack import trace_text
from bert_core.tokenizer import Encoding, Tokenizer

TOLERANCE = 1e-4
STEPS = 5 if QUICK else 50
CONFIG = BertConfig(**SIZES)


def model() -> LoadedModel:
    torch.manual_seed(SEED)
    model = BertForPreTraining(CONFIG).eval().requires_grad_(False)
    tokenizer = Tokenizer.from_folder(ASSETS / "headlight-mini")
    return LoadedModel("random", model, tokenizer, LoadReport("random", (), ()), torch.device("cpu"))


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
    """As transformers-interpret calls it: all steps in one batch, through a model whose weights want gradients.

    With the convergence delta (our side finds its gap, too).
    """
    theirs = transformers.BertForNextSentencePrediction(transformers.BertConfig(**SIZES)).eval()
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


def maps_of(loaded: LoadedModel, encoding: Encoding) -> tuple[np.ndarray]:
    """The maps that flow is asked of: the pass that makes them belongs to neither side."""
    return (capture(loaded, encoding, positions=()).attention,)


def flow_ours(attention: np.ndarray) -> np.ndarray:
    return attention_flow(attention, normalise=False)


def flow_networkx(attention: np.ndarray, method: Callable[..., object] | None = None) -> np.ndarray:
    """By Edmonds and Karp, as published; one row of the map: all rows are reckoned to take as many times longer."""
    method = networkx.algorithms.flow.edmonds_karp if method is None else method
    mixing = layer_mixing(attention)
    graph = networkx.DiGraph()
    for (layer, query, key), capacity in np.ndenumerate(mixing):
        graph.add_edge((layer + 1, query), (layer, key), capacity=float(capacity))
    ends = (((len(mixing), 0), (0, key)) for key in range(mixing.shape[-1]))
    row = [networkx.maximum_flow_value(graph, top, bottom, flow_func=method) for top, bottom in ends]
    return np.array(row)[None]


def flow_networkx_push(attention: np.ndarray) -> np.ndarray:
    """The same by networkx's quicker way, which the published code does not take."""
    return flow_networkx(attention, networkx.algorithms.flow.preflow_push)


def norms_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return attention_norms(loaded, encoding).maps


def norms_naive(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    """The vectors themselves, query x key x hidden in every layer."""
    results = [
        (traced.gated_probs[..., None] * traced.head_outputs[:, None]).sum(0).norm(dim=-1)
        for traced in trace_text(loaded, encoding)
    ]
    return torch.stack(results).numpy()


def score_ours(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    return pseudo_log_likelihood(loaded, encoding).log_probabilities[1:-1]


@torch.no_grad()
def score_one_by_one(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    mask, scores = loaded.tokenizer.id_of("[MASK]"), []
    for position in range(1, len(encoding) - 1):
        ids = torch.tensor([encoding.input_ids])
        token, ids[0, position] = ids[0, position].item(), mask
        logits = loaded.model(ids, token_type_ids=torch.zeros_like(ids)).prediction_logits[0, position]
        scores.append(F.log_softmax(logits, -1)[token].item())
    return np.array(scores)


def text_of(loaded: LoadedModel, encoding: Encoding) -> tuple[LoadedModel, Encoding]:
    """What most sides are asked of: model and text."""
    return loaded, encoding


class Case(NamedTuple):
    """A row of the table: how often each side runs, and the ratios of seconds and of MiB to stay under.

    given: what both sides get, made before the clock starts.
    """

    what: str
    tokens: int
    runs: int
    ours: Callable[..., np.ndarray]
    usual: Callable[..., np.ndarray] | None = None
    aim: float | None = None
    memory_aim: float | None = None
    given: Callable[[LoadedModel, Encoding], tuple[Any, ...]] = text_of


# As many runs as keep the whole below ten minutes.
CASES = (
    Case("integrated gradients, beside captum", 18, 5, gradients_ours, gradients_captum, 0.5, 0.4),
    Case("integrated gradients, beside captum", 128, 3, gradients_ours, gradients_captum, 0.5, 0.4),
    Case("whole flow, beside networkx as published", 24, 3, flow_ours, flow_networkx, 0.001, given=maps_of),
    Case("whole flow, beside networkx at its best", 24, 5, flow_ours, flow_networkx_push, given=maps_of),
    Case("whole flow", 128, 1, flow_ours, given=maps_of),
    Case("norms of attention, beside the whole tensor", 128, 5, norms_ours, norms_naive),
    Case("norms of attention, beside the whole tensor", 512, 1, norms_ours, norms_naive),
    Case("DecompX", 128, 1, lambda loaded, encoding: decompx(loaded, encoding, Target("nsp")).scores),
    Case("ALTI", 128, 5, lambda loaded, encoding: alti(loaded, encoding).maps),
    Case("value zeroing", 128, 3, lambda loaded, encoding: value_zeroing(loaded, encoding).maps),
    Case("pseudo-log-likelihood, beside one mask at a time", 64, 3, score_ours, score_one_by_one),
)
if QUICK:
    CASES = tuple(case._replace(tokens=8, runs=1) for case in CASES)


def side_of(number: int, usual: bool, folder: Path) -> Callable[[], dict[str, float]]:
    """A function that runs one side of a case and says what it took; what it found is left in the folder."""
    case = CASES[number]
    side = case.usual if usual and case.usual is not None else case.ours
    loaded = model()
    arguments = case.given(loaded, text(loaded, case.tokens))
    side(*case.given(loaded, text(loaded, 5)))  # whatever is set up once

    def run() -> dict[str, float]:
        memory_before = trimmed_memory()
        start = time.perf_counter()
        result = side(*arguments)
        seconds = time.perf_counter() - start
        if side in (flow_networkx, flow_networkx_push):
            seconds *= arguments[0].shape[-1]
        np.save(folder / f"{number}-{usual:d}.npy", result)
        return {"seconds": seconds, "MiB": resident("VmHWM") - memory_before}

    return run


def serve(number: int, usual: bool, folder: Path) -> None:
    """Run one side whenever a line comes in, and print what it took."""
    run = side_of(number, usual, folder)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


def measure(number: int, folder: Path) -> list[dict[str, float]]:
    """Median seconds and peak MiB of each side of a case, the sides taking turns, each in a process of its own.

    With --quick only the first case has processes of its own: starting them takes most of the time.
    """
    case = CASES[number]
    if QUICK and number > 0:
        return [side_of(number, bool(usual), folder)() for usual in range(1 if case.usual is None else 2)]
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, "--serve", str(number), str(usual), str(folder), *["--quick"] * QUICK],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for usual in range(1 if case.usual is None else 2)
        ]  # fmt: skip
        runs: list[list[dict[str, float]]] = [[] for _ in sides]
        for _ in range(case.runs):
            for side, side_runs in zip(sides, runs, strict=True):
                assert side.stdin is not None and side.stdout is not None
                print(file=side.stdin, flush=True)
                side_runs.append(json.loads(side.stdout.readline()))
    return [
        {name: statistics.median(run[name] for run in side_runs) for name in ("seconds", "MiB")} for side_runs in runs
    ]


def table(folder: Path) -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, default malloc; medians of the runs of a side, "
        "MiB above the model at the peak. networkx: one row, times the number of rows.\n",
        "| what | tokens | runs | ours, s | usual, s | ratio | aim | ours, MiB | usual, MiB | ratio | aim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for number, case in enumerate(CASES):
        ours, *remaining = measure(number, folder)
        cells = [case.what, f"{case.tokens}", f"{case.runs}", f"{ours['seconds']:.2f}", *[""] * 3]
        cells += [f"{ours['MiB']:.0f}", *[""] * 3]
        for usual in remaining:
            first, second = (np.load(folder / f"{number}-{side}.npy") for side in (0, 1))
            if np.abs(first[: len(second)] - second).max() > TOLERANCE * np.abs(second).max():
                raise SystemExit(f"{case.what}, {case.tokens} tokens: the two sides differ")
            cells[4], cells[5] = f"{usual['seconds']:.2f}", f"{ours['seconds'] / usual['seconds']:.4f}"
            cells[6], cells[8] = judged(ours["seconds"] / usual["seconds"], case.aim), f"{usual['MiB']:.0f}"
            if case.memory_aim is not None:
                cells[9] = f"{ours['MiB'] / usual['MiB']:.3f}"
                cells[10] = judged(ours["MiB"] / usual["MiB"], case.memory_aim)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def judged(ratio: float, aim: float | None) -> str:
    """The aim, and whether it was met."""
    return "" if aim is None else f"{aim} {'met' if ratio <= aim else '**missed**'}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The methods: seconds and memory.")
    parser.add_argument("--serve", nargs=3, metavar=("CASE", "USUAL", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parse_arguments(parser)
    if arguments.serve:
        number, usual, folder = arguments.serve
        serve(int(number), bool(int(usual)), Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        output = table(Path(folder))
    print(output)
    if arguments.write:
        write_table(__file__, output)


if __name__ == "__main__":
    main()
