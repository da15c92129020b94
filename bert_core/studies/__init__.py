"""Studies of files, texts and treebanks: resumable computations over many texts, and the tables of their results."""
