"""A profile in words, of a head, a token or a neuron, and as one HTML file that opens from disk."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bert_core.studies.profiles import (
    TENTHS,
    GroupShare,
    HeadExample,
    HeadProfile,
    NeuronProfile,
    Profiles,
    TokenExample,
    TokenProfile,
    WordCount,
)
from viz_app.export.page import variables
from viz_app.export.policy import hash_source
from viz_app.figures.style import SEQUENTIAL

_FOLDER = Path(__file__).parent
MOST_BARS = 12
AROUND = 60  # characters of a sentence, to either side of what is marked in it
MOST_SAID = 3
ASKED = {
    "offset": "How far on", "kind": "What kind of token", "sort": "What kind of token", "place": "Place",
    "likeness": "Likeness by depth", "relation": "Relation", "upos": "Part of speech",
}  # fmt: skip
USUAL = ("least usual", "most usual")  # tenths of a token
IN_ORDER = ("offset", "place", "likeness")  # of which the bars stand in an order of their own
ALSO = {"punct": "punctuation", "PUNCT": "punctuation"}  # what a treebank calls so
OF_TOKENS = {"sort": "", "place": "token number ", "upos": "the part of speech ", "relation": "the relation "}
NAMES = {
    "first": "[CLS]", "end": "[SEP]", "itself": "the token itself", "its word": "another piece of its word",
    "added": "[CLS] or [SEP]", "its governor": "the word it depends on", "its dependent": "a word that depends on it",
    "not tied to it": "a word not tied to it",
}  # fmt: skip
READING = (
    "**How to read this:** of every token of the corpus, the one that the head attends to most; a line across each bar "
    "is where a token drawn from the same sentence would end. Many heads rest on [CLS] or [SEP] wherever they have "
    "nothing to do, so *most active* counts only the tenth of the tokens to which the head brings most. "
    "**How it can mislead:** the strongest key is not all of the attention; what a head looks at need not be what it "
    "is for, which only its removal says; and another corpus gives another profile."
)


OF_A_TOKEN = (
    "**How to read this:** one piece of the vocabulary, everywhere it stands in the corpus. A bar is its share, a line "
    "across it that of all tokens. *Likeness* is the mean cosine of two of its states, and the line that of any two "
    "tokens: where it falls towards the line, the token is what its sentence makes of it. The tenths go from the uses "
    "whose state is least like the others' to the most usual ones. "
    "**How it can mislead:** a rare meaning among many uses of a common one looks like an outlier, not like a meaning; "
    "cosines are high for all tokens where states share a direction; and another corpus gives another profile."
)
OF_A_NEURON = (
    "**How to read this:** the tenth of all tokens at which the neuron fires most. A bar is their share, a line across "
    "it that of all tokens. A neuron that fires at one thing has one long bar; most have none. "
    "**How it can mislead:** the strongest tokens look like a meaning that the other nine tenths do not have; what a "
    "neuron fires at need not be what it is for; and another corpus gives another profile."
)


def token_in_words(one: TokenProfile) -> str:
    """How often it stands there, and where its states are least alike."""
    depth, own, chance = min(one.likeness, key=lambda at: at[1] - at[2])
    return (
        f"It stands {one.times:,} times among {one.tokens:,} tokens ({one.times / one.tokens:.2%}). Beside those of "
        f"any two tokens its states are least alike {depth_name(depth)}: the mean cosine of two is {own:.2f}, of any "
        f"two tokens {chance:.2f}."
    )


def depth_name(depth: int) -> str:
    """Where a state stands: in the embeddings, or behind a layer."""
    return "behind the embeddings" if not depth else f"behind layer {depth - 1}"


def likeness_bars(one: TokenProfile) -> tuple[GroupShare, ...]:
    """Of every depth how alike its states are, beside any two tokens'."""
    return tuple(
        GroupShare("embeddings" if not depth else f"layer {depth - 1}", own, chance)
        for depth, own, chance in one.likeness
    )


def neuron_name(layer: int, neuron: int) -> str:
    """What a neuron is called."""
    return f"L{layer} neuron {neuron}"


def neuron_in_words(one: NeuronProfile) -> str:
    """How often it fires, and what stands out where it fires most."""
    says = (
        f"Its activation is above 0 at {one.active:.0%} of {one.tokens:,} tokens, with a mean of {one.mean:z.2f} "
        f"(spread {one.spread:.2f}); at [CLS] and [SEP] the mean is {one.added_mean:z.2f}."
    )
    said: dict[str, str] = {}  # two questions may have one answer
    for asked, bar in one.distinctive_groups:
        name = ALSO.get(bar.name, f"{OF_TOKENS[asked]}{bar.name}")
        said.setdefault(name, f"{name} ({bar.share:.0%}; by chance {bar.chance:.0%})")
    clear = list(said.values())
    if not clear:
        return f"{says} Where it fires most, nothing is far above chance."
    return f"{says} Where it fires most there is more than chance gives of {', '.join(clear[:MOST_SAID])}."


def in_words(one: HeadProfile) -> str:
    """What stands out most where the head is active, and how often it rests."""
    clear = [(name, bar) for name, bar in one.distinctive_groups if name != "upos"]
    says = f"From {one.sink_share:.0%} of {one.tokens:,} tokens it looks most at [CLS] or [SEP]."
    if not clear:
        return f"{says} Where it is most active, nothing it looks at is far above chance."
    said: dict[str, str] = {}  # two questions may have one answer, as that it looks at [CLS]
    for name, bar in clear:
        said.setdefault(_said(name, bar.name), f"({bar.share:.0%}; by chance {bar.chance:.0%})")
    parts = [f"{name} {shares}" for name, shares in list(said.items())[:MOST_SAID]]
    return f"{says} Where it is most active it looks at {', and at '.join(parts)}."


def figures_in_words(found: Profiles, one: HeadProfile) -> str:
    """How spread its attention is, and what its removal costs; empty where it was not measured."""
    figures, said = one.figures, []
    if "entropy" in figures:
        as_of = math.exp(figures["entropy"])
        said.append(f"Entropy of its attention: {figures['entropy']:.2f} nats, as of {as_of:.1f} tokens alike.")
    if "cls" in figures and "sep" in figures:
        said.append(f"{figures['cls']:.0%} of its attention goes to [CLS], {figures['sep']:.0%} to [SEP].")
    if "loss_change" in figures:
        change, error = figures["loss_change"], figures.get("loss_change_error", 0.0)
        does = "rises" if change > 0 else "falls"
        unsure = ", which may be by chance" if abs(change) <= 2 * error else ""
        said.append(f"Without it the loss {does} by {abs(change):.4f} nats (standard error {error:.4f}){unsure}.")
    elif "importance" in figures:
        said.append(f"The loss has a slope of {figures['importance']:.4f} nats with it (mean size).")
    return f"{' '.join(said)} Measured over {found.measured}." if said else ""


def _said(question: str, name: str) -> str:
    if question == "offset" and name not in NAMES:
        by = int(name.strip("<>"))
        many = f"{abs(by)} token{'s' if abs(by) > 1 else ''}"
        return "the token itself" if not by else f"what stands {many} {'before' if by < 0 else 'after'} it"
    return NAMES.get(name, name)


def largest(bars: Sequence[GroupShare], *, in_order: bool) -> list[GroupShare]:
    """The largest of some bars, the largest first; or those that stand in an order, all of them."""
    return list(bars) if in_order else sorted(bars, key=lambda bar: -bar.share)[:MOST_BARS]


def marked(look: HeadExample | TokenExample) -> str:
    """The sentence around ‹the token› that looks and «the one» that is looked at; ‹«both»› where they are the same."""
    query, key = (look.at, None) if isinstance(look, TokenExample) else (look.query, look.key)
    spans = [query] if key in (None, query) else sorted([query, key])
    start, end = max(spans[0][0] - AROUND, 0), min(spans[-1][1] + AROUND, len(look.text))
    parts, last = ["" if not start else "…"], start
    for span in spans:
        word = look.text[slice(*span)]
        word = f"«{word}»" if span == key else word
        parts += [look.text[last : span[0]], f"‹{word}›" if span == query else word]
        last = span[1]
    return "".join([*parts, look.text[last:end], "" if end == len(look.text) else "…"])


def guessed(look: HeadExample) -> str:
    """A look as whoever guesses sees it: `marked`, and behind an arrow [CLS] or [SEP] where the head looks there."""
    return marked(look) if look.key is not None else f"{marked(look)} → {look.piece}"


def tenth_names(first: str = "weakest", last: str = "strongest") -> list[str]:
    """How the tenths of a head's activity are called, or others from `first` to `last`."""
    return [first, *map(str, range(2, TENTHS)), last]


def file_name(found: Profiles, one: HeadProfile | TokenProfile | NeuronProfile) -> str:
    """What a file of one is called, without its ending; tokens have numbers: a piece may hold what no name may."""
    if isinstance(one, HeadProfile):
        return f"profile.L{one.layer}.H{one.head}"
    if isinstance(one, NeuronProfile):
        return f"profile.L{one.layer}.N{one.neuron}"
    return f"profile.token.{[token.piece for token in found.tokens].index(one.piece)}"


def profile_page(found: Profiles, one: HeadProfile | TokenProfile | NeuronProfile) -> str:
    """The file: what the page Profiles shows of one head, token or neuron, all of it at once, without a script.

    Every word of the corpus is written as it is.
    """
    several = len(found.documents) > 1  # so that the line alone does not say where a sentence stands
    if isinstance(one, HeadProfile):
        name, says, reading = f"L{one.layer} H{one.head}", f"{in_words(one)} {figures_in_words(found, one)}", READING
        parts = "".join(_of_head(one, several=several))
    elif isinstance(one, TokenProfile):
        name, says, reading = f"“{one.piece}”", token_in_words(one), OF_A_TOKEN
        parts = "".join(_of_token(one, several=several))
    else:
        name, says, reading = neuron_name(one.layer, one.neuron), neuron_in_words(one), OF_A_NEURON
        parts = "".join(_of_neuron(one, several=several))
    bars = [f":root {{--bar: {colours[7]};}}" for colours in SEQUENTIAL]
    style = "\n".join([
        variables(None), bars[0], f"@media (prefers-color-scheme: dark) {{{bars[1]}}}",
        (_FOLDER / "profiles.css").read_text("utf-8"),
    ])  # fmt: skip
    filling = {
        "style-hash": hash_source(style),
        "style": style,
        "title": html.escape(f"{name} of {found.model}"),
        "corpus": html.escape(f"Corpus: {found.corpus_name}, {one.tokens:,} tokens."),
        "says": html.escape(says.strip()),
        "reading": html.escape(reading.replace("*", "")),
        "parts": parts,
    }
    # In one go, so that nothing that was filled in is read as a place to fill.
    template = (_FOLDER / "profiles.html").read_text("utf-8")
    return re.sub(r"\{\{([\w-]+)\}\}", lambda place: filling[place[1]], template)


def _of_head(one: HeadProfile, *, several: bool) -> Iterable[str]:
    for asked in ASKED:
        if asked in one.bars:
            yield _charts(asked, {"where it is most active": one.active[asked], "of all tokens": one.bars[asked]})
    yield f"<h2>Words it looks at</h2>{_joined_table(one.words)}<h2>Words it joins</h2>{_joined_table(one.pairs)}"
    alike = ", ".join(f"L{layer} H{head} ({share:.0%})" for layer, head, share in one.alike)
    yield f"<h2>Heads that look at the same where it is most active</h2><p>{html.escape(alike)}</p>"
    yield "<h2>In sentences, from every tenth of its activity</h2>"
    yield '<p class="faint">From ‹this› token it looks most at «that».</p>'
    for number in reversed(range(TENTHS)):
        low, high = one.deciles[number], one.deciles[number + 1]
        looks = [*one.strongest, *one.tenths[number]] if number == TENTHS - 1 else one.tenths[number]
        yield f"<h3>{tenth_names()[number]}: {low:.2f} to {high:.2f} times its mean</h3>"
        yield _table(["sentence", "looks at", "share", "line"], [
            [marked(look), "" if look.key is not None else look.piece, f"{look.share:.0%}", _where(look, several)]
            for look in looks
        ])  # fmt: skip


def _of_token(one: TokenProfile, *, several: bool) -> Iterable[str]:
    yield _charts("likeness", {"": likeness_bars(one)}, ".2f")
    for asked, bars in one.bars.items():
        yield _charts(asked, {"": bars})
    yield f"<h2>Words before it</h2>{_joined_table(one.before)}<h2>Words after it</h2>{_joined_table(one.after)}"
    rows = [[f"L{layer} H{head}", f"{times:,}", f"{by:.1f}"] for layer, head, times, by in one.watched]
    yield f"<h2>Heads that look at it more than at others</h2>{_table(['head', 'times', 'by chance'], rows)}"
    alike = ", ".join(f"{piece} ({cosine:.2f})" for piece, cosine in one.alike)
    yield f"<h2>Tokens with the likest mean state {depth_name(one.depth)}</h2><p>{html.escape(alike)}</p>"
    yield "<h2>In sentences, from its least usual tenth to its most usual</h2>"
    yield from _seen_tables(
        range(TENTHS), one.tenths, one.deciles, "cosine with the others", tenth_names(*USUAL), several=several
    )


def _of_neuron(one: NeuronProfile, *, several: bool) -> Iterable[str]:
    for asked, bars in one.bars.items():
        yield _charts(asked, {"": bars})
    yield f"<h2>Words it fires at</h2>{_joined_table(one.words)}<h2>Words before them</h2>{_joined_table(one.before)}"
    alike = ", ".join(f"{neuron_name(layer, neuron)} ({value:.2f})" for layer, neuron, value in one.alike)
    yield f"<h2>Neurons that fire likest, of those with a profile</h2><p>{html.escape(alike)}</p>"
    yield "<h2>In sentences, from every tenth of its activation</h2>"
    tenths = [*one.tenths[:-1], (*one.strongest, *one.tenths[-1])]
    order = reversed(range(TENTHS))
    yield from _seen_tables(order, tenths, one.deciles, "activation", tenth_names(), several=several)


def _seen_tables(
    order: Iterable[int], tenths: Sequence[Sequence[TokenExample]], deciles: Sequence[float], value: str,
    names: Sequence[str], *, several: bool,
) -> Iterable[str]:  # fmt: skip
    for number in order:
        yield f"<h3>{names[number]}: {value} {deciles[number]:z.2f} to {deciles[number + 1]:z.2f}</h3>"
        rows = [[marked(one), f"{one.value:z.2f}", _where(one, several)] for one in tenths[number]]
        yield _table(["sentence", value, "line"], rows)


def _where(one: HeadExample | TokenExample, several: bool) -> str:
    return f"{one.document}:{one.line}" if several else str(one.line)


def _charts(asked: str, sides: Mapping[str, Sequence[GroupShare]], form: str = ".1%") -> str:
    """The bars of one question, side by side where there is more than one kind of tokens."""
    charts = "".join(
        f"<div>{f'<h3>{side}</h3>' if side else ''}{_bars(bars, asked, form)}</div>" for side, bars in sides.items()
    )
    return f'<h2>{html.escape(ASKED[asked])}</h2><div class="sides">{charts}</div>'


def _bars(bars: Sequence[GroupShare], asked: str, form: str) -> str:
    """A row for each, with a bar of its share and a line where chance would end; the numbers stand beside it."""
    drawn = largest(bars, in_order=asked in IN_ORDER)
    scale = 100 / max([0.01, *(size for bar in drawn for size in (bar.share, bar.chance))])
    rows = "".join(
        f'<tr><th scope="row">{html.escape(NAMES.get(bar.name, bar.name))}</th><td class="bar">'
        f'<svg aria-hidden="true"><rect width="{max(bar.share, 0) * scale:.1f}%" height="100%"/>'
        f'<line x1="{bar.chance * scale:.1f}%" x2="{bar.chance * scale:.1f}%" y1="0" y2="100%"/></svg></td>'
        f"<td>{bar.share:{form}}</td><td>{bar.chance:{form}}</td></tr>"
        for bar in drawn
    )
    head = f"<tr><th></th><th></th><th>{'cosine' if asked == 'likeness' else 'share'}</th><th>by chance</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _joined_table(joined: Sequence[WordCount]) -> str:
    if not joined:
        return "<p>None is clearly above chance.</p>"
    names = (["from"] if joined[0].query is not None else []) + ["to", "times", "by chance"]
    rows = [
        [*([] if word.query is None else [word.query]), word.key, str(word.times), f"{word.expected:.1f}"]
        for word in joined
    ]
    return _table(names, rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
