"""For pytest: ``pytest_plugins = ["stopgrad.pytest_plugin"]``. See :mod:`stopgrad.tools.pytest_plugin`."""

from stopgrad.tools.pytest_plugin import *
