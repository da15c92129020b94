"""Image captions with the cross-attention of each word and its gradient."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.modeling import BertLayer
from bert_core.recording import record
from bert_core.records import DecoderRun
from bert_core.refused import require_int, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.vision import LoadedCaptioner, fit_image


@validate_arguments
def describe(loaded: LoadedCaptioner, picture: np.ndarray, *, top_k: int = 5) -> DecoderRun:
    """Generate the caption of a picture, with the cross-attention of each word and its gradient.

    picture: uint8 (rows, columns, 3), of which the model sees the middle square.
    top_k: number of most likely words recorded at each position of the caption.
    The gradient is that of the log-probability of each word, with respect to the row of the map that predicted the
    word. It takes one backward pass for each word. Thread-safe: neither the model nor its parameters are changed.
    Raises Refused for a picture of another shape or type.
    """
    top_k = require_int("top_k", top_k)
    config = loaded.config
    image = fit_image(picture, config.image_size)
    ids = loaded.caption_ids(image[None])[0]
    word_ids = torch.tensor(ids[1:], device=loaded.device)
    with torch.no_grad():
        states = loaded.model.encode(torch.from_numpy(image[None]).to(loaded.device))
    with torch.enable_grad(), record() as recording:
        # With the states of the image patches as the leaf, gradients reach the attention maps but no parameter.
        outputs = loaded.model.text(
            torch.tensor([ids[:-1]], device=loaded.device),
            encoder_hidden_states=states.detach().requires_grad_(),
            use_cache=False,
        )
        log_probabilities = outputs.logits[0].float().log_softmax(-1)  # (word, vocab)
        values = log_probabilities[torch.arange(len(word_ids), device=loaded.device), word_ids]
    maps = [recording.cross_attention[layer] for layer in range(config.text.num_hidden_layers)]
    words, patches = len(word_ids), config.grid**2
    attention = np.empty((words, len(maps), config.text.num_attention_heads, patches), np.float32)
    gradient = np.empty_like(attention)
    for layer, layer_map in enumerate(maps):
        attention[:, layer] = layer_map[0].detach().transpose(0, 1).cpu().numpy()
    for word in range(words):
        gradients = torch.autograd.grad(values[word], maps, retain_graph=word + 1 < words)
        for layer, layer_gradient in enumerate(gradients):
            gradient[word, layer] = layer_gradient[0, :, word].cpu().numpy()
    probabilities = log_probabilities.detach().exp()
    top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    name = loaded.tokenizer.token_of
    return DecoderRun(
        image=image.copy(),
        grid=(config.grid, config.grid),
        words=tuple(name(number) for number in ids[1:]),
        probabilities=values.detach().exp().cpu().numpy().copy(),
        alternatives=tuple(
            tuple((name(number), share) for number, share in zip(numbers, shares, strict=True))
            for numbers, shares in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ),
        cross_attention=attention,
        cross_gradient=gradient,
        cross_norms=_norms(loaded, states),
    )


@torch.no_grad()
def _norms(loaded: LoadedCaptioner, states: Tensor) -> np.ndarray:
    """Compute the norms of the image patches' value vectors through the decoder's output projections.

    states: (1, patch, width), the output of the image encoder. Returns (layer, head, patch).
    """
    norms = []
    for layer in cast("list[BertLayer]", list(loaded.model.text.bert.encoder.layer)):
        crossing = layer.crossattention
        values = crossing.self.transpose_for_scores(crossing.self.value(states))
        norms.append(as_array(crossing.head_outputs(values).norm(dim=-1)[0]))
    return np.stack(norms)
