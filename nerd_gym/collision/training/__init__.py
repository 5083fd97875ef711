"""Collisions on disk, training of networks on them, and evaluation."""
