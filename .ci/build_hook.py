"""Build hook: compile the modules whose names end in ``_c``, in place, with the types beside them (``.pxd``).

Without Cython, setuptools or a C compiler the package is built all the same: every module is Python, too, and
gives the same, more slowly. A wheel also lists what it ships of others.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SHARED: Final = "streamcal._cython"


class CompileHook(BuildHookInterface):
    """Compiles for a wheel and for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; say so if that cannot be done.

        The environment variable ``STREAMCAL_COMPILE`` leaves it out if it is ``0``, and makes it a must if it
        is ``1``, as for the wheels of a release.
        """
        if self.target_name != "wheel":
            return
        components = Path(self.root, "build", "streamcal.cdx.json")
        components.parent.mkdir(exist_ok=True)
        components.write_text(json.dumps(shipped_of_others(Path(self.root), self.metadata.version), indent=2))
        build_data["sbom_files"].append(str(components))
        for kind in ("so", "pyd"):  # what was compiled of older files
            for path in Path(self.root, "streamcal").rglob(f"*.{kind}"):
                path.unlink()
        wish = os.environ.get("STREAMCAL_COMPILE")
        if wish == "0":
            return
        try:
            compile_in_place(Path(self.root))
        except (Exception, SystemExit) as error:  # whatever is missing: the package works without
            if wish == "1":
                raise
            self.app.display_warning(f"not compiled, so slower: {error}")
            return
        if version == "standard":  # of an editable installation nothing is copied
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def compile_in_place(root: Path) -> None:
    """Put a compiled module beside each that is to be compiled: all of them, or none."""
    from Cython.Build import cythonize
    from Cython.Compiler import Options
    from setuptools import Distribution, Extension

    Options.buffer_max_dims = 4  # more than any array here has: a memoryview has room for so many
    # Each sum and product is rounded by itself, so that all machines give the same bits.
    flags = [] if os.name == "nt" else ["-O2", "-g0", "-ffp-contract=off", "-fno-strict-aliasing"]
    with chdir(root), tempfile.TemporaryDirectory() as made:
        modules = [
            Extension(".".join(path.with_suffix("").parts), [str(path)], extra_compile_args=flags)
            for path in sorted(Path("streamcal").rglob("*_c.py"))
        ]
        # What all modules need of Cython, compiled once: that takes a third of the time.
        modules.append(Extension(_SHARED, [f"{_SHARED.replace('.', '/')}.c"], extra_compile_args=flags))
        # A class that is pickled says how: what Cython would add for the others takes a tenth of the time.
        options = {
            "annotation_typing": False,
            "auto_pickle": False,
            "boundscheck": False,
            "cdivision": True,
            "wraparound": False,
        }
        extensions = cythonize(
            modules,
            build_dir=made,
            language_level=3,
            compiler_directives=options,
            shared_utility_qualified_name=_SHARED,
            quiet=True,
            force=True,
            nthreads=os.cpu_count() or 0,
        )
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_temp, command.inplace, command.parallel = made, True, os.cpu_count()
        command.ensure_finalized()
        command.run()


def shipped_of_others(root: Path, version: str) -> dict[str, Any]:
    """Return what the package ships of others, as CycloneDX: uPlot, which draws the page (PEP 770)."""
    files = sorted(Path(root, "streamcal", "monitor", "static").glob("uPlot*.min.*"))
    (uplot,) = {found for path in files for found in re.findall(r"\(v([\d.]+)\)", path.read_text()[:500])}
    hashes = {path.relative_to(root).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "streamcal-engine",
                "name": "streamcal-engine",
                "version": version,
                "purl": f"pkg:pypi/streamcal-engine@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": "uplot",
                "name": "uplot",
                "version": uplot,
                "purl": f"pkg:npm/uplot@{uplot}",
                "licenses": [{"license": {"id": "MIT"}}],
                "components": [
                    {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": content}]}
                    for name, content in hashes.items()
                ],
            }
        ],
        "dependencies": [{"ref": "streamcal-engine", "dependsOn": ["uplot"]}, {"ref": "uplot"}],
    }
