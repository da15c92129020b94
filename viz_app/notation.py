"""Edits of a model during a run, as written in addresses and on the command line, and in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.edits import (
    HEAD_PARTS,
    TOKEN_PARTS,
    ActivationPatch,
    AddedVector,
    AttentionKnockout,
    Edit,
    ScaledNeuron,
)
from bert_core.records import Noised
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.texts import ENGLISH, PageTexts, page_texts

TEXTS = page_texts("edits")
ENGLISH_TEXTS = TEXTS.in_language(ENGLISH)
MOST_EDITS = 20  # of a kind, in one text
MOST_TOKENS = 4  # that are named, of one cut
RENORMALISED, REMOVED = "r", "x"
_CUT = re.compile(r"(all|\d+(?:\.[\d,]+)?):q([\d,]*)>k([\d,]*):([rx])")
_SCALED = re.compile(r"(\d+)\.(\d+):(-?\d+(?:\.\d+)?)")

_PATCH = re.compile(r"([a-z_]+)\.(\d+)(?:\.(\d+))?(?:@(\d+))?(?:~(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class PatchAddress:
    """An activation that is patched into a run, as written in an address; its source text is a field of its own.

    component: one of `HEAD_PARTS` and `TOKEN_PARTS`. layer: of a state its depth. head: of a component of a head.
    position: of a component of a token. noise: standard deviation, if the source is the text itself with noise.
    """

    component: str
    layer: int
    head: int | None = None
    position: int | None = None
    noise: float | None = None


def parse_cuts(value: str) -> tuple[AttentionKnockout, ...]:
    """Parse cuts as written in an address, such as 2.3:q4>k7,8:r. Raises Refused for other texts and too many cuts."""
    return tuple(_parsed_cut(part) for part in _parts(value, "cuts"))


def _parsed_cut(part: str) -> AttentionKnockout:
    match = _CUT.fullmatch(part)
    if match is None:
        raise Refused("write a cut as layer.head:qQUERIES>kKEYS:r, such as 2.3:q4>k7,8:r")
    place, queries, keys, mode = match.groups()
    layer, _, heads = place.partition(".")
    return AttentionKnockout(
        _numbers(queries) or None,
        _numbers(keys) or None,
        None if layer == "all" else (int(layer),),
        _numbers(heads) or None,
        mode == RENORMALISED,
    )


def write_cuts(cuts: Sequence[AttentionKnockout]) -> str:
    """Return cuts as written in an address, which `parse_cuts` parses."""
    return "_".join(map(_written_cut, cuts))


def _written_cut(cut: AttentionKnockout) -> str:
    place = "all" if cut.layers is None else _join_numbers(cut.layers)
    if cut.heads is not None:
        place += f".{_join_numbers(cut.heads)}"
    mode = RENORMALISED if cut.renormalised else REMOVED
    return f"{place}:q{_join_numbers(cut.queries or ())}>k{_join_numbers(cut.keys or ())}:{mode}"


def parse_scaled(value: str) -> tuple[ScaledNeuron, ...]:
    """Parse scaled neurons as written in an address, such as 3.120:0. Raises Refused for other texts and too many."""
    return tuple(_parsed_scaled(part) for part in _parts(value, "neurons"))


def _parsed_scaled(part: str) -> ScaledNeuron:
    match = _SCALED.fullmatch(part)
    if match is None:
        raise Refused("write a scaled neuron as layer.neuron:factor, such as 3.120:0")
    layer, neuron, factor = match.groups()
    return ScaledNeuron(int(layer), int(neuron), float(factor))


def write_scaled(scaled: Sequence[ScaledNeuron]) -> str:
    """Return scaled neurons as written in an address, which `parse_scaled` parses."""
    return "_".join(f"{neuron.layer}.{neuron.neuron}:{neuron.factor:.12g}" for neuron in scaled)


def parse_put(value: str) -> PatchAddress | None:
    """Parse a patch as written in an address: state.3@2 or head.5.8, and ~3 for noise. Raises Refused for others."""
    match = _PATCH.fullmatch(value)
    if not value:
        return None
    if match is not None:
        component, layer, head, position, noise = match.groups()
        is_of_token = component in TOKEN_PARTS and position and not head
        is_of_head = component in HEAD_PARTS and head and not position
        if is_of_token or is_of_head:
            head_number, token_position = (None if number is None else int(number) for number in (head, position))
            return PatchAddress(
                component, int(layer), head_number, token_position, None if noise is None else float(noise)
            )
    raise Refused("write what is put in as state.DEPTH@POSITION or head.LAYER.HEAD, such as state.3@2")


def write_put(patch: PatchAddress | None) -> str:
    """Return a patch as written in an address, which `parse_put` parses."""
    if patch is None:
        return ""
    place = f"@{patch.position}" if patch.head is None else f".{patch.head}"
    return f"{patch.component}.{patch.layer}{place}" + ("" if patch.noise is None else f"~{patch.noise:g}")


def cut_in_words(cut: AttentionKnockout, encoding: Encoding, texts: PageTexts = ENGLISH_TEXTS) -> str:
    """Return which attention is blocked, where and how: "L2 H3, “sat” (3) → “cat” (2): the rest is unchanged"."""
    layers = texts["knockout.all_layers"] if cut.layers is None else ", ".join(f"L{layer}" for layer in cut.layers)
    heads = "" if cut.heads is None else " " + ", ".join(f"H{head}" for head in cut.heads)
    effect = texts["knockout.renormalised" if cut.renormalised else "knockout.unchanged"]
    queries, keys = (_tokens_in_words(positions, encoding, texts) for positions in (cut.queries, cut.keys))
    return f"{layers}{heads}, {queries} → {keys}: {effect}"


def scaled_in_words(scaled: ScaledNeuron, texts: PageTexts = ENGLISH_TEXTS) -> str:
    """Return a neuron and its factor in words: "L3 neuron 120: off", or "× 2"."""
    left = texts["scaled.off"] if scaled.factor == 0 else f"× {scaled.factor:g}"
    return f"L{scaled.layer} {texts['scaled.neuron']} {scaled.neuron}: {left}"


def put_in_words(patch: ActivationPatch, encoding: Encoding, texts: PageTexts = ENGLISH_TEXTS) -> str:
    """Return what is patched, where and from which text: "the state of “man” (2), after L2, from “The woman …”"."""
    place = f"L{patch.layer}" if patch.head is None else f"L{patch.layer} H{patch.head}"
    if patch.component == "state":
        place = _depth_in_words(patch.layer, texts)
    if patch.position is not None:
        place = f"“{encoding.tokens[patch.position]}” ({patch.position}), {place}"
    if isinstance(patch.source, Noised):
        source = texts["patch.from_noise"]
    elif isinstance(patch.source, Encoding):
        source = texts["patch.from_text"].format(text=patch.source.text)
    else:
        source = texts["patch.from_mean"]
    return texts[f"components.{patch.component}"].format(at=place) + source


def added_in_words(added: AddedVector, encoding: Encoding, texts: PageTexts = ENGLISH_TEXTS) -> str:
    """Return where a vector is added, and the norm of what is added: "“were” (3), after L3, norm 2.5"."""
    tokens = _tokens_in_words(added.positions, encoding, texts)
    norm = float(np.linalg.norm(added.vector)) * abs(added.factor)
    return f"{tokens}, {_depth_in_words(added.depth, texts)}, {texts['added.norm'].format(norm=f'{norm:.3g}')}"


def _tokens_in_words(positions: tuple[int, ...] | None, encoding: Encoding, texts: PageTexts) -> str:
    if positions is None:
        return texts["knockout.every_token"]
    names = [f"“{encoding.tokens[position]}” ({position})" for position in positions[:MOST_TOKENS]]
    hidden_count = len(positions) - len(names)
    return ", ".join(names) + (f" + {hidden_count}" if hidden_count else "")


def _depth_in_words(depth: int, texts: PageTexts) -> str:
    return texts["patch.after_layer"].format(layer=depth - 1) if depth else texts["patch.in_embeddings"]


def notes_of(edits: Sequence[Edit], encoding: Encoding) -> tuple[str, ...]:
    """Return the edits of a run in words, for the notes of a figure and of a file."""
    cuts = (
        f"blocked attention: {cut_in_words(edit, encoding)}" for edit in edits if isinstance(edit, AttentionKnockout)
    )
    scaled = (f"scaled: {scaled_in_words(edit)}" for edit in edits if isinstance(edit, ScaledNeuron))
    patches = (f"patched: {put_in_words(edit, encoding)}" for edit in edits if isinstance(edit, ActivationPatch))
    vectors = (f"added vector: {added_in_words(edit, encoding)}" for edit in edits if isinstance(edit, AddedVector))
    return (*cuts, *scaled, *patches, *vectors)


def _parts(value: str, noun: str) -> list[str]:
    parts = [part for part in value.split("_") if part]
    if len(parts) > MOST_EDITS:
        raise Refused(f"at most {MOST_EDITS} {noun}")
    return parts


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split(",") if part)


def _join_numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
