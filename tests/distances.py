"""What every implementation of a model with relative positions must agree on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bert_core import BertForMaskedLM, Encoding, LoadedModel
from bert_core.numpy_bert import BertForPretraining
from bert_core.run.capture import capture, captures
from bert_core.run.vectors import head_vectors
from bert_core.run.walk import walk
from tests.near import assert_near

PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


def assert_numpy_agrees(folder: Path, ids: Tensor, mask: Tensor, gates: np.ndarray) -> None:
    """The NumPy implementation gives the logits of the model at every token, with and without gates, in both types.

    ids, mask: (batch, seq). gates: (layer, head).
    """
    for dtype, within in PRECISIONS:
        model = BertForMaskedLM.from_pretrained(folder).to(dtype)
        twin = BertForPretraining.from_pretrained(folder, np.dtype(str(dtype).removeprefix("torch.")))
        for head_mask in (None, gates):
            tensor = None if head_mask is None else torch.from_numpy(head_mask).to(dtype)
            with torch.no_grad():
                logits = model(ids, attention_mask=mask, head_mask=tensor).logits
            arrays = twin.forward(ids.numpy(), attention_mask=mask.numpy(), head_mask=head_mask)
            assert_near(arrays["mlm_logits"][mask == 1], logits[mask == 1], within)


def assert_every_form_agrees(loaded: LoadedModel, encoding: Encoding) -> None:
    """The query-key view, both walks with padding, and a batch give the maps and scores of the captured run."""
    run, length = capture(loaded, encoding, positions=()), len(encoding)
    by_torch, by_numpy = (walk(loaded, encoding, 1, pads=5, engine=engine) for engine in ("torch", "numpy"))
    for engine in (by_torch, by_numpy):
        assert_near(engine.layer_value("probabilities")[:, :length, :length], run.attention[1])
    for name in ("query", "key", "scores"):
        assert_near(by_numpy.layer_value(name), by_torch.layer_value(name), what=name)
    for head in range(loaded.config.num_attention_heads):
        vectors = head_vectors(loaded, encoding, 1, head)
        assert_near(vectors.attention, run.attention[1, head])
        assert_near(vectors.scores, by_torch.layer_value("scores")[head, :length, :length])
    together = captures(loaded, [encoding, loaded.tokenizer.encode("A dog.")])
    assert_near(together[0].attention, run.attention)
