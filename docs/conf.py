"""Build the site of README, docs and the API reference: ``make docs``.

Sphinx with MyST, because it checks every link and reference: Zensical, which succeeds Material for MkDocs, is
not stable yet and does not check references to the API; MkDocs itself is no longer maintained.

The source folder is the repository, so that links between pages are the same here and on a repository host.
Nothing is fetched while it builds.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import NumpyDocstring
from sphinx.util.nodes import make_refnode

project = "streamcal"
version = release = version_of("streamcal-engine")
copyright = "the streamcal authors"  # noqa: A001  Sphinx's name for it

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "examples/*/README.md",
    "examples/notebooks/*.ipynb",
]
exclude_patterns = [".*", "build", "dist", "streamcal", "connectors", "tests"]
html_theme = "furo"
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_title = "streamcal"
html_show_sphinx = False
html_copy_source = False
html_extra_path = ["site"]  # index.html, which leads to README.html

nb_execution_mode = "auto"  # notebooks are kept without outputs, and run here
nb_execution_timeout = 600  # seconds a cell, on a machine that does much else
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "error"  # a warning is none of what a notebook shows

myst_heading_anchors = 4  # as a repository host names them

autodoc_member_order = "bysource"
napoleon_google_docstring = napoleon_numpy_docstring = False  # `read_docstring` does it
napoleon_use_rtype = False
python_use_unqualified_type_names = True

nitpicky = True  # a name in single backticks is a reference, and must exist: see `find_reference`
default_role = "py:obj"

NAVIGATION = {
    "Tutorial": ["README", "tutorial", "figures/README"],
    "How-to": ["late-labels", "decisions", "operations", "page", "serve", "kafka", "spark", "river", "scale"],
    "Concepts": [
        "recalibration",
        "segments",
        "multiclass",
        "verdict",
        "label-shift",
        "certificates",
        "drift",
        "glossary",
    ],
    "Reference": ["events", "options", "store", "connectors", "api/README", "stability"],
    "Background": [
        "paper",
        "benchmarks",
        "architecture",
        "proofs/certificates",
        "proofs/decisions",
        "proofs/exposure",
        "proofs/mixture",
        "proofs/multiclass",
        "proofs/release",
        "proofs/verdict",
    ],
}
"""The pages of docs/ as the side bar groups them."""

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(f"examples/notebooks/{page.stem}" for page in ROOT.glob("examples/notebooks/*.ipynb"))
EXAMPLES = sorted(
    page.relative_to(ROOT).with_suffix("").as_posix() for page in ROOT.glob("examples/*/README.md")
)
MORE = sorted(page.stem for page in ROOT.glob("*.md") if page.stem != root_doc)


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001
    """Append the side bar's groups to the first page; the API's pages to its own."""
    if page == "README":
        groups = {title: [f"/docs/{name}" for name in names] for title, names in NAVIGATION.items()}
        others = {"Notebooks": NOTEBOOKS, "Examples": EXAMPLES, "More": MORE}
        groups |= {title: [f"/{name}" for name in names] for title, names in others.items()}
    elif page == "docs/api/README":
        groups = {"": re.findall(r"\[`[\w.]+`\]\((\w+)\.md\)", source[0])}
    else:
        return
    for title, names in groups.items():
        source[0] += "\n".join(
            ["\n\n```{toctree}", ":hidden:", *([f":caption: {title}"] if title else []), "", *names, "```\n"]
        )


def read_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Read a docstring in numpydoc form. In those of attributes, a colon does not end a type."""
    if what not in {"attribute", "data", "property"}:
        lines[:] = NumpyDocstring(list(lines), app.config, app, what, name, obj, options).lines()


def skip_member(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Any) -> bool | None:  # noqa: ARG001
    """Leave out pydantic's own attribute."""
    return True if name == "model_config" else None


def shorten_signature(
    app: Sphinx,  # noqa: ARG001
    what: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    obj: object,
    options: Any,  # noqa: ARG001
    signature: str | None,  # noqa: ARG001
    returns: str | None,  # noqa: ARG001
) -> tuple[str, None] | None:
    """Show the fields of a pydantic model by name: the types and ranges stand beside each below."""
    if not (isinstance(obj, type) and issubclass(obj, BaseModel)):
        return None
    fields = (
        key if field.is_required() else f"{key}={field.default!r}" for key, field in obj.model_fields.items()
    )
    return f"(*, {', '.join(fields)})", None


def find_reference(
    app: Sphinx,
    env: BuildEnvironment,
    node: pending_xref,
    shown: nodes.TextElement,
) -> nodes.Node | None:
    """Resolve a name that Sphinx does not: as a documented name, or else as any name that exists.

    The API's pages name objects by the module that exports them; a docstring names them as its own module
    sees them. What is internal or another library's is shown without a link. A name that does not exist is a
    warning, and fails the build.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].strip("~.")
    documented = env.domains.python_domain.objects
    matches = {
        (entry.docname, entry.node_id)
        for name, entry in documented.items()
        if f".{name}".endswith(f".{target}")
    }
    if len(matches) == 1:
        return make_refnode(app.builder, node["refdoc"], *matches.pop(), shown)
    if node["reftype"] == "class":  # from a signature: mypy has checked it
        return shown
    return shown if any(_reaches(start, target) for start in _starts(node, target)) else None


def _starts(node: pending_xref, target: str) -> Iterator[object]:
    """Yield what a name may start at: the class or module of the docstring, our modules, any module."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("streamcal")]
    for module in ours:
        yield from (
            getattr(module, name) for name in [node.get("py:class")] if name and hasattr(module, name)
        )
    yield from ours
    first = target.split(".")[0]
    try:
        importlib.import_module(target.rpartition(".")[0] or first)
    except ImportError:
        return
    yield type("Modules", (), {first: sys.modules[first]})


def _reaches(start: object, target: str) -> bool:
    for name in target.split("."):
        if not hasattr(start, name):
            return False
        start = getattr(start, name)
    return True


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("missing-reference", find_reference)
