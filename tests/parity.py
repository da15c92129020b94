"""What a model with an MLM head computes, in the names of its family: our models are compared with transformers'."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bert_core.naming import Family
from bert_core.recording import record


def results(model: Any, inputs: dict[str, Tensor], family: Family | None = None) -> dict[str, Tensor]:
    """States, maps, logits, and the gradient of one log-probability for every map and every parameter, by name.

    family: that of one of our models; None for a model of transformers. Both are compared at tokens.
    """
    model.zero_grad()
    tokens = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    middle = tokens.long().argmax(1) + tokens.sum(1) // 2
    with record() as recording:
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
        maps = outputs.attentions
        for map_ in maps:
            map_.retain_grad()
        outputs.logits[torch.arange(len(tokens)), middle].log_softmax(-1)[:, 7].sum().backward()
    gradients = [recording.gradients[layer] for layer in range(len(maps))] if family else [map_.grad for map_ in maps]
    found = {"logits": outputs.logits[tokens]}
    for name, tensors in (("state", outputs.hidden_states), ("map", maps), ("gradient", gradients)):
        if name != "state":
            tensors = [(tensor * tokens[:, None, None]).transpose(1, 2) for tensor in tensors]
        found |= {f"{name} {number}": tensor[tokens] for number, tensor in enumerate(tensors)}
    own = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    own = family.from_bert_names(own, torch.cat) if family else own
    return {name: tensor.detach() for name, tensor in {**found, **own}.items()}
