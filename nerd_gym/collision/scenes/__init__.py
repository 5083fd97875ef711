"""The scene of a strike in MuJoCo: shapes, the MJCF, and collisions simulated in batches."""
