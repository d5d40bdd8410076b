# The front door. Everything real is in CMakePresets.json and scripts/; see CONTRIBUTING.md.
JOBS ?= $(shell nproc)
PROMPT ?= Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?

.PHONY: help setup build run test check bench bench-compare methods format lint fuzz coverage clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup:  ## install the Debian packages that are missing (sudo where needed)
	@scripts/setup

build: setup  ## optimised build: build/release/dllm
	@cmake --preset release -DDLLM_TESTS=OFF --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target dllm

run: build  ## install, build, and answer a prompt with the embedded model
	build/release/dllm run -n 64 "$(PROMPT)"

test: setup  ## every test, slow ones included
	@cmake --preset release -DDLLM_TESTS=ON --log-level=WARNING
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release -j $(JOBS)

check: setup  ## the fast tier: format, arrows between modules, fast tests (< 5 minutes)
	@scripts/check_format
	@python3 scripts/check_includes.py
	@cmake --preset dev -DDLLM_TESTS=ON --log-level=WARNING
	@cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(JOBS) -L fast

bench: setup  ## kernel micro-benchmarks: make bench BENCH_FLAGS=--benchmark_filter=Q4_0
	@scripts/setup --bench
	@cmake --preset bench --log-level=WARNING
	@cmake --build --preset bench -j $(JOBS) --target dllm_bench_kernels
	build/bench/bench/dllm_bench_kernels $(BENCH_FLAGS)

bench-compare: setup  ## speed against another revision: make bench-compare REV=main
	@scripts/bench_compare.py $(REV)

methods: build  ## every method on the two trained models: the tables and plots of docs/methods.md
	@scripts/methods_table.py build/release/dllm

format:  ## format C++ sources in place
	@scripts/check_format --fix

fuzz:  ## build the fuzz targets and run each for a minute
	@scripts/setup --fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz -j $(JOBS)
	@scripts/fuzz 60

coverage:  ## line coverage of the tests, as text
	@scripts/setup --coverage
	@cmake --preset coverage --log-level=WARNING
	@cmake --build --preset coverage -j $(JOBS)
	@ctest --test-dir build/coverage -j $(JOBS) -L fast --output-on-failure
	@gcovr -r . build/coverage --exclude '.*_test.cpp' --print-summary | tail -n 4

clean:  ## remove build/
	rm -rf build
