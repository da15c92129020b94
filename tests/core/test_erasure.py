"""Erasing a label: no linear probe finds it, the states change least of all, and the model goes on without it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import bert_core
from bert_core import Eraser, LoadedModel, Refused
from bert_core.run.losses import TextExample, mask_pieces
from bert_core.run.states import masked_losses_with_erasers, word_states
from tests.near import assert_near

RNG = np.random.default_rng(0)
WORDS, HIDDEN, LABELS = 2000, 16, 4
LABEL = RNG.integers(0, LABELS, WORDS)
STATES = RNG.standard_normal((WORDS, HIDDEN)) @ RNG.standard_normal((HIDDEN, HIDDEN)) + 3
STATES += 2 * RNG.standard_normal((LABELS, HIDDEN))[LABEL]
ERASER = bert_core.leace(STATES, LABEL)


def test_the_conditions_of_the_theorem() -> None:
    """All labels have the same mean state, states and labels do not vary together, and no more goes than must."""
    erased = ERASER(STATES)
    scale = STATES.std()
    for label in range(LABELS):
        assert_near(erased[label == LABEL].mean(0), STATES.mean(0), 1e-9, of=scale)
    told = np.eye(LABELS)[LABEL]
    assert_near((erased - erased.mean(0)).T @ (told - told.mean(0)) / WORDS, np.zeros((HIDDEN, LABELS)), 1e-9, of=scale)
    assert ERASER.rank == LABELS - 1
    assert_near(ERASER(erased), erased, 1e-9)  # what is gone is gone


def test_no_linear_probe_finds_what_was_erased() -> None:
    """Before, most of it; after, what the commonest label gives."""
    majority = np.bincount(LABEL).max() / WORDS
    before, after = (
        bert_core.fit_probe(some, LABEL, LABELS).accuracy(some, LABEL) for some in (STATES, ERASER(STATES))
    )
    assert before > 0.9 and after == pytest.approx(majority)


@pytest.mark.slow
def test_it_is_what_the_package_of_its_authors_gives() -> None:
    """The same map, without the shrinkage and the cut-offs that the package adds for small samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script, which it uses elsewhere
        from concept_erasure import LeaceEraser

    theirs = LeaceEraser.fit(
        torch.from_numpy(STATES), torch.from_numpy(np.eye(LABELS)[LABEL]), shrinkage=False, svd_tol=1e-6,
        constrain_cov_trace=False,
    )  # fmt: skip
    assert_near(ERASER(STATES), theirs(torch.from_numpy(STATES)), 1e-8)


def test_no_other_eraser_changes_less() -> None:
    """Of a hundred others that fulfil the theorem, none is nearer to the states; the orthogonal one is not either."""
    own = ((ERASER(STATES) - STATES) ** 2).sum()
    told = np.eye(LABELS)[LABEL]
    crossed = (STATES - STATES.mean(0)).T @ (told - told.mean(0)) / WORDS
    directions, sizes, _ = np.linalg.svd(crossed, full_matrices=False)
    column_space = directions[:, sizes > 1e-9 * sizes[0]]
    others = [column_space.T]
    for _ in range(100):  # any map with `read @ column_space` of 1 takes the same directions out, obliquely
        drawn = column_space.T + 0.1 * RNG.standard_normal((LABELS - 1, HIDDEN))
        others.append(np.linalg.solve(drawn @ column_space, drawn))
    for read in others:
        erased = STATES - (STATES - STATES.mean(0)) @ read.T @ column_space.T
        assert_near(erased[LABEL == 0].mean(0), erased.mean(0), 1e-8, of=STATES.std())
        assert ((erased - STATES) ** 2).sum() > own


def test_states_that_fill_no_space_are_erased_too() -> None:
    """Where two axes are always equal, or one never changes, nothing is divided by nothing."""
    flat = np.column_stack([STATES, STATES[:, 0], np.ones(WORDS)])
    erased = bert_core.leace(flat, LABEL)(flat)
    assert np.isfinite(erased).all()
    assert_near(erased[LABEL == 1].mean(0), flat.mean(0), 1e-7, of=STATES.std())


def test_a_label_that_the_states_do_not_tell_takes_nothing() -> None:
    """One label only: no direction goes, and no state changes."""
    eraser = bert_core.leace(STATES, np.zeros(WORDS, int))
    assert eraser.rank == 0 and (eraser(STATES) == STATES).all()


def test_random_directions_leave_the_label() -> None:
    """As many of them as of the label; the seed decides which; a probe still finds it."""
    eraser = bert_core.random_eraser(STATES, ERASER.rank, 5)
    assert eraser.rank == ERASER.rank
    erased = eraser(STATES)
    assert_near(eraser(erased), erased, 1e-9)
    assert np.linalg.matrix_rank(np.cov(erased.T)) == HIDDEN - ERASER.rank
    assert bert_core.fit_probe(erased, LABEL, LABELS).accuracy(erased, LABEL) > 0.8
    assert (eraser.readout == bert_core.random_eraser(STATES, ERASER.rank, 5).readout).all()
    assert (eraser.readout != bert_core.random_eraser(STATES, ERASER.rank, 6).readout).any()


def test_what_cannot_be_erased_is_said() -> None:
    """Labels that are no numbers of labels, too many directions, states that are not finite."""
    for ask, sentence in (
        (lambda: bert_core.leace(STATES, LABEL - 1), "labels is"),
        (lambda: bert_core.random_eraser(STATES, HIDDEN + 1), "rank is 17: it must be a whole number from 0 to 16"),
        (lambda: bert_core.leace(STATES * np.nan, LABEL), "states holds nan"),
    ):
        with pytest.raises(Refused) as caught:
            ask()
        assert sentence in str(caught.value)


# ---------------------------------------------------------------------------- in the pass


def texts(loaded: LoadedModel) -> list[TextExample]:
    """Of several lengths, with hidden pieces."""
    written = ("the cat sat on the mat.", "a king", "the old queen of england went to the city by the river")
    rng = np.random.default_rng(2)
    return [mask_pieces(loaded.tokenizer, loaded.tokenizer.encode(text), rng, share=0.4) for text in written]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_pass_goes_on_from_erased_states(tiny_loaded: LoadedModel, depth: int) -> None:
    """As a hook at this depth does it, on all tokens but the added [CLS] and [SEP]; nothing erased, nothing changed."""
    rng = np.random.default_rng(3)
    eraser = Eraser(rng.standard_normal(32), rng.standard_normal((32, 3)), rng.standard_normal((3, 32)) / 10)
    nothing = Eraser(np.zeros(32), np.zeros((32, 0)), np.zeros((0, 32)))
    given = texts(tiny_loaded)
    losses, first = masked_losses_with_erasers(tiny_loaded, given, depth, [None, eraser, nothing])
    assert_near(losses[0], losses[2])
    expected = []
    for change in (None, eraser):
        for text in given:
            scores = hooked(tiny_loaded, text, depth, change)
            expected += [
                -scores.log_softmax(-1)[p, a].item() for p, a in zip(text.positions, text.answers, strict=True)
            ]
    assert_near(losses[:2].ravel(), expected)
    assert first.shape == losses.shape and first.dtype == bool
    assert np.abs(losses[0] - losses[1]).max() > 0.01


def hooked(loaded: LoadedModel, text: TextExample, depth: int, eraser: Eraser | None) -> torch.Tensor:
    """The scores of all words (seq, vocab), with torch's own hook on the module that gives the states."""
    typed = torch.tensor([not special for special in text.encoding.special])

    def hook(module: object, given: object, out: object) -> object:
        states = out if depth == 0 else out.hidden_states  # type: ignore[attr-defined]
        if eraser is not None:
            changed = torch.from_numpy(eraser(states[0, typed].double().numpy())).float()
            states = states.clone()
            states[0, typed] = changed
        return states if depth == 0 else out._replace(hidden_states=states)  # type: ignore[attr-defined]

    bert = loaded.model.bert
    module = bert.embeddings if depth == 0 else bert.encoder.layer[depth - 1]
    handle = module.register_forward_hook(hook)
    try:
        with torch.no_grad():
            return loaded.model(torch.tensor([text.encoding.input_ids])).prediction_logits[0]
    finally:
        handle.remove()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_all_that_a_model_says_of_a_text(tiny_loaded: LoadedModel, depth: int) -> None:
    """With nothing erased what a run says, and with an eraser what a hook at this depth makes it say."""
    rng = np.random.default_rng(3)
    eraser = Eraser(rng.standard_normal(32), rng.standard_normal((32, 3)), rng.standard_normal((3, 32)) / 10)
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on the [MASK]", "a king")
    whole, erased = bert_core.predict_with_erasers(tiny_loaded, encoding, depth, [None, eraser])
    run = bert_core.capture(tiny_loaded, encoding)
    assert whole.nsp == pytest.approx(run.nsp, abs=1e-5)
    changed = erased.nsp != pytest.approx(run.nsp, abs=1e-5)
    assert changed == (depth < 2)  # [CLS], from which it is read, is itself never erased
    asked = TextExample(tiny_loaded.tokenizer.encode("the [MASK] sat on the [MASK]"))
    (alone,) = bert_core.predict_with_erasers(tiny_loaded, asked.encoding, depth, [eraser])
    expected = hooked(tiny_loaded, asked, depth, eraser).softmax(-1).numpy()
    for own, others in zip(whole.predictions, run.predictions, strict=True):
        assert_near(own.probabilities, others.probabilities)
    for prediction in alone.predictions:
        assert_near(prediction.probabilities, expected[prediction.position])


def test_the_erasers_of_a_label(tiny_loaded: LoadedModel) -> None:
    """After the first no probe finds it in the words that it was fitted on; the others take as many directions."""
    rng = np.random.default_rng(4)
    words = ["cat", "dog", "king", "queen", "the", "old"]
    given = []
    for _ in range(40):
        drawn = rng.permutation(words).tolist()
        starts = np.cumsum([0, *(len(word) + 1 for word in drawn)]).tolist()
        spans = tuple((start, start + len(word)) for start, word in zip(starts, drawn, strict=False))
        labels = tuple("pet" if word in ("cat", "dog") else "other" for word in drawn)
        given.append(bert_core.LabelledSentence(" ".join(drawn), spans, labels))
    settings = bert_core.ProbeSettings(least=1)
    eraser, at_random = bert_core.label_erasers(tiny_loaded, given, 1, settings, random_erasers=3)
    assert eraser.rank == 1 and [one.rank for one in at_random] == [1, 1, 1]
    encodings = [tiny_loaded.tokenizer.encode(one.text) for one in given]
    states = word_states(tiny_loaded, encodings, [[(n + 1,) for n in range(6)] for _ in given], 1)
    labels = np.array([one.labels[n] == "pet" for one in given for n in range(6)], int)
    assert bert_core.fit_probe(states, labels, 2).accuracy(states, labels) > 0.9
    for change, found in ((eraser, (0.6, 0.7)), (at_random[0], (0.85, 1.0))):
        changed = change(states).astype(np.float32)
        assert found[0] <= bert_core.fit_probe(changed, labels, 2).accuracy(changed, labels) <= found[1]


def test_a_model_without_a_word_head_says_nothing_at_a_hidden_word(tiny_loaded: LoadedModel) -> None:
    """It is refused before anything is read, as is a depth that is not there."""
    with pytest.raises(Refused, match="depth is 3: it must be a whole number from 0 to 2"):
        masked_losses_with_erasers(tiny_loaded, texts(tiny_loaded), 3, [None])
    with pytest.raises(Refused, match="an item of erasers is 1: it must be an Eraser"):
        masked_losses_with_erasers(tiny_loaded, texts(tiny_loaded), 1, [1])  # type: ignore[list-item]
