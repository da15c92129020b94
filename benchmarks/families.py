"""What it costs to look inside other families than BERT: bert_core and transformers, taking turns in one run.

    python benchmarks/families.py            print the table
    python benchmarks/families.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/families.py --quick    the smallest size, to check that it works

Each model is random, seeded, of the size of the one that is named, and written and read as a checkpoint of its family.
Both sides must find the same maps, gradients and scores before a clock starts; each family has a process of its own.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from typing import Any

import torch
import transformers
from encoder import MALLOC, TOKEN, Findings, in_turns, ours_forward, ours_gradients, require_same, sentence
from tables import QUICK, SIZES, command, in_own_process
from torch import Tensor

from bert_core.loading import best_device
from bert_core.modeling import BertForPreTraining

REPEATS = {16: 1} if QUICK else {16: 11, 128: 7}  # tokens -> how often each side runs
# Of models that treat long distances in another way: logarithmic buckets from 128 tokens on, and windows of 129.
MORE_REPEATS: dict[str, dict[int, int]] = {} if QUICK else {"deberta-v3-base": {512: 5}, "modernbert-base": {512: 5}}
ROBERTA_BASE = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "distilbert-base": ("DistilBert", {"hidden_dim": SIZES.get("intermediate_size", 3072)}),
    "roberta-base": ("Roberta", ROBERTA_BASE),
    "deberta-v3-base": (
        "DebertaV2",
        {  # with BERT's vocabulary, so that the word embeddings do not outweigh the layers
            "vocab_size": 30522,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "relative_attention": True,
            "position_buckets": 256,
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
    ),
    "modernbert-base": ("ModernBert", {}),  # 22 layers, of which every third is global
    "electra-small": ("Electra", {}),
    "electra-base": (
        "Electra",
        {"embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
}
ROWS = (
    ("all maps", "ours_maps", "theirs_maps"),
    ("maps and gradients", "ours_gradients", "theirs_written"),
    ("the same, theirs frozen", "ours_gradients", "theirs_frozen"),
)


@torch.no_grad()
def theirs_maps(model: Any, ids: Tensor) -> Findings:
    """Every map, without the head of words."""
    output = model.base_model(ids, output_attentions=True)
    return {"hidden": [output.last_hidden_state], "maps": output.attentions}


def theirs_gradients(model: Any, ids: Tensor, *, frozen: bool) -> Findings:
    """Maps and gradients as people write it. frozen: the embeddings alone want a gradient, not the weights."""
    model_inputs = (
        {"inputs_embeds": model.get_input_embeddings()(ids).requires_grad_()} if frozen else {"input_ids": ids}
    )
    output = model(**model_inputs, output_attentions=True)
    explained = output.logits[0, ids.shape[1] // 2].log_softmax(-1)[TOKEN]
    for attention in output.attentions:
        attention.retain_grad()
    explained.backward()
    model.zero_grad()
    gradients = [attention.grad for attention in output.attentions]
    return {"value": [explained], "scores": output.logits[0], "maps": output.attentions, "gradients": gradients}


def measure(name: str) -> list[tuple[str, str, float, float, str]]:
    """Of one model: what was timed, tokens, median milliseconds of ours and of theirs, and the machine meanwhile."""
    transformers.utils.logging.disable_progress_bar()
    kind, sizes = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes | SIZES)
    peers, device = {}, best_device()
    with tempfile.TemporaryDirectory() as folder:
        peer = getattr(transformers, f"{kind}ForMaskedLM")
        peer(config).save_pretrained(folder)
        for frozen in (False, True):
            reference = peer.from_pretrained(folder, attn_implementation="eager").to(device).eval()
            peers[frozen] = reference.requires_grad_(not frozen)
        ours = BertForPreTraining.from_pretrained(folder).requires_grad_(False).to(device)

    def ours_maps(ids: Tensor) -> Findings:
        outputs = ours_forward(ours, ids, watched=True)
        return {"hidden": outputs["hidden"][:1], "maps": outputs["maps"]}

    runs = {
        "ours_maps": ours_maps,
        "theirs_maps": lambda ids: theirs_maps(peers[True], ids),
        "ours_gradients": lambda ids: ours_gradients(ours, ids),
        "theirs_written": lambda ids: theirs_gradients(peers[False], ids, frozen=False),
        "theirs_frozen": lambda ids: theirs_gradients(peers[True], ids, frozen=True),
    }
    results = []
    for tokens, times in (REPEATS | MORE_REPEATS.get(name, {})).items():
        ids = sentence(tokens)
        for label, left, right in ROWS:
            sides = {left: runs[left], right: runs[right]}
            require_same(*(run(ids) for run in sides.values()), f"{name}, {label}, {tokens} tokens")
            ms, machine = in_turns(sides, ids, times)
            results.append((label, str(tokens), ms[left], ms[right], machine))
    return results


def table() -> str:
    """The whole measurement as Markdown."""
    counts = REPEATS | {tokens: times for more in MORE_REPEATS.values() for tokens, times in more.items()}
    repeats = ", ".join(f"{times} (at {tokens} tokens)" for tokens, times in counts.items())
    lines = [
        f"{torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()}, "
        f"{torch.get_num_threads()} threads; Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}; medians of {repeats} runs a side; {time.strftime('%Y-%m-%d')}.\n",
        "| model of the size of | | tokens | ours, ms | theirs, ms | ratio | load; others' CPUs |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in MODELS:
        for label, tokens, ours, theirs, machine in in_own_process(__file__, name, malloc=MALLOC["default"]):
            lines.append(
                f"| {name} | {label} | {tokens} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.3f} | {machine} |"
            )
            print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "other families than BERT, side by side", table, measure)
