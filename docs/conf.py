"""How Sphinx makes the site: ``make -C docs html``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import stopgrad as sg

project = "stopgrad"
author = "The authors of stopgrad"
version = release = sg.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.intersphinx",
    # Our own, in docs/extensions:
    "outside_links",
    "layers_drawing",
    "docstring_sections",
    "reference_pages",
    "command_pages",
    "languages",
]
exclude_patterns = ["_build", "extensions", "templates"]
suppress_warnings = ["mystnb.unknown_mime_type", "myst-nb.lexer", "config.cache"]

# Pages
smartquotes_action = "D"  # Dashes alone: quotes stay as they are typed.
myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nb_execution_mode = "cache"  # A tutorial runs when it is new or was changed, and always in a fresh build.
nb_execution_cache_path = str(Path(__file__).parent / "_build" / ".jupyter_cache")
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True

# Reference
autosummary_generate = False  # The extension reference_pages writes the pages.
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False
viewcode_line_numbers = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Constraints"]
intersphinx_mapping: dict[str, tuple[str, None]] = {}  # Others link to us; a build loads nothing.

# Translations
language = "en"
locale_dirs = ["locales"]
gettext_compact = False
gettext_location = False

# Appearance
html_theme = "pydata_sphinx_theme"
html_title = "stopgrad"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "navigation_depth": 2,
    "collapse_navigation": True,
    "header_links_before_dropdown": 6,
    "navbar_end": ["language-switch", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "api/*/*": []}  # Of 800 pages: drawing it for each took a fifth of the time.
