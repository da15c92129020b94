"""Custom targets: a function of the outputs is computed everywhere as an equal target of another kind, and by hand."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, Refused, Target, TargetOutputs
from bert_core.analysis.faithfulness import MEASURES
from bert_core.fingerprint import function_digest
from bert_core.methods import supported_methods
from bert_core.run.ablation import values_without_heads
from bert_core.studies.explain import explain_file
from bert_core.studies.faithfulness import draw_questions, judge_file, read_judgements
from bert_core.studies.head_tables import read_table
from bert_core.studies.heads import heads_file, iter_heads, measure_heads
from bert_core.studies.settings import CorpusSettings, ExplainSettings, StudySettings
from tests.families import reference_of, save_family
from tests.near import assert_near

FAMILIES = ("bert", "roberta", "deberta-v2", "modernbert")
TEXT = "the old [MASK] sat on the mat"
TOKEN = 30


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny model of each family."""
    if request.param == "bert":
        model: LoadedModel = request.getfixturevalue("tiny_loaded")
        return model
    return bert_core.load(save_family(request.param, tmp_path_factory.mktemp("own") / request.param), device="cpu")


def log_probability(outputs: TargetOutputs) -> Tensor:
    """Of a token at the last mask, wherever the text has it."""
    return outputs.logits("words", outputs.encoding.mask_positions[-1:]).log_softmax(-1)[:, 0, TOKEN]


def probability(outputs: TargetOutputs) -> Tensor:
    return log_probability(outputs).exp()


def norm(outputs: TargetOutputs) -> Tensor:
    """Of every second value of the state of the third token: that of all is constant after a layer norm."""
    return outputs.states[:, outputs.positions.index(2), ::2].norm(dim=-1)


def custom(function: Callable[[TargetOutputs], Any], *positions: int) -> Target:
    return Target("custom", name="mine", function=function, positions=positions)


# ---------------------------------------------------------------------------- equal targets of two kinds

Analysis = Callable[[LoadedModel, Encoding, Encoding, Target], Any]
ANALYSES: dict[str, Analysis] = {
    "capture": lambda m, e, s, t: [
        (run := bert_core.capture(m, e, target=t)).gradient, run.gate_gradient, run.target_value,
    ],
    "capture, gates": lambda m, e, s, t: [
        (run := bert_core.capture(m, e, target=t, head_mask=gates(m))).gradient, run.gate_gradient,
    ],
    "capture, layers": lambda m, e, s, t: bert_core.capture(m, e, target=t, layers=[1], token_range=(1, 4)).gradient,
    "token_scores": lambda m, e, s, t: bert_core.token_scores(
        m, e, t, [name for name in supported_methods(m) if name != "DecompX"]
    ),
    "layer_scores": lambda m, e, s, t: bert_core.layer_scores(m, e, t, "gradient x attention"),
    "integrated gradients": lambda m, e, s, t: (
        (scores := bert_core.integrated_gradients(m, e, t, steps=7)).scores, scores.target_value, scores.baseline_value
    ),
    "values_without": lambda m, e, s, t: bert_core.values_without(m, e, t, np.tri(len(e), dtype=bool)),
    "ablate_heads": lambda m, e, s, t: [
        (sweep := bert_core.ablate_heads(m, e, target=t, method="mean", reference=[s])).values, sweep.base_value,
    ],
    "values_without_heads": lambda m, e, s, t: values_without_heads(m, e, [t, t]),
    "patch": lambda m, e, s, t: [
        (patches := bert_core.patch(m, s, e, t, part_kind="head")).values, patches.base_value, patches.source_value
    ],
    "estimate_patches": lambda m, e, s, t: bert_core.estimate_patches(m, s, e, t, part_kind="query").values,
    "patch_band": lambda m, e, s, t: [
        (band := bert_core.patch_band(m, bert_core.patch(m, s, e, t, layers=[1]), texts=2)).low, band.high
    ],
    "patch_path": lambda m, e, s, t: [
        (paths := bert_core.patch_path(m, s, e, t)).values,
        bert_core.patch_path(m, s, e, t, receivers=[(1, 0)], receiver_input="key").values, paths.source_value,
    ],
    "knock_out_edges": lambda m, e, s, t: bert_core.knock_out_edges(m, e, t, 1, 0),
    "neuron_gradients": lambda m, e, s, t: bert_core.neuron_gradients(m, e, t, steps=3).scores,
    "suppress_neurons": lambda m, e, s, t: [
        (scaled := bert_core.suppress_neurons(m, e, t, [(0, 1), (1, 2)], draws=2)).value, scaled.random
    ],
}  # fmt: skip


def gates(loaded: LoadedModel) -> np.ndarray:
    """All on but one head that is off and one at a half."""
    values = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
    values[0, 1], values[1, 2] = 0, 0.5
    return values


def assert_equal_parts(result: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        for part, expected_part in zip(result, expected, strict=True):
            assert_near(part, expected_part)
    else:
        assert_near(result, expected)


@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_of_a_function_equals_that_of_the_same_word(name: str, loaded: LoadedModel) -> None:
    """Log-probability of a token at the mask, as a function that reads its position, and as a target of its own."""
    encoding = loaded.tokenizer.encode(TEXT)
    source = loaded.tokenizer.mask_words(encoding, [0])  # of as many tokens in every family
    (position,) = encoding.mask_positions
    word = Target("mlm", position, TOKEN)
    analysis = ANALYSES[name]
    expected = analysis(loaded, encoding, source, word)
    assert_equal_parts(analysis(loaded, encoding, source, custom(log_probability, position)), expected)
    if name != "token_scores":  # methods of maps single_run average the rows of all positions
        assert_equal_parts(analysis(loaded, encoding, source, custom(log_probability)), expected)


def test_faithfulness_of_a_probability_is_that_of_the_word(loaded: LoadedModel) -> None:
    """A custom target has no probability, so that the measures take its values."""
    encoding = loaded.tokenizer.encode(TEXT)
    (position,) = encoding.mask_positions
    scores = np.arange(2.0 * len(encoding)).reshape(2, -1) ** 2 % 7
    measures = [
        bert_core.faithfulness(loaded, encoding, target, scores, random_rankings=4, words=True)
        for target in (custom(probability), Target("mlm", position, TOKEN))
    ]
    for name, expected in measures[1].items():
        assert_near(measures[0][name].scores, expected.scores, of=1.0)
        assert_near(measures[0][name].random, expected.random, of=1.0)


def test_methods_without_a_path_are_left_out_or_refused_by_name(tiny_loaded: LoadedModel) -> None:
    """DecompX is not among the methods of a function, and says why when it is named."""
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    names = supported_methods(tiny_loaded)
    assert set(names) - set(supported_methods(tiny_loaded, custom(norm))) == {"DecompX"}
    assert bert_core.token_scores(tiny_loaded, encoding, custom(norm)).shape == (len(names) - 1, len(encoding))
    for call in (
        lambda: bert_core.token_scores(tiny_loaded, encoding, custom(norm), ["DecompX"]),
        lambda: bert_core.decompx(tiny_loaded, encoding, custom(norm)),
    ):
        with pytest.raises(Refused, match="DecompX needs a linear path"):
            call()


def test_direct_logits_are_refused_with_the_reason(tmp_path: Path) -> None:
    """A function states no linear path to a logit."""
    loaded = bert_core.load(save_family("modernbert", tmp_path / "modern"), device="cpu")
    with pytest.raises(Refused, match="direct logit attribution needs a linear path"):
        bert_core.direct_logit(loaded, loaded.tokenizer.encode(TEXT), custom(norm))


# ---------------------------------------------------------------------------- transformers, captum, and by hand


@pytest.mark.parametrize("family", ["roberta", "deberta-v2", "modernbert"])
def test_gradients_of_a_state_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """With respect to the maps that transformers returns, of a norm of a state in its last layer."""
    folder = save_family(family, tmp_path / family)
    loaded = bert_core.load(folder, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT)
    inputs = {"input_ids": torch.tensor([encoding.input_ids])}
    reference = reference_of(family, folder)(**inputs, output_attentions=True, output_hidden_states=True)
    value = reference.hidden_states[-1][0, 2, ::2].norm()
    run = bert_core.capture(loaded, encoding, target=custom(norm, 2))
    assert run.gradient is not None
    assert_near(run.target_value, value.item(), 1e-4)
    gradients = torch.autograd.grad(value, reference.attentions)
    for layer, gradient in enumerate(gradients):
        assert_near(run.gradient[layer], gradient[0], 1e-4)


def test_values_without_heads_are_those_of_hooks_in_transformers(
    tiny_loaded: LoadedModel, tiny_model_folder: Path
) -> None:
    """A forward pre-hook of transformers removes the output of each head in turn."""
    reference = transformers.BertModel.from_pretrained(tiny_model_folder, attn_implementation="eager").eval()
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    sweep = bert_core.ablate_heads(tiny_loaded, encoding, target=custom(norm))
    size = tiny_loaded.config.hidden_size // tiny_loaded.config.num_attention_heads
    assert sweep.values is not None
    for layer, head in np.ndindex(sweep.values.shape):

        def remove(module: Any, inputs: Any, head: int = head) -> Any:
            states = inputs[0].clone()
            states[..., head * size : (head + 1) * size] = 0
            return (states, *inputs[1:])

        dense = reference.encoder.layer[layer].attention.output.dense
        hook = dense.register_forward_pre_hook(remove)
        with torch.no_grad():
            states = reference(torch.tensor([encoding.input_ids])).last_hidden_state
        hook.remove()
        assert_near(sweep.values[layer, head], states[0, 2, ::2].norm().item())


@pytest.mark.slow
def test_integrated_gradients_of_a_state_are_those_of_captum(tiny_loaded: LoadedModel) -> None:
    """The same points, the same baseline."""
    from captum.attr import IntegratedGradients

    encoding, bert = tiny_loaded.tokenizer.encode(TEXT), tiny_loaded.model.bert
    embed = bert.embeddings.word_embeddings
    words = embed(torch.tensor([encoding.input_ids])).detach()
    start = words.clone()
    removable = custom(norm).removable(encoding)
    start[0, list(removable)] = embed(torch.tensor(tiny_loaded.tokenizer.pad_id)).detach()
    captum = IntegratedGradients(lambda states: bert(inputs_embeds=states).last_hidden_state[:, 2, ::2].norm(dim=-1))
    expected = captum.attribute(words, start, n_steps=9, method="gausslegendre")[0].sum(-1).detach().float()
    attribution = bert_core.integrated_gradients(tiny_loaded, encoding, custom(norm), steps=9)
    assert_near(attribution.scores, expected)
    assert attribution.scores[list(encoding.mask_positions)].tolist() == [0.0]


# ---------------------------------------------------------------------------- outputs


def test_logits_of_every_head_are_those_of_its_targets(
    tiny_loaded: LoadedModel,
    tiny_classifier_folder: Path,
    tiny_tagger_folder: Path,
    tiny_reader_folder: Path,
    tiny_chooser_folder: Path,
    tmp_path: Path,
) -> None:
    """Of words, classes, tags, ends of answers, choices, next sentences and replaced tokens, value by value."""
    models = {
        "classifier": bert_core.load(tiny_classifier_folder, device="cpu"),
        "tagger": bert_core.load(tiny_tagger_folder, device="cpu"),
        "reader": bert_core.load(tiny_reader_folder, device="cpu"),
        "chooser": bert_core.load(tiny_chooser_folder, device="cpu"),
        "electra": bert_core.load(save_family("electra", tmp_path / "electra", "ForPreTraining"), device="cpu"),
    }
    cases: list[tuple[LoadedModel, Target, Callable[[TargetOutputs], Tensor]]] = [
        (tiny_loaded, Target("nsp"), lambda o: o.logits("next")[:, 0] - o.logits("next")[:, 1]),
        (models["classifier"], Target("class", label=1), lambda o: o.logits("classifier")[:, 1]),
        (models["tagger"], Target("tag", 4, label=2), lambda o: o.logits("tagger", [4])[:, 0, 2]),
        (models["tagger"], Target("tag", 4, label=2), lambda o: o.logits("tagger")[:, 4, 2]),
        (models["reader"], Target("span", 9, last=10), lambda o: o.logits("reader", [9, 10]).diagonal(0, 1, 2).sum(-1)),
        (models["chooser"], Target("choice"), lambda o: o.logits("chooser")),
        (models["electra"], Target("replaced", 3), lambda o: o.logits("detector", [3])[:, 0]),
        (models["electra"], Target("replaced", 3), lambda o: o.logits("detector")[:, 3]),
    ]
    for loaded, target, function in cases:
        encoding = loaded.tokenizer.encode("the old man sat", "the cat ran to the door")
        runs = [bert_core.capture(loaded, encoding, target=candidate) for candidate in (custom(function), target)]
        assert_near(runs[0].target_value, runs[1].target_value)
        assert_near(runs[0].gradient, runs[1].gradient)
        sweeps = [
            bert_core.ablate_heads(loaded, encoding, target=candidate) for candidate in (custom(function), target)
        ]
        assert_near(sweeps[0].values, sweeps[1].values)


def test_a_detector_that_adds_the_first_token_reads_it(tmp_path: Path) -> None:
    """In DeBERTa-v3, whose logits at some positions are those at all; without the first token it is refused."""
    from tests.families import save_published_deberta

    loaded = bert_core.load(save_published_deberta(tmp_path / "deberta"), device="cpu")
    encoding = loaded.tokenizer.encode("the old man sat")
    expected = bert_core.capture(loaded, encoding, target=Target("replaced", 3))
    for target in (
        custom(lambda o: o.logits("detector", [3])[:, 0]),
        custom(lambda o: o.logits("detector")[:, 3]),
        custom(lambda o: o.logits("detector", [3])[:, 0], 0, 3),
    ):
        assert_near(bert_core.capture(loaded, encoding, target=target).gradient, expected.gradient)
    with pytest.raises(Refused, match="position 0 is read by the function"):
        bert_core.capture(loaded, encoding, target=custom(lambda o: o.logits("detector")[:, 0], 3))


def test_outputs_are_the_text_the_positions_and_their_states(tiny_loaded: LoadedModel) -> None:
    """All of them, or those of the target, in its order."""
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    calls: list[TargetOutputs] = []

    def keep(outputs: TargetOutputs) -> Tensor:
        calls.append(outputs)
        return outputs.states.sum((1, 2))

    bert_core.capture(tiny_loaded, encoding, target=custom(keep))
    bert_core.capture(tiny_loaded, encoding, target=custom(keep, 5, 2))
    whole, part = calls
    assert whole.encoding is encoding and whole.positions == tuple(range(len(encoding))) and part.positions == (5, 2)
    assert whole.states.shape == (1, len(encoding), tiny_loaded.config.hidden_size)
    assert_near(part.states[0], whole.states[0, [5, 2]])
    assert_near(part.logits("words", [2])[0, 0], whole.logits()[0, 2])


# ---------------------------------------------------------------------------- several texts at once


@pytest.mark.parametrize("masked", [False, True], ids=["all heads", "gates"])
def test_runs_of_several_texts_have_the_gradients_of_each(masked: bool, loaded: LoadedModel) -> None:
    """One target for all, or one each: of other lengths, in pairs, with norms, and functions that read whole texts."""
    encode = loaded.tokenizer.encode
    encodings = [encode(TEXT), encode("a dog"), encode("the [MASK] sat on the mat", "it was an old one by the river")]
    head_mask = gates(loaded) if masked else None
    cases: list[tuple[Any, list[Target | None]]] = [
        (custom(lambda o: o.states[..., 0].mean(1)), [custom(lambda o: o.states[..., 0].mean(1))] * 3),
        ([Target("mlm", encodings[0].mask_positions[0], TOKEN), None, custom(log_probability)], []),
        ([None, None, None], []),
    ]
    for target, expanded in cases:
        targets = expanded or target
        runs = bert_core.captures(loaded, encodings, target=target, head_mask=head_mask, norms=True)
        for run, encoding, text_target in zip(runs, encodings, targets, strict=True):
            single_run = bert_core.capture(loaded, encoding, target=text_target, head_mask=head_mask, norms=True)
            assert (run.target is None) == (text_target is None) and run.encoding is encoding
            assert_near(run.attention, single_run.attention)
            assert_near(run.norms, single_run.norms)
            if text_target is None:
                assert run.gradient is None and run.gate_gradient is None and run.target_value is None
                continue
            assert_near(run.target_value, single_run.target_value)
            assert run.gradient is not None and single_run.gradient is not None
            assert_near(run.gradient, single_run.gradient)
            # A gate sums products of both signs: what is lost there is a share of the products.
            assert_near(run.gate_gradient, single_run.gate_gradient, of=float(np.abs(single_run.gradient).max()))


def test_runs_of_several_texts_of_a_pruned_model(tiny_loaded: LoadedModel) -> None:
    """Pruned heads are NaN, also in a layer without heads."""
    loaded = bert_core.pruned(tiny_loaded, [(0, 1), *((1, head) for head in range(4))])
    encodings = [loaded.tokenizer.encode(text) for text in (TEXT, "a dog")]
    for head_mask in (None, gates(loaded)):
        runs = bert_core.captures(loaded, encodings, target=custom(norm), head_mask=head_mask)
        for run, encoding in zip(runs, encodings, strict=True):
            single_run = bert_core.capture(loaded, encoding, target=custom(norm), head_mask=head_mask)
            assert_near(run.gradient, single_run.gradient)
            assert_near(run.gate_gradient, single_run.gate_gradient)


def test_another_number_of_targets_is_refused(tiny_loaded: LoadedModel) -> None:
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    with pytest.raises(Refused, match="target has 1 items for 2 texts"):
        bert_core.captures(tiny_loaded, [encoding, encoding], target=[None])
    with pytest.raises(Refused, match="it must be a Target"):
        bert_core.captures(tiny_loaded, [encoding], target=["cat"])  # type: ignore[list-item]


# ---------------------------------------------------------------------------- patching


def test_a_source_of_another_length_has_a_value_of_its_own_positions(tiny_loaded: LoadedModel) -> None:
    """Without positions the function reads all tokens of the source; with positions, their partners."""
    encode = tiny_loaded.tokenizer.encode
    encoding, source = encode("the [MASK] sat on the mat"), encode("the old [MASK] sat on the red mat")
    (position,) = encoding.mask_positions
    word = bert_core.patch(tiny_loaded, source, encoding, Target("mlm", position, TOKEN), align="words")
    by_positions = custom(lambda o: o.logits("words").log_softmax(-1)[:, 0, TOKEN], position)
    for target in (custom(log_probability), by_positions):
        patches = bert_core.patch(tiny_loaded, source, encoding, target, align="words")
        assert_near(patches.values, word.values)
        assert_near(patches.source_value, word.source_value)
        assert_near(patches.base_value, word.base_value)


# ---------------------------------------------------------------------------- refusals

BAD: dict[str, tuple[Callable[[TargetOutputs], Any], str]] = {
    "no tensor": (lambda o: 3.0, "returned 3.0 of type float: it must return one finite number for each copy"),
    "nothing": (lambda o: None, "returned None of type NoneType"),
    "other shape": (lambda o: o.states, r"returned a tensor of shape \(1, 9, 32\) and dtype torch.float32"),
    "a scalar": (lambda o: o.states.sum(), r"returned a tensor of shape \(\) and"),
    "whole numbers": (lambda o: o.states[:, 0].argmax(-1), r"of shape \(1,\) and dtype torch.int64"),
    "NaN": (lambda o: o.states[:, 0, 0] * torch.nan, "returned a value that is not finite"),
    "an exception": (lambda o: 1 / 0, "raised ZeroDivisionError: division by zero"),
    "an untrained head": (lambda o: o.logits("tagger"), "has no trained token classifier: choose another head"),
    "an unknown head": (lambda o: o.logits("mouth"), "the head 'mouth' is unknown: one of words"),
    "a head without logits": (lambda o: o.logits("pooling"), "has no pooling settings"),
    "positions of a whole text": (lambda o: o.logits("next", [1]), "needs two texts|reads a text as a whole"),
    "a missing position": (lambda o: o.logits("words", [99])[:, 0, 0], "position 99 is read by the function"),
    "a position of a wrong type": (lambda o: o.logits("words", ["a"])[:, 0, 0], "a position is 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_function_that_returns_something_else_is_refused_in_one_sentence(name: str, tiny_loaded: LoadedModel) -> None:
    """Of what it returned and what it must return, with the exception that it raised as the cause."""
    function, sentence = BAD[name]
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    for call in (bert_core.capture, bert_core.ablate_heads):
        with pytest.raises(Refused, match=sentence) as refused:
            call(tiny_loaded, encoding, target=custom(function))
        assert "\n" not in str(refused.value)
        if name == "an exception":
            assert isinstance(refused.value.__cause__, ZeroDivisionError) and "'mine'" in str(refused.value)


def test_values_without_a_gradient_are_refused_only_where_it_is_needed(tiny_loaded: LoadedModel) -> None:
    """A constant, a detached value and one of other parameters have none; removing heads needs none."""
    encoding, parameter = tiny_loaded.tokenizer.encode(TEXT), torch.ones(1, requires_grad=True)
    functions: list[Callable[[TargetOutputs], Tensor]] = [
        lambda o: torch.ones(len(o.states)),
        lambda o: norm(o).detach(),
        lambda o: torch.from_numpy(np.linalg.norm(o.states[:, 2, ::2].detach().numpy(), axis=-1)),
        lambda o: parameter.expand(len(o.states)),
    ]
    for function in functions:
        for call in (bert_core.capture, bert_core.captures):
            argument: Any = [encoding] if call is bert_core.captures else encoding
            with pytest.raises(Refused, match="returned values without a gradient"):
                call(tiny_loaded, argument, target=custom(function))
        with pytest.raises(Refused, match="returned values without a gradient"):
            bert_core.estimate_patches(tiny_loaded, encoding, encoding, custom(function))
    expected = bert_core.ablate_heads(tiny_loaded, encoding, target=custom(norm)).values
    for function in functions[1:3]:
        assert_near(bert_core.ablate_heads(tiny_loaded, encoding, target=custom(function)).values, expected)


@pytest.mark.parametrize(
    "function",
    [lambda o: norm(o) - norm(o).mean(), lambda o: norm(o).cumsum(0), lambda o: norm(o) - norm(o)[0]],
    ids=["mean", "sum of those before", "first"],
)
def test_a_value_that_depends_on_other_copies_is_refused(
    tiny_loaded: LoadedModel, function: Callable[[TargetOutputs], torch.Tensor]
) -> None:
    """Gradients of the first and the last value show it, with and without gradients of the analysis."""
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    target = custom(function)
    calls: list[Callable[[], object]] = [
        lambda: bert_core.ablate_heads(tiny_loaded, encoding, target=target),
        lambda: bert_core.occlusion(tiny_loaded, encoding, target),
        lambda: bert_core.integrated_gradients(tiny_loaded, encoding, target, steps=3),
        lambda: bert_core.knock_out_edges(tiny_loaded, encoding, target, 0, 0),
    ]
    for call in calls:
        with pytest.raises(Refused, match="depends on other copies"):
            call()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "x"}, "a 'custom' target needs a name and a function"),
        ({"function": norm}, "a 'custom' target needs a name and a function"),
        ({"name": "x", "function": 3}, "the function of a target is 3: it must be callable"),
        ({"name": "two\nlines", "function": norm}, "must be one line"),
        ({"name": "x" * 61, "function": norm}, "at most 60 characters"),
        ({"name": 3, "function": norm}, "the name of a target is 3"),
        ({"name": "x", "function": norm, "positions": (1, 1)}, "they must be different"),
        ({"name": "x", "function": norm, "positions": 3}, "positions of a target is 3"),
    ],
)
def test_a_custom_target_needs_a_name_and_a_function(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        Target("custom", **fields)


def test_other_kinds_have_no_function_and_positions_must_exist(tiny_loaded: LoadedModel) -> None:
    with pytest.raises(Refused, match="only a 'custom' target may"):
        Target("nsp", name="mine")
    with pytest.raises(Refused, match="position 99 does not exist"):
        bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT), target=custom(norm, 99))


# ---------------------------------------------------------------------------- records and texts


def test_targets_are_equal_if_their_functions_are(tiny_loaded: LoadedModel) -> None:
    """As keys, in copies, in pickles, in records; their text names them and is not parsed."""
    target, encoding = custom(norm, 2), tiny_loaded.tokenizer.encode(TEXT)
    assert target == custom(norm, 2) != custom(norm) and target != custom(probability, 2)
    assert len({target, custom(norm, 2), custom(probability, 2)}) == 2
    assert copy.deepcopy(target) == target == pickle.loads(pickle.dumps(target))
    runs = [bert_core.capture(tiny_loaded, encoding, target=candidate) for candidate in (target, custom(norm, 2))]
    assert runs[0] == runs[1] != bert_core.capture(tiny_loaded, encoding, target=custom(probability))
    assert bert_core.format_target(tiny_loaded, target) == "custom:mine"
    with pytest.raises(Refused, match="a function has no text form"):
        bert_core.parse_target(tiny_loaded, encoding, "custom:mine")


def multiplied(factor: float, weights: Any = None) -> Callable[[TargetOutputs], Tensor]:
    """A function with values from outside."""
    return lambda outputs: factor * norm(outputs) + (0 if weights is None else 0 * weights.sum())


def test_the_digest_of_a_function_changes_with_what_it_encloses() -> None:
    """Source, defaults, numbers, arrays and tensors; the same ones give the same digest."""

    def with_default(outputs: TargetOutputs, power: int = 2) -> Tensor:
        return norm(outputs) ** power

    different = [
        norm, probability, multiplied(1.0), multiplied(2.0), multiplied(1.0, np.zeros(3)), multiplied(1.0, np.ones(3)),
        multiplied(1.0, torch.ones(3)), multiplied(1.0, torch.zeros(3)), with_default,
    ]  # fmt: skip
    digests = [function_digest(function) for function in different]
    assert len(set(digests)) == len(different) and all(len(digest) == 16 for digest in digests)
    assert function_digest(multiplied(1.0, torch.ones(3))) == function_digest(multiplied(1.0, torch.ones(3)))
    with_default.__defaults__ = (3,)
    assert function_digest(with_default) not in digests
    namespace: dict[str, Any] = {}
    exec("def first(outputs):\n    return outputs.states[:, 0, 0]", namespace)
    exec("def second(outputs):\n    return outputs.states[:, 0, 1]", namespace)
    assert function_digest(namespace["first"]) != function_digest(namespace["second"])


# ---------------------------------------------------------------------------- files


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat on the mat\nan old dog ran\nshe saw the river\n", encoding="utf-8")
    return path


def test_heads_over_a_file_are_means_of_single_texts(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, texts: Path, tmp_path: Path
) -> None:
    """Importance, loss without each head and the loss itself, and a table that is read as it was written."""
    model = str(tiny_model_folder)
    sums = measure_heads(texts, model, CorpusSettings(target=custom(norm)))
    table = sums.table("tiny", CorpusSettings(target=custom(norm)))
    encodings = [tiny_loaded.tokenizer.encode(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    runs = [bert_core.capture(tiny_loaded, encoding, target=custom(norm)) for encoding in encodings]
    gradients = [run.gate_gradient for run in runs if run.gate_gradient is not None]
    assert_near(table.figures["importance"], np.mean(np.abs(gradients), 0))
    effects = [bert_core.ablate_heads(tiny_loaded, encoding, target=custom(norm)).effect for encoding in encodings]
    assert_near(table.figures["loss_change"], -np.mean(effects, 0), 1e-4)
    assert_near(table.loss, -np.mean([run.target_value for run in runs if run.target_value is not None]))
    assert table.loss_text.endswith("units of the target per text")
    out = tmp_path / "heads.csv"
    heads_file(texts, out, model, CorpusSettings(target=custom(norm)))
    assert read_table(out.read_bytes(), out.name).loss_of == "custom"


def test_a_changed_function_does_not_resume_a_study(tiny_model_folder: Path, texts: Path, tmp_path: Path) -> None:
    """An equal one does, from the state in the file."""
    state, model = tmp_path / "state.npz", str(tiny_model_folder)

    def run(target: Target | None) -> list[Any]:
        return list(iter_heads(texts, model, CorpusSettings(ablation=False, target=target), state=state))

    first = run(custom(multiplied(1.0)))
    assert run(custom(multiplied(1.0)))[0][0].counts == first[-1][0].counts
    for target in (custom(multiplied(2.0)), replace(custom(multiplied(1.0)), name="other"), custom(multiplied(1.0), 2)):
        with pytest.raises(Refused, match="holds a run with other settings"):
            run(target)


def test_tokens_of_a_file_are_explained(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, texts: Path, tmp_path: Path
) -> None:
    """Each row has the scores, the name and the value of the target; its settings are identified by a digest."""
    out = tmp_path / "scores.csv"
    explain_file(texts, out, str(tiny_model_folder), ExplainSettings(target=custom(norm)))
    lines = out.read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the mat")
    expected = bert_core.occlusion(tiny_loaded, encoding, custom(norm))
    first = [row for row in rows if row["text"] == rows[0]["text"]]
    assert_near([float(row["occlusion"]) for row in first], expected.scores)
    assert_near(float(first[0]["probability"]), expected.target_value)
    assert "DecompX" not in lines[0] and {row["asked"] for row in rows} == {"mine"}
    stored = json.loads(Path(f"{out}.settings.json").read_text(encoding="utf-8"))["target"]
    assert stored == {"name": "mine", "positions": [], "function": function_digest(norm)}


def test_faithfulness_over_a_file_is_that_of_single_texts(
    tiny_loaded: LoadedModel, texts: Path, tmp_path: Path
) -> None:
    """Each judgement is that of `faithfulness` for its sentence; the table resumes only with the same function."""
    out = tmp_path / "judged.csv"
    settings = StudySettings(
        target=custom(norm), methods=("attention", "occlusion"), lengths=(4, 24), random_rankings=4, questions=2
    )
    questions = {question.number: question for question in draw_questions(tiny_loaded, texts, settings)}
    judgements = judge_file(tiny_loaded, texts, out, settings)
    assert [(row.kind, row.number, row.answer, row.method) for row in judgements] == [
        ("custom", number, "mine", method) for number in (0, 1) for method in settings.methods
    ]
    for row in judgements:
        encoding = questions[row.number].encoding
        scores = bert_core.token_scores(tiny_loaded, encoding, custom(norm), [row.method])
        expected = bert_core.faithfulness(
            tiny_loaded, encoding, custom(norm), scores, random_rankings=4, words=True, seed=row.number
        )
        assert_near(row.scores, [float(expected[name].scores[0]) for name in MEASURES], of=row.probability)
        assert_near(row.probability, bert_core.capture(tiny_loaded, encoding, target=custom(norm)).target_value, 1e-4)
    assert judge_file(tiny_loaded, texts, out, settings) == read_judgements(out)
    assert len(judge_file(tiny_loaded, texts, out, replace(settings, questions=9))) == 6
    with pytest.raises(Refused, match="other settings"):
        judge_file(tiny_loaded, texts, out, replace(settings, target=custom(multiplied(2.0))))
    default = draw_questions(tiny_loaded, texts, StudySettings(target=custom(norm), lengths=(4, 24)))
    assert len(default) == 3
    with pytest.raises(Refused, match="that have the positions of the target"):
        draw_questions(tiny_loaded, texts, replace(settings, target=custom(norm, 40)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (lambda: StudySettings(target="cat"), "the target of a study is 'cat'"),
        (lambda: StudySettings(target=custom(norm), kinds=("tag",)), "and a kind of question are given"),
        (lambda: CorpusSettings(target=Target("nsp")), "it must be a Target of the kind 'custom'"),
        (lambda: CorpusSettings(target=custom(norm), loss="tag"), "and a loss are given"),
        (lambda: CorpusSettings(target=custom(norm), importance=False, ablation=False), "has no effect"),
        (lambda: ExplainSettings(target="cat"), "the target of a study is 'cat'"),
        (lambda: ExplainSettings(target=custom(norm), asked="tag"), "and a question are given"),
    ],
)
def test_settings_take_custom_targets_alone(settings: Callable[[], object], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        settings()


def test_a_cluster_refuses_a_function(texts: Path, tiny_model_folder: Path) -> None:
    settings = CorpusSettings(target=custom(norm))
    with pytest.raises(Refused, match="'ray'"):
        list(iter_heads(texts, str(tiny_model_folder), settings, engine="ray"))
