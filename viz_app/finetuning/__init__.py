"""Fine-tuning runs of a local server: the kinds of training files, and each run as a process with a folder."""
