"""The metadata log and the image folded from it."""
