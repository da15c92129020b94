"""Every head on a treebank: which relation it finds."""

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
    """Ask every head for the head of every word of a treebank; the memory is that of a few sentences.

    report: told how many sentences are done, as for `Progress`. Raises Refused for what is no TreeSentence.
    """
    config = loaded.config
    tally = RelationTally(config.num_hidden_layers, config.num_attention_heads)
    waiting = iterate_items("sentences", sentences, "TreeSentence")
    of = len(sentences) if isinstance(sentences, Sized) else None
    while some := list(itertools.islice(waiting, SENTENCES_AT_ONCE)):
        readable = [
            (sentence, loaded.tokenizer.encode(sentence.text, max_length=config.max_position_embeddings))
            for sentence in require_instances("sentences", some, TreeSentence)
        ]
        for number, attention in attention_maps(loaded, [encoding for _, encoding in readable]):
            sentence, encoding = readable[number]
            tally.add(attention, encoding, sentence.spans, sentence.heads, sentence.relations)
        report(tally.sentences / of if of else None, f"{tally.sentences:,} sentences")
    return tally


def relations_csv(rows: Sequence[RelationRow]) -> str:
    """One line a relation; shares in full precision."""
    return as_csv([RelationRow._fields, *require_instances("rows", rows, RelationRow)])
