#!/usr/bin/env python3
"""Assembles the page that has the engine inside: build/wasm/site, which any web server may serve.

    scripts/wasm_site.py BUILD

Files: index.html and its styles; page/, the modules of the server's page with another transport.js; page/wasm/, the engine's
worker; dllm.wasm and dllm-relaxed.wasm, of which a browser loads one; the embedded model; the notices of what is inside.
offline.js keeps all of it in the browser's cache, named by the digest of the files.
"""

import argparse
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
COMPILER = ROOT / "build" / "web" / "node_modules" / "typescript" / "bin" / "tsc"
MODEL = ROOT / "models" / "tiny-llada-f32.gguf"
# The server sends a policy with its page; a file has to bring its own. WebAssembly has a permission of its own.
POLICY = ("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src 'self'; "
          "connect-src 'self'; base-uri 'none'; form-action 'none'")


def page_of(source: str) -> str:
    """index.html for a folder of files: with the policy, and without words about a server."""
    made = source.replace('<meta charset="utf-8">', '<meta charset="utf-8">\n  <meta http-equiv="Content-Security-Policy" '
                          f'content="{POLICY}">')
    made = made.replace("The page needs JavaScript. The server's API does not.", "The page needs JavaScript and WebAssembly.")
    if made.count(POLICY) != 1 or "server's API" in made:
        raise SystemExit("wasm_site: web/index.html has changed: adapt page_of()")
    return made


def compile_scripts(node: str, folder: pathlib.Path) -> None:
    command = [node, str(COMPILER), "-p", str(WEB / "wasm.tsconfig.json"), "--outDir", str(folder)]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(1)


def digest(site: pathlib.Path, names: list[str]) -> str:
    total = hashlib.sha256()
    for name in names:
        total.update(name.encode() + b"\0" + hashlib.sha256((site / name).read_bytes()).digest())
    return total.hexdigest()[:16]


def assemble(node: str, build: pathlib.Path, site: pathlib.Path) -> None:
    if site.exists():
        shutil.rmtree(site)
    page = site / "page"
    page.mkdir(parents=True)
    compile_scripts(node, page)
    (page / "transport.js").write_text('export { send } from "./wasm/transport.js";\n')
    for name in ("canvas.css", "page.css", "icon.svg"):
        shutil.copy(WEB / name, page)
    (site / "index.html").write_text(page_of((WEB / "index.html").read_text()))
    for program in ("dllm.wasm", "dllm-relaxed.wasm"):
        shutil.copy(build / program, site)
    shutil.copy(MODEL, site)
    notices = site / "notices"
    shutil.copytree(ROOT / "build" / "wasm-libraries" / "notices", notices)
    shutil.copy(ROOT / "LICENSE", notices / "dllm")
    shutil.copy(ROOT / "NOTICE", notices / "dllm-notice")
    names = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    wanted = [name for name in names if not name.startswith("notices/")]
    offline = (page / "wasm" / "offline.js").read_text()
    (page / "wasm" / "offline.js").unlink()
    wanted.remove("page/wasm/offline.js")
    # Of the two programs a browser stores the one it loads.
    listed = ", ".join(f'"{name}"' for name in wanted if not name.endswith(".wasm"))
    offline, count = re.subn(r"\[\]; // scripts/wasm_site.py", f"[{listed}];", offline)
    offline, named = re.subn(r'"dllm-unnamed"', f'"dllm-{digest(site, wanted)}"', offline)
    if (count, named) != (1, 1):
        raise SystemExit("wasm_site: web/src/wasm/offline.ts has changed: adapt assemble()")
    (site / "offline.js").write_text(offline)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="folder of the preset wasm")
    build = parser.parse_args().build.resolve()
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None or not COMPILER.exists():
        print("wasm_site: node and TypeScript's compiler are needed: scripts/setup --wasm", file=sys.stderr)
        return 1
    site = build / "site"
    assemble(node, build, site)
    sizes = {path.name: path.stat().st_size for path in site.iterdir() if path.is_file()}
    print(site, ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sorted(sizes.items()) if size > 100_000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
