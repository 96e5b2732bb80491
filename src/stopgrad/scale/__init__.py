"""Meshes, processes that compute together, folders of divided arrays; nothing of what is computed."""
