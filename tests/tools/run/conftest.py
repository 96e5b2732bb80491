"""The scripts in a folder here are run by tests, and hold none."""

collect_ignore_glob = ["scripts/*"]
