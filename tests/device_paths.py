"""Every public path of bert_core that runs a model, on the CPU and on another device, compared number by number.

    python -m tests.device_paths cuda FOLDERS REPORT              # the device of this machine
    python -m tests.device_paths cuda FOLDERS REPORT --emulated   # tests/emulated_device.py in its place

FOLDERS: a JSON object, name of a model -> checkpoint folder. REPORT: the file that receives, as JSON, for each path
the difference, or the error that it raised, and the synchronisations with the device, by line of bert_core.
`PATHS` is the table: a function for each path, which receives a `Side` and returns what is compared.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bert_core
from bert_core import Encoding, LoadedModel, Target, transformers_models
from bert_core.edits import PATCHABLE_PARTS
from bert_core.onnx_export.export import on_cpu
from bert_core.progress import ignore_progress
from bert_core.run.losses import attention_maps, gate_gradients, losses_without_heads, mask_pieces, masked_examples
from bert_core.run.states import iter_states, masked_losses_by_depth, masked_losses_with_erasers, word_states
from bert_core.run.timing import measure_timing
from bert_core.training import optimization
from tests import emulated_device

TEXT, SOURCE = "the king of france ran to the [MASK]", "the queen of london ran to the [MASK]"
PAIR = ("the old dog sat on the mat", "a queen of france ran to the door")
SENTENCES = ("the cat sat on the red mat", "a dog ran to the door", "the king saw the old house", "she went to london")
WORDS = ("the", "old", "king", "saw", "a", "red", "door", "in", "paris", "and", "she", "went", "to", "london", "river")
TAGGED_WORDS = (
    ("the", "a", "old", "big"),
    ("king", "queen", "man", "woman"),
    ("saw", "had", "said"),
    ("paris", "london"),
)
# The largest difference, relative to the largest value of its array.
TOLERANCE, SMALLEST_SCALE = 1e-3, 1e-3
# Measured times and sizes of files; texts; and the bias of keys, whose gradient is rounding error around 0.
NOT_COMPARED = ("encoding", "source", "loaded", "seconds", "tokens_per_second")
KEY_BIAS = ".self.key.bias"


PATHS: dict[str, Callable[[Side], object]] = {}


class Side:
    """One of the two devices, with the models, texts and files that paths need."""

    def __init__(self, device: str, folders: Mapping[str, str], folder: Path) -> None:
        self.device, self.folders, self.folder = device, folders, folder
        self._models: dict[str, LoadedModel] = {}
        self._files = 0

    def model(self, name: str = "tiny") -> LoadedModel:
        """A model on this device, loaded once."""
        if name not in self._models:
            self._models[name] = bert_core.load(self.folders[name], device=self.device)
        return self._models[name]

    @property
    def tiny(self) -> LoadedModel:
        """The model of most paths."""
        return self.model()

    @cached_property
    def text(self) -> Encoding:
        """A text with a gap."""
        return self.tiny.tokenizer.encode(TEXT)

    @cached_property
    def source(self) -> Encoding:
        """A text of as many tokens."""
        return self.tiny.tokenizer.encode(SOURCE)

    @cached_property
    def pair(self) -> Encoding:
        """Two texts."""
        return self.tiny.tokenizer.encode(*PAIR)

    @cached_property
    def target(self) -> Target:
        """A word at the gap."""
        return bert_core.word_target(self.tiny.tokenizer, self.text, "house")

    @cached_property
    def pruned(self) -> LoadedModel:
        """The tiny model without two heads and two neurons."""
        return bert_core.pruned(self.tiny, [(0, 1), (1, 2)], neurons=[(0, 5), (1, 7)])

    @cached_property
    def batches(self) -> Any:
        """The pair as examples with hidden pieces."""
        return masked_examples(self.tiny, self.pair)

    @cached_property
    def index(self) -> bert_core.Index:
        """An index of the corpus."""
        folder = self.file()
        for _ in bert_core.iter_index(self.corpus, folder, self.folders["tiny"], device=self.device):
            pass
        return bert_core.open_index(folder)

    def file(self, ending: str = "") -> Path:
        """A new path in the folder of this side."""
        self._files += 1
        return self.folder / f"file{self._files}{ending}"

    @cached_property
    def corpus(self) -> Path:
        """48 lines in 6 documents."""
        rng = np.random.default_rng(0)
        documents = [[" ".join(rng.choice(WORDS, 7)) + "." for _ in range(8)] for _ in range(6)]
        return self.written("corpus.txt", "\n\n".join("\n".join(lines) for lines in documents) + "\n")

    @cached_property
    def sentences(self) -> Path:
        """Some sentences, one a line."""
        return self.written("sentences.txt", "\n".join(SENTENCES) + "\n")

    @cached_property
    def table(self) -> Path:
        """Texts with a class each."""
        rng, path = np.random.default_rng(0), self.folder / "classes.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "class"])
            for number in range(24):
                word, name = (("cat", "home"), ("king", "realm"))[number % 2]
                writer.writerow([f"{' '.join(rng.choice(WORDS, 5))} {word}", name])
        return path

    @cached_property
    def tagged(self) -> Path:
        """Sentences with a tag for each word."""
        rng, blocks = np.random.default_rng(0), []
        for _ in range(60):
            words = [rng.choice(choices) for choices in TAGGED_WORDS]
            blocks.append(
                "\n".join(f"{word}\t{tag}" for word, tag in zip(words, ("O", "B-PER", "O", "B-LOC"), strict=True))
            )
        return self.written("tags.conll", "\n\n".join(blocks) + "\n")

    @cached_property
    def treebank(self) -> list[bert_core.TreeSentence]:
        """One parsed sentence."""
        words = (("the", 2, "det"), ("cat", 3, "nsubj"), ("sat", 0, "root"))
        rows = ["\t".join([str(n), word, *"____", str(head), label, "_", "_"]) for n, (word, head, label) in
                enumerate(words, 1)]  # fmt: skip
        return list(bert_core.read_treebank([*rows, ""], "tree.conllu"))

    @cached_property
    def questions(self) -> Path:
        """Questions with an answer in a context, as SQuAD has them."""
        rng, paragraphs = np.random.default_rng(0), []
        for number in range(16):
            who, where = rng.choice(("cat", "dog", "king")), rng.choice(("city", "river", "door"))
            answer = {"text": f"the {where}", "answer_start": len(f"the {who} went to ")}
            asked = {"id": str(number), "question": f"where was the {who}", "answers": [answer]}
            paragraphs.append({"context": f"the {who} went to the {where}", "qas": [asked]})
        return self.written("squad.json", json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))

    def written(self, name: str, text: str) -> Path:
        """A file of this side."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


def path(run: Callable[[Side], object]) -> Callable[[Side], object]:
    """Add a function to the table, under its name."""
    assert run.__name__ not in PATHS
    PATHS[run.__name__] = run
    return run


# ---------------------------------------------------------------------------- one text


@path
def capture(side: Side) -> object:
    return bert_core.capture(side.tiny, side.text, norms=True)


@path
def capture_with_gradients(side: Side) -> object:
    return bert_core.capture(side.tiny, side.text, target=side.target)


@path
def capture_with_gates(side: Side) -> object:
    gates = np.ones((2, 4), np.float32)
    gates[0, 1], gates[1, 2] = 0, 0.5
    return bert_core.capture(side.tiny, side.text, target=side.target, head_mask=gates)


@path
def capture_of_a_pair(side: Side) -> object:
    return bert_core.capture(side.tiny, side.pair, target=Target("nsp"))


@path
def capture_of_classes(side: Side) -> object:
    return bert_core.capture(side.model("classifier"), side.text, target=Target("class", label=1))


@path
def capture_of_tags(side: Side) -> object:
    return bert_core.capture(side.model("tagger"), side.text, target=Target("tag", 2, label=1))


@path
def capture_of_an_answer(side: Side) -> object:
    return bert_core.capture(side.model("reader"), side.pair, target=Target("span", 11, last=12))


@path
def capture_of_a_choice(side: Side) -> object:
    return bert_core.capture(side.model("chooser"), side.pair, target=Target("choice"))


@path
def capture_of_a_pruned_model(side: Side) -> object:
    return bert_core.capture(side.pruned, side.text, target=side.target, norms=True)


@path
def capture_with_edits(side: Side) -> object:
    edits = [
        bert_core.AttentionKnockout((3,), (2,), (0,), (1,)),
        bert_core.ScaledNeuron(1, 3),
        bert_core.ScaledNeuron(0, 1, 2.0),
        bert_core.AddedVector(1, np.ones(side.tiny.config.hidden_size), 0.5, (2, 3)),
        bert_core.AddedVector(0, np.ones(side.tiny.config.hidden_size), 0.5),
    ]
    changed = bert_core.edited(side.tiny, edits)
    return bert_core.capture(changed, side.text), bert_core.capture(bert_core.unedited(changed), side.text)


@path
def captures(side: Side) -> object:
    return bert_core.captures(side.tiny, [side.text, side.pair, side.source], norms=True)


def norm_and_logit(outputs: bert_core.TargetOutputs) -> torch.Tensor:
    """A number of states and of logits."""
    return outputs.states[:, 1, ::2].norm(dim=-1) + outputs.logits("words")[:, 2, 9]


@path
def captures_with_gradients(side: Side) -> object:
    target = Target("custom", name="mine", function=norm_and_logit)
    return bert_core.captures(side.tiny, [side.text, side.pair], target=target)


@path
def ablation_of_a_custom_target(side: Side) -> object:
    target = Target("custom", name="mine", function=norm_and_logit)
    return bert_core.ablate_heads(side.tiny, side.text, target=target)


@path
def methods(side: Side) -> object:
    return [
        bert_core.token_scores(side.tiny, side.text, side.target),
        *(bert_core.layer_scores(side.tiny, side.text, side.target, method.name)
          for method in bert_core.METHODS if method.layers),
    ]  # fmt: skip


@path
def methods_of_other_heads(side: Side) -> object:
    return [
        bert_core.token_scores(side.model("classifier"), side.text, Target("class", label=1)),
        bert_core.token_scores(side.model("tagger"), side.text, Target("tag", 2, label=1)),
        bert_core.token_scores(side.model("reader"), side.pair, Target("span", 11, last=12)),
        bert_core.token_scores(side.model("chooser"), side.pair, Target("choice")),
    ]


@path
def targets_as_text(side: Side) -> object:
    written = ("mat", "mat rather than door", "nsp", "like:a dog ran", "alike:B")
    encoding = side.tiny.tokenizer.encode("the cat sat on the [MASK]", "it is old")
    values = []
    for text in written:
        target, read = bert_core.parse_target(side.tiny, encoding, text)
        if text != "alike:B":  # which is of one text alone, as the other one is asked for by what is typed
            assert bert_core.parse_target(side.tiny, read, bert_core.format_target(side.tiny, target)).target == target
        values.append(bert_core.capture(side.tiny, read, target=target).target_value)
    return values


@path
def methods_by_name(side: Side) -> object:
    given = (side.tiny, side.text, side.target)
    return [
        bert_core.saliency(*given), bert_core.input_x_gradient(*given), bert_core.integrated_gradients(*given),
        bert_core.occlusion(*given), bert_core.decompx(*given), bert_core.value_zeroing(side.tiny, side.text),
        bert_core.attention_norms(side.tiny, side.text), bert_core.residual_norms(side.tiny, side.text),
        bert_core.globenc(side.tiny, side.text), bert_core.alti(side.tiny, side.text),
    ]  # fmt: skip


@path
def contribution_graphs(side: Side) -> object:
    graphs = [
        bert_core.contribution_graph(side.tiny, side.text, method=method)
        for method in ("ALTI", "DecompX", "norms with residual")
    ]
    knockouts = [
        bert_core.knock_out_graph_edge(side.tiny, graphs[2], side.target, *edge, tolerance=np.inf)
        for edge in ((0, 1, 2), (1, side.target.rows[0], 3))
    ]
    return graphs, [(knockout.base_value, knockout.value, np.sort(knockout.random_values)) for knockout in knockouts]


@path
def faithfulness(side: Side) -> object:
    scores = np.sin(np.arange(len(side.text)))[None]
    return bert_core.faithfulness(side.tiny, side.text, side.target, scores, random_rankings=5)


@path
def values_without(side: Side) -> object:
    removed = np.tril(np.ones((len(side.text), len(side.text)), bool), -2)
    return [bert_core.values_without(side.tiny, side.text, side.target, removed, probability=share)
            for share in (False, True)]  # fmt: skip


@path
def head_values(side: Side) -> object:
    values = bert_core.head_values(side.tiny, side.text, projected=True)
    vectors = bert_core.head_vectors(side.tiny, side.text, 1, 2), bert_core.all_head_vectors(side.tiny, side.text)
    return values, vectors, bert_core.score_addends(side.tiny, side.text, 1)


@path
def query_key_planes(side: Side) -> object:
    encodings = [side.tiny.tokenizer.encode(text) for text in SENTENCES]
    aligned = [
        bert_core.align_queries_keys(vectors.queries, vectors.keys)
        for vectors in bert_core.all_head_vectors(side.tiny, side.text)
    ]
    planes = bert_core.query_key_planes(side.tiny, encodings), bert_core.query_keys_file(side.corpus, side.tiny)
    # The order of nearly equal distances depends on rounding, and so do the measures.
    return aligned, [(plane.scale, plane.shift, plane.queries, plane.keys) for part in planes for plane in part]


@path
def ablate_heads(side: Side) -> object:
    return [
        bert_core.ablate_heads(side.tiny, side.text, target=side.target),
        bert_core.ablate_heads(side.tiny, side.text),
        *(bert_core.ablate_heads(side.tiny, side.text, target=side.target, method=method, reference=[side.source])
          for method in ("mean", "resample")),
    ]  # fmt: skip


@path
def cut_each(side: Side) -> object:
    return bert_core.knock_out_edges(side.tiny, side.text, side.target, 0, 1), bert_core.knock_out_edges(
        side.tiny, side.text, side.target, 1, 1, renormalised=False
    )


def _of_neurons(what: str) -> dict[str, Any]:
    return {"layers": [1], "positions": [2]} if what == "neuron" else {}


@path
def patch(side: Side) -> object:
    given = (side.tiny, side.source, side.text, side.target)
    return {what: bert_core.patch(*given, part_kind=what, **_of_neurons(what)) for what in PATCHABLE_PARTS}


@path
def estimate_patches(side: Side) -> object:
    given = (side.tiny, side.source, side.text, side.target)
    return {what: bert_core.estimate_patches(*given, part_kind=what, **_of_neurons(what)) for what in PATCHABLE_PARTS}


@path
def patch_from_other_sources(side: Side) -> object:
    mean = bert_core.MeanOf([side.source, side.pair])
    noised = bert_core.Noised(side.text, 3.0, (2, 3))
    return [
        bert_core.patch(side.tiny, mean, side.text, side.target),
        bert_core.patch(side.tiny, side.text, noised, side.target),
    ]


@path
def patch_band(side: Side) -> object:
    heads = bert_core.patch(side.tiny, side.source, side.text, side.target, part_kind="head")
    return bert_core.patch_band(side.tiny, heads, texts=2), bert_core.predict_with_patch(side.tiny, heads, (1, 2))


@path
def patch_path(side: Side) -> object:
    given = (side.tiny, side.source, side.text, side.target)
    return bert_core.patch_path(*given), bert_core.patch_path(*given, receivers=[(1, 0), (1, 3)], receiver_input="key")


@path
def direct_contributions(side: Side) -> object:
    loaded = side.model("pre_norm")
    encoding = loaded.tokenizer.encode(TEXT)
    target = Target("mlm", encoding.mask_positions[0], 30)
    scores = [bert_core.direct_score(loaded, encoding, (2, 1), 3, 1, side=name) for name in ("query", "key")]
    maps = bert_core.direct_score_map(loaded, encoding, (0, 2), (2, 1))
    return bert_core.direct_logit(loaded, encoding, target), scores, np.nan_to_num(maps)


@path
def make_patch(side: Side) -> object:
    parts = [
        bert_core.make_patch(side.tiny, side.source, side.text, "state", 1, position=2),
        bert_core.make_patch(side.tiny, side.source, side.text, "pattern", 1, head=2),
    ]
    return bert_core.capture(bert_core.edited(side.tiny, parts), side.text)


@path
def neurons(side: Side) -> object:
    return [
        bert_core.neuron_activations(side.tiny, side.text),
        bert_core.neuron_gradients(side.tiny, side.text, side.target, steps=3),
        bert_core.neuron_words(side.tiny, side.text, 1, [3, 4]),
        bert_core.suppress_neurons(side.tiny, side.text, side.target, [(1, 3), (0, 5)], draws=2),
    ]


@path
def layer_states(side: Side) -> object:
    return bert_core.layer_states(side.tiny, side.text)


@path
def logit_lens(side: Side) -> object:
    return bert_core.logit_lens(side.tiny, side.text)


@path
def translators_on_the_cpu(side: Side) -> object:
    """A tuned lens that was read for a model on the CPU reads a model on any device, and stays where it is."""
    torch.manual_seed(0)
    lens = bert_core.Translators(side.tiny.config)
    for parameter in lens.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    results = (
        bert_core.logit_lens(side.tiny, side.text, translators=lens),
        bert_core.neuron_words(side.tiny, side.text, 0, [3, 4], translators=lens),
    )
    assert all(parameter.device.type == "cpu" for parameter in lens.parameters())
    return results


@path
def pseudo_log_likelihood(side: Side) -> object:
    text = side.tiny.tokenizer.encode(SENTENCES[0])
    return bert_core.pseudo_log_likelihood(side.tiny, text), bert_core.score_pairs(side.tiny, [SENTENCES[:2]])


@path
def walk(side: Side) -> object:
    return [bert_core.walk(side.tiny, side.text, 1, pads=3, engine=engine).values for engine in ("torch", "numpy")]


@path
def similarity(side: Side) -> object:
    first, second = (bert_core.read_sentence(side.tiny, text) for text in SENTENCES[:2])
    target = bert_core.similarity_target(side.tiny, first, second)
    return [
        bert_core.sentence_similarity(side.tiny, first, second), bert_core.sentence_vector(side.tiny, first),
        bert_core.unrelated_cosines(side.tiny), bert_core.token_scores(side.tiny, first, target, ["occlusion"]),
    ]  # fmt: skip


@path
def choose(side: Side) -> object:
    return bert_core.choose(side.model("chooser"), "the king sat", ["on the mat", "by the river", "in paris"])


@path
def answers_erased(side: Side) -> object:
    states = np.random.default_rng(0).normal(size=(60, side.tiny.config.hidden_size))
    eraser = bert_core.leace(states, np.arange(60) % 3)
    return bert_core.predict_with_erasers(side.tiny, side.text, 1, [None, eraser, bert_core.random_eraser(states, 2)])


@path
def steering(side: Side) -> object:
    states = np.random.default_rng(0).normal(size=(60, side.tiny.config.hidden_size))
    vectors = [
        bert_core.steering_vector(states, np.arange(60) % 2, direction)
        for direction in ("means", "probe", "discriminant")
    ]
    return vectors, bert_core.steer(side.tiny, side.text, side.target, vectors[0], 1, draws=2)


# ---------------------------------------------------------------------------- many texts


def _encodings(side: Side) -> list[Encoding]:
    return [side.tiny.tokenizer.encode(text) for text in (*SENTENCES, *PAIR)]


@path
def word_states_of_texts(side: Side) -> object:
    encodings = _encodings(side)
    pieces = [[(n,) for n in range(1, len(text) - 1)] for text in encodings]
    return word_states(side.tiny, encodings, pieces, 1)


@path
def attention_maps_of_texts(side: Side) -> object:
    return list(attention_maps(side.tiny, _encodings(side)))


@path
def states_of_texts(side: Side) -> object:
    return list(iter_states(side.tiny, _encodings(side)))


@path
def losses(side: Side) -> object:
    rng = np.random.default_rng(0)
    texts = [mask_pieces(side.tiny.tokenizer, text, rng) for text in _encodings(side)]
    return [
        gate_gradients(side.tiny, texts), losses_without_heads(side.tiny, texts),
        masked_losses_with_erasers(side.tiny, texts, 1, [None]), masked_losses_by_depth(side.tiny, texts),
    ]  # fmt: skip


@path
def compare_models(side: Side) -> object:
    return bert_core.compare_models(side.tiny, side.pruned, SENTENCES)


@path
def track_relations(side: Side) -> object:
    return bert_core.track_relations(side.tiny, side.treebank).rows()


@path
def propose_plan(side: Side) -> object:
    orders = [
        bert_core.propose_plan(side.tiny, side.batches, "importance"),
        bert_core.propose_plan(side.tiny, side.batches, "ablation"),
        bert_core.propose_plan(side.tiny, side.batches, "ablation", part_kind="layers"),
    ]
    return [np.array(plan.order) for plan in orders]


@path
def pruning(side: Side) -> object:
    orders = {"random": [(0, 1), (1, 2)]}
    costs = bert_core.pruning_costs(side.tiny, [(0, 1)], side.text, batches=(1, 2), repeats=1)
    filled = bert_core.zero_filled(side.pruned)
    return [
        list(bert_core.curve_points(side.tiny, side.batches, orders, [0, 1, 2])),
        list(bert_core.pruning_curve(
            side.tiny, side.batches, side.batches, side.file(".csv"), orders=("importance",), steps=2
        )),
        [cost.parameters for cost in costs],
        bert_core.capture(filled, side.text),
    ]  # fmt: skip


@path
def export(side: Side) -> object:
    """The exporter of PyTorch cannot run beside the emulator: there, only the copy of the model is compared."""
    copied = on_cpu(side.tiny)
    if "--emulated" not in sys.argv:
        paths = bert_core.export_onnx(side.tiny, side.file(), gradients=True)
        return [np.frombuffer(path.read_bytes(), np.uint8) for path in paths if path.suffix != ".json"]
    return [parameter.detach().numpy() for parameter in copied.model.parameters()]


@path
def pace(side: Side) -> object:
    return measure_timing(side.tiny).estimate_seconds(8) > 0


@path
def iter_heads(side: Side) -> object:
    settings = bert_core.CorpusSettings(max_length=24)
    *_, last = bert_core.iter_heads(side.corpus, side.folders["tiny"], settings, device=side.device)
    return last[0]


@path
def neurons_over(side: Side) -> object:
    settings = bert_core.NeuronSettings(((1, 3), (0, 4)))
    return bert_core.measure_neurons(side.corpus, side.folders["tiny"], settings, device=side.device).figures


@path
def studies_step_by_step(side: Side) -> object:
    """The functions of studies beside those above give the same tables."""
    settings, model = bert_core.CorpusSettings(max_length=24), side.folders["tiny"]
    sums = bert_core.measure_heads(side.corpus, model, settings, device=side.device)
    written = bert_core.heads_file(side.corpus, side.file(".csv"), model, settings, device=side.device)
    assert written is not None and written.loss == sums.loss
    counts = bert_core.index_file(side.corpus, side.file("-index"), model, device=side.device)
    explained = bert_core.ExplainSettings("class", max_length=24)
    *_, (read, _) = bert_core.iter_explanations(
        side.sentences, side.file(".parquet"), side.folders["classifier"], explained, device=side.device
    )
    return [sums.figures, sorted(counts.items()), sorted(read.items())]


@path
def evaluate_file(side: Side) -> object:
    """Tables of a file and of its lines, and the surprisal of the texts."""
    out, settings = side.file(".parquet"), bert_core.EvaluationSettings("class", max_length=24)
    bert_core.evaluate_file(side.sentences, out, side.folders["classifier"], settings, device=side.device)
    surprise = bert_core.EvaluationSettings("surprise", max_length=24)
    *_, (read, _) = bert_core.iter_evaluation(
        side.sentences, side.file(".csv"), side.folders["tiny"], surprise, device=side.device
    )
    loaded = bert_core.load(side.folders["tiny"], device=side.device)
    lines = bert_core.lines_to_evaluate(side.sentences, loaded, surprise)
    table = bert_core.read_evaluation(out)
    return [
        table.confidence, table.prediction.tolist(), sorted(read.items()),
        bert_core.evaluate_texts(loaded, lines, surprise).loss,
    ]  # fmt: skip


@path
def explain_file(side: Side) -> object:
    out, settings = side.file(".parquet"), bert_core.ExplainSettings("class", max_length=24)
    bert_core.explain_file(side.sentences, out, side.folders["classifier"], settings, device=side.device)
    return [{name: list(values) for name, values in batch.items()} for batch in bert_core.explained_rows(out)]


@path
def index_and_search(side: Side) -> object:
    matches = [
        bert_core.search(side.index, side.tiny, side.text, [2], depth=1),
        bert_core.search(side.index, side.tiny, side.text, [2], heads=[(1, 1)]),
    ]
    return [[match.score for match in found.matches] for found in matches]


@path
def neuron_profiles(side: Side) -> object:
    profiles = bert_core.neuron_profiles(side.index, side.tiny, [(0, 3), (1, 4)])
    return [(profile.mean, profile.spread, profile.deciles) for profile in profiles]


@path
def judge_ground_truth(side: Side) -> object:
    table = side.file(".csv")
    sentence = "text,subject,right,wrong\nthe king [MASK] to the door,king,{},{}\n"
    results = []
    for number, words in enumerate((("ran", "saw"), ("saw", "ran"))):  # the tiny model predicts one of the two
        source = table.with_name(f"sentences{number}.csv")
        source.write_text(sentence.format(*words), encoding="utf-8")
        settings = bert_core.GroundTruthSettings(methods=("occlusion", "saliency"))
        try:
            results.append(bert_core.judge_ground_truth(side.tiny, source, table, settings))
        except bert_core.Refused:
            continue
    return results


@path
def judge_file(side: Side) -> object:
    settings = bert_core.StudySettings(
        questions=2, kinds=("content",), methods=("occlusion",), lengths=(4, 24), least=0.0, random_rankings=5
    )
    return bert_core.judge_file(side.tiny, side.corpus, side.file(".csv"), settings)


@path
def judge_scores(side: Side) -> object:
    loaded, scores = side.model("classifier"), side.file(".csv")
    name = loaded.labels[0]
    rows = [f"0,{start},{start + 3},{name},{start}" for start in range(0, 20, 4)]
    scores.write_text("\n".join(["text,start,end,asked,own", *rows]) + "\n", encoding="utf-8")
    return bert_core.judge_scores(
        loaded, side.sentences, scores, side.file(".csv"), methods=("occlusion",), random_rankings=5
    )


@path
def probes(side: Side) -> object:
    sentences = bert_core.read_labelled_words(side.tagged, "last")
    settings = bert_core.ProbeSettings(seeds=1, words=150, least=2)
    eraser, _ = bert_core.label_erasers(side.tiny, sentences, 1, settings, random_erasers=1)
    values = sorted({label for sentence in sentences for label in sentence.labels if label is not None})[:2]
    return [
        bert_core.label_vector(side.tiny, sentences, 1, values, settings=settings),
        bert_core.probe_points(side.tiny, sentences, settings), eraser.mean,
        bert_core.probe_file(side.tiny, side.tagged, "last", side.file(".csv"), settings, depths=[1]),
    ]  # fmt: skip


# ---------------------------------------------------------------------------- files, decoders and pictures


@path
def save_and_load(side: Side) -> object:
    folder = side.file()
    bert_core.save(side.pruned, folder)
    again = bert_core.load(folder, device=side.device)
    assert next(again.model.parameters()).device.type == bert_core.best_device(side.device).type
    return bert_core.capture(again, side.text)


@path
def from_transformers(side: Side) -> object:
    import transformers

    folder = side.file()
    bert_core.save(side.tiny, folder)
    theirs = transformers.BertForPreTraining.from_pretrained(folder, dtype="float32")
    theirs.to(side.tiny.device)
    ours = bert_core.from_transformers(theirs, transformers.AutoTokenizer.from_pretrained(folder))
    assert ours.device.type == side.tiny.device.type
    return bert_core.capture(ours, side.text)


def _decoder(side: Side) -> bert_core.BertLMHeadModel:
    torch.manual_seed(3)
    decoder = bert_core.BertLMHeadModel(side.tiny.config.replace(is_decoder=True)).eval()
    folder = side.file()
    decoder.save_pretrained(folder)
    return bert_core.load_decoder(folder, device=side.device).model


@path
def generate(side: Side) -> object:
    """Whole, ended by a token that it generates, and by beams."""
    decoder, prompt = _decoder(side), torch.tensor([[2, 10, 11], [2, 30, 31]], device=side.device)
    whole = bert_core.generate(decoder, prompt, max_new_tokens=20)
    ended = [
        bert_core.generate(decoder, prompt[:1], max_new_tokens=20, eos_token_id=int(whole[0, place]))
        for place in (3, 5, 14)
    ]
    beams = bert_core.generate(decoder, prompt, max_new_tokens=6, num_beams=3, eos_token_id=int(whole[0, 4]))
    return whole, ended, [row.shape[1] for row in ended], beams


@path
def greedy_decoding(side: Side) -> object:
    """24 tokens, with an end that does not come."""
    prompt = torch.tensor([[2, 10, 11]], device=side.device)
    return bert_core.generate(_decoder(side), prompt, max_new_tokens=24, eos_token_id=1)


@path
def sampling_is_seeded(side: Side) -> object:
    """Random numbers of devices differ: drawn tokens are those of the same seed on the same device."""
    decoder, prompt = _decoder(side), torch.tensor([[2, 10, 11]], device=side.device)
    drawn = [bert_core.generate(decoder, prompt, max_new_tokens=6, do_sample=True, top_k=9, top_p=0.9, seed=1)
             for _ in range(2)]  # fmt: skip
    return torch.equal(*drawn)


@path
def describe(side: Side) -> object:
    loaded = bert_core.load_captioner(device=side.device)
    size = loaded.config.image_size
    return bert_core.describe(loaded, np.random.default_rng(1).integers(0, 255, (size, size, 3), np.uint8))


# ---------------------------------------------------------------------------- training


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if not name.endswith(KEY_BIAS)}


def _pretrained(side: Side, steps: int, **settings: Any) -> torch.nn.Module:
    from bert_core.training.launch import launch
    from bert_core.training.settings import PretrainSettings

    chosen = PretrainSettings(steps=steps, warmup=1, decay=2, tokens=256, lengths={32: 1.0}, **settings)
    return launch(
        side.corpus, side.file(), chosen, start=side.folders["tiny"], device=side.device, report=ignore_progress
    )


@path
def pretrain(side: Side) -> object:
    return _weights(_pretrained(side, 6)), _weights(_pretrained(side, 4, optimizer="muon", average=0.9))


@path
def pretrain_20_steps(side: Side) -> object:
    """For the synchronisations of more steps: weights move apart with every step."""
    return _pretrained(side, 20).training


@path
def pretrain_60_steps(side: Side) -> object:
    return _pretrained(side, 60).training


@path
def tune_lens_20_steps(side: Side) -> object:
    return _tuned(side, 20)[0].training


@path
def tune_lens_60_steps(side: Side) -> object:
    return _tuned(side, 60)[0].training


def _tuned(side: Side, steps: int, held_out: Path | None = None) -> tuple[bert_core.Translators, Path]:
    from bert_core.training.lens import tune_lens
    from bert_core.training.settings import LensSettings

    settings = LensSettings(steps=steps, warmup=1, decay=2, learning_rate=1e-2, examples=8, length=24)
    folder = side.file()
    return tune_lens(
        side.tiny, side.corpus, settings, folder, held_out=held_out, report=ignore_progress
    ), folder / "lens"


@path
def tune_lens(side: Side) -> object:
    trained, folder = _tuned(side, 6, side.corpus)
    read = bert_core.read_translators(side.tiny, folder)
    return _weights(trained), bert_core.logit_lens(side.tiny, side.text, translators=read)


@path
def fine_tune(side: Side) -> object:
    from bert_core.training.answers import finetune_reader
    from bert_core.training.finetune import finetune
    from bert_core.training.settings import AnswerSettings, FinetuneSettings
    from bert_core.training.tagging import finetune_tags

    settings, folders = FinetuneSettings(epochs=1, learning_rate=1e-3, max_length=32), [side.file() for _ in range(3)]
    given: dict[str, Any] = {
        "start": side.folders["tiny"],
        "held_out": 0.25,
        "device": side.device,
        "report": ignore_progress,
    }
    finetune(side.table, folders[0], settings, text="text", label="class", **given)
    finetune_tags(side.tagged, folders[1], settings, **given)
    reader = AnswerSettings(epochs=1, learning_rate=1e-3, max_length=40, stride=8)
    finetune_reader(side.questions, folders[2], reader, **given)
    return [bert_core.capture(bert_core.load(folder, device=side.device), side.pair) for folder in folders]


@path
def train_captioner(side: Side) -> object:
    from bert_core import scenes
    from bert_core.training.captioner import train_captioner
    from bert_core.training.settings import CaptionerSettings
    from bert_core.vision import CaptionerConfig

    sizes = CaptionerConfig.small(len(scenes.VOCABULARY), image_size=32, patch_size=8, hidden=16, heads=2)
    settings = CaptionerSettings(steps=4, batch=4, warmup=1, decay=2, growth=2, seed=3)
    given: dict[str, Any] = {"save_every": 0, "evaluate_every": 4, "report": ignore_progress}
    return _weights(train_captioner(sizes, settings, side.file(), device=torch.device(side.device), **given).model)


# ---------------------------------------------------------------------------- comparing


def values_of(value: object, name: str = "") -> dict[str, np.ndarray]:
    """All numbers of a result by where they stand: tensors, arrays, lists of numbers, records and their fields."""
    if isinstance(value, torch.Tensor):
        return {name: value.detach().cpu().double().numpy()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return {name: value.astype(np.float64)}
    if isinstance(value, bool | int | float | np.number):
        return {name: np.array(float(value))}
    if isinstance(value, list | tuple) and value and all(isinstance(part, int | float) for part in value):
        return {name: np.array(value, np.float64)}
    if isinstance(value, Mapping):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, LoadedModel):
        return {}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {}
    numbers: dict[str, np.ndarray] = {}
    for part, inner in parts:
        if part not in NOT_COMPARED:
            numbers |= values_of(inner, f"{name}.{part}")
    return numbers


def difference(result: object, expected: object) -> tuple[float, str]:
    """The largest difference of two results relative to the largest value of its array, and where it is."""
    numbers, reference = values_of(result), values_of(expected)
    if numbers.keys() != reference.keys() or not reference:
        return float("inf"), f"the parts are not the same: {sorted(numbers.keys() ^ reference.keys())[:3]}"
    worst = (0.0, "")
    for name, own in reference.items():
        other = numbers[name]
        if other.shape != own.shape or not np.array_equal(np.isfinite(other), np.isfinite(own)):
            return float("inf"), name
        own, other = np.nan_to_num(own), np.nan_to_num(other)
        scale = max(np.abs(own).max(initial=0), SMALLEST_SCALE)
        worst = max(worst, (float(np.abs(own - other).max(initial=0) / scale), name))
    return worst


def main(kind: str, folders: Path, report: Path, *emulated: str) -> None:
    """Run every path on both devices and write the report."""
    names = json.loads(folders.read_text(encoding="utf-8"))
    if emulated:
        emulated_device.install(kind)
        transformers_models.PLAIN_TENSORS += (emulated_device.EmulatedTensor,)
    # In its own precision each device rounds in its own way.
    optimization.fast_dtype = lambda device: torch.float32  # type: ignore[assignment]
    sides = []
    with tempfile.TemporaryDirectory() as temporary:
        for device in ("cpu", kind):
            (folder := Path(temporary) / device).mkdir()
            sides.append(Side(device, names, folder))
        outcomes: dict[str, dict[str, Any]] = {}
        for name, run in PATHS.items():
            expected = run(sides[0])
            emulated_device.synchronisations.clear()
            try:
                result = run(sides[1])
                counted = dict(emulated_device.synchronisations)
                size, where = difference(result, expected)
                outcomes[name] = {"difference": size, "where": where, "synchronisations": counted}
            except Exception as error:
                lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "bert_core" in frame.filename]
                where = " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in lines[-3:])
                outcomes[name] = {"error": f"{type(error).__name__}: {error} ({where})"}
    report.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    if emulated:
        emulated_device.leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
