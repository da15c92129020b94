"""bert_core/loading.py: what a checkpoint contains is found, whatever its files call it, and the rest is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import bert_core
from bert_core import Refused, Target
from bert_core.checkpoint import CheckpointError
from bert_core.loading import stat_model_files
from bert_core.run.capture import capture
from bert_core.studies.explain import iter_explanations
from bert_core.studies.runner import exclusive_lock
from bert_core.studies.settings import ExplainSettings
from tests.near import assert_near

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", ".", "s", "a", "mat"]
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
TEXT, PAIR = "the cat sat.", "a mat"


def saved(folder: Path, head: str = "BertForMaskedLM", kind: str = "BertConfig", **sizes: Any) -> Any:
    """A checkpoint of transformers in a folder, no parameter at its neutral value; the model is given back."""
    torch.manual_seed(3)
    config = getattr(transformers, kind)(vocab_size=len(PIECES), **{**SMALL, **sizes})
    model = getattr(transformers, head)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.15).add_(1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    return model


def configure(folder: Path, **values: Any) -> None:
    """Change keys of config.json; None takes one out."""
    path = folder / "config.json"
    changed = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}), encoding="utf-8")


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    written = {name: tensor.clone().contiguous() for name, tensor in change(load_file(path)).items()}
    save_file(written, path, metadata={"format": "pt"})


def inputs_of(loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> dict[str, Tensor]:
    ids, segments = (torch.tensor([given]) for given in (encoding.input_ids, encoding.token_type_ids))
    more = {"token_type_ids": segments} if loaded.config.type_vocab_size else {}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **more}


# ---------------------------------------------------------------------------- the kind of a classifier

CLASSES = {0: "joy", 1: "anger", 2: "fear"}
TAGS = {0: "O", 1: "B-PER", 2: "I-PER"}


@pytest.mark.parametrize(
    ("head", "names", "stated", "found"),
    [
        ("ForSequenceClassification", CLASSES, ["BertForSequenceClassification"], "classifier"),
        ("ForSequenceClassification", CLASSES, ["BertForMultiLabelClassification"], "classifier"),
        ("ForSequenceClassification", CLASSES, ["TFBertForSequenceClassification"], "classifier"),
        ("ForSequenceClassification", CLASSES, ["FlaxBertForSequenceClassification"], "classifier"),
        ("ForSequenceClassification", CLASSES, ["MyEmotionModel"], "classifier"),
        ("ForSequenceClassification", CLASSES, ["BertForMaskedLM"], "classifier"),
        ("ForSequenceClassification", CLASSES, None, "classifier"),
        ("ForSequenceClassification", TAGS, ["BertForTextClassification"], "classifier"),
        ("ForTokenClassification", TAGS, ["BertForTokenClassification"], "tagger"),
        ("ForTokenClassification", TAGS, ["BertForNER"], "tagger"),
        ("ForTokenClassification", CLASSES, ["TFBertForTokenClassification"], "tagger"),
        ("ForTokenClassification", CLASSES, ["BertPosTagger"], "tagger"),
        ("ForTokenClassification", CLASSES, None, "tagger"),
        ("ForTokenClassification", CLASSES, ["MyModel"], "tagger"),
        ("ForSequenceClassification", TAGS, ["MyModel"], "tagger"),  # older taggers have a pooler
        ("ForMultipleChoice", None, ["TFBertForMultipleChoice"], "chooser"),
    ],
)
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_a_classifier_is_known_by_name_tensors_and_labels(
    head: str, names: dict[int, str] | None, stated: list[str] | None, found: str, family: str, tmp_path: Path
) -> None:
    """Other names of an architecture, or none, give the same model, with its labels and nothing left over."""
    own = {} if names is None else {"id2label": names, "label2id": {name: n for n, name in names.items()}}
    roberta = {"type_vocab_size": 1, "pad_token_id": 0} if family == "Roberta" else {}
    model = saved(tmp_path, f"{family}{head}", f"{family}Config", **own, **roberta)
    configure(tmp_path, architectures=None if stated is None else [name.replace("Bert", family) for name in stated])
    loaded = bert_core.load(tmp_path, device="cpu")
    assert list(loaded.task_models) == [found] and not loaded.report.unexpected
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    if found == "classifier":
        assert loaded.labels == tuple(names.values()) if names else loaded.labels
        run = capture(loaded, encoding)
        assert run.classes is not None
        assert_near(run.classes.logits, model(**inputs_of(loaded, encoding)).logits[0], 1e-5)
    if found == "tagger":
        assert names is not None and loaded.tags == tuple(names.values())


def test_a_classifier_of_another_width_is_left_over_and_said(tmp_path: Path) -> None:
    """A head that stands on something else, under a name that nobody knows, does not keep the model from loading."""
    saved(tmp_path)
    configure(tmp_path, architectures=["BertWithFourLayers"])
    rewrite(tmp_path, lambda w: {**w, "classifier.weight": torch.zeros(3, 128), "classifier.bias": torch.zeros(3)})
    loaded = bert_core.load(tmp_path, device="cpu")
    assert loaded.report.unexpected == ("classifier.bias", "classifier.weight") and not loaded.task_models


@pytest.mark.parametrize(
    ("names", "exclusive"),
    [({"architectures": ["BertForMultiLabelClassification"]}, False), ({"problem_type": "multi_label_classification"},
     False), ({}, True)],
)  # fmt: skip
def test_labels_that_are_judged_alone_are_known_by_name_too(
    names: dict[str, Any], exclusive: bool, tmp_path: Path
) -> None:
    """An architecture of several labels has a sigmoid for each, as problem_type has."""
    model = saved(tmp_path, "BertForSequenceClassification", num_labels=4)
    configure(tmp_path, **names)
    loaded = bert_core.load(tmp_path, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT)
    run, logits = capture(loaded, encoding), model(**inputs_of(loaded, encoding)).logits[0]
    assert run.classes is not None and run.classes.exclusive == exclusive
    assert_near(run.classes.probabilities, logits.softmax(-1) if exclusive else logits.sigmoid(), 1e-5)


@pytest.mark.parametrize("numbers", [(-1, 0, 1), (1, 2, 3)])
def test_labels_that_do_not_start_at_zero_are_numbered(numbers: tuple[int, ...], tmp_path: Path) -> None:
    """The file does not say which output a name is of, so outputs have numbers, and a note says why."""
    model = saved(tmp_path, "BertForSequenceClassification", num_labels=3)
    configure(tmp_path, id2label=dict(zip(map(str, numbers), "abc", strict=True)), label2id=None)
    loaded = bert_core.load(tmp_path, device="cpu")
    assert loaded.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    listed = ", ".join(map(str, numbers))
    assert f"its id2label numbers the classes {listed}, not from 0: they have no names here" in loaded.notes
    encoding = loaded.tokenizer.encode(TEXT)
    run = capture(loaded, encoding)
    assert run.classes is not None
    assert_near(run.classes.logits, model(**inputs_of(loaded, encoding)).logits[0], 1e-5)


def test_classes_that_no_file_counts_are_those_of_the_tensor(tmp_path: Path) -> None:
    """Without id2label and num_labels the classifier has as many outputs as it has rows."""
    saved(tmp_path, "BertForSequenceClassification", num_labels=5)
    configure(tmp_path, id2label=None, label2id=None, architectures=None)
    assert len(bert_core.load(tmp_path, device="cpu").labels) == 5


# ---------------------------------------------------------------------------- numbers and activations

ASKED = ExplainSettings("class", ("saliency",), max_length=32)
OF_SENTENCES = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "5.0.0"}}


@pytest.mark.parametrize(
    ("stated", "applied", "said"),
    [
        (OF_SENTENCES, True, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, True, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, False, False),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, False, True),
        ({"sentence_transformers": 3}, False, False),
        ({}, False, False),
    ],
)
def test_the_activation_of_a_cross_encoder_is_applied_or_named(
    stated: dict[str, Any], applied: bool, said: bool, tmp_path: Path
) -> None:
    """A sigmoid in config.json makes a probability of the one output; any other is named, and an identity is none."""
    model = saved(tmp_path, "BertForSequenceClassification", num_labels=1)
    configure(tmp_path, **stated)
    loaded = bert_core.load(tmp_path, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    run, logit = capture(loaded, encoding), model(**inputs_of(loaded, encoding)).logits[0]
    assert run.classes is not None
    assert_near(run.classes.logits, logit, 1e-5)
    if applied:
        assert_near(run.classes.probabilities, logit.sigmoid(), 1e-5)
        assert not run.classes.exclusive
    else:
        assert run.classes.probabilities is None
    assert any("names the activation 'Tanh': it is not applied" in note for note in loaded.notes) == said


def test_a_number_is_explained(tmp_path: Path) -> None:
    """`explain` asks a model of one number for that number, and a model of several labels for the likeliest."""
    for name, more in (("one", {}), ("several", {"problem_type": "multi_label_classification", "num_labels": 3})):
        folder = tmp_path / name
        folder.mkdir()
        saved(folder, "BertForSequenceClassification", **{"num_labels": 1, **more})
        (tmp_path / "texts.txt").write_text("the cat sat\na mat sat\n", encoding="utf-8")
        out = tmp_path / f"{name}.csv"
        counts, _ = list(iter_explanations(tmp_path / "texts.txt", out, str(folder), ASKED))[-1]
        assert counts["texts"] == 2 and "LABEL_" in out.read_text(encoding="utf-8")
    loaded = bert_core.load(tmp_path / "one", device="cpu")
    run = capture(loaded, loaded.tokenizer.encode(TEXT), target=Target("class", label=0))
    assert run.gradient is not None and np.abs(run.gradient).max() > 0


def test_explaining_a_class_without_a_classifier_says_what_can_be_asked(tmp_path: Path) -> None:
    """The sentence names what this model was trained to do."""
    saved(tmp_path)
    (tmp_path / "texts.txt").write_text("the cat sat\n", encoding="utf-8")
    with pytest.raises(
        Refused, match=r"has no trained classifier, so there is no class to explain: ask with --word or --guess$"
    ):
        list(iter_explanations(tmp_path / "texts.txt", tmp_path / "o.csv", str(tmp_path), ASKED))


# ---------------------------------------------------------------------------- names and ties of tensors


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model."])
@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert", "Albert"])
def test_wrappers_of_a_module_leave_their_names_behind(prefix: str, family: str, tmp_path: Path) -> None:
    """DataParallel, torch.compile and a training loop's module put names in front, which are taken off."""
    sizes = {"DistilBert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}, "Albert": {"embedding_size": 16},
             "Roberta": {"pad_token_id": 0}}  # fmt: skip
    model = saved(tmp_path, f"{family}ForMaskedLM", f"{family}Config", **sizes.get(family, {}))
    rewrite(tmp_path, lambda weights: {prefix + name: tensor for name, tensor in weights.items()})
    loaded = bert_core.load(tmp_path, device="cpu")
    assert loaded.has_mlm and not loaded.report.unexpected
    encoding = loaded.tokenizer.encode(TEXT)
    inputs = inputs_of(loaded, encoding)
    states = loaded.model.bert(inputs["input_ids"]).last_hidden_state
    assert_near(loaded.model.cls.predictions(states), model(**inputs).logits, 1e-5)


def test_parts_that_were_compiled_alone_leave_their_names_behind(tmp_path: Path) -> None:
    """torch.compile of single layers names them within."""
    saved(tmp_path)
    rewrite(tmp_path, lambda w: {n.replace("encoder.layer.1.", "encoder.layer.1._orig_mod."): t for n, t in w.items()})
    assert not bert_core.load(tmp_path, device="cpu").report.unexpected


@pytest.mark.parametrize(
    ("family", "more"),
    [("Bert", {}), ("Roberta", {"pad_token_id": 0, "type_vocab_size": 1}), ("Albert", {"embedding_size": 16})],
)
def test_words_that_are_not_tied_have_a_decoder_of_their_own(family: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Weight and bias of the decoder count, as in transformers, which reads the saved copy alike."""
    model = saved(tmp_path / "a", f"{family}ForMaskedLM", f"{family}Config", tie_word_embeddings=False, **more)
    loaded = bert_core.load(tmp_path / "a", device="cpu")
    encoding = loaded.tokenizer.encode("the [MASK] sat")
    inputs = inputs_of(loaded, encoding)
    wanted = model(**inputs).logits
    states = loaded.model.bert(**inputs).last_hidden_state
    assert loaded.has_mlm
    assert_near(loaded.model.cls.predictions(states), wanted, 1e-5)
    bert_core.save(loaded, tmp_path / "b")
    again = getattr(transformers, f"{family}ForMaskedLM").from_pretrained(tmp_path / "b", attn_implementation="eager")
    assert_near(again.eval()(**inputs).logits, wanted, 1e-5)


def test_words_that_are_tied_have_one_bias(tmp_path: Path) -> None:
    """Where the configuration ties the two, a file that gives different ones contradicts it."""
    saved(tmp_path)
    rewrite(tmp_path, lambda w: {**w, "cls.predictions.decoder.bias": w["cls.predictions.bias"] + 1})
    with pytest.raises(CheckpointError, match="the configuration ties them"):
        bert_core.load(tmp_path, device="cpu")


# ---------------------------------------------------------------------------- segments, rows, and what is left over


@pytest.mark.parametrize(("family", "more"), [("Bert", {}), ("Roberta", {"pad_token_id": 0})])
def test_a_model_with_one_segment_reads_both_texts_in_it(family: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Word pieces with type_vocab_size 1: all segments are 0, and the maps of a pair are those of transformers."""
    model = saved(tmp_path, f"{family}ForMaskedLM", f"{family}Config", type_vocab_size=1, **more)
    loaded = bert_core.load(tmp_path, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    assert set(encoding.token_type_ids) == {0} and not loaded.has_segments
    theirs = model(torch.tensor([encoding.input_ids]), output_attentions=True).attentions
    assert_near(capture(loaded, encoding).attention, torch.stack(theirs)[:, 0], 1e-5)


def test_a_tokenizer_with_more_segments_than_the_model_is_refused(tmp_path: Path) -> None:
    """A frame that names a segment that the model does not have would be an error at the first text."""
    saved(tmp_path)
    loaded = bert_core.load(tmp_path, device="cpu")
    loaded.tokenizer.save(tmp_path)
    values = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(values.replace('"type_id": 1', '"type_id": 2'), encoding="utf-8")
    with pytest.raises(CheckpointError, match="reads texts in 3 segments but the model has 2: they do not belong"):
        bert_core.load(tmp_path, device="cpu")


def test_a_table_that_is_larger_than_the_tokenizer_loads_with_a_note(tmp_path: Path) -> None:
    """Rows that no token has are said, and are named where they are guessed; a smaller table is refused."""
    saved(tmp_path)
    for lines, words in ((PIECES[:-2], "the embedding table has 13 rows and the tokenizer 11 tokens: 2 rows belong to"),
                         ([*PIECES, "more"], None)):  # fmt: skip
        (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if words is None:
            with pytest.raises(CheckpointError, match="14 tokens but the model 13: they do not belong together"):
                bert_core.load(tmp_path, device="cpu")
            continue
        loaded = bert_core.load(tmp_path, device="cpu")
        assert words in loaded.notes[0]
        run = capture(loaded, loaded.tokenizer.encode("the [MASK]"), top_k=13)
        guesses = {loaded.tokenizer.token_of(number) for number, _ in run.predictions[0].top}
        assert guesses == {*lines, "row 11", "row 12"}


def test_what_is_not_used_is_said_by_kind(tmp_path: Path) -> None:
    """LoRA adapters, layers that the configuration drops and other heads are one sentence; so is what is missing."""
    saved(tmp_path)
    lora = {f"bert.encoder.layer.{n}.attention.self.query.lora_{side}.weight": torch.zeros(2, 32) for n in range(3)
            for side in "AB"}  # fmt: skip
    rewrite(tmp_path, lambda w: {**w, **lora, "crf.transitions": torch.zeros(3, 3), "extra.a": torch.zeros(1),
                                 "extra.b": torch.zeros(1)})  # fmt: skip
    loaded = bert_core.load(tmp_path, device="cpu")
    layers = "bert.encoder.layer.*.attention.self.query"
    said = "9 tensors of its file are not used: "
    (unused,) = (note for note in loaded.notes if "not used" in note)
    assert unused.startswith(said) and f"{layers}.lora_A.weight (3), {layers}.lora_B.weight (3)" in unused
    assert unused.endswith(", 2 more names")
    assert not any("missing" in note for note in loaded.notes)  # of a model for words alone, which has no more
    configure(tmp_path, architectures=["BertForPreTraining"])
    assert "missing in its file: bert.pooler, cls.seq_relationship" in bert_core.load(tmp_path, device="cpu").notes
    configure(tmp_path, num_hidden_layers=2)
    assert bert_core.load(tmp_path, device="cpu").report.unused_note.startswith("25 tensors of its file are not used")  # type: ignore[union-attr]


def test_a_whole_model_has_nothing_to_say() -> None:
    """The bundled model, and one of a family that has no head of two texts, have no notes."""
    assert bert_core.load("headlight-mini", device="cpu").notes == ()


# ---------------------------------------------------------------------------- messages


def test_weights_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    """NaN and infinity are refused with the tensor's name and how many there are; large finite numbers are not."""
    saved(tmp_path)
    name = "bert.encoder.layer.1.attention.self.query.weight"

    def spoil(number: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        def change(weights: dict[str, Tensor]) -> dict[str, Tensor]:
            weights[name][0, :2] = number
            return weights

        return change

    rewrite(tmp_path, spoil(3e38))  # whose sum is infinite
    assert bert_core.load(tmp_path, device="cpu").has_mlm
    for number in (float("nan"), float("inf")):
        rewrite(tmp_path, spoil(number))
        with pytest.raises(CheckpointError, match=f"{name} in .* has 2 NaN or infinite values of 1,024: its train"):
            bert_core.load(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin"])
def test_weights_in_several_files_are_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    """A sharded checkpoint is named as one, and how to put it together."""
    saved(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(
        CheckpointError, match="are split over 1 files, and one file is required: load them with transformers'"
    ):
        bert_core.load(tmp_path, device="cpu")


def test_empty_files_and_other_files_are_named(tmp_path: Path) -> None:
    """Of nothing, nothing is said to be broken; a file in the place of a folder gets the way to one."""
    saved(tmp_path)
    for name in ("x.whl", "x.safetensors", "x.zip"):
        (tmp_path / name).write_bytes(b"")
    for name, words in (
        ("x.whl", "x.whl is a wheel and not a checkpoint: unpack it"),
        ("x.safetensors", "x.safetensors is a file: give the folder that contains it with config.json"),
        ("x.zip", "x.zip is empty: copy or download it again"),
    ):
        with pytest.raises(CheckpointError, match=words):
            bert_core.load(tmp_path / name, device="cpu")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is empty: copy or download it again"):
        bert_core.load(tmp_path, device="cpu")
    (tmp_path / "config.json").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"config\.json is empty: it must hold a JSON object"):
        bert_core.load(tmp_path, device="cpu")
    (tmp_path / "texts.txt").write_bytes(b"")
    with pytest.raises(Refused, match=r"texts\.txt is empty: there is no text in it"):
        list(iter_explanations(tmp_path / "texts.txt", tmp_path / "o.csv", "headlight-mini", ASKED))


def test_a_lock_that_is_none_is_not_another_run(tmp_path: Path) -> None:
    """Where the lock beside a table cannot be a file, the sentence names it and does not blame another run."""
    (tmp_path / ".o.csv.lock").mkdir()
    with (
        pytest.raises(Refused, match=r"\.o\.csv\.lock must be a writable file, because it locks"),
        exclusive_lock(tmp_path / "o.csv"),
    ):
        pass


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_whose_files_are_replaced_has_another_identity(packed: bool, tmp_path: Path) -> None:
    """Files of the same sizes and times count as others; files that no model reads do not count."""
    folder = tmp_path / "model"
    saved(folder)
    place = tmp_path / "model.zip" if packed else folder
    if packed:
        bert_core.save(bert_core.load(folder), place)
    first = bert_core.load(place)
    assert (
        first.files_version == stat_model_files(str(place)).version and first.identity == bert_core.load(place).identity
    )
    (folder / "log.jsonl").write_text("a step\n", encoding="utf-8")
    assert bert_core.load(place).identity == first.identity
    weights = place if packed else folder / "model.safetensors"
    assert stat_model_files(str(place)).weights_bytes == weights.stat().st_size
    times = weights.stat()
    copy = tmp_path / "copy"
    copy.write_bytes(weights.read_bytes())
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    copy.replace(weights)
    second = bert_core.load(place)
    assert second.identity != first.identity and second.name == first.name


def test_a_file_of_a_module_counts_and_a_hub_id_has_no_files(tmp_path: Path) -> None:
    """Folders of sentence-transformers have the encoder in a folder of its own."""
    (tmp_path / "0_Transformer").mkdir()
    before = stat_model_files(str(tmp_path))
    (tmp_path / "0_Transformer" / "model.safetensors").write_bytes(b"1234")
    after = stat_model_files(str(tmp_path))
    assert before == ("", 0) and after.version and after.weights_bytes == 4
    assert stat_model_files("somebody/bert-base-uncased") == stat_model_files(str(tmp_path / "none")) == ("", 0)
    assert stat_model_files("headlight-mini").weights_bytes > 1_000_000
