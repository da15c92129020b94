"""Edits of a model during a run, as written in addresses and on the command line, and in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bert_core.edits import HEAD_PARTS, TOKEN_PARTS, ActivationPatch, AttentionKnockout, Edit, ScaledNeuron
from bert_core.records import Noised
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

MOST_EDITS = 20  # of a kind, in one text
MOST_TOKENS = 4  # that are named, of one cut
RENORMALISED, REMOVED = "r", "x"
_CUT = re.compile(r"(all|\d+(?:\.[\d,]+)?):q([\d,]*)>k([\d,]*):([rx])")
_SCALED = re.compile(r"(\d+)\.(\d+):(-?\d+(?:\.\d+)?)")

_PATCH = re.compile(r"([a-z_]+)\.(\d+)(?:\.(\d+))?(?:@(\d+))?(?:~(\d+(?:\.\d+)?))?")
# The component that is patched, in words; `{at}` is a layer, a head or a token.
COMPONENT_WORDS = {
    "state": "the state of {at}", "attention": "what attention adds at {at}",
    "feed_forward": "what the feed-forward network adds at {at}", "head": "what {at} brings",
    "pattern": "where {at} looks", "query": "the queries of {at}", "key": "the keys of {at}",
    "value": "the values of {at}", "neuron": "a neuron of {at}",
}  # fmt: skip
AFTER, AT_FIRST, SOURCE_NOISE, SOURCE_TEXT, SOURCE_MEAN = (
    "after L{layer}", "in the embeddings", ", with noise", ", from “{text}”", ", from the mean of other texts",
)  # fmt: skip
PUT_WORDS = (*COMPONENT_WORDS.values(), AFTER, AT_FIRST, SOURCE_NOISE, SOURCE_TEXT, SOURCE_MEAN)


@dataclass(frozen=True)
class PatchAddress:
    """An activation that is patched into a run, as written in an address; its source text is a field of its own.

    component: one of `COMPONENT_WORDS` except "neuron". layer: of a state its depth. head: of a component of a head.
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


def cut_in_words(
    cut: AttentionKnockout,
    encoding: Encoding,
    *,
    every_token: str = "every token",
    all_layers: str = "all layers",
    row_effects: tuple[str, str] = ("the rest of the row is renormalised", "the rest is unchanged"),
) -> str:
    """Return which attention is blocked, where and how: "L2 H3, “sat” (3) → “cat” (2): the rest is unchanged"."""

    def tokens(positions: tuple[int, ...] | None) -> str:
        names = [f"“{encoding.tokens[position]}” ({position})" for position in (positions or ())[:MOST_TOKENS]]
        hidden_count = len(positions or ()) - len(names)
        return every_token if positions is None else ", ".join(names) + (f" + {hidden_count}" if hidden_count else "")

    layers = all_layers if cut.layers is None else ", ".join(f"L{layer}" for layer in cut.layers)
    heads = "" if cut.heads is None else " " + ", ".join(f"H{head}" for head in cut.heads)
    return f"{layers}{heads}, {tokens(cut.queries)} → {tokens(cut.keys)}: {row_effects[0 if cut.renormalised else 1]}"


def scaled_in_words(scaled: ScaledNeuron, *, neuron: str = "neuron", off: str = "off") -> str:
    """Return a neuron and its factor in words: "L3 neuron 120: off", or "× 2"."""
    left = off if scaled.factor == 0 else f"× {scaled.factor:g}"
    return f"L{scaled.layer} {neuron} {scaled.neuron}: {left}"


def put_in_words(patch: ActivationPatch, encoding: Encoding, *, translate_word: Callable[[str], str] = str) -> str:
    """What is put in, where and from which text: "the state of “man” (2), after L2, from “The woman …”".

    translate_word: what gives the words of another language for `PUT_WORDS`.
    """
    place = f"L{patch.layer}" if patch.head is None else f"L{patch.layer} H{patch.head}"
    if patch.component == "state":
        place = translate_word(AFTER).format(layer=patch.layer - 1) if patch.layer else translate_word(AT_FIRST)
    if patch.position is not None:
        place = f"“{encoding.tokens[patch.position]}” ({patch.position}), {place}"
    if isinstance(patch.source, Noised):
        source = translate_word(SOURCE_NOISE)
    elif isinstance(patch.source, Encoding):
        source = translate_word(SOURCE_TEXT).format(text=patch.source.text)
    else:
        source = translate_word(SOURCE_MEAN)
    return translate_word(COMPONENT_WORDS[patch.component]).format(at=place) + source


def notes_of(edits: Sequence[Edit], encoding: Encoding) -> tuple[str, ...]:
    """Return the edits of a run in words, for the notes of a figure and of a file."""
    cuts = (
        f"blocked attention: {cut_in_words(edit, encoding)}" for edit in edits if isinstance(edit, AttentionKnockout)
    )
    scaled = (f"scaled: {scaled_in_words(edit)}" for edit in edits if isinstance(edit, ScaledNeuron))
    patches = (f"patched: {put_in_words(edit, encoding)}" for edit in edits if isinstance(edit, ActivationPatch))
    return (*cuts, *scaled, *patches)


def _parts(value: str, noun: str) -> list[str]:
    parts = [part for part in value.split("_") if part]
    if len(parts) > MOST_EDITS:
        raise Refused(f"at most {MOST_EDITS} {noun}")
    return parts


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split(",") if part)


def _join_numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
