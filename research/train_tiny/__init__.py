"""Makes a tiny masked-diffusion language model from scratch; see README.md."""
