#!/bin/sh
# Installs dllm without a compiler and without root: downloads the program for this machine, compares its SHA-256 with the
# release's list, unpacks it, and starts it once.
#
#   curl -fsSL URL/install.sh | DLLM_URL=URL sh
#
# URL: the folder of the release's files, https:// or http:// or file://. Variables:
#   DLLM_URL      that folder; a published copy of this script knows it
#   DLLM_PREFIX   where bin and share go; default: ~/.local
#   DLLM_FORM     portable (needs glibc 2.28; has Vulkan) or static (needs nothing); default: what the machine can start
set -eu

version='@VERSION@'
url=${DLLM_URL:-'@URL@'}
prefix=${DLLM_PREFIX:-${HOME:-/root}/.local}

fail() {
  echo "install: $*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# fetch NAME FILE
fetch() {
  case $url in
    file://*) cp "${url#file://}/$1" "$2" 2>/dev/null ;;
    *)
      if have curl; then
        curl -fsSL --retry 2 -o "$2" "$url/$1"
      elif have wget; then
        wget -q -O "$2" "$url/$1"
      else
        fail "neither curl nor wget is installed"
      fi
      ;;
  esac || fail "$url/$1 could not be downloaded"
}

# digest FILE
digest() {
  if have sha256sum; then
    sha256sum "$1"
  elif have shasum; then
    shasum -a 256 "$1"
  elif have openssl; then
    openssl dgst -sha256 -r "$1"
  else
    fail "none of sha256sum, shasum and openssl is installed: the download cannot be verified"
  fi | cut -d ' ' -f 1
}

# Whether the system's C library is glibc 2.28 or later.
has_glibc() {
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null) || return 1
  found=${found#glibc }
  major=${found%%.*}
  minor=${found#*.}
  minor=${minor%%.*}
  [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 28 ]; }
}

# The digest that the list has for a file; nothing if it has none.
listed() { awk -v name="$1" '$2 == name { print $1 }' "$work/SHA256SUMS"; }

# In a function, so that a script that was cut off does nothing.
main() {
  case $url in
    '' | @*) fail "no address: set DLLM_URL to the folder of the release's files" ;;
  esac
  case $version in
    @*) fail "this copy has no version: take the one among the release's files" ;;
  esac
  [ "$(uname -s)" = Linux ] || fail "there is a program for Linux only; build it from source"
  machine=$(uname -m)
  case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
  esac
  form=${DLLM_FORM:-}
  case $form in
    '') if has_glibc; then form=portable; else form=static; fi ;;
    portable | static) ;;
    *) fail "DLLM_FORM is '$form': portable or static" ;;
  esac
  if have xz; then suffix=tar.xz; else suffix=tar.gz; fi

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  fetch SHA256SUMS "$work/SHA256SUMS"
  name=dllm-$version-linux-$machine-$form
  wanted=$(listed "$name.$suffix")
  if [ -z "$wanted" ] && [ -z "${DLLM_FORM:-}" ]; then
    form=static
    name=dllm-$version-linux-$machine-$form
    wanted=$(listed "$name.$suffix")
  fi
  [ -n "$wanted" ] || fail "$url/SHA256SUMS lists no $name.$suffix: this release has no such program for $machine"
  fetch "$name.$suffix" "$work/archive"
  found=$(digest "$work/archive")
  [ "$found" = "$wanted" ] || fail "$name.$suffix has the SHA-256 $found instead of $wanted: nothing was installed"

  if [ "$suffix" = tar.xz ]; then xz -dc "$work/archive"; else gzip -dc "$work/archive"; fi | tar -xf - -C "$work"
  told=$("$work/$name/bin/dllm" --version) || {
    [ "$form" = static ] || fail "the program does not start here: try DLLM_FORM=static"
    fail "the program does not start here"
  }
  mkdir -p "$prefix/bin" "$prefix/share"
  cp -R "$work/$name/share/." "$prefix/share"
  # A program that runs keeps its file; the new one takes its name.
  cp "$work/$name/bin/dllm" "$prefix/bin/.dllm.new"
  mv -f "$prefix/bin/.dllm.new" "$prefix/bin/dllm"
  echo "$told ($form) is now $prefix/bin/dllm" >&2
  case :${PATH:-}: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in PATH: add it, or call the program by its whole name" >&2 ;;
  esac
}

main
