"""The scripts in two folders here are run by tests, and hold none."""

collect_ignore_glob = ["scripts/*", "scripts_tensorflow/*"]
