"""Questions asked of a file, a text or a treebank; the tables that come of them; and what goes on where it stopped."""
