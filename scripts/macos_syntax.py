#!/usr/bin/env python3
"""Reads every source of the program as macOS' compiler would, without making code: whether names, types and templates
exist there.

    scripts/macos_syntax.py [--target aarch64-macos] [--jobs N] [PART OF A NAME ...]

zig brings clang, libc++ and the headers of macOS (scripts/setup --zig); headers of other libraries are the system's here.
Nothing is linked or run: this is no port. Vulkan, the sandbox and the module for MPI are left out. Ends with 1 if a unit is
not well-formed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ZIG = ROOT / "build" / "zig" / "bin" / "python"
BUILD = ROOT / "build" / "macos"
# Of /usr/include and its folder for this machine. No more: their neighbours are the headers of Linux.
LIBRARIES = ("CLI", "boost", "curl", "editline", "fmt", "histedit.h", "jconfig.h", "jerror.h", "jmorecfg.h", "jpeglib.h",
             "nlohmann", "openssl", "pcre2.h", "png.h", "pngconf.h", "pnglibconf.h", "sqlite3.h", "toml++", "utf8proc.h", "webp",
             "zmq.h")
KEPT = re.compile(r"-(D|I|std=|W(all|extra|shadow|conversion|no-))")
# What `zig c++` gives to clang, which itself makes a file of its own in any case.
INSIDE = ("libcxx/include", "libcxxabi/include", "include", "libc/include/any-darwin-any")
CXX = ["--no-default-config", "-nostdinc", "-nostdinc++", "-D_LIBCPP_ABI_VERSION=1", "-D_LIBCPP_ABI_NAMESPACE=__1",
       "-D_LIBCPP_HAS_THREADS=1", "-D_LIBCPP_HAS_MONOTONIC_CLOCK", "-D_LIBCPP_HAS_TERMINAL", "-D_LIBCPP_HAS_MUSL_LIBC=0",
       "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0", "-D_LIBCPP_HAS_FILESYSTEM=1", "-D_LIBCPP_HAS_RANDOM_DEVICE",
       "-D_LIBCPP_HAS_LOCALIZATION", "-D_LIBCPP_HAS_UNICODE", "-D_LIBCPP_HAS_WIDE_CHARACTERS",
       "-D_LIBCPP_PSTL_BACKEND_SERIAL", "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
       "-D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE"]
TRIPLES = {"aarch64-macos": "arm64-apple-macosx13.0.0", "x86_64-macos": "x86_64-apple-macosx13.0.0"}
# libc++ has std::stop_token as an experiment; x86's kernels get their flags below. <cfloat> comes first, because macOS' math.h
# asks float.h for a part of it, and libc++'s then gives no more. That part, INFINITY and NAN, comes behind it.
# Asio 1.74 takes std::result_of otherwise, which C++20 removed.
FLAGS = ["-include", "cfloat", "-include", "__float_infinity_nan.h", "-DBOOST_ASIO_HAS_STD_INVOKE_RESULT",
         "-fsyntax-only", "-ferror-limit=0", "-fexperimental-library", "-ffp-contract=off",
         "-Wno-sign-conversion", "-Wno-shorten-64-to-32", "-Wno-shadow", "-Wno-deprecated-declarations"]
OF_X86 = re.compile(r"-m(avx|fma|f16c|amx|prfchw|prefer)")


def headers() -> pathlib.Path:
    """A folder with the headers of the libraries alone."""
    folder = BUILD / "libraries"
    machine = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    for name in LIBRARIES:
        for source in (pathlib.Path("/usr/include", name), pathlib.Path("/usr/include", machine, name)):
            for file in [source] if source.is_file() else source.rglob("*"):
                if file.is_dir():
                    continue
                link = folder / file.relative_to(pathlib.Path("/usr/include", machine) if machine in file.parts else "/usr/include")
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(file)
    return folder


def configure() -> list[dict[str, str]]:
    """The units of the program, as CMake forms them here."""
    command = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "--log-level=ERROR", "-DCMAKE_BUILD_TYPE=Release",
               "-DDLLM_TESTS=OFF", "-DDLLM_VULKAN=OFF", "-DDLLM_SANDBOX=OFF", "-DDLLM_HARDEN=OFF", "-DDLLM_WERROR=OFF"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    # What is generated: device profiles, the embedded model, the server's page.
    subprocess.run(["cmake", "--build", str(BUILD), "--target", *generated()], check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    seen: dict[str, dict[str, str]] = {}
    for each in commands:
        if not each["file"].endswith("mpi_module.cpp"):
            seen.setdefault(each["file"], each)
    return list(seen.values())


def generated() -> list[str]:
    told = subprocess.run(["ninja", "-C", str(BUILD), "-t", "targets", "rule", "CUSTOM_COMMAND"], capture_output=True, text=True,
                          check=True).stdout.split()
    return [name for name in told if re.search(r"\.(cpp|h|inc)$", name) and name.startswith("src/")] or ["help"]


def check(unit: dict[str, str], target: str, libraries: pathlib.Path) -> tuple[str, str]:
    """The unit's name and what the compiler said against it; nothing if it is well-formed."""
    words = shlex.split(unit["command"])
    if "x86_64" in target:
        flags = [word for word in words if KEPT.match(word) or OF_X86.match(word)]
    else:
        flags = [word for word in words if KEPT.match(word)]
    lib = next((ROOT / "build" / "zig" / "lib").glob("python*/site-packages/ziglang/lib"))
    system = [word for folder in (*(lib / name for name in INSIDE), libraries) for word in ("-isystem", str(folder))]
    command = [str(ZIG), "-m", "ziglang", "clang", unit["file"], "-target", TRIPLES[target], *CXX, *system, *flags, *FLAGS]
    told = subprocess.run(command, cwd=unit["directory"], capture_output=True, text=True, check=False)
    return name_of(unit), "" if told.returncode == 0 else told.stderr or "no message"


def of_x86(unit: dict[str, str]) -> bool:
    """Whether it is a kernel of one of x86's instruction sets."""
    return any(OF_X86.match(word) for word in shlex.split(unit["command"]))


def name_of(unit: dict[str, str]) -> str:
    path = pathlib.Path(unit["file"])
    return str(path.relative_to(BUILD if path.is_relative_to(BUILD) else ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="aarch64-macos", choices=TRIPLES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if not ZIG.exists():
        sys.exit("macos_syntax: there is no zig: run scripts/setup --zig")
    named = [unit for unit in configure() if not arguments.names or any(name in name_of(unit) for name in arguments.names)]
    units = [unit for unit in named if "x86_64" in arguments.target or not of_x86(unit)]
    libraries = headers()
    wrong: dict[str, str] = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name, message in pool.map(lambda unit: check(unit, arguments.target, libraries), units):
            if message:
                wrong[name] = message
                print(f"{name}:\n" + "\n".join(re.findall(r".*error: .*", message)[:12] or [message[-600:]]), flush=True)
    print(f"{len(units) - len(wrong)} of {len(units)} units are well-formed for {arguments.target}"
          f"; kernels of another processor that were left out: {len(named) - len(units)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
