"""The images in which tests run SandboxFusion's languages: what each is made of, and which languages it has."""

from __future__ import annotations

from dataclasses import dataclass

from images.contents import PATH

# Images that set up alternatives for manual pages fail without this directory, whose files are left out.
_MAN = ("--essential-hook=mkdir -p $1/usr/share/man/man1",)


@dataclass(frozen=True, kw_only=True)
class ToolchainImage:
    """Debian packages, and what npm and PyPI give; `links` are `PATH -> TARGET` in the image."""

    name: str
    languages: tuple[str, ...]
    debian: tuple[str, ...]
    suite: str = "trixie"
    hooks: tuple[str, ...] = _MAN  # options of mmdebstrap
    npm: tuple[str, ...] = ()  # below /usr/local/lib/node_modules
    wheels: tuple[str, ...] = ()  # below /usr/local/lib/wheels
    links: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()  # NAME=VALUE


_BASE = ("ca-certificates", "procps")
_MODULES = "/usr/local/lib/node_modules"
_CUDA = "/usr/local/lib/wheels/nvidia/cu13"

IMAGES = (
    ToolchainImage(
        name="scripts",
        languages=(
            "python", "python_gpu", "pytest", "bash", "perl", "ruby", "lua", "php", "R", "racket", "verilog",
            "nodejs", "typescript", "jest",
        ),
        debian=(
            *_BASE, "python3", "python-is-python3", "python3-pytest", "ruby", "lua5.4", "php-cli", "r-base-core",
            "racket", "iverilog", "nodejs",
        ),
        npm=(
            "tsx@4.23.15", "jest@30.5.2", "@babel/preset-env@7.29.14",
            "@babel/preset-typescript@7.29.7",
        ),
        links=(
            f"usr/local/bin/tsx -> {_MODULES}/tsx/dist/cli.mjs",
            f"usr/local/bin/jest -> {_MODULES}/jest/bin/jest.js",
        ),
        environment=(f"NODE_PATH={_MODULES}",),
    ),
    ToolchainImage(
        name="native",
        languages=("cpp", "go", "go_test", "rust", "D_ut"),
        debian=(*_BASE, "g++", "golang-go", "rustc", "ldc"),
        # Without compiled standard packages each request would compile those that it imports.
        hooks=(*_MAN, "--customize-hook=chroot $1 env HOME=/root GOFLAGS=-p=2 go build std"),
    ),
    ToolchainImage(name="swift", languages=("swift",), debian=(*_BASE, "swiftlang", "g++")),
    ToolchainImage(
        name="java",
        languages=("java", "junit", "scala", "kotlin_script"),
        debian=(*_BASE, "default-jdk-headless", "junit5", "scala"),
        npm=("kotlin-compiler@2.4.20",),
        links=tuple(
            f"usr/local/bin/{name} -> {_MODULES}/kotlin-compiler/bin/{name}" for name in ("kotlin", "kotlinc")
        ),
    ),
    ToolchainImage(
        name="cuda",
        languages=("cuda",),
        debian=(*_BASE, "g++"),
        wheels=(
            "nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-nvvm==13.5.37",
            "nvidia-cuda-runtime==13.5.37",
        ),
        # Not by a link: nvcc looks for its parts beside the name by which it was called.
        environment=(f"PATH={PATH}:{_CUDA}/bin",),
    ),
    # The last Debian with Julia.
    ToolchainImage(name="julia", languages=("julia",), debian=(*_BASE, "julia"), suite="bullseye"),
)  # fmt: skip

# Languages of SandboxFusion that no image has, each with the reason.
ABSENT = {
    "csharp": "no registry that the tests use has the .NET SDK: Debian has only Mono, npm and PyPI only runtimes",
    "lean": "no registry that the tests use has Lean 4: Debian, npm and PyPI have only managers that download it",
    "sql": "SandboxFusion's server does not run it either",
}
