"""A head's dossier in words, and as one HTML file that opens from disk."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bert_core.studies.dossier import TENTHS, Bar, Dossier, Dossiers, Joined, Look
from viz_app.export.page import variables
from viz_app.export.policy import hash_source
from viz_app.figures.style import SEQUENTIAL

_FOLDER = Path(__file__).parent
MOST_BARS = 12
AROUND = 60  # characters of a sentence, to either side of what is marked in it
MOST_SAID = 3
ASKED = {"offset": "How far on", "kind": "What kind of token", "relation": "Relation", "upos": "Part of speech"}
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
    "is for, which only its removal says; and another corpus gives another dossier."
)


def in_words(one: Dossier) -> str:
    """What stands out most where the head is active, and how often it rests."""
    clear = [(name, bar) for name, bar in one.standing_out if name != "upos"]
    says = f"From {one.sinks:.0%} of {one.tokens:,} tokens it looks most at [CLS] or [SEP]."
    if not clear:
        return f"{says} Where it is most active, nothing it looks at is far above chance."
    said: dict[str, str] = {}  # two questions may have one answer, as that it looks at [CLS]
    for name, bar in clear:
        said.setdefault(_said(name, bar.name), f"({bar.share:.0%}; by chance {bar.chance:.0%})")
    parts = [f"{name} {shares}" for name, shares in list(said.items())[:MOST_SAID]]
    return f"{says} Where it is most active it looks at {', and at '.join(parts)}."


def figures_in_words(found: Dossiers, one: Dossier) -> str:
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


def largest(bars: Sequence[Bar], *, in_order: bool) -> list[Bar]:
    """The largest of some bars, the largest first; or those that stand in an order, all of them."""
    return list(bars) if in_order else sorted(bars, key=lambda bar: -bar.share)[:MOST_BARS]


def marked(look: Look) -> str:
    """The sentence around ‹the token› that looks and «the one» that is looked at; ‹«both»› where they are the same."""
    spans = [look.query] if look.key in (None, look.query) else sorted([look.query, look.key])
    start, end = max(spans[0][0] - AROUND, 0), min(spans[-1][1] + AROUND, len(look.text))
    parts, last = ["" if not start else "…"], start
    for span in spans:
        word = look.text[slice(*span)]
        word = f"«{word}»" if span == look.key else word
        parts += [look.text[last : span[0]], f"‹{word}›" if span == look.query else word]
        last = span[1]
    return "".join([*parts, look.text[last:end], "" if end == len(look.text) else "…"])


def tenth_names() -> list[str]:
    """How the tenths of a head's activity are called, the weakest first."""
    return ["weakest", *map(str, range(2, TENTHS)), "strongest"]


def dossier_page(found: Dossiers, one: Dossier) -> str:
    """The file: what the page Dossier shows of one head, all of it at once, without a script.

    Every word of the corpus is written as it is.
    """
    bars = {dark: f":root {{--bar: {SEQUENTIAL.on(dark)[7]};}}" for dark in (False, True)}
    style = "\n".join([
        variables(None), bars[False], f"@media (prefers-color-scheme: dark) {{{bars[True]}}}",
        (_FOLDER / "dossier.css").read_text("utf-8"),
    ])  # fmt: skip
    corpus = found.source or ", ".join(found.documents)
    filling = {
        "style-hash": hash_source(style),
        "style": style,
        "title": html.escape(f"L{one.layer} H{one.head} of {found.model}"),
        "corpus": html.escape(f"Corpus: {corpus}, {one.tokens:,} tokens."),
        "says": html.escape(" ".join(filter(None, (in_words(one), figures_in_words(found, one))))),
        "bars": "".join(_charts(one)),
        "words": _joined_table(one.words),
        "pairs": _joined_table(one.pairs),
        "alike": html.escape(", ".join(f"L{layer} H{head} ({share:.0%})" for layer, head, share in one.alike)),
        "tenths": "".join(_tenths(one, several=len(found.documents) > 1)),
        "reading": html.escape(READING.replace("*", "")),
    }
    # In one go, so that nothing that was filled in is read as a place to fill.
    template = (_FOLDER / "dossier.html").read_text("utf-8")
    return re.sub(r"\{\{([\w-]+)\}\}", lambda place: filling[place[1]], template)


def _charts(one: Dossier) -> Iterable[str]:
    """Of every question its bars where the head is most active, and over all tokens."""
    for asked, title in ASKED.items():
        if asked in one.bars:
            sides = (("where it is most active", one.active), ("of all tokens", one.bars))
            charts = "".join(f"<div><h3>{side}</h3>{_bars(of[asked], asked)}</div>" for side, of in sides)
            yield f'<h2>{html.escape(title)}</h2><div class="sides">{charts}</div>'


def _bars(bars: Sequence[Bar], asked: str) -> str:
    """A row for each, with a bar of its share and a line where chance would end; the numbers stand beside it."""
    drawn = largest(bars, in_order=asked == "offset")
    scale = 100 / max([0.01, *(size for bar in drawn for size in (bar.share, bar.chance))])
    rows = "".join(
        f'<tr><th scope="row">{html.escape(NAMES.get(bar.name, bar.name))}</th><td class="bar">'
        f'<svg aria-hidden="true"><rect width="{bar.share * scale:.1f}%" height="100%"/>'
        f'<line x1="{bar.chance * scale:.1f}%" x2="{bar.chance * scale:.1f}%" y1="0" y2="100%"/></svg></td>'
        f"<td>{bar.share:.1%}</td><td>{bar.chance:.1%}</td></tr>"
        for bar in drawn
    )
    head = "<tr><th></th><th></th><th>share</th><th>by chance</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _joined_table(joined: Sequence[Joined]) -> str:
    if not joined:
        return "<p>None is clearly above chance.</p>"
    names = (["from"] if joined[0].query is not None else []) + ["to", "times", "by chance"]
    rows = [
        [*([] if word.query is None else [word.query]), word.key, str(word.times), f"{word.expected:.1f}"]
        for word in joined
    ]
    return _table(names, rows)


def _tenths(one: Dossier, *, several: bool) -> Iterable[str]:
    """Sentences of each tenth, the strongest first; several: whether the line alone does not say where they stand."""
    for number in reversed(range(TENTHS)):
        looks = [*one.strongest, *one.tenths[number]] if number == TENTHS - 1 else one.tenths[number]
        low, high = one.deciles[number], one.deciles[number + 1]
        yield f"<h3>{tenth_names()[number]}: {low:.2f} to {high:.2f} times its mean</h3>"
        rows = [
            [marked(look), "" if look.key is not None else look.piece, f"{look.share:.0%}",
             f"{look.document}:{look.line}" if several else str(look.line)] for look in looks
        ]  # fmt: skip
        yield _table(["sentence", "looks at", "share", "line"], rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
