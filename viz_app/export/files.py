"""Each view of the app as a file of every kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, Unpack

from bert_core.progress import Progress, ignore_progress
from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from viz_app.comparison import Comparison
from viz_app.export import FILE_KINDS, PICTURES, tables
from viz_app.export.captions import caption_maps
from viz_app.export.markup import Theme
from viz_app.export.page import PageOptions, attention_page, caption_page, change_page, neuron_page
from viz_app.export.snippet import caption_snippet, change_snippet, neuron_snippet, snippet, terms_snippet
from viz_app.figures.style import current_look
from viz_app.maps import MapView, ShownMaps, check_heads

if TYPE_CHECKING:  # matplotlib takes half a second to import, which no page should wait for
    from matplotlib.figure import Figure


class Files(Protocol):
    """The files of a view: figures, an HTML page, numbers, and the Python code that reproduces the figure."""

    def name(self, kind: str) -> str:
        """Return the name of the file of a kind."""

    def picture(self) -> Figure:
        """Return the view as a figure."""

    def page(self, **options: Unpack[PageOptions]) -> str:
        """Return the view as an HTML page that needs no network."""

    def csv(self) -> bytes:
        """Return the drawn values as a table."""

    def npz(self) -> bytes:
        """Return all values of the view."""

    def python(self) -> str:
        """Return a script that draws the figure."""


def file_of(view: Files, kind: str, report: Progress = ignore_progress) -> bytes:
    """Return a view as a file of one of `FILE_KINDS`.

    report: called with the number of heads of a page that are finished.
    Raises Refused for another kind, and as the view does.
    """
    if kind in PICTURES:
        from viz_app.export.drawing import picture_bytes

        return picture_bytes(view.picture(), kind)
    theme: Theme | None = "dark" if current_look().dark else None
    make_page = partial(view.page, theme=theme, report=report)
    contents: dict[str, Callable[[], bytes | str]]
    contents = {"html": make_page, "npz": view.npz, "csv": view.csv, "py": view.python}
    if kind not in contents:
        raise Refused(f"a file of kind {kind!r} is unknown: one of {', '.join(FILE_KINDS)}")
    content = contents[kind]()
    return content if isinstance(content, bytes) else content.encode()


class _MapFiles(ABC):
    """Files of the maps of all heads. view: which heads are drawn, and how; all of them if it selects none."""

    view: MapView

    @property
    @abstractmethod
    def maps(self) -> ShownMaps:
        """The maps of all heads."""

    def picture(self) -> Figure:
        from viz_app.export.pictures import maps_picture

        return maps_picture(self.maps, self.view)

    def csv(self) -> bytes:
        layer, heads = self.view.value_indices
        return tables.maps_csv(self.maps, [(layer, head) for head in heads] or None)

    def npz(self) -> bytes:
        return tables.maps_npz(self.maps)


@dataclass(frozen=True)
class AttentionFiles(_MapFiles):
    """Files of the maps of a run. model: the argument of `bert_core.load`."""

    run: ModelRun
    view: MapView
    model: str

    def name(self, kind: str) -> str:
        if kind in ("npz", "html"):  # hold every head, whichever are drawn
            return f"attention.{kind}"
        if self.view.combination is not None:
            return f"attention-{self.view.combination.method}.{kind}"
        return f"attention-{self.view.named_heads or 'all'}.{kind}"

    @property
    def maps(self) -> ShownMaps:
        return self.view.maps(self.run)

    def page(self, **options: Unpack[PageOptions]) -> str:
        return attention_page(self.run, self.view, **options)

    def python(self) -> str:
        return snippet(self.run, self.view, self.model)


@dataclass(frozen=True)
class NeuronFiles:
    """Files of the neuron view of one query. run: a run of the same text. model: the argument of `bert_core.load`."""

    run: ModelRun
    vectors: HeadVectors
    query: int
    model: str

    def __post_init__(self) -> None:
        self.vectors.products(self.query)  # raises Refused for a query that does not exist

    def name(self, kind: str) -> str:
        stem = f"neuron-L{self.vectors.layer}-H{self.vectors.head}"
        return f"{stem}.npz" if kind == "npz" else f"{stem}-{self.query}.{kind}"

    def picture(self) -> Figure:
        from viz_app.export.pictures import neuron_picture

        return neuron_picture(self.vectors, self.query)

    def page(self, **options: Unpack[PageOptions]) -> str:
        return neuron_page(self.run, self.vectors, self.query, **options)

    def csv(self) -> bytes:
        return tables.neuron_csv(self.vectors, self.query)

    def npz(self) -> bytes:
        return tables.neuron_npz(self.vectors)

    def python(self) -> str:
        return neuron_snippet(self.run, self.vectors, self.query, self.model)


@dataclass(frozen=True)
class TermFiles:
    """Files of the terms of the scores of a head: of one query, or of all if it is None.

    run: a run of the same text. model: the argument of `bert_core.load`.
    Raises Refused for a model without terms for distances.
    """

    run: ModelRun
    vectors: HeadVectors
    query: int | None
    model: str

    def __post_init__(self) -> None:
        if self.vectors.distances is None:
            raise Refused(
                "this model adds no position terms to its scores, which are products of queries and keys: choose the "
                "query-key view"
            )
        if self.query is not None:
            self.vectors.products(self.query)  # raises Refused for a query that does not exist

    def name(self, kind: str) -> str:
        stem = f"terms-L{self.vectors.layer}-H{self.vectors.head}"
        return f"{stem}.{kind}" if kind == "npz" or self.query is None else f"{stem}-{self.query}.{kind}"

    def picture(self) -> Figure:
        from viz_app.export.score_terms import terms_picture

        return terms_picture(self.vectors, self.query)

    def page(self, **options: Unpack[PageOptions]) -> str:
        return neuron_page(self.run, self.vectors, self.query or 0, **options)

    def csv(self) -> bytes:
        return tables.terms_csv(self.vectors, self.query)

    def npz(self) -> bytes:
        return tables.terms_npz(self.vectors)

    def python(self) -> str:
        return terms_snippet(self.run, self.vectors, self.query, self.model)


@dataclass(frozen=True)
class ChangeFiles(_MapFiles):
    """Files of the difference of two runs. view: which heads are drawn, and how."""

    comparison: Comparison
    view: MapView

    def __post_init__(self) -> None:
        self.view.check_whole("a comparison", self.comparison.quantity)
        check_heads(self.comparison.existing_heads, self.view.layer, self.view.heads)

    def name(self, kind: str) -> str:
        has_all_heads = kind in ("npz", "html") or not self.view.heads
        return f"change.{kind}" if has_all_heads else f"change-{self.view.named_heads}.{kind}"

    @property
    def maps(self) -> ShownMaps:
        return self.comparison.difference_maps()

    def page(self, **options: Unpack[PageOptions]) -> str:
        return change_page(self.comparison, self.view, **options)

    def python(self) -> str:
        return change_snippet(self.comparison, self.view)


@dataclass(frozen=True)
class CaptionFiles:
    """Files of the cross-attention of a captioner: of one head of its decoder, or of the average of all.

    quantity: "attention", "gradient", "product" or "brought". word: the index of the word whose heat a page shows
    first. model: the argument of `bert_core.load_captioner`.
    """

    run: DecoderRun
    quantity: str
    head: tuple[int, int] | None
    word: int
    model: str

    def name(self, kind: str) -> str:
        if self.head is None or kind in ("npz", "html"):
            return f"caption.{kind}"
        layer, head = self.head
        return f"caption-L{layer}-H{head}.{kind}"

    def picture(self) -> Figure:
        from viz_app.export.pictures import caption_picture

        return caption_picture(self.run, self.quantity, self.head)

    def page(self, **options: Unpack[PageOptions]) -> str:
        return caption_page(self.run, self.quantity, self.head, self.word, **options)

    def csv(self) -> bytes:
        if self.head is None:
            return tables.maps_csv(caption_maps(self.run, self.quantity, as_one=True))
        return tables.maps_csv(caption_maps(self.run, self.quantity), [self.head])

    def npz(self) -> bytes:
        return tables.maps_npz(caption_maps(self.run, self.quantity))

    def python(self) -> str:
        return caption_snippet(self.run, self.quantity, self.head, self.model)
