"""The faithfulness of attribution methods over a whole file, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from bert_core.analysis.faithfulness import MEASURES
from bert_core.refused import Refused
from bert_core.studies.faithfulness import MethodSummary
from bert_core.target_kinds import faithfulness_kinds
from viz_app.figures.style import HEAD_COLOURS, page

VERDICTS = ("better than chance", "no better", "worse")


def standings_picture(summaries: Sequence[MethodSummary]) -> Figure:
    """Draw the share of questions at which each method beats random rankings by AOPC, a panel for each kind.

    All panels have the order of methods of the first. Raises Refused if there are no summaries.
    """
    kinds = [kind for kind in faithfulness_kinds() if any(summary.kind == kind for summary in summaries)]
    if not kinds:
        raise Refused("there is nothing to draw: no question was asked")
    names = [summary.method for summary in summaries if summary.kind == kinds[0]]
    colours, measure = page(), MEASURES.index("aopc")
    figure = Figure(figsize=(3.1 * len(kinds) + 1.4, 0.27 * len(names) + 1), facecolor=colours.background)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    fills = ((HEAD_COLOURS[0], None), (colours.line, None), (colours.background, "////"))
    style: dict[str, Any] = {"edgecolor": colours.faint, "linewidth": 0.4, "height": 0.72}
    for panel, kind in zip(panels, kinds, strict=True):
        rows = {summary.method: summary for summary in summaries if summary.kind == kind}
        left = [0.0] * len(names)
        for place, (verdict, (fill, hatch)) in enumerate(zip(VERDICTS, fills, strict=True)):
            shares = [rows[name].verdicts[measure][place] if name in rows else 0.0 for name in names]
            panel.barh(range(len(names)), shares, left=left, color=fill, hatch=hatch, label=verdict, **style)
            left = [before + share for before, share in zip(left, shares, strict=True)]
        questions = next(iter(rows.values())).questions
        title = faithfulness_kinds()[kind].removeprefix("A ").removeprefix("The ")
        panel.set_title(f"{title[:1].upper()}{title[1:]} ({questions})", fontsize=10, color=colours.text)
        panel.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), facecolor=colours.background)
        panel.set_yticks(range(len(names)), labels=names)
        panel.set_xticks([0, 0.5, 1], labels=["0", "half", "all"])
        panel.tick_params(colors=colours.text, labelsize=9, length=0)
        for side in panel.spines.values():
            side.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=9, bbox_to_anchor=(0.5, -0.02)
    )
    for text in legend.get_texts():
        text.set_color(colours.text)
    return figure
