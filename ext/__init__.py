"""The data plane: compiled, without the GIL; see ARCHITECTURE.md."""
