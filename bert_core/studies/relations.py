"""How well each attention head finds the dependency relations of a treebank."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence, Sized

from bert_core.analysis.relations import RelationRow, RelationTally
from bert_core.csv_cells import as_csv
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import iterate_items, require_instances, validate_arguments
from bert_core.run.losses import attention_maps
from bert_core.studies.treebank import TreeSentence

SENTENCES_AT_ONCE = 64


@validate_arguments
def track_relations(
    loaded: LoadedModel, sentences: Iterable[TreeSentence], *, report: Progress = ignore_progress
) -> RelationTally:
    """Count for every attention head how often it finds the dependency head of each word.

    At most 64 sentences are held in memory. Sentences longer than the model reads are truncated.
    loaded: the model.
    sentences: sentences of a treebank.
    report: called with the share of sentences done, see `Progress`.

    Returns the counts of all heads and relations.
    Raises Refused if an item is no TreeSentence.
    """
    config = loaded.config
    tally = RelationTally(config.num_hidden_layers, config.num_attention_heads, config.windows)
    remaining = iterate_items("sentences", sentences, "TreeSentence")
    total = len(sentences) if isinstance(sentences, Sized) else None
    while batch := list(itertools.islice(remaining, SENTENCES_AT_ONCE)):
        encoded = [
            (sentence, loaded.tokenizer.encode(sentence.text))
            for sentence in require_instances("sentences", batch, TreeSentence)
        ]
        for number, attention in attention_maps(loaded, [encoding for _, encoding in encoded]):
            sentence, encoding = encoded[number]
            tally.add(attention, encoding, sentence.spans, sentence.heads, sentence.relations)
        report(tally.sentences / total if total else None, f"{tally.sentences:,} sentences")
    return tally


def relations_csv(rows: Sequence[RelationRow]) -> str:
    """Return a CSV table with one row per relation. Shares are written in full precision."""
    return as_csv([RelationRow._fields, *require_instances("rows", rows, RelationRow)])
