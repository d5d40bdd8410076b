"""A drafter for a published text model: its own answers as texts, whole batches on a GPU (train_tiny/README.md)."""
