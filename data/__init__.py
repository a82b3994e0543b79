"""Rollouts in, labelled snapshots and training rows out."""
