"""Models of a collision's outcome: networks, rigid impact laws, and what adapts them to measured samples."""
