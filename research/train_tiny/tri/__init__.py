"""The third recipe: one set of weights that decodes autoregressively, by blocks of masks, and by verified drafts."""
