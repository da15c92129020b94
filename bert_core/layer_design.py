"""What the layers of an encoder consist of: where their layer norms are, and which parts have biases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bert_core.refused import Refused, short_repr

# Setting of a configuration file -> field.
_BIASES = MappingProxyType(
    {
        "attention_bias": "attention_bias", "mlp_bias": "feed_forward_bias", "norm_bias": "norm_bias",
        "classifier_bias": "head_bias",
    }
)  # fmt: skip


@dataclass(frozen=True)
class LayerDesign:
    """The design of a layer, apart from its sizes.

    pre_norm: whether layer norms are applied to the input of attention and of the feed-forward network, so that the
        residual stream is a sum, with one layer norm after the last layer. The first layer has no norm before
        attention, since the embeddings end with one. False: a layer norm follows each residual connection.
    gated: whether the activation of a neuron is multiplied by a second input (Shazeer 2020, arXiv:2002.05202).
    attention_bias, feed_forward_bias, norm_bias, head_bias: whether the linear layers of attention and of the
        feed-forward network, the layer norms, and the dense layer before the outputs of a head have biases.
    """

    pre_norm: bool = False
    gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool = True
    norm_bias: bool = True
    head_bias: bool = True

    def configured(self, settings: Mapping[str, Any]) -> LayerDesign:
        """Return the design with the biases of a configuration file, which post-norm families do not have as settings.

        Raises Refused for a value that is not a bool.
        """
        if not self.pre_norm:
            return self
        changes = {field: settings[name] for name, field in _BIASES.items() if settings.get(name) is not None}
        for name, field in _BIASES.items():
            if not isinstance(changes.get(field, False), bool):
                raise Refused(f"{name} is {short_repr(settings[name])}: it must be true or false")
        return dataclasses.replace(self, **changes)


POST_NORM = LayerDesign()
PRE_NORM_GATED = LayerDesign(
    pre_norm=True, gated=True, attention_bias=False, feed_forward_bias=False, norm_bias=False, head_bias=False
)
