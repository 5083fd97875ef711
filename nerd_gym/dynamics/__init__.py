"""Learning a robot's dynamics from an analytical backend."""
