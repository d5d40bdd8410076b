#!/usr/bin/env bash
# What an installation has: contents.sh PREFIX VERSION NPU (ON, or OFF for a build without simulated NPUs)
set -euo pipefail
prefix=$1 version=$2 npu=$3
fail() { echo "contents: $*" >&2; exit 1; }

lib=$(dirname "$(find "$prefix" -name libdllm.so)")
for file in bin/dllm share/man/man1/dllm.1 share/man/man1/dllm-run.1 \
  share/bash-completion/completions/dllm share/zsh/vendor-completions/_dllm share/fish/vendor_completions.d/dllm.fish \
  share/doc/dllm/LICENSE share/doc/dllm/NOTICE share/doc/dllm/SECURITY.md share/doc/dllm/copyright \
  share/doc/dllm/third-party/nlohmann-json share/doc/dllm/third-party/cli11 share/doc/dllm/third-party/boost; do
  [ -s "$prefix/$file" ] || fail "$file is missing"
done
page=$prefix/share/man/man1/dllm-npu-analyze.1
if [ "$npu" = ON ]; then [ -s "$page" ]; else [ ! -e "$page" ]; fi || fail "$page: DLLM_NPU is $npu"
[ "$("$prefix/bin/dllm" --version)" = "dllm $version" ] || fail "the program has another version"
bash -n "$prefix/share/bash-completion/completions/dllm"

# Only what include/dllm declares is exported, and the name says with which versions it is compatible.
others=$(nm -DC --defined-only "$lib/libdllm.so" | awk '{$1 = $2 = ""; print}' |
  grep -vE '^ *dllm::(LanguageModel|Scheduler|GenerateOptions|LoadOptions)::|^ *dllm::(options_info|load_options_info|list_devices|to_text|register_custom_decoder)' || true)
[ -z "$others" ] || fail "exported: $others"
# Bodies of fuzz targets and reference implementations are libraries for tests (folders called testing/).
for file in "$prefix/bin/dllm" "$lib/libdllm.so"; do
  testing=$(nm -C --defined-only "$file" 2>/dev/null | grep -E '(^|[ :])fuzz_|npu::reference::|dllm::[a-z:]*test::' || true)
  [ -z "$testing" ] || fail "$file has what only tests need: $testing"
done
# Without -q: grep would end at the first match, and objdump, still writing, by a signal.
objdump -p "$lib/libdllm.so" | grep "SONAME *libdllm.so.${version%.*}\$" >/dev/null ||
  fail "the name of the library is another"

PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --exact-version="$version" dllm || fail "dllm.pc has another version"
folder=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --variable=includedir dllm)
[ -f "$folder/dllm/model.h" ] || fail "dllm.pc names another folder: $folder"
if command -v man >/dev/null; then
  for page in "$prefix"/share/man/man1/*; do
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l -E UTF-8 -Tutf8 -Z "$page" 2>&1 >/dev/null || true)
    [ -z "$warnings" ] || fail "$page: $warnings"
  done
fi
