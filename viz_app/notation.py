"""What is changed in a model while it runs, as an address and a command line write it, and in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bert_core.edits import Cut, Edit, Scaled
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

MOST_EDITS = 20  # of a kind, in one text
MOST_TOKENS = 4  # that are named, of one cut
RENORMALISED, REMOVED = "r", "x"
_CUT = re.compile(r"(all|\d+(?:\.[\d,]+)?):q([\d,]*)>k([\d,]*):([rx])")
_SCALED = re.compile(r"(\d+)\.(\d+):(-?\d+(?:\.\d+)?)")


def parse_cuts(value: str) -> tuple[Cut, ...]:
    """Cuts as an address names them, as 2.3:q4>k7,8:r. Raises Refused for anything else, and for too many."""
    return tuple(_parsed_cut(part) for part in _parts(value, "cuts"))


def _parsed_cut(part: str) -> Cut:
    found = _CUT.fullmatch(part)
    if found is None:
        raise Refused("write a cut as layer.head:qQUERIES>kKEYS:r, such as 2.3:q4>k7,8:r")
    where, queries, keys, way = found.groups()
    layer, _, heads = where.partition(".")
    return Cut(
        _numbers(queries) or None,
        _numbers(keys) or None,
        None if layer == "all" else (int(layer),),
        _numbers(heads) or None,
        way == RENORMALISED,
    )


def write_cuts(cuts: Sequence[Cut]) -> str:
    """Cuts as an address names them: what `parse_cuts` reads."""
    return "_".join(map(_written_cut, cuts))


def _written_cut(cut: Cut) -> str:
    where = "all" if cut.layers is None else _written(cut.layers)
    if cut.heads is not None:
        where += f".{_written(cut.heads)}"
    way = RENORMALISED if cut.renormalised else REMOVED
    return f"{where}:q{_written(cut.queries or ())}>k{_written(cut.keys or ())}:{way}"


def parse_scaled(value: str) -> tuple[Scaled, ...]:
    """Scaled neurons as an address names them, as 3.120:0. Raises Refused for anything else, and for too many."""
    return tuple(_parsed_scaled(part) for part in _parts(value, "neurons"))


def _parsed_scaled(part: str) -> Scaled:
    found = _SCALED.fullmatch(part)
    if found is None:
        raise Refused("write a scaled neuron as layer.neuron:factor, such as 3.120:0")
    layer, neuron, factor = found.groups()
    return Scaled(int(layer), int(neuron), float(factor))


def write_scaled(scaled: Sequence[Scaled]) -> str:
    """Scaled neurons as an address names them: what `parse_scaled` reads."""
    return "_".join(f"{one.layer}.{one.neuron}:{one.factor:.12g}" for one in scaled)


def cut_in_words(
    cut: Cut,
    encoding: Encoding,
    *,
    every: str = "every token",
    all_layers: str = "all layers",
    ways: tuple[str, str] = ("the rest of the row grows", "the rest stays as it was"),
) -> str:
    """Which arrows are cut, where and how: "L2 H3, “sat” (3) → “cat” (2): the rest of the row grows"."""

    def tokens(positions: tuple[int, ...] | None) -> str:
        named = [f"“{encoding.tokens[position]}” ({position})" for position in (positions or ())[:MOST_TOKENS]]
        more = len(positions or ()) - len(named)
        return every if positions is None else ", ".join(named) + (f" + {more}" if more else "")

    layers = all_layers if cut.layers is None else ", ".join(f"L{layer}" for layer in cut.layers)
    heads = "" if cut.heads is None else " " + ", ".join(f"H{head}" for head in cut.heads)
    return f"{layers}{heads}, {tokens(cut.queries)} → {tokens(cut.keys)}: {ways[0 if cut.renormalised else 1]}"


def scaled_in_words(scaled: Scaled, *, neuron: str = "neuron", off: str = "off") -> str:
    """Which neuron, and how much of it is left: "L3 neuron 120: off", or "× 2"."""
    left = off if scaled.factor == 0 else f"× {scaled.factor:g}"
    return f"L{scaled.layer} {neuron} {scaled.neuron}: {left}"


def notes_of(edits: Sequence[Edit], encoding: Encoding) -> tuple[str, ...]:
    """What was changed while a text was read, for the notes of a picture and of a file."""
    cuts = (f"cut: {cut_in_words(edit, encoding)}" for edit in edits if isinstance(edit, Cut))
    scaled = (f"scaled: {scaled_in_words(edit)}" for edit in edits if isinstance(edit, Scaled))
    return (*cuts, *scaled)


def _parts(value: str, what: str) -> list[str]:
    parts = [part for part in value.split("_") if part]
    if len(parts) > MOST_EDITS:
        raise Refused(f"at most {MOST_EDITS} {what}")
    return parts


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split(",") if part)


def _written(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
