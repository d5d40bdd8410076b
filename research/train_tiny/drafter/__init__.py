"""The fourth recipe: a small diffusion model that drafts for a trained one (DFlash, docs/guide/decoding.md)."""
