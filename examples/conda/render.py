"""Render recipe.yaml with rattler-build, for each platform and Python: nothing is downloaded or built."""

from __future__ import annotations

from pathlib import Path

from rattler_build import RenderConfig, Stage0Recipe, VariantConfig
from rattler_build.tool_config import PlatformConfig

PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64")
VARIANTS = """
python: [3.11.* *_cpython, 3.12.* *_cpython, 3.13.* *_cp313, 3.14.* *_cp314]
c_stdlib: [sysroot]
c_stdlib_version: ["2.17"]
"""


def main() -> None:
    recipe = Stage0Recipe.from_file(Path(__file__).with_name("recipe.yaml"))
    variants = VariantConfig.from_yaml(VARIANTS)
    for platform in PLATFORMS:
        config = RenderConfig(platform=PlatformConfig(target_platform=platform))
        rendered = [each.recipe.to_dict() for each in recipe.render(variants, config)]
        print(f"{platform}: {len(rendered)} variants, built with {rendered[0]['requirements']['build']}")


if __name__ == "__main__":
    main()
