# The entry point. Details are in CMakePresets.json and scripts/; see CONTRIBUTING.md.
JOBS ?= $(shell nproc)
RTL_WAVE ?= build/sampling.vcd
RTL_RUN ?= "$(PROMPT)"
PROMPT ?= Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?

# Thread pool, backends that share it, the engine's batches and turns, the second path, ranks, downloads; and the server,
# by its own tests.
TSAN_PROGRAMS = dllm_base_test dllm_format_test dllm_cpu_test dllm_decode_test dllm_engine_test dllm_ranks_test dllm_rank_bits_test \
                dllm_rank_setup_test dllm_hub_test dllm_serve_test
TSAN_TESTS = ThreadPool.* OutputFiles.ManyWriters* CpuBackend.*Thread* CpuBackend.*Batch* CpuBackend.ABackend* Experts.*Thread* \
             Route.*Threads* ScoreHead.Threads* SecondPath* GenerateBatch.* Batch*.* SchedulerTest.* PrefixStoreTest.* Turns.* \
             MappedFile.* TcpRanks.* Proof.* Ranks.* RankedBackend.* RegroupingBackend.* RankSetup.* RankParts.* Hub*.* \
             CachedModels.* Pool.* Lane.* LogWriter.* HttpServerTest.*
TSAN_SERVE = serve serve_limits serve_models serve_loading serve_ranks

# Once scripts/setup --python has installed what it needs, `make test` builds and tests the Python package too.
PYTHON_FLAGS = $(shell test -f build/python/installed && \
  echo -DDLLM_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/build/python/bin/python || echo -DDLLM_PYTHON=OFF)

.PHONY: help setup build deb libraries tarball aarch64 aarch64-test wheels release release-files reproduce run test check bench speed bench-compare setup-python python rtl-test rtl-run rtl-formal rtl-wave rtl-coverage rtl-area rtl-cells web web-test wasm wasm-test windows windows-test windows-system-test macos research figures methods format lint tsan \
        fuzz faults coverage nightly clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup:  ## install the Debian packages that are missing (sudo where needed)
	@scripts/setup

build: setup  ## optimised build: build/release/dllm, and the library; then cmake --install build/release
	@cmake --preset release -DDLLM_TESTS=OFF --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target dllm dllm_shared

deb: build  ## a Debian package of program and library: build/release/dllm_VERSION_DEBIAN_ARCHITECTURE.deb
	@cd build/release && cpack -G DEB >/dev/null && ls "$$PWD"/dllm_*.deb

# What scripts/static_libraries and scripts/glibc_stubs.py make, for every target that puts libraries inside.
libraries: setup
	@scripts/setup --release
	@JOBS=$(JOBS) scripts/static_libraries
	@scripts/glibc_stubs.py

tarball: libraries  ## the program for other Linux systems, static and portable (glibc >= 2.28): build/dllm-VERSION-linux-*.tar.xz
	@set -e; for form in static portable; do \
	  cmake --preset $$form --log-level=WARNING; cmake --build --preset $$form -j $(JOBS) --target dllm; \
	  build/release-tools/bin/python scripts/tarball.py build/$$form; done

aarch64: setup  ## the static program for aarch64, cross-built: build/dllm-VERSION-linux-aarch64-static.tar.xz
	@scripts/setup --release --aarch64
	@scripts/aarch64_root
	@JOBS=$(JOBS) scripts/static_libraries build/static-libraries-aarch64 build/aarch64-packages/root
	@cmake --preset static-aarch64 --log-level=WARNING
	@cmake --build --preset static-aarch64 -j $(JOBS) --target dllm
	@build/release-tools/bin/python scripts/tarball.py build/static-aarch64

aarch64-test: aarch64  ## the program for aarch64 under an emulator: answers, verbs, the server
	@python3 -B tests/emulated_test.py build/static-aarch64/dllm

wheels: libraries  ## wheels of the Python package for glibc >= 2.28, tested in fresh environments: build/wheels
	@scripts/setup --wheels
	@build/release-tools/bin/python scripts/wheels.py

RELEASE_FORMS ?= deb tarball wheels wasm windows
release: setup  ## everything that a release has, with notes, bills of materials and digests: build/assets
	@scripts/release.py check
	@$(MAKE) --no-print-directory release-files

# Without the checks, which may fail for an old commit: what it is made from has newer versions.
release-files: setup
	@rm -rf build/dllm-*-linux-* build/dllm-*-windows-* build/dllm-*-browser.tar.gz build/wheels build/release/dllm_*.deb
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}; set -e; \
	  for form in $(RELEASE_FORMS); do $(MAKE) --no-print-directory $$form; done; \
	  case "$(RELEASE_FORMS)" in *wasm*) scripts/tarball.py --site build/wasm/site;; esac; \
	  scripts/release.py assets --url "$(RELEASE_URL)" $$(ls build/dllm-*-linux-*.tar.?z build/dllm-*.cdx.json build/dllm-*-browser.tar.gz \
	    build/dllm-*-windows-*.zip build/release/dllm_*.deb build/wheels/*.whl 2>/dev/null)

reproduce:  ## whether two builds in two folders give the same bytes, without a cache of the compiler's
	@scripts/reproduce.py

run: build  ## install, build, and answer a prompt with the embedded model
	build/release/dllm run "$(PROMPT)"

test: setup  ## every test, slow ones included
	@cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=OFF $(PYTHON_FLAGS) --log-level=WARNING
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release -j $(JOBS)

setup-python: setup
	@scripts/setup --python

python: setup-python  ## the Python package in build/release/python, and its tests
	@cmake --preset release -DDLLM_TESTS=ON $(PYTHON_FLAGS) --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target _dllm dllm_python_stub
	@ctest --test-dir build/release -R '^dllm_python$$' --output-on-failure

# With DLLM_RTL_LONG (make nightly): longer random programs, and one core more.
rtl-test: setup  ## the hardware: lint, synthesis check, co-simulation with the functional machine (< 8 minutes)
	@scripts/setup --rtl
	@scripts/rtl_lint
	@cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=ON -DDLLM_RTL_WAVES=OFF \
	  -DDLLM_RTL_ALL_CORES=$(if $(DLLM_RTL_LONG),ON,OFF) --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target dllm_rtl_test dllm_rtl_core_test dllm_rtl_answer_test \
	  dllm_rtl_issue_test \
	  $(if $(DLLM_RTL_LONG),dllm_rtl_fp8_test)
	@ctest --test-dir build/release -L '^rtl$$' -j $(JOBS) --output-on-failure

# RTL_RUN: prompts and flags of dllm_rtl_run; make nightly asks 8 of the validation set. DEVICE: a shipped profile or a
# file, whose hardware is built; SET: its keys with other values, separated by commas.
RTL_DEVICE = $(or $(abspath $(wildcard $(DEVICE))),$(DEVICE),$(CURDIR)/rtl/answer/answer-16.toml)
rtl-run: setup  ## a whole answer on the hardware of a device in simulation: make rtl-run DEVICE=plena-64-wide (minutes)
	@scripts/setup --rtl
	@cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=ON -DDLLM_RTL_WAVES=OFF --log-level=WARNING \
	  -DDLLM_RTL_DEVICE=$(RTL_DEVICE) -DDLLM_RTL_SET='$(SET)'
	@cmake --build --preset release -j $(JOBS) --target dllm_rtl_run
	build/release/rtl/dllm_rtl_run $(RTL_RUN)

rtl-formal:  ## prove properties of the hardware's small units for all inputs, by Yosys
	@scripts/setup --rtl
	@scripts/rtl_formal

check: setup  ## the fast tier: format, arrows and lengths, fast tests (< 5 minutes)
	@scripts/check_format
	@python3 scripts/check_prose.py
	@python3 scripts/check_includes.py
	@cmake --preset dev -DDLLM_TESTS=ON --log-level=WARNING
	@cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(JOBS) -L fast

rtl-wave: setup  ## a waveform of a sampling program: make rtl-wave RTL_WAVE=build/sampling.vcd
	@scripts/setup --rtl
	@cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=ON -DDLLM_RTL_WAVES=ON --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target dllm_rtl_test
	DLLM_RTL_WAVES=$(RTL_WAVE) build/release/rtl/dllm_rtl_test --gtest_filter='Forms/RtlSampling.*/0'

rtl-coverage:  ## lines of the hardware that its tests reach (some 20 minutes of CPU)
	@scripts/setup --rtl
	@scripts/rtl_coverage.py --jobs $(JOBS)

rtl-area:  ## gate equivalents, flip-flops and levels of the hardware's units by Yosys
	@scripts/setup --rtl
	@scripts/rtl_area.py

rtl-cells:  ## area, delay and energy of the units in a library's cells: make rtl-cells LIBERTY="FILE ..."
	@scripts/setup --rtl
	@scripts/rtl_cells.py $(addprefix --liberty ,$(LIBERTY)) --check

web:  ## compile the sources of the server's page (web/src) into web/dist, which is committed
	@scripts/setup --web
	@scripts/check_web.py --build

web-test: build  ## the page: unit tests, web/dist against its sources, and the page in Chromium without a window
	@scripts/setup --web --browser
	@scripts/check_web.py
	@python3 -B tests/app/serve_browser_test.py build/release/dllm

wasm: setup  ## the engine in WebAssembly and the page that has it inside, for any web server: build/wasm/site
	@scripts/setup --wasm
	@JOBS=$(JOBS) scripts/wasm_libraries
	@cmake --preset wasm --log-level=WARNING
	@cmake --build --preset wasm -j $(JOBS) --target dllm_browser_relaxed dllm_browser_no_relaxed
	@scripts/wasm_site.py build/wasm

wasm-test: wasm build  ## the WebAssembly build: kernels against the scalar set, answers in node, the page in Chromium
	@scripts/setup --browser
	@cmake --build --preset wasm -j $(JOBS) --target dllm_kernels_selftest
	@python3 -B tests/wasm/wasm_test.py build/wasm build/release/dllm

windows: setup  ## the program for Windows, tried under wine only (docs/guide/windows.md): build/dllm-VERSION-windows-x86_64.zip
	@scripts/setup --windows --release
	@JOBS=$(JOBS) scripts/windows_libraries
	@cmake --preset windows --log-level=WARNING
	@cmake --build --preset windows -j $(JOBS) --target dllm
	@build/release-tools/bin/python scripts/windows_zip.py build/windows

windows-test: windows build  ## the program for Windows under wine, against the native one: answers, files, server, downloads
	@scripts/setup --wine
	@python3 -B tests/windows/windows_test.py build/windows/dllm.exe build/release/dllm

windows-system-test: setup  ## test src/base/os_* under wine: files, locks, mapped files, instruction sets
	@scripts/setup --windows
	@JOBS=$(JOBS) scripts/windows_libraries
	@cmake --preset windows --log-level=WARNING
	@cmake --build --preset windows -j $(JOBS) --target dllm_system_test
	@scripts/setup --wine
	@python3 -B tests/windows/system_test.py build/windows/dllm_system_test.exe

macos: setup  ## whether the sources (without Vulkan, sandbox and MPI) compile for macOS, on arm64 and on x86_64; builds nothing
	@scripts/setup --zig
	@scripts/macos_syntax.py --jobs $(JOBS)
	@scripts/macos_syntax.py --jobs $(JOBS) --target x86_64-macos

bench: setup  ## kernel micro-benchmarks: make bench BENCH_FLAGS=--benchmark_filter=Q4_0
	@scripts/setup --bench
	@cmake --preset bench --log-level=WARNING
	@cmake --build --preset bench -j $(JOBS) --target dllm_bench_kernels
	build/bench/bench/dllm_bench_kernels $(BENCH_FLAGS)

speed: build  ## a page with this machine's speed, ten minutes on a quiet machine: make speed SPEED_FLAGS="-o PAGE.md"
	@scripts/speed_page.py $(SPEED_FLAGS)

bench-compare: setup  ## speed against another revision: make bench-compare REV=main
	@scripts/bench_compare.py $(REV)

research: build  ## the program with `dllm experiment` in build/release/research, and its tests
	@cmake --preset release -DDLLM_TESTS=ON -DDLLM_RTL=OFF --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target dllm_research
	@ctest --test-dir build/release -R '^(dllm_experiment|train_tiny_sets)$$' --output-on-failure

figures: research  ## the figures of papers on simulated devices: research/figures (about half an hour)
	@build/release/research/dllm experiment all

methods: build  ## every method on the two trained models: the tables and plots of research/lab/methods.md
	@research/scripts/methods_table.py build/release/dllm

lint:  ## shellcheck, ruff, mypy, and clang-tidy on the sources that differ from main; LINT=--all: on every source
	@scripts/setup --lint
	@scripts/lint $(LINT)

tsan:  ## the thread sanitizer over everything that runs on several threads
	@scripts/setup
	@cmake --preset tsan --log-level=WARNING
	@cmake --build --preset tsan -j $(JOBS) --target $(TSAN_PROGRAMS) dllm
	@set -e; export TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp; \
	for t in $(TSAN_PROGRAMS); do build/tsan/$$(cd build/tsan && find . -name $$t -type f) \
	  --gtest_brief=1 --gtest_filter="$$(echo '$(TSAN_TESTS)' | tr -s ' ' :)"; done; \
	for t in $(TSAN_SERVE); do python3 -B tests/app/$${t}_test.py build/tsan/dllm; done

format:  ## format C++ sources in place
	@scripts/check_format --fix

FUZZ_SECONDS ?= 60
fuzz:  ## build the fuzz targets and run each for a minute; they also measure whether the time grows with the input
	@scripts/setup --fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@scripts/fuzz $(FUZZ_SECONDS)

faults:  ## plant faults in a copy of the tree, one at a time, and count how many the tests notice (an hour)
	@scripts/setup
	@scripts/plant_faults.py --jobs $(JOBS)

nightly:  ## by hand, six hours at most: soak, planted faults, fuzz, tsan, coverage, hardware, emulation, all goldens
	@scripts/nightly.py

coverage:  ## line coverage of the tests, as text
	@scripts/setup --coverage
	@cmake --preset coverage --log-level=WARNING
	@cmake --build --preset coverage -j $(JOBS)
	@ctest --test-dir build/coverage -j $(JOBS) -L fast --output-on-failure
	@gcovr -r . build/coverage --exclude '.*_test.cpp' --print-summary | tail -n 4

clean:  ## remove build/
	rm -rf build
