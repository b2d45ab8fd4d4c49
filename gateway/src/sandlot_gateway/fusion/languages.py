"""How each of SandboxFusion's languages compiles and runs, with the same commands as its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .babel import configuration


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`run` and `compile` are shell commands; `{file}` is the code's file, `{program}` the first of `programs` found.

    `name`: of the code's file, in which `{random}` keeps it apart from the request's files. `also`: further programs.
    `jars`: a pattern of paths, one of which the image must have if the request sends no JAR of such a name. `beside`
    returns names and contents of files for the code's directory, from those that the request has there.
    """

    name: str
    run: str
    programs: tuple[str, ...]
    compile: str | None = None
    also: tuple[str, ...] = ()
    jars: str | None = None
    beside: Callable[[Mapping[str, bytes]], dict[str, bytes]] | None = None


_PYTHON = Toolchain("{random}.py", "{program} {file}", ("python", "python3"))
_JARS = '".:./*"'
_JUNIT = '".:./*:/usr/share/java/*"'

TOOLCHAINS: dict[str, Toolchain] = {
    "python": _PYTHON,
    "python_gpu": _PYTHON,
    "pytest": Toolchain("{random}.py", "pytest {file} {args}", ("pytest",)),
    "bash": Toolchain("{random}.sh", "bash {file}", ("bash",)),
    "cpp": Toolchain("{random}.cpp", "./test", ("g++",), compile="g++ -std=c++17 {file} -o test -lpthread"),
    "cuda": Toolchain("{random}.cu", "./test", ("nvcc",), compile="nvcc {file} -o test"),
    "go": Toolchain("{random}.go", "./out", ("go",), compile="go build -o out {file}"),
    "go_test": Toolchain("{random}_test.go", "go test {file}", ("go",)),
    "java": Toolchain(
        "Main.java",
        f"java -cp {_JARS} -ea Main",
        ("javac",),
        compile=f"javac -cp {_JARS} Main.java",
        also=("java",),
    ),
    "junit": Toolchain(
        "{class}.java",
        f"java -cp {_JUNIT} org.junit.platform.console.ConsoleLauncher --class-path {_JUNIT} --scan-class-path",
        ("javac",),
        compile=f"javac -cp {_JUNIT} *.java",
        also=("java",),
        jars="/usr/share/java/junit-platform-console*.jar",
    ),
    "nodejs": Toolchain("{random}.js", "node {file}", ("node",)),
    "typescript": Toolchain("{random}.ts", "tsx {file}", ("tsx",)),
    "jest": Toolchain("{random}.test.ts", "jest {file}", ("jest",), beside=configuration),
    "php": Toolchain("{random}.php", "php -f {file}", ("php",)),
    "csharp": Toolchain(
        "{random}.txt",
        "dotnet new console -o . >/dev/null && cp {file} Program.cs && exec dotnet run --project .",
        ("dotnet",),
    ),
    "rust": Toolchain("{random}.rs", "./test", ("rustc",), compile="rustc {file} -o test"),
    "lua": Toolchain("{random}.lua", "lua {file}", ("lua",)),
    "R": Toolchain("{random}.R", "Rscript {file}", ("Rscript",)),
    "perl": Toolchain("{random}.pl", "perl {file}", ("perl",)),
    "D_ut": Toolchain(
        "{random}.d", "./test", ("dmd", "ldmd2"), compile="{program} {file} -unittest -of=test"
    ),
    "ruby": Toolchain("{random}.rb", "ruby {file}", ("ruby",)),
    "scala": Toolchain(
        "{random}.scala", "scala {object}", ("scalac",), compile="scalac {file}", also=("scala",)
    ),
    "julia": Toolchain("{random}.jl", "julia {file}", ("julia",)),
    "kotlin_script": Toolchain("{random}.kts", "kotlin {file}", ("kotlin",)),
    "verilog": Toolchain(
        "{random}.sv",
        "vvp -n test.vvp",
        ("iverilog",),
        compile="iverilog -Wall -Winfloop -Wno-timescale -g2012 -s tb -o test.vvp {file}",
        also=("vvp",),
    ),
    "lean": Toolchain("{random}.lean", "lean {file}", ("lean",)),
    "swift": Toolchain("{random}.swift", "./test.out", ("swiftc",), compile="swiftc {file} -o test.out"),
    "racket": Toolchain("{random}.rkt", "racket {file}", ("racket",)),
}


def source(language: str, code: str) -> str:
    """Return what the file holds: PHP without its tag would be text."""
    return f"<?php\n{code}" if language == "php" and "<?php" not in code else code
