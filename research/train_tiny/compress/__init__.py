"""Trajectory compression (dInfer, arXiv 2510.08666): a trained model learns to decode in fewer passes."""
