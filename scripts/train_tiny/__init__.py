"""Makes a tiny masked-diffusion language model from nothing; see README.md."""
