"""Makes every figure of these documents anew from the bundled weights: `make model-docs TEXTS=folder`.

What takes long is kept under runs/model-docs/, by the weights that it is of, so a run that was stopped goes on. A
section stands between `<!-- figures: NAME of WEIGHTS -->` and `<!-- end of figures -->`; the sentences around it are
written by hand, and are to be read again when a table has changed.

    PYTHONPATH=. python docs/model_docs.py TEXTS                     everything
    PYTHONPATH=. python docs/model_docs.py TEXTS --only worth,lens   some sections

TEXTS holds valid.txt.xz and train.txt.xz (one paragraph a line, a blank line between documents), xquad-paragraphs.txt
and en_ewt-ud-dev.conllu.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agreement_figures import PARAGRAPHS, Study, head_table, place_table, removal_table

from bert_core import load
from bert_core.analysis.heads import leading_heads
from bert_core.analysis.probes import probe_depths
from bert_core.analysis.roles import NO_ROLE, THRESHOLDS, heads_by_role, roles_of_heads
from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS
from bert_core.records import HeadTable, ProbePoint
from bert_core.studies.documents import read_documents
from bert_core.studies.ground_truth import RANDOM
from bert_core.studies.head_tables import read_table
from bert_core.studies.probes import read_probes
from bert_core.studies.treebank import read_treebank
from bert_core.training.lens import CARD_FILE as LENS_CARD
from bert_core.translators import FILE as LENS_FILE
from tools.bundled_examples import write_examples

DOCS = Path(__file__).parent
MODEL = "headlight-mini"
NAMES = {
    "previous": "previous token", "next": "next token", "self": "itself", "cls": "[CLS]", "sep": "[SEP]",
    "punctuation": "punctuation", "broad": "all tokens",
}  # fmt: skip
_SECTION = r"<!-- figures: {name} of [^\n]* -->\n.*?<!-- end of figures -->"

Row = Mapping[str, str]


# ---------------------------------------------------------------------------- sections


def put(text: str, name: str, weights: str, figures: str) -> str:
    """A document with other figures in one of its sections. Raises ValueError if it has no such section."""
    section = f"<!-- figures: {name} of {weights} -->\n{figures.strip()}\n<!-- end of figures -->"
    found, count = re.subn(_SECTION.format(name=re.escape(name)), lambda _: section, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the document has {count} sections {name!r}: it needs one")
    return found


def sections(text: str) -> dict[str, str]:
    """The sections of a document: their names, and the weights that their figures are of."""
    return dict(re.findall(r"<!-- figures: ([^\n]*?) of ([^\n]*?) -->", text))


# ---------------------------------------------------------------------------- tables


def worth_table(table: HeadTable, shown: int = 12) -> str:
    """The heads that are missed most, and what they do."""
    figures = table.figures
    roles = roles_of_heads(figures)
    lines = [
        "| head | change of the loss | ± | importance | confidence | role (share of attention) |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for layer, head in leading_heads(figures["loss_change"], shown):
        change, error, importance, confidence = (
            figures[name][layer, head] for name in ("loss_change", "loss_change_error", "importance", "confidence")
        )
        role = roles[layer][head]
        assert role is not None  # a head that is missed is there
        lines.append(
            f"| L{layer} H{head} | {change:+.3f} | {error:.3f} | {importance:.3f} | {confidence:.2f} | "
            f"{_does(role.name, role.score, {n: float(figures[n][layer, head]) for n in NAMES})} |"
        )
    return "\n".join(lines)


def _does(role: str, score: float, scores: Mapping[str, float]) -> str:
    if role != NO_ROLE:
        return f"{NAMES[role]} ({score:.2f})"
    shares = sorted(((value, name) for name, value in scores.items() if name != "broad"), reverse=True)[:2]
    return "none: " + ", ".join(f"{NAMES[name]} {value:.2f}" for value, name in shares)


def role_table(table: HeadTable) -> str:
    """How many heads have each role, and which, the surest first."""
    roles = roles_of_heads(table.figures)
    by_role = heads_by_role(roles)
    lines = ["| role | heads | which, by share of attention |", "| --- | ---: | --- |"]
    for role in (*THRESHOLDS, NO_ROLE):
        heads = by_role.get(role, [])
        shares = {head: role_of.score for head in heads if (role_of := roles[head[0]][head[1]]) is not None}
        which = ", ".join(
            f"L{layer} H{head}" + (f" ({shares[layer, head]:.2f})" if len(heads) < 4 else "") for layer, head in heads
        )
        lines.append(f"| {NAMES.get(role, role)} | {len(heads)} | {'' if role == NO_ROLE else which} |")
    return "\n".join(lines)


def relation_table(rows: Sequence[Row], least: int = 150) -> str:
    """Which head finds a relation best, beside the best offset; relations asked at least so often, without `punct`."""
    lines = [
        "| relation | words | best head | found | direction | fixed offset | by fixed offset |",
        "| --- | ---: | --- | ---: | --- | ---: | ---: |",
    ]
    for row in sorted(rows, key=lambda row: -int(row["asked"])):
        if int(row["asked"]) < least or row["relation"] == "punct":
            continue
        one, other = float(row["accuracy"]), float(row["offset_accuracy"])
        shares = [f"**{v:.1%}**" if v > w else f"{v:.1%}" for v, w in ((one, other), (other, one))]
        lines.append(
            f"| {row['relation']} | {int(row['asked']):,} | L{row['layer']} H{row['head']} | {shares[0]} "
            f"| {row['direction']} | {int(row['offset']):+d} | {shares[1]} |"
        )
    return "\n".join(lines)


def together_table(points: Sequence[Row]) -> str:
    """What many heads cost together, by order, beside the band of the random ones."""
    orders: dict[str, dict[int, Row]] = {}
    for point in points:
        orders.setdefault(point["order"], {})[int(point["removed"])] = point
    main = orders["importance"]
    heads, first = max(main), float(main[0]["loss"])
    band = [order for name, order in orders.items() if name.startswith("random")]

    def change(order: str, gone: int) -> str:
        there = orders.get(order, {}).get(gone)
        return "" if there is None or not gone else _percent(float(there["loss"]) / first - 1)

    lines = [
        "| heads pruned | loss, by importance | change | in layer | iterative | ablation | by mean "
        "| masked-token accuracy | sentence-pair accuracy | parameters, M | change, random orders |",
        "| ---: |" + " ---: |" * 10,
    ]
    for gone in sorted(main):
        if gone % 4 and gone != heads // 4:
            continue
        at = main[gone]
        random = [float(order[gone]["loss"]) / first - 1 for order in band if gone in order]
        others = ("importance-in-layer", "iterative", "ablation", "ablation-mean")
        cells = [
            f"{gone} ({gone / heads:.0%})", f"{float(at['loss']):.3f}", change("importance", gone),
            *(change(order, gone) for order in others),
            f"{float(at['mlm']):.1%}", f"{float(at['nsp']):.1%}", f"{int(at['parameters']) / 1e6:.2f}",
            f"{_percent(min(random))} to {_percent(max(random))}" if random and gone else "",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parts_table(points: Sequence[Row]) -> str:
    """What is left of the model as neurons or layers go by their order, beside the random orders."""
    (what,) = {point["what"] for point in points}
    by_order: dict[str, dict[int, Row]] = {}
    for point in points:
        by_order.setdefault(point["order"], {})[int(point["removed"])] = point
    band = [order for name, order in by_order.items() if name.startswith("random")]
    (main,) = (order for name, order in by_order.items() if not name.startswith("random"))
    parts, first = max(main), float(main[0]["loss"])
    lines = [
        f"| {what} pruned | loss | change | masked-token accuracy | sentence-pair accuracy | parameters, M "
        "| change, random orders |",
        "| ---: |" + " ---: |" * 6,
    ]
    for gone, at in sorted(main.items()):
        random = [float(order[gone]["loss"]) / first - 1 for order in band if gone in order]
        cells = [
            f"{gone:,} ({gone / parts:.0%})", f"{float(at['loss']):.3f}",
            _percent(float(at["loss"]) / first - 1) if gone else "",
            f"{float(at['mlm']):.1%}", f"{float(at['nsp']):.1%}", f"{int(at['parameters']) / 1e6:.2f}",
            f"{_percent(min(random))} to {_percent(max(random))}" if random and gone else "",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def probe_table(points: Sequence[ProbePoint]) -> str:
    """What a probe finds at each depth, beside what misleads: means over the seeds, and the spread of the accuracy."""
    depths = probe_depths(points)
    erased = not math.isnan(points[0].erased)
    lines = [
        "| depth | accuracy | seeds | control task | selectivity | word type | majority class | compression "
        "| of control task |"
        + (" erased | masked-token loss | label erased | random directions erased |" if erased else ""),
        "| ---: | ---: | ---: |" + " ---: |" * (10 if erased else 6),
    ]
    for depth in depths:
        mean = {name: of_seeds[0] for name, of_seeds in depth.figures.items()}
        _, low, high = depth.figures["accuracy"]
        cells = [
            str(depth.depth), f"{mean['accuracy']:.1%}", f"{low:.1%} to {high:.1%}", f"{mean['control']:.1%}",
            f"{100 * mean['selectivity']:+.1f}", f"{mean['lookup']:.1%}", f"{mean['majority']:.1%}",
            f"{mean['compression']:.2f}", f"{mean['control_compression']:.2f}",
        ]  # fmt: skip
        if erased:
            cells += [
                f"{mean['erased']:.1%}",
                *(f"{mean[name]:.3f}" for name in ("loss", "loss_erased", "loss_random")),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return "0.0%" if abs(share) < 0.0005 else f"{share:+.1%}"


def recovery_table(runs: Mapping[str, Mapping[int, Mapping[str, float]]]) -> str:
    """Loss, pieces and next sentences while models of fewer heads are trained on: name -> step -> figures."""
    steps = sorted(set.intersection(*(set(found) for found in runs.values())))
    lines = [
        "| steps | " + " | ".join(f"{name}: loss | tokens | pairs" for name in runs) + " |",
        "| ---: |" + " ---: |" * (3 * len(runs)),
    ]
    for step in steps:
        cells = [
            f"{at['loss']:.3f} | {at['mlm']:.1%} | {at['nsp']:.1%}" for at in (found[step] for found in runs.values())
        ]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------------- what is measured


class Work:
    """A folder of what was measured for one set of weights."""

    def __init__(self, folder: Path, texts: Path) -> None:
        self.folder, self.texts = folder, texts
        folder.mkdir(parents=True, exist_ok=True)

    def once(self, name: str, *command: str | Path) -> str:
        """Run a command of headlight unless it has been run to its end; what it printed."""
        done = self.folder / f"{name}.txt"
        if not done.is_file():
            print("headlight", *command, flush=True)
            said = subprocess.run(
                [sys.executable, "-m", "viz_app.cli", *map(str, command)],
                cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=True,
            ).stdout  # fmt: skip
            done.write_text(said, encoding="utf-8")
        return done.read_text(encoding="utf-8")

    def rows(self, name: str) -> list[dict[str, str]]:
        with open(self.folder / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def heads_of(work: Work) -> HeadTable:
    out = work.folder / "heads.csv"
    work.once("heads", "heads", work.texts / "xquad-paragraphs.txt", "--importance", "--ablation", "--out", out)
    return read_table(out.read_bytes(), out.name)


def relations_of(work: Work) -> str:
    treebank = work.texts / "en_ewt-ud-dev.conllu"
    work.once("relations", "roles", treebank, "--out", work.folder / "relations.csv")
    return relation_table(work.rows("relations.csv"))


def together_of(work: Work) -> str:
    text, out = work.texts / "xquad-paragraphs.txt", work.folder / "curve.csv"
    others = work.folder / "others.txt"
    if not others.is_file():
        paragraphs = (p for document in read_documents(work.texts / "valid.txt.xz") for p in document)
        others.write_text("\n".join(next(paragraphs) for _ in range(64)) + "\n", encoding="utf-8")
    common = ("prune-curve", text, "--out", out)
    work.once("curve-1", *common, "--orders", "importance,iterative,ablation", "--points", "36")
    work.once("curve-2", *common, "--orders", "random,importance-in-layer", "--points", "18")
    work.once("curve-3", *common, "--orders", "ablation-mean", "--reference", others, "--points", "18")
    return together_table(work.rows("curve.csv"))


def parts_of(work: Work, what: str, order: str, points: int, random: int) -> str:
    name = f"curve-{what}"
    common = ("prune-curve", work.texts / "valid.txt.xz", "--what", what, "--out", work.folder / f"{name}.csv")
    for orders, steps in ((order, points), ("random", random)):
        work.once(f"{name}-{orders}", *common, "--orders", orders, "--points", str(steps), "--examples", "200")
    return parts_table(work.rows(f"{name}.csv"))


def recovery_of(work: Work) -> str:
    together_of(work)  # the plan is one of its files
    valid, train = work.texts / "valid.txt.xz", work.texts / "train.txt.xz"
    heads = len(json.loads((work.folder / "curve.importance.json").read_text(encoding="utf-8"))["order"])
    runs = {}
    for name, share in ((f"all {heads} heads", 0.0), (f"{heads // 3} pruned", 0.3333), (f"{heads // 2} pruned", 0.5)):
        start: str | Path = MODEL
        label = f"recovery-{share:g}"
        if share:
            start = work.folder / f"pruned-{share:g}"
            plan = ("--plan", work.folder / "curve.importance.json", "--share", str(share))
            work.once(f"pruned-{share:g}", "prune", *plan, "--out", start)
        first = work.folder / f"{label}.json"
        work.once(f"{label}-before", "evaluate", start, valid, "--batches", "16", "--out", first)
        work.once(
            label, "pretrain", train, "--init", start, "--folder", work.folder / label, "--held-out", valid,
            "--cache", work.folder / "corpus", "--steps", "200", "--warmup", "20", "--decay", "150",
            "--learning-rate", "2e-4", "--evaluate-every", "50",
        )  # fmt: skip
        before = json.loads(first.read_text(encoding="utf-8"))["held_out"][valid.name]["128"]
        lines = (work.folder / label / "log.jsonl").read_text(encoding="utf-8").splitlines()
        looks = {entry["step"]: entry["held_out"]["128"] for entry in map(json.loads, lines) if "held_out" in entry}
        runs[name] = {0: before, **looks}
    return recovery_table(runs)


def probes_of(work: Work, label: str, *options: str) -> str:
    out = work.folder / f"probes-{label}.csv"
    treebank = work.texts / "en_ewt-ud-dev.conllu"
    work.once(f"probes-{label}", "probe", treebank, "--label", label, "--words", "6000", *options, "--out", out)
    return probe_table(read_probes(out))


def agreement_of(work: Work) -> Study:
    with open(work.texts / "xquad-paragraphs.txt", encoding="utf-8") as file:
        paragraphs = [line for line in file if line.strip()][:PARAGRAPHS]
    return Study(load(MODEL, device="cpu"), work.folder / "agreement", paragraphs)


def faithfulness_of(work: Work) -> str:
    return work.once(
        "faithfulness", "faithfulness", work.texts / "valid.txt.xz", "--out", work.folder / "faithfulness.csv",
        "--questions", "150", "--lengths", "10:13", "--pair-lengths", "14:20",
    )  # fmt: skip


def truth_of(work: Work, name: str, source: str | Path) -> str:
    table = work.once(f"truth-{name}", "ground-truth", "--set", source, "--out", work.folder / f"truth-{name}.csv")
    if name == "agreement":
        methods = re.findall(r"^\| ([^|]+?) \| [\d.]+ \(", table, re.MULTILINE)
        content = json.dumps([method for method in methods if method != RANDOM], indent=1)
        (ASSETS / MODEL / "method_ranks.json").write_text(content + "\n", encoding="utf-8")
    return table


def lens_of(work: Work) -> None:
    """The translators and their card, into the model's folder."""
    folder = work.folder / "lens"
    work.once(
        "lens", "tune-lens", work.texts / "train.txt.xz", "--held-out", work.texts / "xquad-paragraphs.txt",
        "--folder", folder, "--cache", work.folder / "corpus", "--steps", "300", "--decay", "200",
    )  # fmt: skip
    for name in (LENS_FILE, LENS_CARD):
        shutil.copyfile(folder / "lens" / name, ASSETS / MODEL / name)


def examples_of(work: Work) -> None:
    """The lessons' examples that the model gets right, into its folder."""
    print(f"{write_examples(load(MODEL, device='cpu'), ASSETS / MODEL)} examples are right")


def profiles_of(work: Work) -> None:
    """The profiles over a treebank, with what the removal of each head costs over the same text, into its folder."""
    treebank, text, table = work.texts / "en_ewt-ud-dev.conllu", work.folder / "ewt.txt", work.folder / "heads-ewt.csv"
    trees = read_treebank(treebank.read_text(encoding="utf-8").splitlines(), treebank.name)
    text.write_text("".join(f"{tree.text}\n" for tree in trees), encoding="utf-8")
    work.once("heads-ewt", "heads", text, "--importance", "--ablation", "--out", table)
    work.once("index", "index", treebank, "--out", work.folder / "index")
    out, whose = work.folder / "profiles.json.gz", "Universal Dependencies English EWT (dev)"
    work.once(
        "profile", "profile", work.folder / "index", "--frequent", "500", "--drawn", "32", "--table", table,
        "--table-source", whose, "--source", f"{whose}, CC BY-SA 4.0", "--out", out,
    )  # fmt: skip
    shutil.copyfile(out, ASSETS / MODEL / out.name)


SECTIONS: dict[str, tuple[str, Callable[[Work], Any]]] = {
    "examples": ("", examples_of),
    "worth": ("results/heads.md", lambda work: worth_table(heads_of(work))),
    "roles": ("results/heads.md", lambda work: role_table(heads_of(work))),
    "relations": ("results/heads.md", relations_of),
    "together": ("results/heads.md", together_of),
    "neurons": ("results/pruning.md", lambda work: parts_of(work, "neurons", "importance", 20, 5)),
    "layers": ("results/pruning.md", lambda work: parts_of(work, "layers", "ablation", 6, 6)),
    "recovery": ("results/pruning.md", recovery_of),
    "faithfulness": ("results/faithfulness.md", faithfulness_of),
    "truth-agreement": ("results/ground-truth.md", lambda work: truth_of(work, "agreement", "agreement")),
    "truth-treebank": (
        "results/ground-truth.md",
        lambda work: truth_of(work, "treebank", work.texts / "en_ewt-ud-dev.conllu"),
    ),
    "truth-circuits": ("results/ground-truth.md", lambda work: truth_of(work, "circuits", "circuits")),
    "number": ("results/probes.md", lambda work: probes_of(work, "number", "--erase")),
    "upos": ("results/probes.md", lambda work: probes_of(work, "upos", "--erase")),
    "relation": ("results/probes.md", lambda work: probes_of(work, "relation", "--layers", "0,2,4,6")),
    "attractor-state": ("results/agreement.md", lambda work: place_table(agreement_of(work), "attractor", "state")),
    "attractor-attention": (
        "results/agreement.md",
        lambda work: place_table(agreement_of(work), "attractor", "attention"),
    ),
    "attractor-head": ("results/agreement.md", lambda work: head_table(agreement_of(work), "attractor")),
    "subject-state": ("results/agreement.md", lambda work: place_table(agreement_of(work), "subject", "state")),
    "subject-attention": ("results/agreement.md", lambda work: place_table(agreement_of(work), "subject", "attention")),
    "subject-head": ("results/agreement.md", lambda work: head_table(agreement_of(work), "subject")),
    "removal": ("results/agreement.md", lambda work: removal_table(agreement_of(work))),
    "lens": ("", lens_of),
    "profiles": ("", profiles_of),
}
"""Name -> its document ("" for files in the model's folder) and what makes its figures."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Every figure of the documents, from the bundled weights.")
    parser.add_argument("texts", type=Path, help="the folder with the texts")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas: " + ", ".join(SECTIONS))
    parser.add_argument("--work", type=Path, default=DOCS.parent / "runs" / "model-docs", help="what is kept")
    given = parser.parse_args()
    chosen = [name.strip() for name in given.only.split(",")]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"section {unknown[0]!r} is unknown: one of {', '.join(SECTIONS)}")
    weights = fingerprint(load(MODEL, device="cpu"))
    work = Work((given.work / weights).resolve(), given.texts.resolve())
    for name in chosen:
        document, make = SECTIONS[name]
        print(f"{name}, of weights {weights}", flush=True)
        figures = make(work)
        if document:
            path = DOCS / document
            path.write_text(put(path.read_text(encoding="utf-8"), name, weights, figures), encoding="utf-8")
    print("read the sentences around each table again: they are written by hand")


if __name__ == "__main__":
    main()
