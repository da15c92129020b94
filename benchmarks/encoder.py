"""What it costs to look inside: bert_core and transformers, taking turns in one run, on one sentence.

    python benchmarks/encoder.py            print the table
    python benchmarks/encoder.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/encoder.py --quick    the smallest size, to check that it works

Both sides hold the same weights (base size, random, seeded) and must find the same numbers before a clock starts.
Every row, and every peak of memory, has a process of its own: what one leaves on the heap would change the next.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from checkpointing import resident, trimmed_memory
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

from bert_core.checkpoint import LoadReport
from bert_core.config import BertConfig
from bert_core.loading import ASSETS, LoadedModel, best_device
from bert_core.modeling import BertForPreTraining
from bert_core.recording import record
from bert_core.records import Target
from bert_core.run.capture import capture
from bert_core.run.timing import synchronize
from bert_core.tokenizer import Encoding, Tokenizer

REPEATS = {16: 1} if QUICK else {16: 11, 128: 7, 512: 3}  # tokens -> how often each side runs
SEED, TOKEN, TOLERANCE = 0, 2003, 1e-4

# glibc hands large blocks back after every run and takes them again page by page; "kept" keeps them.
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 28)}
# A CUDA device has an allocator of its own.
MALLOC: dict[str, dict[str, str]] = {"default": {}}
if not (QUICK or torch.cuda.is_available()):
    MALLOC["kept"] = KEPT

# What is compared, ours, theirs, and the ratio of times to stay under, for each setting of malloc.
ROWS: tuple[tuple[str, str, str, dict[str, float]], ...] = (
    ("1 forward", "ours_plain", "theirs_fused", {"default": 1.02, "kept": 1.02}),
    ("2 all maps", "ours_maps", "theirs_maps", {"default": 1.0, "kept": 1.0}),
    ("3 maps and gradients", "ours_everywhere", "theirs_written", {"default": 0.5, "kept": 0.65}),
    ("3b ours: `capture`", "ours_target", "theirs_written", {}),
    ("4 theirs: frozen", "ours_everywhere", "theirs_frozen", {"default": 1.0, "kept": 1.0}),
    ("4b theirs: frozen; ours: `capture`", "ours_target", "theirs_frozen", {}),
    ("5 ours: `capture`; both: head at the target", "ours_target", "theirs_written_target", {}),
    ("5b theirs: frozen; ours: `capture`; both: head at the target", "ours_target", "theirs_frozen_target", {}),
)
VARIANTS = tuple(dict.fromkeys(name for _, ours, theirs, _ in ROWS for name in (ours, theirs)))

Findings = dict[str, Sequence]


def sentence(tokens: int) -> Tensor:
    """Ids (1, tokens) of random words; the one in the middle is what the gradients explain."""
    return torch.randint(1000, 30000, (1, tokens), generator=torch.Generator().manual_seed(tokens)).to(best_device())


def variants(names: Sequence[str]) -> dict[str, Callable[[Tensor], Findings]]:
    """What to measure, by name; transformers is built only where it is asked for."""
    torch.manual_seed(SEED)
    device = best_device()
    ours = BertForPreTraining(BertConfig(**SIZES)).eval().requires_grad_(False).to(device)
    # `capture` asks the tokenizer which special tokens there are.
    tokenizer = Tokenizer.from_folder(ASSETS / "headlight-mini")
    loaded = LoadedModel("random", ours, tokenizer, LoadReport("random", (), ()), device)
    variants = {
        "ours_plain": lambda ids: ours_forward(ours, ids, watched=False),
        "ours_maps": lambda ids: ours_forward(ours, ids, watched=True),
        "ours_everywhere": lambda ids: ours_gradients(ours, ids),
        "ours_target": lambda ids: ours_capture(loaded, ids),
    }
    if any(name.startswith("theirs") for name in names):

        def peer(attention: str, frozen: bool) -> transformers.BertForPreTraining:
            config = transformers.BertConfig(**SIZES)
            model = transformers.BertForPreTraining._from_config(config, attn_implementation=attention)
            model.load_state_dict(ours.state_dict(), assign=True)  # the very same numbers in memory
            model.tie_weights()
            return model.to(device).eval().requires_grad_(not frozen)

        fused, frozen, unfused = peer("sdpa", True), peer("eager", True), peer("eager", False)
        variants |= {
            "theirs_fused": lambda ids: theirs_forward(fused, ids, watched=False),
            "theirs_maps": lambda ids: theirs_forward(frozen, ids, watched=True),
            "theirs_written": lambda ids: theirs_gradients(unfused, {"input_ids": ids}, all_positions=True),
            "theirs_written_target": lambda ids: theirs_gradients(unfused, {"input_ids": ids}, all_positions=False),
            "theirs_frozen": lambda ids: theirs_gradients(frozen, leaf(frozen, ids), all_positions=True),
            "theirs_frozen_target": lambda ids: theirs_gradients(frozen, leaf(frozen, ids), all_positions=False),
        }
    gc.freeze()  # what is built stays: the collector need not walk it between two runs
    return {name: variants[name] for name in names}


@torch.no_grad()
def ours_forward(model: BertForPreTraining, ids: Tensor, watched: bool) -> Findings:
    with record(layers=None if watched else ()) as recording:
        output = model.bert(ids)
    return {"hidden": [output.last_hidden_state, output.pooler_output], "maps": list(recording.attention.values())}


@torch.no_grad()
def theirs_forward(model: transformers.BertForPreTraining, ids: Tensor, watched: bool) -> Findings:
    output = model.bert(ids, output_attentions=watched)
    return {"hidden": [output.last_hidden_state, output.pooler_output], "maps": output.attentions or ()}


def ours_gradients(model: BertForPreTraining, ids: Tensor) -> Findings:
    """Maps, gradients and the scores at every position, the way of `capture`: what is only read has no graph."""
    middle = ids.shape[1] // 2
    with record() as recording:
        output = model.bert(inputs_embeds=model.get_input_embeddings()(ids).requires_grad_())
    explained = model.cls.predictions(output.last_hidden_state[0, middle]).log_softmax(-1)[TOKEN]
    maps = list(recording.attention.values())
    gradients = torch.autograd.grad(explained, maps)
    with torch.no_grad():
        scores = model.cls.predictions(output.last_hidden_state[0])
    return {"value": [explained], "scores": scores, "maps": maps, "gradients": gradients}


def encoding_of(ids: Tensor) -> Encoding:
    """The encoding of ids (1, tokens) that belong to no text."""
    seq = ids.shape[1]
    return Encoding(
        text="", pair=None, tokens=("",) * seq, input_ids=tuple(ids[0].tolist()), token_type_ids=(0,) * seq,
        offsets=((0, 0),) * seq, words=(None,) * seq, sides=("A",) * seq, full_length=seq,
    )  # fmt: skip


def ours_capture(loaded: LoadedModel, ids: Tensor) -> Findings:
    """`capture` as the app calls it, words predicted at the target alone, down to the NumPy records."""
    encoding, seq = encoding_of(ids), ids.shape[1]
    run = capture(loaded, encoding, target=Target("mlm", seq // 2, TOKEN), positions=(seq // 2,))
    return {"value": [run.target_value], "maps": run.attention[:, None], "gradients": run.gradient[:, None]}


def leaf(model: transformers.BertForPreTraining, ids: Tensor) -> dict[str, Tensor]:
    """The input of a frozen model: something has to want a gradient."""
    return {"inputs_embeds": model.get_input_embeddings()(ids).requires_grad_()}


def theirs_gradients(
    model: transformers.BertForPreTraining, inputs: dict[str, Tensor], all_positions: bool
) -> Findings:
    """Maps and gradients as people write it; all_positions: with the MLM head at all positions, as the model has it."""
    (middle,) = (tensor.shape[1] // 2 for tensor in inputs.values())
    if all_positions:
        output = model(**inputs, output_attentions=True)
        scores = output.prediction_logits[0]
        explained = scores[middle].log_softmax(-1)[TOKEN]
    else:
        output = model.bert(**inputs, output_attentions=True)
        scores = ()
        explained = model.cls.predictions(output.last_hidden_state[0, middle]).log_softmax(-1)[TOKEN]
    for attention in output.attentions:
        attention.retain_grad()
    explained.backward()
    model.zero_grad()
    gradients = [attention.grad for attention in output.attentions]
    return {"value": [explained], "scores": scores, "maps": output.attentions, "gradients": gradients}


def require_same(ours: Findings, theirs: Findings, label: str) -> None:
    """Stop unless all that ours found is what theirs found, each array to TOLERANCE of its own largest number."""
    for name in ours.keys() & theirs.keys():
        for pair in zip(ours[name], theirs.get(name, ()), strict=True):
            a, b = (x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in pair)
            if a.shape != b.shape or not np.abs(a - b).max() <= TOLERANCE * np.abs(b).max():
                raise SystemExit(f"{label}: {name} differ by {np.abs(a - b).max()}, the largest is {np.abs(b).max()}")


def seconds_of(run: Callable[[Tensor], object], ids: Tensor) -> float:
    """Time of one run, until the device has finished."""
    gc.collect()
    synchronize(ids.device)
    start = time.perf_counter()
    results = run(ids)
    synchronize(ids.device)
    seconds = time.perf_counter() - start
    del results  # giving the memory back is not timed
    return seconds


def busy_and_own() -> tuple[float, float]:
    """CPU seconds spent so far by the whole machine (NaN where the system does not say) and by this process."""
    own_time = time.process_time()
    try:
        user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    except OSError:
        return float("nan"), own_time
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK"), own_time


def in_turns(
    sides: Mapping[str, Callable[[Tensor], object]], ids: Tensor, repeats: int
) -> tuple[dict[str, float], str]:
    """Median milliseconds of each side, taking turns; the machine's load at the end, and the CPUs that others used."""
    (busy, own_before), start = busy_and_own(), time.perf_counter()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            seconds[name].append(seconds_of(side, ids))
    (busy_after, own_after), elapsed = busy_and_own(), time.perf_counter() - start
    other_processes = max(busy_after - busy - own_after + own_before, 0) / elapsed
    medians = {name: 1000 * statistics.median(times) for name, times in seconds.items()}
    return medians, f"{os.getloadavg()[0]:.1f}; {other_processes:.2f}"


def times_of(row: int) -> dict[str, dict]:
    """Tokens -> median milliseconds of both sides of a row, taking turns, and the load of the machine meanwhile."""
    label, *names, _ = ROWS[row]
    runs, results = variants(names), {}
    for tokens, times in REPEATS.items():
        ids = sentence(tokens)
        require_same(*(run(ids) for run in runs.values()), f"{label}, {tokens} tokens")
        ms, machine = in_turns(runs, ids, times)
        results[str(tokens)] = {"ms": list(ms.values()), "machine": machine}
    return results


def memory_of(name: str) -> dict[str, float]:
    """Tokens -> peak MiB above the loaded model: resident memory (VmHWM), or that of the CUDA allocator."""
    run = variants([name])[name]

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        memory_before, peak = torch.cuda.memory_allocated() / 2**20, lambda: torch.cuda.max_memory_allocated() / 2**20
    elif Path("/proc/self/clear_refs").exists():
        memory_before, peak = trimmed_memory(), lambda: resident("VmHWM")
    else:
        memory_before, peak = 0.0, lambda: float("nan")
    peaks = {}
    for tokens in REPEATS:  # from short to long: a longer sentence has the higher peak
        ids = sentence(tokens)
        for _ in range(2):
            run(ids)
        peaks[str(tokens)] = peak() - memory_before
    return peaks


def measure(kind: str, *arguments: Any) -> dict[str, Any]:
    """Times or memory, in a process of their own."""
    return {"times": times_of, "memory": memory_of}[kind](*arguments)


def table() -> str:
    """The whole measurement as Markdown."""
    repeats = ", ".join(f"{times} (at {tokens} tokens)" for tokens, times in REPEATS.items())
    lines = [
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()}, {os.cpu_count()} CPUs, "
        f"{torch.get_num_threads()} threads; Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}; medians of {repeats} runs a side; {time.strftime('%Y-%m-%d')}."
    ]
    # With blocks kept, a peak says what was kept and not what was needed: memory is measured once, by default.
    peaks = {name: in_own_process(__file__, "memory", name, malloc=MALLOC["default"]) for name in VARIANTS}
    for malloc, settings in MALLOC.items():
        lines += [
            f"\nmalloc **{malloc}** {' '.join(f'`{k}={v}`' for k, v in settings.items())}\n",
            "| | tokens | ours, ms | theirs, ms | ratio | target | ours, MiB | theirs, MiB | load; others' CPUs |",
            "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |",
        ]
        for row, (label, ours, theirs, targets) in enumerate(ROWS):
            results = in_own_process(__file__, "times", row, malloc=settings)
            for tokens, result in results.items():
                (a, b), limit = result["ms"], targets.get(malloc)
                verdict = "" if limit is None else f"{limit} {'met' if a / b <= limit else '**missed**'}"
                lines.append(
                    f"| {label} | {tokens} | {a:.1f} | {b:.1f} | {a / b:.3f} | {verdict} | "
                    f"{peaks[ours][tokens]:.0f} | {peaks[theirs][tokens]:.0f} | {result['machine']} |"
                )
                print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "bert_core and transformers, side by side", table, measure)
