"""Measurements, each as a ratio against a floor or a peer: `python -m bench [NAME...]`. Never part of a test."""
