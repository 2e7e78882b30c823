"""Handlers of the control plane: one API key a file, (request, context) -> response."""
