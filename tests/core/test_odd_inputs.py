"""What a caller may give by mistake: every public function answers rightly, or refuses in one sentence of ours."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_core
from bert_core import (
    Alignment,
    Batch,
    BertConfig,
    BertLMHeadModel,
    CurvePoint,
    Encoding,
    HeadTable,
    Judgement,
    LoadedCaptioner,
    LoadedModel,
    PairScore,
    PruningPlan,
    Refused,
    StudySettings,
    Target,
    Tokenizer,
    Walk,
    loading,
)
from bert_core.analysis.roles import THRESHOLDS
from tests.core.test_refused import ODD
from tests.families import save_family
from tests.near import assert_near
from tests.selection import mark_cases

# Right ones, small.
MAPS = np.full((2, 4, 3, 3), 1 / 3)
FIGURES = np.arange(8.0).reshape(2, 4)
STATES = np.arange(24.0).reshape(2, 3, 4) ** 2 % 7
SCORES = np.arange(8.0).reshape(2, 4) % 3
DISTANCES = np.ones((3, 3)) - np.eye(3)
PICTURE = np.arange(6.0).reshape(2, 3)
BOX = (0.0, 0.0, 0.5, 0.5)
ROLES = dict.fromkeys(THRESHOLDS, FIGURES / 8)
PAIRS = Alignment(np.arange(3), np.arange(3), (), ())
POINTS = [CurvePoint(order, removed, 2.0 + removed, 0.5, 0.5, 100, 9.0)
          for order in ("mine", "random 0", "random 1") for removed in (0, 1, 2)]  # fmt: skip
TRUTH = [bert_core.TruthJudgement(0, "", "0", 4, 1, 0.5, "rollout", ((0.5,) * 4,) * 3)]
JUDGEMENTS = [Judgement("content", 0, 9, "cat", 0.5, "rollout", (1.0, 1.0, 1.0), (0.0,) * 3, (2.0,) * 3)]
HEAD_TABLE = HeadTable("mine", 1, 9, {"entropy": FIGURES.copy()})
TREE = ["1\tcats\t_\t_\t_\t_\t2\tnsubj\t_\t_", "2\tsat\t_\t_\t_\t_\t0\troot\t_\t_"]


@dataclass
class Asked:
    """A model, a text of it, a question of that text, and a file with a text."""

    loaded: LoadedModel
    encoding: Encoding
    target: Target
    text: Path

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.loaded.tokenizer

    @property
    def config(self) -> BertConfig:
        """The model's."""
        return self.loaded.config

    @cached_property
    def patches(self) -> bert_core.Patches:
        """Of the text with itself."""
        return bert_core.patch(self.loaded, self.encoding, self.encoding, self.target, layers=[0])

    @cached_property
    def graph(self) -> bert_core.ContributionGraph:
        """Of the text, with a share for every edge."""
        return bert_core.contribution_graph(self.loaded, self.encoding, method="norms with residual")

    @property
    def spans(self) -> bert_core.SpanPrediction:
        """Of a reader that tells no token from another."""
        return bert_core.SpanPrediction(*np.zeros((4, len(self.encoding)), np.float32))

    @cached_property
    def chooser(self) -> LoadedModel:
        """The model with a head that scores answers to choose from."""
        head = bert_core.BertForMultipleChoice(self.config, self.loaded.model.bert)
        return replace(self.loaded, task_models={"chooser": head})

    @cached_property
    def pre_norm(self) -> tuple[LoadedModel, Encoding, Target]:
        """A model with layer norms before its parts, a text of it, and a word at its mask."""
        folder = self.text.with_name("pre_norm")
        save_family("modernbert", folder)
        loaded = bert_core.load(folder, device="cpu")
        encoding = loaded.tokenizer.encode("the [MASK] sat on a mat.")
        return loaded, encoding, Target("mlm", encoding.mask_positions[0], 30)

    @property
    def direction(self) -> np.ndarray:
        """A vector to steer with."""
        return np.ones(self.config.hidden_size)

    @property
    def scores(self) -> np.ndarray:
        """One of a method, for every token."""
        return np.arange(len(self.encoding), dtype=float)[None]

    @cached_property
    def maps(self) -> np.ndarray:
        """(layer, head, query, key), even attention between all tokens of the text."""
        return np.full((2, 4, len(self.encoding), len(self.encoding)), 1 / len(self.encoding))

    @cached_property
    def short(self) -> Encoding:
        """A text of four tokens."""
        return self.tokenizer.encode("a cat")

    @cached_property
    def walk(self) -> Walk:
        """Through the first layer."""
        return bert_core.walk(self.loaded, self.encoding, 0)

    @cached_property
    def pair(self) -> PairScore:
        """Two sentences, scored."""
        (pair,) = bert_core.score_pairs(self.loaded, [("the cat", "a cat")])
        return pair

    @cached_property
    def index(self) -> bert_core.Index:
        """Of the file."""
        folder = self.text.with_name("index")
        for _ in bert_core.iter_index(self.text, folder, self.loaded.report.source, device="cpu"):
            pass
        return bert_core.open_index(folder)

    @cached_property
    def batch(self) -> Batch:
        """One example, whose second piece is hidden."""
        ids = np.array([self.encoding.input_ids])
        labels = np.where(np.arange(ids.size) == 2, 9, -100)[None]
        return Batch(ids, np.array([self.encoding.token_type_ids]), np.ones_like(ids), labels, np.array([-100]))

    @cached_property
    def decoder(self) -> BertLMHeadModel:
        """One that reads states of width 32."""
        torch.manual_seed(0)
        sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(
            **sizes, intermediate_size=8, max_position_embeddings=12, is_decoder=True, add_cross_attention=True,
            encoder_width=32,
        )  # fmt: skip
        return BertLMHeadModel(config).eval()

    @cached_property
    def captioner(self) -> LoadedCaptioner:
        """The one that comes along."""
        return bert_core.load_captioner(loading.ASSETS / "headlight-shapes")

    def generated(self, **given: Any) -> Any:
        """Two tokens after a prompt of three, with something given otherwise."""
        right = {"input_ids": torch.tensor([[2, 5, 6]]), "encoder_hidden_states": torch.zeros(1, 4, 32)}
        return bert_core.generate(**{"model": self.decoder, "max_new_tokens": 2, **right, **given})


@pytest.fixture(scope="module")
def asked(tiny_loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """The tiny model, asked for one hidden word."""
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on a mat.", "it was old.")
    text = tmp_path_factory.mktemp("texts") / "text.txt"
    text.write_text("the cat sat.\n", encoding="utf-8")
    target = Target("mlm", encoding.mask_positions[0], tiny_loaded.tokenizer.id_of("cat"))
    return Asked(tiny_loaded, encoding, target, text)


Door = Callable[[Asked, Any], object]


def capture_for(a: Asked, target: Any) -> object:
    return bert_core.capture(a.loaded, a.encoding, target=target)


def recorded(layers: Any) -> object:
    with bert_core.record(layers) as recording:
        return recording


def created(**sizes: Any) -> object:
    small = {"vocab_size": 8, "max_seq_length": 8, "d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    return bert_core.create_bert_model(**{**small, **sizes})


def judged(a: Asked, **given: Any) -> object:
    """Of a file that holds no question, so that nothing is written."""
    right = {"loaded": a.loaded, "text": a.text, "table": "table.csv", "settings": StudySettings(lengths=(99, 99))}
    return bert_core.judge_file(**{**right, **given})


def judged_truth(**given: Any) -> object:
    """With a model beside the circuits, so that nothing is written."""
    settings = bert_core.GroundTruthSettings(sentences=1, methods=("attention",))
    right = {"loaded": 1, "source": "circuits", "table": "table.csv", "settings": settings}
    return bert_core.judge_ground_truth(**{**right, **given})


def probed(a: Asked, **given: Any) -> object:
    """Of a file that is none, so that nothing is written."""
    right = {"loaded": a.loaded, "path": a.text, "label": "upos", "table": "table.csv"}
    return bert_core.probe_file(**{**right, **given})


def probes_of(a: Asked, **given: Any) -> object:
    """Of one sentence: too few."""
    one = bert_core.LabelledSentence("the cat", ((0, 3), (4, 7)), ("a", "b"))
    right = {"loaded": a.loaded, "sentences": [one], "settings": bert_core.ProbeSettings(least=1)}
    return list(bert_core.probe_points(**{**right, **given}))


def erasers_of(a: Asked, **given: Any) -> object:
    """Of one sentence: too few."""
    one = bert_core.LabelledSentence("the cat", ((0, 3), (4, 7)), ("a", "b"))
    right = {"loaded": a.loaded, "sentences": [one], "depth": 0, "settings": bert_core.ProbeSettings(least=1)}
    return bert_core.label_erasers(**{**right, **given})


def vector_of(a: Asked, **given: Any) -> object:
    """Of one sentence: too few."""
    one = bert_core.LabelledSentence("the cat", ((0, 3), (4, 7)), ("a", "b"))
    right = {"loaded": a.loaded, "sentences": [one], "depth": 0, "settings": bert_core.ProbeSettings(least=1)}
    return bert_core.label_vector(**{**right, **given})


def steered(a: Asked, **given: Any) -> object:
    return bert_core.steer(a.loaded, a.encoding, a.target, a.direction, 1, **{"factors": [1], "draws": 1, **given})


def curve(a: Asked, **given: Any) -> object:
    """An order that is found on nothing, so that nothing is written."""
    right = {
        "loaded": a.loaded,
        "estimation_examples": [],
        "test_examples": [a.batch],
        "table": "table.csv",
        "orders": ["importance"],
    }
    return list(bert_core.pruning_curve(**{**right, **given}))


def points(a: Asked, **given: Any) -> object:
    right = {"loaded": a.loaded, "batches": [a.batch], "orders": {"mine": [(0, 0)]}, "removed": [0, 1]}
    return list(bert_core.curve_points(**{**right, **given}))


def costs(a: Asked, **given: Any) -> object:
    right = {"loaded": a.loaded, "heads": [(0, 0)], "encoding": a.encoding, "batches": [1], "repeats": 1}
    return bert_core.pruning_costs(**{**right, **given})


def others(a: Asked, **given: Any) -> object:
    """Of scores that are none, so that nothing is written."""
    right = {"loaded": a.loaded, "path": a.text, "scores": a.text, "table": "table.csv"}
    return bert_core.judge_scores(**{**right, **given})


def explained(a: Asked, **given: Any) -> object:
    """Of no file, or by a model without a classifier, so that nothing is written."""
    right = {"path": "nothing.txt", "out": "table.csv", "model": a.loaded.report.source}
    return list(bert_core.iter_explanations(**{**right, **given}))


def evaluated(a: Asked, **given: Any) -> object:
    """Of no file, so that nothing is written."""
    right = {"path": "nothing.txt", "out": "table.csv", "model": a.loaded.report.source}
    return list(bert_core.iter_evaluation(**{**right, **given}))


def over(a: Asked, **given: Any) -> object:
    """Of no file, so that nothing is written."""
    return list(bert_core.iter_heads(**{"path": "nothing.txt", "model": a.loaded.report.source, **given}))


STUDIES: dict[str, Callable[..., object]] = {
    "heads_over": lambda **given: bert_core.measure_heads(**given),
    "heads_file": lambda **given: bert_core.heads_file(**given, out=Path("table.csv")),
    "explain_file": lambda **given: bert_core.explain_file(**given, out=Path("table.csv")),
    "evaluate_file": lambda **given: bert_core.evaluate_file(**given, out=Path("table.csv")),
    "index_file": lambda **given: bert_core.index_file(**given, out=Path("index")),
}


def studied(a: Asked, function: str, **given: Any) -> object:
    """A study of no file, so that nothing is written."""
    return STUDIES[function](**{"path": "nothing.txt", "model": a.loaded.report.source, **given})


def firing(a: Asked, **given: Any) -> object:
    """One neuron of a text."""
    right = {"path": a.text, "model": a.loaded.report.source, "settings": bert_core.NeuronSettings(((0, 1),))}
    return bert_core.measure_neurons(**{**right, "device": "cpu", **given})


def indexed(a: Asked, **given: Any) -> object:
    """Of no file, so that nothing is written."""
    return list(bert_core.iter_index(**{"path": "nothing.txt", "out": "i", "model": a.loaded.report.source, **given}))


def looked_up(a: Asked, **given: Any) -> object:
    """Where else a state is like that of the third token."""
    right = {"index": a.index, "loaded": a.loaded, "encoding": a.encoding, "tokens": [2]}
    return bert_core.search(**{**right, **({} if "heads" in given else {"depth": 1}), **given})


DOORS: dict[str, Door] = {
    "load": lambda a, v: bert_core.load(v, device="cpu", allow_hub=False),
    "load device": lambda a, v: bert_core.best_device(v),
    "from_transformers": lambda a, v: bert_core.from_transformers(v),
    "load_decoder": lambda a, v: bert_core.load_decoder(v, allow_hub=False),
    "load_captioner": lambda a, v: bert_core.load_captioner(v),
    "save": lambda a, v: bert_core.save(v, "nowhere"),
    "export_onnx": lambda a, v: bert_core.export_onnx(v, "nowhere"),
    "save to": lambda a, v: bert_core.save(a.loaded, a.loaded.report.source if isinstance(v, str | Path) else v),
    "from_folder": lambda a, v: Tokenizer.from_folder(v),
    "from_json": lambda a, v: BertConfig.from_json(v),
    "from_dict": lambda a, v: BertConfig.from_dict(v),
    "with_labels": lambda a, v: a.config.with_labels(v),
    "encode": lambda a, v: a.tokenizer.encode(v),
    "encode pair": lambda a, v: a.tokenizer.encode("the cat", v),
    "encode max_length": lambda a, v: a.tokenizer.encode("the cat", max_length=v),
    "mask_words": lambda a, v: a.tokenizer.mask_words(a.encoding, v),
    "mask_words of": lambda a, v: a.tokenizer.mask_words(v, [0]),
    "id_of": lambda a, v: a.tokenizer.id_of(v),
    "token_of": lambda a, v: a.tokenizer.token_of(v),
    "encode_plain": lambda a, v: a.tokenizer.encode_plain(v),
    "decode": lambda a, v: a.tokenizer.decode(v),
    "pieces_of": lambda a, v: a.encoding.pieces_of(v),
    "word_text": lambda a, v: a.encoding.word_text(v),
    "hidden_piece": lambda a, v: a.encoding.masked_piece(v),
    "target": capture_for,
    "target kind": lambda a, v: capture_for(a, Target(v, 2, 9)),
    "target position": lambda a, v: capture_for(a, Target("mlm", v, 9)),
    "target token_id": lambda a, v: capture_for(a, Target("mlm", 2, v)),
    "target against": lambda a, v: capture_for(a, Target("contrast", 2, 9, against=v)),
    "target label": lambda a, v: capture_for(a, Target("class", label=v)),
    "tagged_words": lambda a, v: bert_core.tagged_words(v),
    "tagged_spans": lambda a, v: bert_core.tagged_spans(v),
    "tag_spans": lambda a, v: bert_core.tag_spans(v),
    "target tag": lambda a, v: capture_for(a, Target("tag", 2, label=v)),
    "target last": lambda a, v: capture_for(a, Target("span", 2, last=v)),
    "target replaced": lambda a, v: capture_for(a, Target("replaced", v)),
    "target name": lambda a, v: capture_for(a, Target("custom", name=v, function=lambda o: o.states[:, 0, 0])),
    "target function": lambda a, v: capture_for(a, Target("custom", name="mine", function=v)),
    "target value": lambda a, v: capture_for(a, Target("custom", name="mine", function=lambda o: v)),
    "target positions": lambda a, v: capture_for(
        a, Target("custom", name="mine", function=lambda o: o.states[:, 0, 0], positions=v)
    ),
    "target pieces": lambda a, v: capture_for(a, Target("joint", pieces=v)),
    "target other": lambda a, v: capture_for(a, Target("similarity", other=v, pooled=(0,))),
    "target pooled": lambda a, v: capture_for(a, Target("similarity", other=a.encoding, pooled=v)),
    "choose model": lambda a, v: bert_core.choose(v, "who sat", ["the cat", "a dog"]),
    "choose question": lambda a, v: bert_core.choose(a.chooser, v, ["the cat", "a dog"]),
    "choose choices": lambda a, v: bert_core.choose(a.chooser, "who sat", v),
    "choose one": lambda a, v: bert_core.choose(a.chooser, "who sat", ["the cat", v]),
    "choose head_mask": lambda a, v: bert_core.choose(a.chooser, "who sat", ["the cat", "a dog"], head_mask=v),
    "similarity_target model": lambda a, v: bert_core.similarity_target(v, a.encoding, a.short),
    "similarity_target text": lambda a, v: bert_core.similarity_target(a.loaded, v, a.short),
    "similarity_target other": lambda a, v: bert_core.similarity_target(a.loaded, a.short, v),
    "similar": lambda a, v: bert_core.sentence_similarity(a.loaded, v, a.short),
    "similar second": lambda a, v: bert_core.sentence_similarity(a.loaded, a.short, v),
    "similar head_mask": lambda a, v: bert_core.sentence_similarity(a.loaded, a.short, a.short, head_mask=v),
    "sentence_vector": lambda a, v: bert_core.sentence_vector(a.loaded, v),
    "sentence_vector head_mask": lambda a, v: bert_core.sentence_vector(a.loaded, a.short, head_mask=v),
    "read_sentence": lambda a, v: bert_core.read_sentence(a.loaded, v),
    "unrelated_cosines": lambda a, v: bert_core.unrelated_cosines(v),
    "cosine_parts": lambda a, v: bert_core.cosine_parts(v, STATES[0]),
    "cosine_parts second": lambda a, v: bert_core.cosine_parts(STATES[0], v),
    "Pooling": lambda a, v: bert_core.Pooling(v),
    "Pooling max_length": lambda a, v: bert_core.Pooling(max_length=v),
    "word_target tokenizer": lambda a, v: bert_core.word_target(v, a.encoding, "cat"),
    "word_target text": lambda a, v: bert_core.word_target(a.tokenizer, v, "cat"),
    "word_target word": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, v),
    "word_target position": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, "cat", position=v),
    "word_target against": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, "cat", against=v),
    "loss_target": lambda a, v: bert_core.loss_target(a.encoding, v),
    "parse_target model": lambda a, v: bert_core.parse_target(v, a.encoding, "cat"),
    "parse_target text": lambda a, v: bert_core.parse_target(a.loaded, v, "cat"),
    "parse_target": lambda a, v: bert_core.parse_target(a.loaded, a.encoding, v),
    "parse_target original": lambda a, v: bert_core.parse_target(a.loaded, a.encoding, "cat", original=v),
    "format_target model": lambda a, v: bert_core.format_target(v, a.target),
    "format_target": lambda a, v: bert_core.format_target(a.loaded, v),
    "TargetKind needs": lambda a, v: bert_core.TargetKind(v, "x", "", None, "", "", "", ""),
    "TargetKind link": lambda a, v: bert_core.TargetKind((), "x", "", v, "", "", "", ""),
    "TargetKind offer": lambda a, v: bert_core.TargetKind((), "x", "", None, v, "", "", ""),
    "FileQuestion judged": lambda a, v: bert_core.FileQuestion("x", "", v),
    # A head without a name is refused whatever else is given, so that none is registered here.
    "register_head": lambda a, v: bert_core.register_head(v, {}),
    "register_head kinds": lambda a, v: bert_core.register_head(bert_core.TaskHead(), v),
    "register_head questions": lambda a, v: bert_core.register_head(bert_core.TaskHead(), {}, v),
    "unregister_head": lambda a, v: bert_core.unregister_head(v),
    "capture model": lambda a, v: bert_core.capture(v, a.encoding),
    "capture": lambda a, v: bert_core.capture(a.loaded, v),
    "capture positions": lambda a, v: bert_core.capture(a.loaded, a.encoding, positions=v),
    "capture head_mask": lambda a, v: bert_core.capture(a.loaded, a.encoding, head_mask=v),
    "capture norms": lambda a, v: bert_core.capture(a.loaded, a.encoding, norms=v),
    "capture top_k": lambda a, v: bert_core.capture(a.loaded, a.encoding, top_k=v),
    "captures": lambda a, v: bert_core.captures(a.loaded, v),
    "captures norms": lambda a, v: bert_core.captures(a.loaded, [a.encoding], norms=v),
    "captures of": lambda a, v: bert_core.captures(a.loaded, [a.encoding, v]),
    "captures target": lambda a, v: bert_core.captures(a.loaded, [a.encoding], target=v),
    "captures targets": lambda a, v: bert_core.captures(a.loaded, [a.encoding], target=[v]),
    "head_mask_without": lambda a, v: bert_core.head_mask_without(a.config, v),
    "layer_states": lambda a, v: bert_core.layer_states(a.loaded, v),
    "logit_lens": lambda a, v: bert_core.logit_lens(a.loaded, v),
    "logit_lens positions": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, positions=v),
    "logit_lens followed": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, followed=v),
    "logit_lens top_k": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, top_k=v),
    "patch": lambda a, v: bert_core.patch(a.loaded, v, a.encoding, a.target),
    "patch text": lambda a, v: bert_core.patch(a.loaded, a.encoding, v, a.target),
    "patch target": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, v),
    "patch what": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, part_kind=v),
    "patch apart": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, per_position=v),
    "patch layers": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, layers=v),
    "patch positions": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, positions=v),
    "patch head mask": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, head_mask=v),
    "patch align": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, align=v),
    "answer_with": lambda a, v: bert_core.predict_with_patch(a.loaded, v, (0, 0)),
    "answer_with place": lambda a, v: bert_core.predict_with_patch(a.loaded, a.patches, v),
    "answer_with top_k": lambda a, v: bert_core.predict_with_patch(a.loaded, a.patches, (0, 0), top_k=v),
    "patch_band": lambda a, v: bert_core.patch_band(a.loaded, v),
    "patch_band texts": lambda a, v: bert_core.patch_band(a.loaded, a.patches, texts=v),
    "patch_band seed": lambda a, v: bert_core.patch_band(a.loaded, a.patches, texts=2, seed=v),
    "Noised": lambda a, v: bert_core.Noised(v),
    "Noised size": lambda a, v: bert_core.Noised(a.encoding, v),
    "Noised positions": lambda a, v: bert_core.Noised(a.encoding, positions=v),
    "Noised seed": lambda a, v: bert_core.Noised(a.encoding, seed=v),
    "MeanOf": lambda a, v: bert_core.MeanOf(v),
    "word_partners": lambda a, v: bert_core.word_partners(v, a.encoding),
    "patch batch": lambda a, v: bert_core.patch(a.loaded, a.encoding, a.encoding, a.target, batch_tokens=v),
    "direct_logit": lambda a, v: bert_core.direct_logit(v, *a.pre_norm[1:]),
    "direct_logit text": lambda a, v: bert_core.direct_logit(a.pre_norm[0], v, a.pre_norm[2]),
    "direct_logit target": lambda a, v: bert_core.direct_logit(*a.pre_norm[:2], v),
    "direct_logit head_mask": lambda a, v: bert_core.direct_logit(*a.pre_norm, head_mask=v),
    "direct_score": lambda a, v: bert_core.direct_score(v, a.pre_norm[1], (1, 0), 0, 0),
    "direct_score text": lambda a, v: bert_core.direct_score(a.pre_norm[0], v, (1, 0), 0, 0),
    "direct_score receiver": lambda a, v: bert_core.direct_score(*a.pre_norm[:2], v, 0, 0),
    "direct_score query": lambda a, v: bert_core.direct_score(*a.pre_norm[:2], (1, 0), v, 0),
    "direct_score key": lambda a, v: bert_core.direct_score(*a.pre_norm[:2], (1, 0), 0, v),
    "direct_score side": lambda a, v: bert_core.direct_score(*a.pre_norm[:2], (1, 0), 0, 0, side=v),
    "direct_score head_mask": lambda a, v: bert_core.direct_score(*a.pre_norm[:2], (1, 0), 0, 0, head_mask=v),
    "direct_score_map text": lambda a, v: bert_core.direct_score_map(a.pre_norm[0], v, (0, 0), (1, 0)),
    "direct_score_map sender": lambda a, v: bert_core.direct_score_map(*a.pre_norm[:2], v, (1, 0)),
    "direct_score_map receiver": lambda a, v: bert_core.direct_score_map(*a.pre_norm[:2], (0, 0), v),
    "direct_score_map side": lambda a, v: bert_core.direct_score_map(*a.pre_norm[:2], (0, 0), (1, 0), side=v),
    "direct_score_map head_mask": lambda a, v: bert_core.direct_score_map(
        *a.pre_norm[:2], (0, 0), (1, 0), head_mask=v
    ),
    "patch_path": lambda a, v: bert_core.patch_path(a.loaded, v, a.encoding, a.target),
    "patch_path text": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, v, a.target),
    "patch_path target": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, v),
    "patch_path senders": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, a.target, v),
    "patch_path receivers": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, a.target, None, v),
    "patch_path through": lambda a, v: bert_core.patch_path(
        a.loaded, a.encoding, a.encoding, a.target, None, [(1, 0)], receiver_input=v
    ),
    "patch_path align": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, a.target, align=v),
    "patch_path head mask": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, a.target, head_mask=v),
    "patch_path batch": lambda a, v: bert_core.patch_path(a.loaded, a.encoding, a.encoding, a.target, batch_tokens=v),
    "estimate_patches": lambda a, v: bert_core.estimate_patches(a.loaded, v, a.encoding, a.target),
    "estimate_patches what": lambda a, v: bert_core.estimate_patches(
        a.loaded, a.encoding, a.encoding, a.target, part_kind=v
    ),
    "patches_missed": lambda a, v: bert_core.patch_estimate_quality(v, v),
    "ablate_heads": lambda a, v: bert_core.ablate_heads(a.loaded, v),
    "ablate_heads positions": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, positions=v),
    "ablate_heads method": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, method=v),
    "ablate_heads reference": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, method="mean", reference=v),
    "ablate_heads batch": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, batch_tokens=v),
    "ablate_heads report": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, report=None if v is len else v),
    "walk": lambda a, v: bert_core.walk(a.loaded, v, 0),
    "walk layer": lambda a, v: bert_core.walk(a.loaded, a.encoding, v),
    "walk position": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, position=v),
    "walk pads": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, pads=v),
    "walk engine": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, engine=v),
    "score_pairs": lambda a, v: bert_core.score_pairs(a.loaded, v),
    "score_pairs pair": lambda a, v: bert_core.score_pairs(a.loaded, [v]),
    "score_pairs second": lambda a, v: bert_core.score_pairs(a.loaded, [("the cat", v)]),
    "token_scores": lambda a, v: bert_core.token_scores(a.loaded, v, a.target, ["saliency"]),
    "token_scores target": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, v, ["attention"]),
    "token_scores methods": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, a.target, v),
    "token_scores run": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, a.target, ["attention"], run=v),
    "layer_scores": lambda a, v: bert_core.layer_scores(a.loaded, a.encoding, a.target, v),
    "faithfulness": lambda a, v: bert_core.faithfulness(a.loaded, a.encoding, a.target, v),
    "faithfulness baseline": lambda a, v: bert_core.faithfulness(
        a.loaded, a.encoding, a.target, a.scores, baseline=v, random_rankings=2
    ),
    "faithfulness seed": lambda a, v: bert_core.faithfulness(
        a.loaded, a.encoding, a.target, a.scores, random_rankings=2, seed=v
    ),
    "steps": lambda a, v: bert_core.integrated_gradients(a.loaded, a.encoding, a.target, steps=v),
    "saliency": lambda a, v: bert_core.saliency(a.loaded, a.encoding, v),
    "occlusion": lambda a, v: bert_core.occlusion(a.loaded, a.encoding, v),
    "decompx": lambda a, v: bert_core.decompx(a.loaded, a.encoding, v),
    "alti": lambda a, v: bert_core.alti(a.loaded, v),
    "contribution_graph": lambda a, v: bert_core.contribution_graph(a.loaded, v),
    "contribution_graph method": lambda a, v: bert_core.contribution_graph(a.loaded, a.encoding, method=v),
    "contribution_graph head mask": lambda a, v: bert_core.contribution_graph(a.loaded, a.encoding, head_mask=v),
    "paths_to": lambda a, v: bert_core.paths_to(v, [1], 0.1),
    "paths_to positions": lambda a, v: bert_core.paths_to(a.graph.shares, v, 0.1),
    "paths_to threshold": lambda a, v: bert_core.paths_to(a.graph.shares, [1], v),
    "knock_out_graph_edge": lambda a, v: bert_core.knock_out_graph_edge(a.loaded, v, a.target, 1, 2, 3),
    "knock_out_graph_edge target": lambda a, v: bert_core.knock_out_graph_edge(a.loaded, a.graph, v, 1, 2, 3),
    "knock_out_graph_edge layer": lambda a, v: bert_core.knock_out_graph_edge(a.loaded, a.graph, a.target, v, 2, 3),
    "knock_out_graph_edge query": lambda a, v: bert_core.knock_out_graph_edge(a.loaded, a.graph, a.target, 1, v, 3),
    "knock_out_graph_edge key": lambda a, v: bert_core.knock_out_graph_edge(a.loaded, a.graph, a.target, 1, 2, v),
    "knock_out_graph_edge heads": lambda a, v: bert_core.knock_out_graph_edge(
        a.loaded, a.graph, a.target, 1, 2, 3, heads=v
    ),
    "knock_out_graph_edge random edges": lambda a, v: bert_core.knock_out_graph_edge(
        a.loaded, a.graph, a.target, 1, 2, 3, random_edges=v
    ),
    "knock_out_graph_edge tolerance": lambda a, v: bert_core.knock_out_graph_edge(
        a.loaded, a.graph, a.target, 1, 2, 3, tolerance=v
    ),
    "knock_out_graph_edge seed": lambda a, v: bert_core.knock_out_graph_edge(
        a.loaded, a.graph, a.target, 1, 2, 3, seed=v
    ),
    "inputs_of": lambda a, v: a.graph.inputs_of(v, 2),
    "inputs_of query": lambda a, v: a.graph.inputs_of(1, v),
    "values_without": lambda a, v: bert_core.values_without(a.loaded, a.encoding, a.target, v),
    "pseudo_log_likelihood": lambda a, v: bert_core.pseudo_log_likelihood(a.loaded, v),
    "head_vectors": lambda a, v: bert_core.head_vectors(a.loaded, v, 0, 0),
    "all_head_vectors": lambda a, v: bert_core.all_head_vectors(a.loaded, v),
    "query_key_planes": lambda a, v: bert_core.query_key_planes(a.loaded, v),
    "query_key_planes model": lambda a, v: bert_core.query_key_planes(v, [a.encoding] * 2),
    "query_key_planes encoding": lambda a, v: bert_core.query_key_planes(a.loaded, [a.encoding, v]),
    "query_key_planes heads": lambda a, v: bert_core.query_key_planes(a.loaded, [a.encoding] * 2, v),
    "query_key_planes head": lambda a, v: bert_core.query_key_planes(a.loaded, [a.encoding] * 2, [v]),
    "query_key_planes max_tokens": lambda a, v: bert_core.query_key_planes(
        a.loaded, [a.encoding] * 2, [(0, 0)], max_tokens=v
    ),
    "query_key_planes seed": lambda a, v: bert_core.query_key_planes(a.loaded, [a.encoding] * 2, [(0, 0)], seed=v),
    "query_keys_file": lambda a, v: bert_core.query_keys_file(v, a.loaded),
    "query_keys_file model": lambda a, v: bert_core.query_keys_file(a.text, v),
    "query_keys_file heads": lambda a, v: bert_core.query_keys_file(a.text, a.loaded, v),
    "query_keys_file columns": lambda a, v: bert_core.query_keys_file(a.text, a.loaded, columns=v),
    "query_keys_file max_tokens": lambda a, v: bert_core.query_keys_file(a.text, a.loaded, max_tokens=v),
    "query_keys_file seed": lambda a, v: bert_core.query_keys_file(a.text, a.loaded, seed=v),
    "query_key_plane shuffles": lambda a, v: bert_core.query_key_plane(
        np.eye(4), np.eye(4), np.zeros(4), shuffles=v
    ),
    "query_key_plane rotations": lambda a, v: bert_core.query_key_plane(
        np.eye(4), np.eye(4), np.zeros(4), rotations=v
    ),
    "query_key_plane seed": lambda a, v: bert_core.query_key_plane(np.eye(4), np.eye(4), np.zeros(4), seed=v),
    "head_vectors layer": lambda a, v: bert_core.head_vectors(a.loaded, a.encoding, v, 0),
    "score_addends": lambda a, v: bert_core.score_addends(a.loaded, v, 0),
    "score_addends layer": lambda a, v: bert_core.score_addends(a.loaded, a.encoding, v),
    "head_vectors head": lambda a, v: bert_core.head_vectors(a.loaded, a.encoding, 0, v),
    "cut": lambda a, v: bert_core.capture(
        bert_core.edited(a.loaded, [bert_core.AttentionKnockout((1,), v)]), a.encoding
    ),
    "cut layers": lambda a, v: bert_core.edited(a.loaded, [bert_core.AttentionKnockout((1,), (2,), layers=v)]),
    "cut heads": lambda a, v: bert_core.edited(a.loaded, [bert_core.AttentionKnockout((1,), (2,), heads=v)]),
    "cut renormalised": lambda a, v: bert_core.AttentionKnockout((1,), None, renormalised=v),
    "make_patch": lambda a, v: bert_core.make_patch(a.loaded, v, a.encoding),
    "make_patch text": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, v),
    "make_patch what": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, v),
    "make_patch layer": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, "state", v),
    "make_patch position": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, "state", 1, position=v),
    "make_patch head": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, "head", 0, head=v),
    "make_patch neuron": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, "neuron", 0, neuron=v),
    "make_patch align": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, "state", 1, align=v),
    "make_patch head mask": lambda a, v: bert_core.make_patch(a.loaded, a.encoding, a.encoding, head_mask=v),
    "put": lambda a, v: bert_core.edited(a.loaded, [bert_core.ActivationPatch("state", 1, v, len(a.encoding))]),
    "put what": lambda a, v: bert_core.ActivationPatch(v, 1, np.zeros((1, 3)), 1),
    "put layer": lambda a, v: bert_core.ActivationPatch("state", v, np.zeros((1, 3)), 1),
    "put tokens": lambda a, v: bert_core.ActivationPatch("state", 1, np.zeros((1, 3)), v),
    "put position": lambda a, v: bert_core.edited(
        a.loaded,
        [bert_core.ActivationPatch("state", 1, np.zeros((1, a.loaded.config.hidden_size)), len(a.encoding), v)],
    ),
    "put head": lambda a, v: bert_core.edited(
        a.loaded, [bert_core.ActivationPatch("value", 0, np.zeros((len(a.encoding), 8)), len(a.encoding), head=v)]
    ),
    "put neuron": lambda a, v: bert_core.edited(
        a.loaded, [bert_core.ActivationPatch("neuron", 0, np.zeros((1, 1)), len(a.encoding), 0, neuron=v)]
    ),
    "scaled": lambda a, v: bert_core.edited(a.loaded, [bert_core.ScaledNeuron(v, 3)]),
    "scaled neuron": lambda a, v: bert_core.edited(a.loaded, [bert_core.ScaledNeuron(0, v)]),
    "scaled factor": lambda a, v: bert_core.capture(
        bert_core.edited(a.loaded, [bert_core.ScaledNeuron(0, 1, v)]), a.encoding
    ),
    "edited": lambda a, v: bert_core.edited(a.loaded, v),
    "edited with": lambda a, v: bert_core.edited(a.loaded, [v]),
    "cut_each": lambda a, v: bert_core.knock_out_edges(a.loaded, v, a.target, 1, 2),
    "cut_each target": lambda a, v: bert_core.knock_out_edges(a.loaded, a.encoding, v, 1, 2),
    "cut_each layer": lambda a, v: bert_core.knock_out_edges(a.loaded, a.encoding, a.target, v, 2),
    "cut_each head": lambda a, v: bert_core.knock_out_edges(a.loaded, a.encoding, a.target, 1, v),
    "cut_each renormalised": lambda a, v: bert_core.knock_out_edges(
        a.loaded, a.encoding, a.target, 1, 2, renormalised=v
    ),
    "cut_each head mask": lambda a, v: bert_core.knock_out_edges(a.loaded, a.encoding, a.target, 1, 2, head_mask=v),
    "cut_each batch": lambda a, v: bert_core.knock_out_edges(a.loaded, a.encoding, a.target, 1, 2, batch_tokens=v),
    "neuron_activations": lambda a, v: bert_core.neuron_activations(a.loaded, v),
    "neuron_activations model": lambda a, v: bert_core.neuron_activations(v, a.encoding),
    "neuron_activations head mask": lambda a, v: bert_core.neuron_activations(a.loaded, a.encoding, head_mask=v),
    "neuron_words": lambda a, v: bert_core.neuron_words(a.loaded, v, 0, [1]),
    "neuron_words layer": lambda a, v: bert_core.neuron_words(a.loaded, a.encoding, v, [1]),
    "neuron_words neurons": lambda a, v: bert_core.neuron_words(a.loaded, a.encoding, 0, v),
    "neuron_words positions": lambda a, v: bert_core.neuron_words(a.loaded, a.encoding, 0, [1], v),
    "neuron_words translators": lambda a, v: bert_core.neuron_words(a.loaded, a.encoding, 0, [1], translators=v),
    "neuron_words top_k": lambda a, v: bert_core.neuron_words(a.loaded, a.encoding, 0, [1], top_k=v),
    "neuron_gradients": lambda a, v: bert_core.neuron_gradients(a.loaded, v, a.target, steps=1),
    "neuron_gradients target": lambda a, v: bert_core.neuron_gradients(a.loaded, a.encoding, v, steps=1),
    "neuron_gradients layers": lambda a, v: bert_core.neuron_gradients(
        a.loaded, a.encoding, a.target, steps=1, layers=v
    ),
    "neuron_gradients positions": lambda a, v: bert_core.neuron_gradients(
        a.loaded, a.encoding, a.target, steps=1, positions=v
    ),
    "neuron_gradients steps": lambda a, v: bert_core.neuron_gradients(a.loaded, a.encoding, a.target, steps=v),
    "suppress_neurons": lambda a, v: bert_core.suppress_neurons(a.loaded, v, a.target, [(0, 1)]),
    "suppress_neurons target": lambda a, v: bert_core.suppress_neurons(a.loaded, a.encoding, v, [(0, 1)]),
    "suppress_neurons neurons": lambda a, v: bert_core.suppress_neurons(a.loaded, a.encoding, a.target, v),
    "suppress_neurons neuron": lambda a, v: bert_core.suppress_neurons(a.loaded, a.encoding, a.target, [v]),
    "suppress_neurons factor": lambda a, v: bert_core.suppress_neurons(
        a.loaded, a.encoding, a.target, [(0, 1)], factor=v
    ),
    "suppress_neurons draws": lambda a, v: bert_core.suppress_neurons(
        a.loaded, a.encoding, a.target, [(0, 1)], draws=v
    ),
    "suppress_neurons among": lambda a, v: bert_core.suppress_neurons(
        a.loaded, a.encoding, a.target, [(0, 1)], random_pool=v
    ),
    "suppress_neurons seed": lambda a, v: bert_core.suppress_neurons(
        a.loaded, a.encoding, a.target, [(0, 1)], draws=1, seed=v
    ),
    "strongest_neurons": lambda a, v: bert_core.strongest_neurons(v),
    "strongest_neurons count": lambda a, v: bert_core.strongest_neurons(STATES, v),
    "edited model": lambda a, v: bert_core.edited(v, []),
    "unedited": lambda a, v: bert_core.unedited(v),
    "pruned": lambda a, v: bert_core.pruned(a.loaded, v),
    "pruned neurons": lambda a, v: bert_core.pruned(a.loaded, neurons=v),
    "pruned layers": lambda a, v: bert_core.pruned(a.loaded, layers=v),
    "pruned model": lambda a, v: bert_core.pruned(v, []),
    "zero_filled": lambda a, v: bert_core.zero_filled(v),
    "propose_plan": lambda a, v: bert_core.propose_plan(a.loaded, v, "importance"),
    "propose_plan what": lambda a, v: bert_core.propose_plan(a.loaded, [], "random", part_kind=v),
    "propose_plan method": lambda a, v: bert_core.propose_plan(a.loaded, [], v),
    "plan": lambda a, v: PruningPlan.from_json(v),
    "read_table": lambda a, v: bert_core.read_table(v, "heads.csv"),
    "read_table name": lambda a, v: bert_core.read_table(b"layer,head", v),
    "read_curve": lambda a, v: bert_core.read_curve(v),
    "read_judgements": lambda a, v: bert_core.read_judgements(v),
    "read_pairs": lambda a, v: bert_core.read_pairs(v),
    "best_spans": lambda a, v: bert_core.best_spans(v, a.spans),
    "best_spans scores": lambda a, v: bert_core.best_spans(a.encoding, v),
    "best_spans count": lambda a, v: bert_core.best_spans(a.encoding, a.spans, v),
    "best_spans longest": lambda a, v: bert_core.best_spans(a.encoding, a.spans, longest=v),
    "read_translators": lambda a, v: bert_core.read_translators(v),
    "rollout": lambda a, v: bert_core.attention_rollout(v),
    "flow queries": lambda a, v: bert_core.attention_flow(np.full((2, 1, 3, 3), 1 / 3), v),
    "describe": lambda a, v: bert_core.describe(v, np.zeros((8, 8, 3), np.uint8)),
    "describe picture": lambda a, v: bert_core.describe(a.captioner, v),
    "describe top_k": lambda a, v: bert_core.describe(a.captioner, np.zeros((8, 8, 3), np.uint8), top_k=v),
    # Arrays alone.
    "align_tokens": lambda a, v: bert_core.align_tokens(v, ["a", "b"]),
    "align_tokens after": lambda a, v: bert_core.align_tokens(["a", "b"], v),
    "attention_entropy": lambda a, v: bert_core.attention_entropy(v),
    "cautions": lambda a, v: bert_core.cautions(v, a.encoding),
    "cautions text": lambda a, v: bert_core.cautions(a.maps, v),
    "attention_divergence": lambda a, v: bert_core.attention_divergence(v, MAPS),
    "attention_divergence after": lambda a, v: bert_core.attention_divergence(MAPS, v),
    "linear_cka": lambda a, v: bert_core.linear_cka(v, FIGURES.T),
    "linear_cka other": lambda a, v: bert_core.linear_cka(FIGURES.T, v),
    "linear_cka unbiased": lambda a, v: bert_core.linear_cka(FIGURES.T, FIGURES.T, unbiased=v),
    "compare_models": lambda a, v: bert_core.compare_models(v, a.loaded, ["a cat"]),
    "compare_models after": lambda a, v: bert_core.compare_models(a.loaded, v, ["a cat"]),
    "compare_models texts": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, v),
    "compare_models text": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, ["a cat", v]),
    "compare_models labels": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, ["a cat"], labels=v),
    "compare_models max_length": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, ["a cat"], max_length=v),
    "compare_models importance": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, ["a cat"], importance=v),
    "compare_models seed": lambda a, v: bert_core.compare_models(a.loaded, a.loaded, ["a cat"], seed=v),
    "change": lambda a, v: bert_core.aligned_maps(v, MAPS, PAIRS),
    "change after": lambda a, v: bert_core.aligned_maps(MAPS, v, PAIRS),
    "change pairs": lambda a, v: bert_core.aligned_maps(MAPS, MAPS, v),
    "change places": lambda a, v: bert_core.aligned_maps(MAPS, MAPS, Alignment(v, np.arange(3), (), ())),
    "classical_scaling": lambda a, v: bert_core.classical_scaling(v),
    "classical_scaling dimensions": lambda a, v: bert_core.classical_scaling(DISTANCES, v),
    "combined": lambda a, v: bert_core.combine_heads(v, "average"),
    "combined how": lambda a, v: bert_core.combine_heads(MAPS[0], v),
    "combined weights": lambda a, v: bert_core.combine_heads(MAPS[0], "weighted", v),
    "cosine_similarities": lambda a, v: bert_core.cosine_similarities(v),
    "curve_of": lambda a, v: bert_core.curve_values(v, "mine", "loss"),
    "curve_of order": lambda a, v: bert_core.curve_values(POINTS, v, "loss"),
    "curve_of figure": lambda a, v: bert_core.curve_values(POINTS, "mine", v),
    "effective_rank": lambda a, v: bert_core.effective_rank(v),
    "effective_attention": lambda a, v: bert_core.effective_attention(v, np.ones((2, 4, 3, 2))),
    "effective_attention values": lambda a, v: bert_core.effective_attention(MAPS, v),
    "gradient_attention": lambda a, v: bert_core.gradient_attention(v, MAPS),
    "gradient_attention gradient": lambda a, v: bert_core.gradient_attention(MAPS, v),
    "gradient_attention clip": lambda a, v: bert_core.gradient_attention(MAPS, MAPS, clip=v),
    "gradient_relevance": lambda a, v: bert_core.gradient_relevance(v, MAPS),
    "gradient_relevance gradient": lambda a, v: bert_core.gradient_relevance(MAPS, v),
    "hardly_missed": lambda a, v: bert_core.removable_head_count(v, "mine"),
    "hardly_missed order": lambda a, v: bert_core.removable_head_count(POINTS, v),
    "hardly_missed tolerance": lambda a, v: bert_core.removable_head_count(POINTS, "mine", v),
    "head_distances": lambda a, v: bert_core.head_distances(v),
    "heads_agreement": lambda a, v: bert_core.heads_agreement(v, FIGURES),
    "heads_agreement other": lambda a, v: bert_core.heads_agreement(FIGURES, v),
    "heads_by_role": lambda a, v: bert_core.heads_by_role(v),
    "heat": lambda a, v: bert_core.heat(v, (1, 3)),
    "heat grid": lambda a, v: bert_core.heat(MAPS, v),
    "heat head": lambda a, v: bert_core.heat(MAPS, (1, 3), head=v),
    "heat clip": lambda a, v: bert_core.heat(MAPS, (1, 3), clip=v),
    "kind_figures": lambda a, v: bert_core.kind_figures(v, None, a.encoding),
    "kind_figures gradient": lambda a, v: bert_core.kind_figures(a.maps, v, a.encoding),
    "kind_figures text": lambda a, v: bert_core.kind_figures(a.maps, None, v),
    "largest_changes": lambda a, v: bert_core.largest_changes(v, MAPS, 3),
    "largest_changes after": lambda a, v: bert_core.largest_changes(MAPS, v, 3),
    "largest_changes count": lambda a, v: bert_core.largest_changes(MAPS, MAPS + 1, v),
    "layer_mixing": lambda a, v: bert_core.layer_mixing(v),
    "layer_normalised": lambda a, v: bert_core.layer_normalised(v),
    "leading_heads": lambda a, v: bert_core.leading_heads(v, 3),
    "leading_heads count": lambda a, v: bert_core.leading_heads(FIGURES, v),
    "map_between_words": lambda a, v: bert_core.map_between_words(v, [(0, 1), (2,)], "attention"),
    "map_between_words units": lambda a, v: bert_core.map_between_words(MAPS, v, "attention"),
    "map_between_words unit": lambda a, v: bert_core.map_between_words(MAPS, [(0,), v], "gradient"),
    "map_between_words what": lambda a, v: bert_core.map_between_words(MAPS, [(0, 1), (2,)], v),
    "mean_distance": lambda a, v: bert_core.mean_distance(v),
    "mean_of_heads": lambda a, v: bert_core.mean_of_heads(v),
    "mean_similarity": lambda a, v: bert_core.mean_similarity(v),
    "nearest_heads": lambda a, v: bert_core.nearest_heads(v, 0),
    "nearest_heads head": lambda a, v: bert_core.nearest_heads(DISTANCES, v),
    "nearest_heads count": lambda a, v: bert_core.nearest_heads(DISTANCES, 0, v),
    "neighbours_in_plane": lambda a, v: bert_core.neighbours_in_plane(v),
    "neighbours_in_plane seed": lambda a, v: bert_core.neighbours_in_plane(STATES, seed=v),
    "norm_rollout": lambda a, v: bert_core.norm_rollout(v, residual=True),
    "norm_rollout residual": lambda a, v: bert_core.norm_rollout(MAPS[0], residual=v),
    "patches_in": lambda a, v: bert_core.patches_in(v, (2, 3)),
    "patches_in edge": lambda a, v: bert_core.patches_in((0.0, 0.0, 1.0, v), (2, 3)),
    "patches_in grid": lambda a, v: bert_core.patches_in(BOX, v),
    "patches_in rows": lambda a, v: bert_core.patches_in(BOX, (v, 3)),
    "points_into": lambda a, v: bert_core.points_into(v, BOX),
    "points_into box": lambda a, v: bert_core.points_into(PICTURE, v),
    "code_lengths": lambda a, v: bert_core.code_lengths(v, [0, 1], 2, [1, 2]),
    "code_lengths labels": lambda a, v: bert_core.code_lengths(np.eye(2), v, 2, [1, 2]),
    "code_lengths classes": lambda a, v: bert_core.code_lengths(np.eye(2), [0, 1], v, [1, 2]),
    "code_lengths ends": lambda a, v: bert_core.code_lengths(np.eye(2), [0, 1], 2, v),
    "control_labels": lambda a, v: bert_core.control_labels(v, [0, 1]),
    "control_labels types": lambda a, v: bert_core.control_labels([0, 1], v),
    "control_labels seed": lambda a, v: bert_core.control_labels([0, 1], [0, 1], v),
    "fit_probe": lambda a, v: bert_core.fit_probe(v, [0, 1], 2),
    "fit_probe labels": lambda a, v: bert_core.fit_probe(np.eye(2), v, 2),
    "fit_probe classes": lambda a, v: bert_core.fit_probe(np.eye(2), [0, 1], v),
    "fit_probe penalty": lambda a, v: bert_core.fit_probe(np.eye(2), [0, 1], 2, penalty=v),
    "fit_probe tolerance": lambda a, v: bert_core.fit_probe(np.eye(2), [0, 1], 2, tolerance=v),
    "leace": lambda a, v: bert_core.leace(v, [0, 1]),
    "leace labels": lambda a, v: bert_core.leace(np.eye(2), v),
    "probe_depths": lambda a, v: bert_core.probe_depths(v),
    "random_eraser": lambda a, v: bert_core.random_eraser(v, 1),
    "random_eraser rank": lambda a, v: bert_core.random_eraser(np.eye(2), v),
    "random_eraser seed": lambda a, v: bert_core.random_eraser(np.eye(2), 1, v),
    "pull_of": lambda a, v: bert_core.sink_contribution(v, MAPS, [True, False, True]),
    "pull_of brought": lambda a, v: bert_core.sink_contribution(MAPS, v, [True, False, True]),
    "pull_of keys": lambda a, v: bert_core.sink_contribution(MAPS, MAPS, v),
    "random_band": lambda a, v: bert_core.random_band(v, "loss"),
    "random_band figure": lambda a, v: bert_core.random_band(POINTS, v),
    "rank_agreement": lambda a, v: bert_core.rank_agreement(v),
    "rank_agreement kind": lambda a, v: bert_core.rank_agreement(SCORES, v),
    "find_heads": lambda a, v: bert_core.find_heads(v, 0, 0),
    "find_heads query": lambda a, v: bert_core.find_heads(bert_core.capture(a.loaded, a.encoding), v, 0),
    "find_heads key": lambda a, v: bert_core.find_heads(bert_core.capture(a.loaded, a.encoding), 0, v),
    "removal_estimate": lambda a, v: bert_core.removal_estimate(v),
    "role_figures": lambda a, v: bert_core.role_figures(v, a.encoding),
    "role_figures text": lambda a, v: bert_core.role_figures(a.maps, v),
    "role_scores": lambda a, v: bert_core.role_scores(v, a.encoding),
    "role_scores text": lambda a, v: bert_core.role_scores(a.maps, v),
    "roles_of_heads": lambda a, v: bert_core.roles_of_heads(v),
    "roles_of_heads role": lambda a, v: bert_core.roles_of_heads({**ROLES, "next": v}),
    "rotary_frequencies": lambda a, v: bert_core.rotary_frequencies(v, 10.0),
    "rotary_frequencies base": lambda a, v: bert_core.rotary_frequencies(4, v),
    "rotate_by_position": lambda a, v: bert_core.rotate_by_position(v, np.arange(3), 10.0),
    "rotate_by_position positions": lambda a, v: bert_core.rotate_by_position(np.ones((3, 4)), v, 10.0),
    "rotate_by_position base": lambda a, v: bert_core.rotate_by_position(np.ones((3, 4)), np.arange(3), v),
    "scores_by_distance": lambda a, v: bert_core.scores_by_distance(v, np.ones(4), 10.0, np.arange(3)),
    "scores_by_distance key": lambda a, v: bert_core.scores_by_distance(np.ones(4), v, 10.0, np.arange(3)),
    "scores_by_distance base": lambda a, v: bert_core.scores_by_distance(np.ones(4), np.ones(4), v, np.arange(3)),
    "scores_by_distance distances": lambda a, v: bert_core.scores_by_distance(np.ones(4), np.ones(4), 10.0, v),
    "scores_of_units": lambda a, v: bert_core.scores_of_units(v, [(0, 1), (2,)]),
    "scores_of_units units": lambda a, v: bert_core.scores_of_units(SCORES, v),
    "scores_of_units unit": lambda a, v: bert_core.scores_of_units(SCORES, [(0,), v]),
    "settled_depth": lambda a, v: bert_core.settled_depth(v),
    "share_in": lambda a, v: bert_core.share_in(v, BOX),
    "share_in box": lambda a, v: bert_core.share_in(PICTURE, v),
    "share_to": lambda a, v: bert_core.share_to(v, [True, False, True]),
    "share_to keys": lambda a, v: bert_core.share_to(MAPS, v),
    "sinks": lambda a, v: bert_core.sinks(v, np.ones((2, 4, 3, 2))),
    "sinks values": lambda a, v: bert_core.sinks(MAPS, v),
    "states_in_plane": lambda a, v: bert_core.states_in_plane(v),
    "strongest_examples": lambda a, v: bert_core.strongest_examples(v, a.encoding),
    "strongest_examples text": lambda a, v: bert_core.strongest_examples(a.maps[0, 0], v),
    "strongest_examples count": lambda a, v: bert_core.strongest_examples(a.maps[0, 0], a.encoding, v),
    "word_units": lambda a, v: bert_core.word_units(v),
    # Records and lists of them.
    "differences": lambda a, v: bert_core.differences(v, a.walk),
    "differences other": lambda a, v: bert_core.differences(a.walk, v),
    "likeliest": lambda a, v: bert_core.most_likely_tokens(v, 3),
    "likeliest count": lambda a, v: bert_core.most_likely_tokens(a.walk, v),
    "step_angles": lambda a, v: bert_core.step_angles(v),
    "weighted_values": lambda a, v: bert_core.weighted_values(v, 0, 0),
    "weighted_values head": lambda a, v: bert_core.weighted_values(a.walk, v, 0),
    "weighted_values query": lambda a, v: bert_core.weighted_values(a.walk, 0, v),
    "pair_columns": lambda a, v: bert_core.pair_columns(v),
    "pairs_csv": lambda a, v: bert_core.pairs_csv(v),
    "pairs_csv row": lambda a, v: bert_core.pairs_csv([a.pair, v]),
    "evaluate_bias": lambda a, v: bert_core.evaluate_bias(v),
    "evaluate_bias row": lambda a, v: bert_core.evaluate_bias([a.pair, v]),
    "evaluate_bias measure": lambda a, v: bert_core.evaluate_bias([a.pair], v),
    "bias_csv": lambda a, v: bert_core.bias_csv(v),
    "read_bias_pairs": lambda a, v: bert_core.read_bias_pairs(v),
    "relations_csv": lambda a, v: bert_core.relations_csv(v),
    "truth_accuracy": lambda a, v: bert_core.truth_accuracy(v, np.array([0, 1, 0])),
    "truth_accuracy relevant": lambda a, v: bert_core.truth_accuracy(SCORES, v),
    "summarise_truth": lambda a, v: bert_core.summarise_truth(v),
    "summarise_truth row": lambda a, v: bert_core.summarise_truth([*TRUTH, v]),
    "standings": lambda a, v: bert_core.summarise_methods(v),
    "standings of": lambda a, v: bert_core.summarise_methods([*JUDGEMENTS, v]),
    "standings kind": lambda a, v: bert_core.summarise_methods([replace(JUDGEMENTS[0], kind=v)]),
    "standings scores": lambda a, v: bert_core.summarise_methods([replace(JUDGEMENTS[0], scores=v)]),
    "read_treebank": lambda a, v: list(bert_core.read_treebank(v, "a treebank")),
    "read_treebank line": lambda a, v: list(bert_core.read_treebank([*TREE, v], "a treebank")),
    "read_treebank name": lambda a, v: list(bert_core.read_treebank(TREE, v)),
    "record": lambda a, v: recorded(v),
    "write_table": lambda a, v: bert_core.write_table(v, "heads.csv"),
    "write_table path": lambda a, v: bert_core.write_table(HEAD_TABLE, v),
    # Models.
    "attention_norms": lambda a, v: bert_core.attention_norms(a.loaded, v),
    "attention_norms head_mask": lambda a, v: bert_core.attention_norms(a.loaded, a.encoding, head_mask=v),
    "residual_norms": lambda a, v: bert_core.residual_norms(a.loaded, v),
    "residual_norms head_mask": lambda a, v: bert_core.residual_norms(a.loaded, a.encoding, head_mask=v),
    "globenc": lambda a, v: bert_core.globenc(a.loaded, v),
    "globenc head_mask": lambda a, v: bert_core.globenc(a.loaded, a.encoding, head_mask=v),
    "head_values": lambda a, v: bert_core.head_values(a.loaded, v),
    "head_values model": lambda a, v: bert_core.head_values(v, a.encoding),
    "input_x_gradient": lambda a, v: bert_core.input_x_gradient(a.loaded, a.encoding, v),
    "input_x_gradient head_mask": lambda a, v: bert_core.input_x_gradient(
        a.loaded, a.encoding, a.target, head_mask=v
    ),
    "integrated_gradients keep": lambda a, v: bert_core.integrated_gradients(
        a.loaded, a.encoding, a.target, steps=2, keep=v
    ),
    "integrated_gradients baseline": lambda a, v: bert_core.integrated_gradients(
        a.loaded, a.encoding, a.target, steps=2, baseline=v
    ),
    "occlusion units": lambda a, v: bert_core.occlusion(a.loaded, a.encoding, a.target, units=v),
    "occlusion baseline": lambda a, v: bert_core.occlusion(a.loaded, a.encoding, a.target, baseline=v),
    "value_zeroing": lambda a, v: bert_core.value_zeroing(a.loaded, v),
    "value_zeroing head_mask": lambda a, v: bert_core.value_zeroing(a.loaded, a.encoding, head_mask=v),
    "pseudo_log_likelihood variant": lambda a, v: bert_core.pseudo_log_likelihood(a.loaded, a.encoding, variant=v),
    "create_bert_model": lambda a, v: created(vocab_size=v),
    "create_bert_model length": lambda a, v: created(max_seq_length=v),
    "create_bert_model d_model": lambda a, v: created(d_model=v),
    "create_bert_model heads": lambda a, v: created(num_heads=v),
    "create_bert_model d_ff": lambda a, v: created(d_ff=v),
    "create_bert_model layers": lambda a, v: created(num_layers=v),
    "create_bert_model for_pretraining": lambda a, v: created(for_pretraining=v),
    "create_bert_model seed": lambda a, v: created(seed=v),
    "generate model": lambda a, v: a.generated(model=v),
    "generate": lambda a, v: a.generated(input_ids=v),
    "generate max_new_tokens": lambda a, v: a.generated(max_new_tokens=v),
    "generate eos_token_id": lambda a, v: a.generated(eos_token_id=v),
    "generate attention_mask": lambda a, v: a.generated(attention_mask=v),
    "generate states": lambda a, v: a.generated(encoder_hidden_states=v),
    "generate state": lambda a, v: a.generated(encoder_hidden_states=[v]),
    "generate states_mask": lambda a, v: a.generated(encoder_attention_mask=v),
    "generate do_sample": lambda a, v: a.generated(do_sample=v),
    "generate temperature": lambda a, v: a.generated(do_sample=True, temperature=v),
    "generate top_k": lambda a, v: a.generated(do_sample=True, top_k=v),
    "generate top_p": lambda a, v: a.generated(do_sample=True, top_p=v),
    "generate num_beams": lambda a, v: a.generated(num_beams=v),
    "generate length_penalty": lambda a, v: a.generated(num_beams=2, length_penalty=v),
    "generate seed": lambda a, v: a.generated(do_sample=True, seed=v),
    "generate use_cache": lambda a, v: a.generated(use_cache=v),
    "curve_points model": lambda a, v: points(a, loaded=v),
    "curve_points": lambda a, v: points(a, batches=v),
    "curve_points batch": lambda a, v: points(a, batches=[v]),
    "curve_points orders": lambda a, v: points(a, orders=v),
    "curve_points order": lambda a, v: points(a, orders={"mine": v}),
    "curve_points removed": lambda a, v: points(a, removed=v),
    "curve_points known": lambda a, v: points(a, previous_points=v),
    "pruning_costs model": lambda a, v: costs(a, loaded=v),
    "pruning_costs heads": lambda a, v: costs(a, heads=v),
    "pruning_costs": lambda a, v: costs(a, encoding=v),
    "pruning_costs what": lambda a, v: costs(a, part_kind=v),
    "pruning_costs batches": lambda a, v: costs(a, batches=v),
    "pruning_costs repeats": lambda a, v: costs(a, repeats=v),
    "track_relations": lambda a, v: bert_core.track_relations(a.loaded, v),
    "track_relations sentence": lambda a, v: bert_core.track_relations(a.loaded, [v]),
    "track_relations model": lambda a, v: bert_core.track_relations(v, []),
    # Studies of files.
    "pruning_curve part_kind": lambda a, v: curve(a, part_kind=v),
    "pruning_curve": lambda a, v: curve(a, estimation_examples=v),
    "pruning_curve test_examples": lambda a, v: curve(a, test_examples=v),
    "pruning_curve table": lambda a, v: curve(a, table=v),
    "pruning_curve orders": lambda a, v: curve(a, orders=v),
    "pruning_curve steps": lambda a, v: curve(a, steps=v),
    "pruning_curve reference": lambda a, v: curve(
        a, orders=["ablation-mean"], estimation_examples=[a.batch], reference=v
    ),
    "pruning_curve example_columns": lambda a, v: curve(a, example_columns=v),
    "pruning_curve estimation_source": lambda a, v: curve(a, estimation_source=v),
    "neurons_over": lambda a, v: firing(a, path=v),
    "neurons_over model": lambda a, v: firing(a, model=v),
    "neurons_over settings": lambda a, v: firing(a, settings=v),
    "neurons_over state": lambda a, v: firing(a, path="nothing.txt", state=v),
    "neurons_over device": lambda a, v: firing(a, device=v),
    "NeuronSettings neurons": lambda a, v: bert_core.NeuronSettings(v),
    "NeuronSettings max_length": lambda a, v: bert_core.NeuronSettings(max_length=v),
    "NeuronSettings examples": lambda a, v: bert_core.NeuronSettings(examples=v),
    "NeuronSettings window": lambda a, v: bert_core.NeuronSettings(window=v),
    "NeuronSettings seed": lambda a, v: bert_core.NeuronSettings(seed=v),
    "NeuronSettings columns": lambda a, v: bert_core.NeuronSettings(columns=v),
    "iter_index": lambda a, v: indexed(a, path=v),
    "iter_index out": lambda a, v: indexed(a, out=v),
    "iter_index model": lambda a, v: indexed(a, model=v),
    "iter_index settings": lambda a, v: indexed(a, settings=v),
    "iter_index engine": lambda a, v: indexed(a, engine=v),
    "iter_index device": lambda a, v: indexed(a, device=v),
    "IndexSettings layers": lambda a, v: bert_core.IndexSettings(v),
    "IndexSettings max_length": lambda a, v: bert_core.IndexSettings(max_length=v),
    "remove_from_index": lambda a, v: bert_core.remove_from_index(v, "file.txt"),
    "remove_from_index document": lambda a, v: bert_core.remove_from_index(a.index.folder, v),
    "open_index": lambda a, v: bert_core.open_index(v),
    "search": lambda a, v: looked_up(a, index=v),
    "search model": lambda a, v: looked_up(a, loaded=v),
    "search encoding": lambda a, v: looked_up(a, encoding=v),
    "search tokens": lambda a, v: looked_up(a, tokens=v),
    "search token": lambda a, v: looked_up(a, tokens=[v]),
    "search depth": lambda a, v: looked_up(a, depth=v),
    "search heads": lambda a, v: looked_up(a, heads=v),
    "search head": lambda a, v: looked_up(a, heads=[v]),
    "search alike": lambda a, v: looked_up(a, heads=[(0, 1)], head_similarity=v),
    "search phrase": lambda a, v: looked_up(a, phrase=v),
    "search where": lambda a, v: looked_up(a, where=v),
    "search word": lambda a, v: looked_up(a, where={"word": v}),
    "search distance": lambda a, v: looked_up(a, where={"distance": [v]}),
    "search top": lambda a, v: looked_up(a, top=v),
    "head_profiles": lambda a, v: bert_core.head_profiles(v),
    "head_profiles heads": lambda a, v: bert_core.head_profiles(a.index, v),
    "head_profiles head": lambda a, v: bert_core.head_profiles(a.index, [v]),
    "head_profiles examples": lambda a, v: bert_core.head_profiles(a.index, [(0, 0)], examples=v),
    "head_profiles seed": lambda a, v: bert_core.head_profiles(a.index, [(0, 0)], seed=v),
    "head_profiles table": lambda a, v: bert_core.head_profiles(a.index, [(0, 0)], table=v),
    "head_profiles table_source": lambda a, v: bert_core.head_profiles(a.index, [(0, 0)], table_source=v),
    "token_profiles": lambda a, v: bert_core.token_profiles(v),
    "token_profiles pieces": lambda a, v: bert_core.token_profiles(a.index, v),
    "token_profiles piece": lambda a, v: bert_core.token_profiles(a.index, [v]),
    "token_profiles most": lambda a, v: bert_core.token_profiles(a.index, max_pieces=v),
    "token_profiles depth": lambda a, v: bert_core.token_profiles(a.index, depth=v),
    "token_profiles examples": lambda a, v: bert_core.token_profiles(a.index, examples=v),
    "token_profiles seed": lambda a, v: bert_core.token_profiles(a.index, seed=v),
    "neuron_profiles": lambda a, v: bert_core.neuron_profiles(v, a.loaded, [(0, 0)]),
    "neuron_profiles loaded": lambda a, v: bert_core.neuron_profiles(a.index, v, [(0, 0)]),
    "neuron_profiles neurons": lambda a, v: bert_core.neuron_profiles(a.index, a.loaded, v),
    "neuron_profiles neuron": lambda a, v: bert_core.neuron_profiles(a.index, a.loaded, [v]),
    "neuron_profiles examples": lambda a, v: bert_core.neuron_profiles(a.index, a.loaded, [(0, 0)], examples=v),
    "neuron_profiles seed": lambda a, v: bert_core.neuron_profiles(a.index, a.loaded, [(0, 0)], seed=v),
    "read_profiles": lambda a, v: bert_core.read_profiles(v),
    "write_profiles": lambda a, v: bert_core.write_profiles(v, "profiles.json"),
    "write_profiles path": lambda a, v: bert_core.write_profiles(bert_core.head_profiles(a.index, [(0, 0)]), v),
    "write_firing": lambda a, v: bert_core.write_neuron_table(v, "table.csv"),
    "write_firing path": lambda a, v: bert_core.write_neuron_table(firing(a), v),
    "write_examples": lambda a, v: bert_core.write_examples(v, "table.json"),
    "write_examples path": lambda a, v: bert_core.write_examples(firing(a), v),
    **{
        f"{function} {name}": lambda a, v, function=function, name=name: studied(a, function, **{name: v})
        for function in STUDIES
        for name in ("path", "model", "settings", "engine", "device")
    },
    "iter_heads": lambda a, v: over(a, path=v),
    "iter_heads model": lambda a, v: over(a, path=a.text, model=v),
    "iter_heads settings": lambda a, v: over(a, settings=v),
    "iter_heads state": lambda a, v: over(a, state=v),
    "iter_heads engine": lambda a, v: over(a, engine=v),
    "iter_heads device": lambda a, v: over(a, device=v),
    "iter_explanations": lambda a, v: explained(a, path=v),
    "iter_explanations out": lambda a, v: explained(a, path=a.text, out=v),
    "iter_explanations model": lambda a, v: explained(a, path=a.text, model=v),
    "iter_explanations settings": lambda a, v: explained(a, settings=v),
    "iter_explanations engine": lambda a, v: explained(a, engine=v),
    "iter_explanations device": lambda a, v: explained(a, device=v),
    "explain settings": lambda a, v: bert_core.ExplainSettings(v),
    "explain methods": lambda a, v: bert_core.ExplainSettings(methods=v),
    "explain word": lambda a, v: bert_core.ExplainSettings("word", word=v),
    "explain columns": lambda a, v: bert_core.ExplainSettings(columns=v),
    "explain length": lambda a, v: bert_core.ExplainSettings(max_length=v),
    "iter_evaluation": lambda a, v: evaluated(a, path=v),
    "iter_evaluation out": lambda a, v: evaluated(a, path=a.text, out=v),
    "iter_evaluation model": lambda a, v: evaluated(a, path=a.text, model=v),
    "iter_evaluation settings": lambda a, v: evaluated(a, settings=v),
    "iter_evaluation engine": lambda a, v: evaluated(a, engine=v),
    "evaluate_texts": lambda a, v: bert_core.evaluate_texts(v, [bert_core.Line(1, "a")]),
    "evaluate_texts rows": lambda a, v: bert_core.evaluate_texts(a.loaded, v, bert_core.EvaluationSettings("surprise")),
    "evaluate_texts settings": lambda a, v: bert_core.evaluate_texts(a.loaded, [bert_core.Line(1, "a")], v),
    "lines_to_evaluate": lambda a, v: bert_core.lines_to_evaluate(
        v, a.loaded, bert_core.EvaluationSettings("surprise")
    ),
    "read_evaluation": lambda a, v: bert_core.read_evaluation(v),
    "evaluation settings": lambda a, v: bert_core.EvaluationSettings(v),
    "evaluation word": lambda a, v: bert_core.EvaluationSettings("word", word=v),
    "evaluation columns": lambda a, v: bert_core.EvaluationSettings(columns=v),
    "evaluation length": lambda a, v: bert_core.EvaluationSettings(max_length=v),
    "explained_rows": lambda a, v: list(bert_core.explained_rows(v)),
    "read_totals": lambda a, v: bert_core.read_totals(v),
    "word_totals": lambda a, v: bert_core.word_totals(v),
    "judge_scores model": lambda a, v: others(a, loaded=v),
    "judge_scores": lambda a, v: others(a, path=v),
    "judge_scores scores": lambda a, v: others(a, scores=v),
    "judge_scores table": lambda a, v: others(a, table=v),
    "judge_scores columns": lambda a, v: others(a, columns=v),
    "judge_scores methods": lambda a, v: others(a, methods=v),
    "judge_scores texts": lambda a, v: others(a, texts=v),
    "judge_ground_truth": lambda a, v: judged_truth(loaded=a.loaded, source=v),
    "judge_ground_truth model": lambda a, v: judged_truth(loaded=v, source="agreement", settings=1),
    "judge_ground_truth table": lambda a, v: judged_truth(loaded=a.loaded, table=v),
    "judge_ground_truth settings": lambda a, v: judged_truth(loaded=a.loaded, settings=v),
    "GroundTruthSettings methods": lambda a, v: bert_core.GroundTruthSettings(methods=v),
    "read_truth_sentences": lambda a, v: bert_core.read_truth_sentences(v),
    "read_truth_judgements": lambda a, v: bert_core.read_truth_judgements(v),
    "load_circuit": lambda a, v: bert_core.load_circuit(v),
    "circuit_sentences": lambda a, v: bert_core.circuit_sentences(v, 2),
    "circuit_sentences count": lambda a, v: bert_core.circuit_sentences("copied word", v),
    "circuit_sentences seed": lambda a, v: bert_core.circuit_sentences("copied word", 2, seed=v),
    "TruthSentence": lambda a, v: bert_core.TruthSentence(v, ((0, 2),), "is", "are"),
    "TruthSentence relevant": lambda a, v: bert_core.TruthSentence("it [MASK]", v, "is", "are"),
    "TruthSentence words": lambda a, v: bert_core.TruthSentence("it [MASK]", ((0, 2),), v, "are"),
    "judge_file model": lambda a, v: judged(a, loaded=v),
    "judge_file": lambda a, v: judged(a, text=v),
    "judge_file table": lambda a, v: judged(a, table=v),
    "added vector": lambda a, v: bert_core.edited(a.loaded, [bert_core.AddedVector(0, v)]),
    "added vector depth": lambda a, v: bert_core.edited(a.loaded, [bert_core.AddedVector(v, a.direction)]),
    "added vector factor": lambda a, v: bert_core.AddedVector(0, a.direction, v),
    "added vector positions": lambda a, v: bert_core.capture(
        bert_core.edited(a.loaded, [bert_core.AddedVector(0, a.direction, 1.0, v)]), a.encoding
    ),
    "steer": lambda a, v: bert_core.steer(a.loaded, v, a.target, a.direction, 1, draws=1),
    "steer model": lambda a, v: bert_core.steer(v, a.encoding, a.target, a.direction, 1, draws=1),
    "steer target": lambda a, v: bert_core.steer(a.loaded, a.encoding, v, a.direction, 1, draws=1),
    "steer vector": lambda a, v: bert_core.steer(a.loaded, a.encoding, a.target, v, 1, draws=1),
    "steer depth": lambda a, v: bert_core.steer(a.loaded, a.encoding, a.target, a.direction, v, draws=1),
    "steer factors": lambda a, v: steered(a, factors=v),
    "steer factor": lambda a, v: steered(a, factors=[v]),
    "steer positions": lambda a, v: steered(a, positions=v),
    "steer position": lambda a, v: steered(a, positions=[v]),
    "steer draws": lambda a, v: steered(a, draws=v),
    "steer seed": lambda a, v: steered(a, seed=v),
    "steer head mask": lambda a, v: steered(a, head_mask=v),
    "steer batch": lambda a, v: steered(a, batch_tokens=v),
    "steering_vector": lambda a, v: bert_core.steering_vector(v, [0, 1]),
    "steering_vector labels": lambda a, v: bert_core.steering_vector(np.eye(2), v),
    "steering_vector direction": lambda a, v: bert_core.steering_vector(np.eye(2), [0, 1], v),
    "steering_vector penalty": lambda a, v: bert_core.steering_vector(np.eye(2), [0, 1], "probe", penalty=v),
    "random_vectors": lambda a, v: bert_core.random_vectors(v, 1),
    "random_vectors count": lambda a, v: bert_core.random_vectors(a.direction, v),
    "random_vectors seed": lambda a, v: bert_core.random_vectors(a.direction, 1, v),
    "label_vector": lambda a, v: vector_of(a, sentences=v),
    "label_vector model": lambda a, v: vector_of(a, loaded=v),
    "label_vector depth": lambda a, v: vector_of(a, depth=v),
    "label_vector values": lambda a, v: vector_of(a, values=v),
    "label_vector direction": lambda a, v: vector_of(a, direction=v),
    "label_vector settings": lambda a, v: vector_of(a, settings=v),
    "judge_file settings": lambda a, v: judged(a, settings=v),
    "probe_file": lambda a, v: probed(a, path=v),
    "probe_file model": lambda a, v: probed(a, loaded=v),
    "probe_file label": lambda a, v: probed(a, label=v),
    "probe_file table": lambda a, v: probed(a, table=v),
    "probe_file settings": lambda a, v: probed(a, settings=v),
    "probe_points": lambda a, v: probes_of(a, sentences=v),
    "probe_points model": lambda a, v: probes_of(a, loaded=v),
    "probe_points settings": lambda a, v: probes_of(a, settings=v),
    "probe_points depths": lambda a, v: probes_of(a, depths=v),
    "probe_points depth": lambda a, v: probes_of(a, depths=[v]),
    "probe_points known": lambda a, v: probes_of(a, previous_points=v),
    "label_names": lambda a, v: bert_core.label_names(v),
    "label_erasers": lambda a, v: erasers_of(a, sentences=v),
    "label_erasers model": lambda a, v: erasers_of(a, loaded=v),
    "label_erasers depth": lambda a, v: erasers_of(a, depth=v),
    "label_erasers settings": lambda a, v: erasers_of(a, settings=v),
    "label_erasers at_random": lambda a, v: erasers_of(a, random_erasers=v),
    "probes_csv": lambda a, v: bert_core.probes_csv(v),
    "answers_erased": lambda a, v: bert_core.predict_with_erasers(a.loaded, v, 0, [None]),
    "answers_erased model": lambda a, v: bert_core.predict_with_erasers(v, a.encoding, 0, [None]),
    "answers_erased depth": lambda a, v: bert_core.predict_with_erasers(a.loaded, a.encoding, v, [None]),
    "answers_erased erasers": lambda a, v: bert_core.predict_with_erasers(a.loaded, a.encoding, 0, v),
    "answers_erased eraser": lambda a, v: bert_core.predict_with_erasers(a.loaded, a.encoding, 0, [v]),
    "answers_erased top_k": lambda a, v: bert_core.predict_with_erasers(a.loaded, a.encoding, 0, [None], top_k=v),
    "ProbeSettings seeds": lambda a, v: bert_core.ProbeSettings(seeds=v),
    "ProbeSettings held_out": lambda a, v: bert_core.ProbeSettings(held_out=v),
    "ProbeSettings words": lambda a, v: bert_core.ProbeSettings(words=v),
    "ProbeSettings penalty": lambda a, v: bert_core.ProbeSettings(penalty=v),
    "read_labelled_words": lambda a, v: bert_core.read_labelled_words(v, "upos"),
    "read_labelled_words label": lambda a, v: bert_core.read_labelled_words(a.text, v),
    "read_probes": lambda a, v: bert_core.read_probes(v),
}  # fmt: skip


# Functions of lists and arrays alone, which no decorator checks; all others are called with every value in `test-all`.
UNDECORATED = (
    "aligned", "flow queries", "rollout", "heads_by_role", "pairs_csv", "patches_in", "probe_depths", "pruned",
    "relations_csv", "roles_of_heads", "standings", "zero_filled",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("door", mark_cases(DOORS, pytest.mark.slow, lambda door: not door.startswith(UNDECORATED)))
def test_every_door_answers_or_refuses(
    door: str, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong type, number, shape or nothing at all: an answer, or one line of ours that names what was given."""
    monkeypatch.chdir(tmp_path)
    for value in ODD:
        try:
            DOORS[door](asked, value)
        except Refused as error:
            sentence = str(error)
        else:
            continue
        assert "\n" not in sentence and 10 < len(sentence) < 700, (value, sentence)
    assert list(tmp_path.iterdir()) == []


def test_numpy_numbers_are_numbers(asked: Asked) -> None:
    """NumPy's whole numbers and arrays stand wherever numbers and lists of them do, with the same answers."""
    loaded, encoding = asked.loaded, asked.encoding
    one, other = np.int64(1), np.array([2, 3])
    target = Target("mlm", np.int64(2), np.uint16(asked.target.token_id or 0))  # type: ignore[arg-type]
    assert target == Target("mlm", 2, asked.target.token_id) and type(target.position) is int
    assert Target("joint", pieces=np.array([[1, 2], [3, 4]])).pieces == ((1, 2), (3, 4))  # type: ignore[arg-type]
    first = bert_core.capture(loaded, encoding, target=target, positions=other, top_k=one)  # type: ignore[arg-type]
    second = bert_core.capture(loaded, encoding, target=asked.target, positions=[2, 3], top_k=1)
    assert [p.position for p in first.predictions] == [2, 3] and first.target_value == second.target_value
    assert first.predictions[0].top == second.predictions[0].top
    heads = np.array([[0, 1], [1, 3]])
    assert bert_core.head_mask_without(asked.config, heads).sum() == 6
    assert bert_core.pruned(loaded, heads).model.pruned_heads == {0: (1,), 1: (3,)}
    assert bert_core.walk(loaded, encoding, one).layer == 1  # type: ignore[arg-type]
    assert bert_core.head_vectors(loaded, encoding, one, np.array(2)).head == 2  # type: ignore[arg-type]
    assert asked.tokenizer.decode(np.array([5, 6])) == asked.tokenizer.decode([5, 6])
    assert asked.tokenizer.mask_words(encoding, np.array([0])) == asked.tokenizer.mask_words(encoding, [0])
    assert asked.config.replace(vocab_size=np.int64(200)).to_dict()["vocab_size"] == 200


def test_paths_stand_for_names(tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A model is loaded from a path, and saved to one, as by its text."""
    assert bert_core.load(tiny_model_folder, device="cpu").name == str(tiny_model_folder)
    place = bert_core.save(tiny_loaded, tmp_path / "again.zip")
    assert bert_core.load(place, device="cpu").report.missing == ()
    with pytest.raises(Refused, match="is an encoder and not a decoder"):
        bert_core.load_decoder(tiny_model_folder)
    captioner = loading.ASSETS / "headlight-shapes"
    assert bert_core.load_captioner(captioner).name == str(captioner)
    with pytest.raises(Refused, match="name is 3: it must be of type str or PathLike"):
        bert_core.load(3)  # type: ignore[arg-type]


def test_a_text_of_another_vocabulary_is_refused(asked: Asked) -> None:
    """A piece that the model has no row for is named, wherever a text is read."""
    foreign = bert_core.Tokenizer.from_folder(loading.ASSETS / "headlight-mini").encode("Paris was large.")
    for door in ("capture", "captures of", "walk", "layer_states", "head_vectors", "alti"):
        with pytest.raises(
            Refused, match=r"the vocabulary of .* has ids 0 to .* encode the text with this model's tokenizer"
        ):
            DOORS[door](asked, foreign)


# ---------------------------------------------------------------------------- drawn at random

numbers = st.one_of(
    st.integers(-3, 20), st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=3),
    st.integers(0, 12).map(np.int64), st.integers(0, 12).map(np.array), st.binary(max_size=2),
)  # fmt: skip
lists = st.one_of(
    st.lists(st.integers(0, 9), max_size=6), st.lists(numbers, max_size=4), numbers, st.lists(st.lists(numbers)),
    st.lists(st.integers(-1, 9), max_size=6).map(np.array),
)  # fmt: skip
gates = st.one_of(
    st.none(), st.lists(st.lists(st.sampled_from([0, 1, 0.5]), min_size=4, max_size=4), min_size=2, max_size=2),
    st.lists(st.lists(st.floats(), max_size=4), max_size=3), lists,
)  # fmt: skip
pairs = st.one_of(st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 150)), max_size=4), lists)
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["the cat [MASK] on a mat.", "[MASK] [MASK]", "a", " "]), numbers
)
often = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def or_refused(answer: Callable[[], Any]) -> Any:
    """What comes of it, or None where it is refused; anything else that is raised fails the test."""
    try:
        return answer()
    except Refused as error:
        sentence = str(error)
    assert "\n" not in sentence and sentence, sentence
    return None


@often
@given(text=texts, pair=texts, length=numbers)
def test_any_text_is_encoded_or_refused(asked: Asked, text: Any, pair: Any, length: Any) -> None:
    """As many of everything as there are tokens, within the length, each offset inside its text."""
    found = or_refused(lambda: asked.tokenizer.encode(text, pair, max_length=length))
    if found is not None:
        longest = asked.tokenizer.max_length if length is None else max(length, 3)
        assert len(found) == len(found.input_ids) == len(found.offsets) == len(found.words) <= longest
        assert all(0 <= number < asked.config.vocab_size for number in found.input_ids)
        for side, (start, end) in zip(found.sides, found.offsets, strict=True):
            assert 0 <= start <= end <= len({"A": text, "B": pair}.get(side, ""))


@often
@given(kind=st.sampled_from(["mlm", "contrast", "joint", "loss", "nsp", "class", "tag", "span", "replaced",
                             "choice", "x"]),
       positions=lists, mask=gates, at=numbers, token=numbers, against=numbers, label=numbers, pieces=pairs,
       last=numbers, top=numbers)  # fmt: skip
def test_any_question_is_answered_or_refused(
    asked: Asked, kind: str, positions: Any, mask: Any, at: Any, token: Any, against: Any, label: Any, pieces: Any,
    last: Any, top: Any,
) -> None:  # fmt: skip
    """Maps whose rows sum to 1, finite gradients, and probabilities of all pieces."""
    target = or_refused(lambda: Target(kind, at, token, label, against, pieces, last))
    for question in (None, target):
        run = or_refused(
            lambda question=question: bert_core.capture(
                asked.loaded, asked.encoding, target=question, positions=positions, head_mask=mask, top_k=top
            )
        )
        if run is not None:
            tokens = len(asked.encoding)
            assert run.attention.shape == (2, 4, tokens, tokens)
            assert_near(run.attention.sum(-1), 1.0)
            assert (run.gradient is None) == (question is None) and np.isfinite(run.target_value or 0.0)
            assert run.gradient is None or np.isfinite(run.gradient).all()
            for prediction in run.predictions:
                assert_near(prediction.probabilities.sum(), 1.0, 1e-4)


@often
@given(some=st.lists(texts, max_size=4), mask=gates)
def test_any_texts_are_captured_together_or_refused(asked: Asked, some: list[Any], mask: Any) -> None:
    """For each text that can be encoded maps of its own length, whose rows sum to 1."""
    encodings = [found for text in some if (found := or_refused(lambda text=text: asked.tokenizer.encode(text)))]
    runs = or_refused(lambda: bert_core.captures(asked.loaded, encodings, head_mask=mask))
    for run, encoding in zip(runs or [], encodings, strict=runs is not None):
        assert run.attention.shape == (2, 4, len(encoding), len(encoding))
        assert_near(run.attention.sum(-1), 1.0)


@often
@given(heads=pairs)
def test_any_heads_are_switched_off_or_refused(asked: Asked, heads: Any) -> None:
    """Gates of 0 and 1, as many zeros as there are different heads."""
    found = or_refused(lambda: bert_core.head_mask_without(asked.config, heads))
    if found is not None:
        assert found.shape == (2, 4) and (found == 0).sum() == len({tuple(map(int, head)) for head in heads})


# ---------------------------------------------------------------------------- arrays of any kind


@dataclass(frozen=True)
class OfArrays:
    """A public function of arrays.

    axes: of each of them. call: the function, of a model and the arrays. holds: what is true of every answer; of the
    answer, and the arrays as float64. filling: what right arrays hold.
    """

    axes: tuple[str, ...]
    call: Callable[..., Any]
    holds: Callable[..., object]
    filling: str = "numbers"


def between(values: Any, least: float, most: float) -> None:
    """All are in a range, but for the rounding of half precision, or no numbers."""
    array = np.asarray(values, np.float64)
    assert (np.isnan(array) | ((array >= least - 2e-3) & (array <= most + 2e-3))).all(), array


def same(found: Any, expected: Any) -> None:
    """The same numbers, on the scale of the largest."""
    array = np.asarray(expected, np.float64)
    assert_near(found, array, 1e-4, of=max(1.0, np.abs(array[np.isfinite(array)]).max(initial=0.0)))


def rows_of_one(maps: np.ndarray) -> None:
    """Every row sums to 1, or is none; nothing is negative."""
    between(maps.sum(-1), 1, 1)
    between(maps, 0, 1)


def _effective(found: np.ndarray, attention: np.ndarray, values: np.ndarray) -> None:
    assert found.shape == attention.shape
    if np.isfinite(attention).all():
        assert_near(found @ values, attention @ values, 1e-4, of=max(1.0, (np.abs(attention) @ np.abs(values)).max()))


def _normalised(found: np.ndarray, importance: np.ndarray) -> None:
    assert np.array_equal(np.isnan(found) | np.isinf(importance), ~np.isfinite(importance))
    for row, slopes in zip(found, importance, strict=True):
        if np.isfinite(slopes).all() and np.abs(slopes).max() > 1e-3:
            same((row**2).sum(), 1)


def _leading(found: list[tuple[int, int]], figures: np.ndarray) -> None:
    right = sorted(figures[np.isfinite(figures)], reverse=True)[:3]
    assert [figures[head] for head in found] == right and len(set(found)) == len(found)


def _settled(found: np.ndarray, ranks: np.ndarray) -> None:
    for depth, of_token in zip(found, ranks.T, strict=True):
        assert (of_token[depth:] == 1).all() and (depth == 0 or of_token[depth - 1] != 1)


def _plane(found: Any, states: np.ndarray) -> None:
    assert found.points.shape == (*states.shape[:2], 2) and np.isfinite(found.points).all()
    between(found.explained_variance, 0, 1)


def _aligned(found: Any, queries: np.ndarray, keys: np.ndarray) -> None:
    same(found.queries.mean(0), found.keys.mean(0))
    same(found.queries, queries * found.scale)


def _similar(found: np.ndarray, vectors: np.ndarray) -> None:
    assert found.shape == (*vectors.shape[:2], vectors.shape[1])
    same(found, found.swapaxes(1, 2))
    between(found, -1, 1)


def _combined(found: np.ndarray, maps: np.ndarray, *weights: np.ndarray) -> None:
    assert found.shape == maps.shape[1:]
    finite = maps[np.isfinite(maps)]
    between(found[np.isfinite(found)], finite.min(initial=0), finite.max(initial=0))


def _scaled(found: np.ndarray, distances: np.ndarray) -> None:
    assert found.shape == (len(distances), 2)
    there = np.isfinite(np.diag(distances))
    assert np.array_equal(np.isfinite(found).all(1), there) and (not there.any() or abs(found[there].mean()) < 1e-6)


def _changes(found: list[Any], before: np.ndarray, after: np.ndarray) -> None:
    sizes = [abs(one.after - one.before) for one in found]
    assert sizes == sorted(sizes, reverse=True) and all(sizes) and len(sizes) <= 3
    with np.errstate(all="ignore"):
        differences = np.abs(after - before)
    same(sizes[:1], [differences[np.isfinite(differences)].max()] if sizes else [])


def _distances(found: np.ndarray, attention: np.ndarray) -> None:
    assert found.shape == (attention.shape[0] * attention.shape[1],) * 2
    between(found, 0, 1)
    between(np.diag(found), 0, 0)
    same(found, found.T)


def _agreement(found: np.ndarray, scores: np.ndarray) -> None:
    assert found.shape == (len(scores), len(scores))
    between(found, -1, 1)
    between(np.diag(found), 1, 1)
    same(found, found.T)


def _examples(found: list[Any], attention: np.ndarray) -> None:
    shares = [one.share for one in found if not math.isnan(one.share)]
    assert shares == sorted(shares, reverse=True)


def _kinds(found: Any, attention: np.ndarray, gradient: np.ndarray) -> None:
    same(found.tokens.sum(), 1)
    with np.errstate(all="ignore"):
        same(found.share.sum(1), attention.mean((1, 2)).sum(-1)) if np.isfinite(attention).all() else None
    between(found.gradient, 0, np.inf)


def _near_ones(found: list[int], distances: np.ndarray) -> None:
    far = [distances[0, other] for other in found]
    assert 0 not in found and far == sorted(far) and np.isfinite(far).all()


HEADS = "layer head query key"
SQUARES = "layer head seq seq"
OF_ARRAYS: dict[str, OfArrays] = {
    "gradient_attention": OfArrays(
        (HEADS, HEADS), lambda a, x, y: bert_core.gradient_attention(x, y), lambda found, x, y: same(found, x * y)
    ),
    "gradient_attention, clipped": OfArrays(
        (HEADS, HEADS), lambda a, x, y: bert_core.gradient_attention(x, y, clip=True),
        lambda found, x, y: same(found, np.maximum(x * y, 0)),
    ),
    "gradient_relevance": OfArrays(
        (SQUARES, SQUARES), lambda a, x, y: bert_core.gradient_relevance(x, y),
        lambda found, x, y: between(found, 0, np.inf),
    ),
    "effective_attention": OfArrays(
        ("... query key", "... key size"), lambda a, x, y: bert_core.effective_attention(x, y), _effective
    ),
    "mean_of_heads": OfArrays(
        ("... head query key",), lambda a, x: bert_core.mean_of_heads(x),
        lambda found, x: same(found, x.mean(-3)) if np.isfinite(x).all() else between(found, -np.inf, np.inf),
    ),
    "layer_mixing": OfArrays(
        (SQUARES,), lambda a, x: bert_core.layer_mixing(x), lambda found, x: rows_of_one(found), "shares"
    ),
    "attention_rollout": OfArrays(
        (SQUARES,), lambda a, x: bert_core.attention_rollout(x), lambda found, x: rows_of_one(found), "shares"
    ),
    "attention_flow": OfArrays(
        (SQUARES,), lambda a, x: bert_core.attention_flow(x), lambda found, x: rows_of_one(found), "shares"
    ),
    "norm_rollout": OfArrays(
        ("layer seq seq",), lambda a, x: bert_core.norm_rollout(x, residual=True),
        lambda found, x: rows_of_one(found), "shares",
    ),
    "removal_estimate": OfArrays(
        ("layer head",), lambda a, x: bert_core.removal_estimate(x), lambda found, x: same(found, -x)
    ),
    "heads_agreement": OfArrays(
        ("layer head", "layer head"), lambda a, x, y: bert_core.heads_agreement(x, y),
        lambda found, x, y: between(found, -1, 1),
    ),
    "layer_normalised": OfArrays(("layer head",), lambda a, x: bert_core.layer_normalised(x), _normalised),
    "leading_heads": OfArrays(("layer head",), lambda a, x: bert_core.leading_heads(x, 3), _leading),
    "settled_depth": OfArrays(("depth seq",), lambda a, x: bert_core.settled_depth(x), _settled, "ones"),
    "states_in_plane": OfArrays(("depth seq hidden",), lambda a, x: bert_core.states_in_plane(x), _plane),
    "align_queries_keys": OfArrays(
        ("token dimension", "token dimension"), lambda a, x, y: bert_core.align_queries_keys(x, y), _aligned
    ),
    "query_key_plane": OfArrays(
        ("token dimension", "token dimension"),
        lambda a, x, y: bert_core.query_key_plane(x, y, np.zeros(np.shape(x)[:1])),
        lambda found, x, y: between([found.correlation, *found.shuffled_queries], -1, 1),
    ),
    "cosine_similarities": OfArrays(
        ("depth occurrence hidden",), lambda a, x: bert_core.cosine_similarities(x), _similar
    ),
    "mean_similarity": OfArrays(
        ("depth vector hidden",), lambda a, x: bert_core.mean_similarity(x), lambda found, x: between(found, -1, 1)
    ),
    "attention_entropy": OfArrays(
        (HEADS,), lambda a, x: bert_core.attention_entropy(x),
        lambda found, x: between(found, 0, np.log(x.shape[-1])), "shares",
    ),
    "mean_distance": OfArrays(
        (SQUARES,), lambda a, x: bert_core.mean_distance(x),
        lambda found, x: between(found, 0, x.shape[-1] - 1) if ours(x) else found, "shares",
    ),
    "share_to": OfArrays(
        (HEADS,), lambda a, x: bert_core.share_to(x, [True, *[False] * (np.shape(x)[-1:] or (1,))[0]][:-1]),
        lambda found, x: same(found, x[..., 0].mean(-1)), "shares",
    ),
    "effective_rank": OfArrays(
        ("... seq width",), lambda a, x: bert_core.effective_rank(x),
        lambda found, x: between(found[~np.isnan(found)], 1, min(np.shape(x)[-2:])),
    ),
    "sinks": OfArrays(
        (HEADS, "layer head key width"), lambda a, x, y: bert_core.sinks(x, y),
        lambda found, x, y: between(found.share, 0, 1) if ours(x) else found, "shares",
    ),
    "pull_of": OfArrays(
        (HEADS, HEADS),
        lambda a, x, y: bert_core.sink_contribution(x, y, [True, *[False] * (np.shape(x)[-1:] or (1,))[0]][:-1]),
        lambda found, x, y: between([found.attention], 0, 1) if ours(x) and found.heads else found, "shares",
    ),
    "role_figures": OfArrays(
        (SQUARES,), lambda a, x: bert_core.role_figures(x, a.short),
        lambda found, x: [between(found.to_sep, 0, 1), between(found.distance, 0, 3)], "shares",
    ),
    "role_scores": OfArrays(
        (SQUARES,), lambda a, x: bert_core.role_scores(x, a.short),
        lambda found, x: [between(one, 0, 1) for one in found.values()] if ours(x) else found, "shares",
    ),
    "cautions": OfArrays(
        (HEADS,), lambda a, x: bert_core.cautions(x, a.short),
        lambda found, x: between([found.to_cls, found.to_sep, found.to_cls + found.to_sep], 0, 1), "shares",
    ),
    "kind_figures": OfArrays(
        (HEADS, HEADS), lambda a, x, y: bert_core.kind_figures(x, y, a.short), _kinds, "shares"
    ),
    "strongest_examples": OfArrays(
        ("seq seq",), lambda a, x: bert_core.strongest_examples(x, a.short), _examples, "shares"
    ),
    "map_between_words": OfArrays(
        ("... seq seq",), lambda a, x: bert_core.map_between_words(x, [(1, 0), (2, 3)], "attention"),
        lambda found, x: rows_of_one(found) if ours(x) else found, "shares",
    ),
    "map_between_words, whole": OfArrays(
        ("... seq seq",), lambda a, x: bert_core.map_between_words(x, [(1, 0), (2, 3)], "product"),
        lambda found, x: same(found.sum((-1, -2)), x.sum((-1, -2))) if np.isfinite(x).all() else found,
    ),
    "combined": OfArrays(("head query key",), lambda a, x: bert_core.combine_heads(x, "average"), _combined),
    "combined, furthest": OfArrays(("head query key",), lambda a, x: bert_core.combine_heads(x, "maximum"), _combined),
    "combined, weighted": OfArrays(
        ("head query key", "head"), lambda a, x, y: bert_core.combine_heads(x, "weighted", y), _combined, "shares"
    ),
    "heat": OfArrays(
        ("... layer head patch",), lambda a, x: bert_core.heat(x, (1, (np.shape(x)[-1:] or (1,))[0])),
        lambda found, x: same(found[..., 0, :], x.mean((-3, -2))),
    ),
    "points_into": OfArrays(
        ("row column",), lambda a, x: bert_core.points_into(x, (0, 0, 1, 1)),
        lambda found, x: same(found, x.max() > x.min()),
    ),
    "share_in": OfArrays(
        ("row column",), lambda a, x: bert_core.share_in(x, (0, 0, 0.6, 1)), lambda found, x: between(found, 0, 1)
    ),
    "truth_accuracy": OfArrays(
        ("method token", "token"), lambda a, x, y: bert_core.truth_accuracy(x, y),
        lambda found, x, y: between(found[..., 1:], 0, 1),
    ),
    "rank_agreement": OfArrays(("method token",), lambda a, x: bert_core.rank_agreement(x), _agreement),
    "rank_agreement, tau": OfArrays(
        ("method token",), lambda a, x: bert_core.rank_agreement(x, "kendall"), _agreement, "ones"
    ),
    "scores_of_units": OfArrays(
        ("... token",), lambda a, x: bert_core.scores_of_units(x, [(0,), (2, 1)]),
        lambda found, x: same(found.sum(-1), x[..., :3].sum(-1)) if np.isfinite(x).all() else found,
    ),
    "head_distances": OfArrays((HEADS,), lambda a, x: bert_core.head_distances(x), _distances, "shares"),
    "nearest_heads": OfArrays(("head head",), lambda a, x: bert_core.nearest_heads(x, 0), _near_ones, "distances"),
    "classical_scaling": OfArrays(
        ("point point",), lambda a, x: bert_core.classical_scaling(x), _scaled, "distances"
    ),
    "change": OfArrays(
        (SQUARES, "layer head other other"),
        lambda a, x, y: bert_core.aligned_maps(x, y, Alignment(np.array([0, 1]), np.array([1, 2]), (), ())),
        lambda found, x, y: [same(found[0], x[:, :, :2, :2]), same(found[1], y[:, :, 1:3, 1:3])],
    ),
    "largest_changes": OfArrays((HEADS, HEADS), lambda a, x, y: bert_core.largest_changes(x, y, 3), _changes),
    "roles_of_heads": OfArrays(
        ("layer head",), lambda a, x: bert_core.roles_of_heads(dict.fromkeys(THRESHOLDS, x)),
        lambda found, x: same([[role is None for role in row] for row in found], ~np.isfinite(x)), "shares",
    ),
}  # fmt: skip


def ours(maps: np.ndarray) -> bool:
    """Whether every row is one of shares, so that what is said of attention holds."""
    return bool((maps >= 0).all() and (np.abs(maps.sum(-1) - 1) < 1e-2).all())


def filled(kind: str, shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray:
    """Numbers of some kind."""
    values = draw.normal(0, 2, shape)
    if kind == "shares":
        values = np.exp(values)
        return values / values.sum(-1, keepdims=True) if shape else values
    if kind == "distances" and len(shape) == 2 and shape[0] == shape[1]:
        return np.abs(values[:, :1] - values[:, :1].T)
    if kind == "pruned" and len(shape) > 2:
        values = filled("shares", shape, draw)
        values[..., :1, :, :] = np.nan
    mostly = {"holes": np.nan, "edges": np.inf, "ones": 1.0, "zeros": 0.0}
    return np.where(draw.random(shape) < 0.7, mostly[kind], values) if kind in mostly else values


FILLINGS = ("numbers", "shares", "distances", "pruned", "holes", "edges", "ones", "zeros")
SIZES = st.sampled_from([2, 3, 4, 1, 3, 2, 4, 0])
TYPES = (
    "f8", "f4", "f8", "f4", "f8", "f4", "f2", ">f8", "longdouble", "i8", "i1", "u1", "?", "c8", "O", "U3", "M8[s]"
)  # fmt: skip


@st.composite
def some_arrays(draw: st.DrawFn, of: OfArrays) -> list[Any]:
    """Mostly of the right axes, of any size and kind of numbers, or none; some as lists."""
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    sizes = {word: draw(SIZES) for axes in of.axes for word in axes.split()}
    front = tuple(draw(st.lists(SIZES, max_size=2)))
    if draw(st.booleans()):  # what is asked of a text of four tokens
        sizes |= dict.fromkeys(("seq", "key", "token", "other"), 4)
    found: list[Any] = []
    for axes in of.axes:
        words = axes.split()
        shape = (*(front if words[0] == "..." else ()), *(sizes[word] for word in words if word != "..."))
        if draw(st.integers(0, 9)) == 0:
            shape = tuple(draw(st.lists(SIZES, max_size=5)))
        kind = of.filling if draw(st.booleans()) else draw(st.sampled_from(FILLINGS))
        with np.errstate(all="ignore"):
            array = np.asarray(filled(kind, shape, generator)).astype(draw(st.sampled_from(TYPES)))
        form = draw(st.integers(0, 5))
        found.append(array.tolist() if form == 0 else np.asfortranarray(array) if form == 1 else array)
    return found


@pytest.mark.parametrize("name", OF_ARRAYS)
@settings(often, max_examples=80)
@given(data=st.data())
def test_any_arrays_are_answered_or_refused(asked: Asked, name: str, data: st.DataObject) -> None:
    """Whatever the axes, sizes and numbers: what is promised of the answer holds, and nothing given is changed."""
    of = OF_ARRAYS[name]
    arrays = data.draw(some_arrays(of))
    before = [repr(np.array(array).tolist()) for array in arrays]
    answer = or_refused(lambda: of.call(asked, *arrays))
    assert [repr(np.array(array).tolist()) for array in arrays] == before
    if answer is not None:
        with np.errstate(all="ignore"):
            of.holds(answer, *(np.asarray(array, np.float64) for array in arrays))


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_right_arrays_are_answered(asked: Asked, name: str) -> None:
    """Arrays of the axes that are asked for, in single and in double precision, and lists of lists."""
    of, draw = OF_ARRAYS[name], np.random.default_rng(0)
    sizes = {"layer": 2, "head": 3, "point": 3, "seq": 4, "key": 4, "token": 4, "other": 4}
    shapes = [tuple(sizes.get(word, 3) for word in axes.split()) for axes in of.axes]
    arrays = [filled(of.filling, shape, draw) for shape in shapes]
    if name == "settled_depth":
        arrays[0][-1] = 1
    for given_so in (arrays, [array.astype(np.float32) for array in arrays], [array.tolist() for array in arrays]):
        of.holds(of.call(asked, *given_so), *arrays)


def test_whole_numbers_are_numbers() -> None:
    """Of NumPy's smallest the sums, differences and orders are right too, which do not fit into them."""
    figures = np.array([[1, 0, 5], [2, 9, 0]], np.uint8)
    assert bert_core.leading_heads(figures, 2) == [(1, 1), (0, 2)]
    assert bert_core.removal_estimate(figures).tolist() == [[-1, 0, -5], [-2, -9, 0]]
    large = np.full((1, 1, 2, 2), 200, np.uint8)
    (found, *_) = bert_core.largest_changes(large, large - np.uint8(150), 1)
    assert found.after - found.before == -150
    assert bert_core.gradient_attention(large, large).max() == 40_000
    assert bert_core.scores_of_units(large, [(0, 1)]).max() == 400


def test_what_is_right_is_not_copied() -> None:
    """An array of single or of double precision is the one that the function works on, of the same kind."""
    for kind in (np.float32, np.float64):
        maps = np.full((2, 4, 3, 3), 1 / 3, kind)
        assert bert_core.aligned_maps(maps, maps, PAIRS)[0] is maps
        assert bert_core.gradient_attention(maps, maps).dtype == bert_core.mean_distance(maps).dtype == kind


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bert_core.mean_distance(MAPS[0]), "attention is (4, 3, 3): it must be (layer, head, seq, seq)"),
        (
            lambda: bert_core.mean_distance(MAPS[..., :2]),
            "attention is (2, 4, 3, 2): it must be (layer, head, seq, seq), each seq of one size",
        ),
        (
            lambda: bert_core.gradient_attention(MAPS, MAPS[:1]),
            "gradient is (1, 4, 3, 3): it must be (layer, head, query, key), and layer is 2 in attention",
        ),
        (
            lambda: bert_core.removal_estimate(FIGURES[:0]),
            "gate_gradient is (0, 4): it must be (layer, head), none of them empty",
        ),
        (
            lambda: bert_core.removal_estimate("none"),
            "gate_gradient is 'none': it must be an array of real numbers, (layer, head)",
        ),
        (
            lambda: bert_core.removal_estimate(np.ma.masked_less(FIGURES, 2)),
            "gate_gradient is a masked array: it must be (layer, head) without a mask, so fill masked entries, "
            "for example with NaN",
        ),
        (
            lambda: bert_core.removal_estimate(FIGURES > 2),
            "gate_gradient is of bool: it must be an array of real numbers, (layer, head)",
        ),
        (
            lambda: bert_core.removal_estimate([[1], [1, 2]]),
            "gate_gradient is [[1], [1, 2]]: it must be an array of numbers, (layer, head)",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_the_argument_its_shape_and_the_axes(call: Callable[[], object], sentence: str) -> None:
    """One sentence, whichever it is that does not fit."""
    with pytest.raises(Refused) as caught:
        call()
    assert str(caught.value) == sentence


def test_a_vector_without_length_has_no_angle(asked: Asked) -> None:
    """NaN there, and only there, without a warning."""
    states = asked.walk.values["hidden_states"].copy()
    states[1, 2] = 0
    found = bert_core.step_angles(replace(asked.walk, values={**asked.walk.values, "hidden_states": states}))
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 2], [1, 2]]


def test_whoever_only_refuses_starts_without_numpy() -> None:
    """A command that helps, or says what is wrong, does not wait for it."""
    code = "import sys, bert_core; bert_core.Refused; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_every_public_function_is_asked_here() -> None:
    """A new one comes in with its doors."""
    text = Path(__file__).read_text(encoding="utf-8")
    functions = [name for name in bert_core.__all__ if inspect.isfunction(getattr(bert_core, name))]
    missing = [name for name in functions if f"bert_core.{name}(" not in text]
    assert len(functions) > 90 and missing == ["bundled_bias_pairs", "bundled_models"]  # which have no arguments
