"""Meshes, runs of several processes, and folders of divided arrays. Nothing here knows what is computed."""
