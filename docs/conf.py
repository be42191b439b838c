"""Settings of the site; `python -m docs.make_site` gathers its pages."""

from rmqctl import __version__

project = "rmqctl"
author = "The rmqctl contributors"
copyright = author  # noqa: A001 - the name that Sphinx asks for
version = release = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"rmqctl {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
