"""Fine-tuning runs of a server of one's own: what a file teaches, and each run as a process in a folder."""
