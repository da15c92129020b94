"""Every head of a model over a text file: its importance, what its removal costs, where it looks.

A shard is measured by one function, here or on another machine, and the sums are added in the order of the file: the
table does not depend on who did the work, nor on where it was stopped and went on.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bert_core import checkpoint
from bert_core.analysis.heads import layer_normalised
from bert_core.analysis.roles import head_figures
from bert_core.corpus.lines import Shard, shards
from bert_core.loading import LoadedModel, load
from bert_core.record import HeadTable
from bert_core.run.texts import attention_maps, check_has_words, gate_gradients, hide_pieces, losses_without_each
from bert_core.tokenizer import Encoding

ENGINES = ("local", "ray")
WAITING_PER_WORKER = 2  # shards: a cluster is never idle, and never holds the file


@dataclass(frozen=True)
class CorpusSettings:
    """What is asked of every text, and how.

    importance: the size of the slope of the text's loss with each head's gate. ablation: the loss without each head.
    max_length: tokens of a text that are read. mask_share: of its pieces that are hidden for the loss, all behind
    [MASK]. seed: with the number of the line it decides which.
    """

    importance: bool = True
    ablation: bool = True
    max_length: int = 128
    mask_share: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.mask_share < 1:
            raise ValueError(f"the share of hidden pieces is {self.mask_share}: it is above 0 and below 1")
        if self.max_length < 3:
            raise ValueError(f"texts of {self.max_length} tokens hold no word: 3 is the least")


@dataclass(frozen=True)
class HeadSums:
    """What was measured so far, summed over texts, float64.

    figures: by name (layer, head). loss: of the texts with all heads, nats.
    counts: of `lines.Shard`, and of "texts" and "tokens" that were read, pieces "hidden", texts "shortened" to the
        length that is read, and lines "unreadable", without a sign that the tokenizer knows.
    """

    figures: Mapping[str, np.ndarray]
    loss: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: HeadSums) -> HeadSums:
        if self.figures and other.figures:
            figures = {name: values + other.figures[name] for name, values in self.figures.items()}
        else:
            figures = dict(self.figures or other.figures)
        return HeadSums(figures, self.loss + other.loss, self.counts + other.counts)

    def table(self, model: str) -> HeadTable:
        """The means over the texts; `importance_in_layer` besides, and the standard error of what removal costs.

        model: its name. Raises ValueError if there was no text.
        """
        texts = self.counts["texts"]
        if not texts:
            raise ValueError(f"there is no text in {self.counts['lines']:,} lines: nothing was measured")
        figures = {name: values / texts for name, values in self.figures.items() if name != "loss_change_squared"}
        if "importance" in figures:
            figures["importance_in_layer"] = layer_normalised(figures["importance"])
        if "loss_change" in figures:
            spread = self.figures["loss_change_squared"] / texts - figures["loss_change"] ** 2
            figures["loss_change_error"] = np.sqrt(np.maximum(spread, 0) / max(texts - 1, 1))
        asked = "importance" in figures or "loss_change" in figures
        return HeadTable(Path(model).name, texts, self.counts["tokens"], figures, self.loss / texts if asked else None)


def measure_shard(loaded: LoadedModel, shard: Shard, settings: CorpusSettings) -> HeadSums:
    """Every head on every text of a shard; the maps of the texts as they are written, the losses with pieces hidden.

    Raises ValueError for a model without a trained masked-word head if a loss is asked for.
    """
    counts = Counter(shard.counts)
    encodings: list[Encoding] = []
    numbers: list[int] = []
    for line in shard.lines:
        try:
            encoding = loaded.tokenizer.encode(line.text, max_length=settings.max_length)
        except ValueError:  # nothing in it that can be read
            counts["unreadable"] += 1
            continue
        counts["shortened"] += bool(encoding.cut)
        encodings.append(encoding)
        numbers.append(line.number)
    counts["texts"], counts["tokens"] = len(encodings), sum(map(len, encodings))
    figures: dict[str, np.ndarray] = {}
    if not encodings:
        return HeadSums(figures, 0.0, counts)
    for number, attention in attention_maps(loaded, encodings):
        for name, values in head_figures(attention, encodings[number]).items():
            figures[name] = figures.get(name, 0.0) + values.astype(np.float64)
    loss = 0.0
    if settings.importance or settings.ablation:
        texts = [
            hide_pieces(
                loaded.tokenizer, encoding, np.random.default_rng([settings.seed, number]), share=settings.mask_share
            )
            for number, encoding in zip(numbers, encodings, strict=True)
        ]
        counts["hidden"] = sum(len(text.positions) for text in texts)
        if settings.importance:
            losses, slopes = gate_gradients(loaded, texts)
            # The size is taken of each text's own slope, which is already a sum over its positions (Michel 2019).
            figures["importance"] = np.abs(slopes).sum(0)
            loss = float(losses.sum())
        if settings.ablation:
            losses, without = losses_without_each(loaded, texts)
            change = without - losses[:, None, None]
            figures["loss_change"] = change.sum(0)
            figures["loss_change_squared"] = (change**2).sum(0)
            loss = float(losses.sum())
    return HeadSums(figures, loss, counts)


def heads_over(
    path: Path,
    model: str = "headlight-mini",
    settings: CorpusSettings | None = None,
    *,
    state: Path | None = None,
    engine: str = "local",
    device: str | None = None,
) -> Iterator[tuple[HeadSums, float]]:
    """Measure every head over a text file, one text a line: the sums after each shard, and the share of the file.

    model: as for `load`. state: a file that keeps what was measured, and from which the same call goes on; it may be
    stopped at any moment. engine: "local", or "ray", which measures many shards at once on a Ray cluster (that of
    RAY_ADDRESS, or one on this machine). device: as for `load`.
    Raises ValueError for a state of other settings, another text or another model, an unknown engine, or Ray missing.
    """
    settings = CorpusSettings() if settings is None else settings
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")
    size = path.stat().st_size
    asked = _identity(path, model, settings)
    total, place = HeadSums({}), {"number": 0, "start": 0, "line": 0}
    if state is not None and state.exists():
        total, place = _read_state(state, asked)
        yield total, place["start"] / max(size, 1)
    rest = shards(path, **place)
    measured = _here(model, device, settings, rest) if engine == "local" else _on_ray(model, device, settings, rest)
    for shard, sums in measured:
        total = total + sums
        if state is not None:
            _write_state(state, asked, total, shard)
        yield total, shard.end / max(size, 1)


def _here(
    model: str, device: str | None, settings: CorpusSettings, rest: Iterator[Shard]
) -> Iterator[tuple[Shard, HeadSums]]:
    loaded = _ready(model, device, settings)
    for shard in rest:
        yield shard, measure_shard(loaded, shard, settings)


def _on_ray(
    model: str, device: str | None, settings: CorpusSettings, rest: Iterator[Shard]
) -> Iterator[tuple[Shard, HeadSums]]:
    """In the order of the file, whoever is done first; a shard whose worker died is measured again by another."""
    try:
        import ray
    except ImportError as error:
        raise ValueError("the engine 'ray' needs Ray: pip install 'headlight[ray]'") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    gpus = 1 if (device or "").startswith("cuda") else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=-1)(_measure_by_name)
    workers = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    most = WAITING_PER_WORKER * max(1, workers)
    waiting: deque[tuple[Shard, Any]] = deque()
    for shard in rest:
        waiting.append((shard, task.remote(model, device, settings, shard)))
        if len(waiting) >= most:
            first, result = waiting.popleft()
            yield first, ray.get(result)
    while waiting:
        first, result = waiting.popleft()
        yield first, ray.get(result)


def _measure_by_name(model: str, device: str | None, settings: CorpusSettings, shard: Shard) -> HeadSums:
    return measure_shard(_ready(model, device, settings), shard, settings)


@lru_cache(maxsize=1)
def _ready(model: str, device: str | None, settings: CorpusSettings) -> LoadedModel:
    """The model, once in a process. Raises ValueError if it cannot answer what is asked."""
    loaded = load(model, device=device)
    if settings.importance or settings.ablation:
        check_has_words(loaded)
    longest = loaded.config.max_position_embeddings
    if settings.max_length > longest:
        raise ValueError(f"{model} reads {longest} tokens at most, and {settings.max_length} were asked for")
    return loaded


# ---------------------------------------------------------------------------- going on later


def _identity(path: Path, model: str, settings: CorpusSettings) -> dict[str, Any]:
    stat = path.stat()
    text = [path.name, stat.st_size, stat.st_mtime_ns]
    return {"text": text, "model": model, **dataclasses.asdict(settings)}


def _write_state(state: Path, asked: Mapping[str, Any], total: HeadSums, shard: Shard) -> None:
    """All that going on needs, whole or not at all."""
    header = {
        "asked": asked, "loss": total.loss, "counts": total.counts,
        "place": {"number": shard.number + 1, "start": shard.end, "line": shard.next_line},
    }  # fmt: skip

    def write(temporary: str) -> None:
        with open(temporary, "wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), **total.figures)  # type: ignore[arg-type]

    checkpoint.write_whole(state, write)


def _read_state(state: Path, asked: Mapping[str, Any]) -> tuple[HeadSums, dict[str, int]]:
    try:
        with np.load(io.BytesIO(state.read_bytes()), allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            figures = {name: file[name] for name in file.files if name != "header"}
            loss, counts, place = header["loss"], Counter(header["counts"]), header["place"]
    except Exception as error:  # of a file that is no archive, is cut off, or holds something else
        raise ValueError(f"{state} is not what an earlier run left: delete it to begin anew") from error
    changed = [name for name in asked if asked[name] != header["asked"].get(name)]
    if changed:
        raise ValueError(
            f"{state} holds a run with another {' and '.join(changed)}: give the same again, or delete it to begin anew"
        )
    return HeadSums(figures, loss, counts), place


def note_of(counts: Mapping[str, int]) -> str:
    """What became of the lines, in one sentence."""
    said = f"{counts.get('texts', 0):,} of {counts.get('lines', 0):,} lines were read"
    odd = {
        "empty": "empty", "unreadable": "without a sign that can be read",
        "shortened": "cut to the length that is read", "overlong": "of which only the beginning was looked at",
        "not UTF-8": "with bytes that are not UTF-8, which were replaced",
    }  # fmt: skip
    parts = [f"{counts[name]:,} {words}" for name, words in odd.items() if counts.get(name)]
    return said + (": " + ", ".join(parts) if parts else "")
