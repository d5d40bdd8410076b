"""Whether the keys of a device are read by the verbs that say so, and by no others.

    python3 npu_keys_test.py PATH/TO/dllm [unittest arguments]

`dllm npu devices --keys -o json` lists for every key the verbs that read it. For each of them, this changes the key and
expects another result from at least one workload. All keys that a verb does not read are changed together, and its
results must stay the same.
"""

import json
import pathlib
import re
import typing
import unittest

from cli_case import CliCase, run, sanitized
from npu_shapes import DENSE, EXPERTS

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "src" / "npu_core" / "testdata"
NETWORKS = pathlib.Path(__file__).resolve().parents[1] / "networks"
RECORDINGS = pathlib.Path(__file__).resolve().parents[2] / "models" / "recordings"

# What the programs of testdata/ leave out: draws, prefixes, shifts, reciprocals, rows that are written, transfers that
# overlap, and an address in the second half of the memory.
LANES = """C_SET_ADDR_REG a1, gp0, gp0
li gp1, 4
C_SET_ADDR_REG a2, gp1, gp0
li gp1, 64
li gp2, 8192
H_PREFETCH_V gp0, gp0, a1, 0, 0, 0
H_PREFETCH_V gp2, gp2, a1, 0, 0, 0
H_PREFETCH_M gp0, gp0, a1, 0, 0, 0
H_PREFETCH_V gp2, gp0, a2, 0, 0, 0
C_FENCE 0
V_PS_V gp1, gp1, 0
V_SHFT_V gp1, gp1, gp0, 0
V_RECI_V gp1, gp1, 0
S_LI_FP f1, -inf
S_LI_FP f2, 0.0
V_RED_DRAW gp5, gp1, gp3, f1, f2, gp4
H_STORE_V gp1, gp0, a1, 0, 0, 0
C_FENCE 0
C_BREAK
"""
# A tile of weights that vector code unpacks.
PACKED = "C_SET_ADDR_REG a1, gp0, gp0\nH_PREFETCH_M gp0, gp0, a1, 0, 0, 0\nC_FENCE 0\nC_BREAK\n"
# Elements of mxfp8_e4m3 from 0.5 to 0.94, and their scales at byte 8192, twice.
ELEMENTS = bytes(0x30 + (i * i // 7) % 8 for i in range(8192)) + bytes([127] * 2048)
DATA = ELEMENTS + bytes(65536 - len(ELEMENTS)) + ELEMENTS
ROWS = b"".join(bytes([i * i % 256, 0x3f]) for i in range(4096))  # BF16 from 0.5 to 1
PROGRAM = """[[tensor]]
name = "w"
bytes = 400000
granule = 10000
lasting = true
[[tensor]]
name = "v"
bytes = 50000
lasting = true
[[tensor]]
name = "x"
bytes = 1000
[[operator]]
name = "product"
us = 20
reads = ["v", "w"]
writes = ["x"]
"""
TABLES = {
    "gemms": "rows,outputs,inputs,us\n32,4096,4096,400\n128,4096,4096,1000\n",
    "steps": "rows,keys,us\n32,64,900\n",
    "few": "rows,keys,us\n8,16,900\n16,32,3000\n",
    "mappings": "bytes,us\n4096,200\n1048576,240\n104857600,4000\n",
    "shared": "rows,keys,host_rows,host_keys,us\n32,64,8,64,1200\n",
    "gemm-joules": "rows,outputs,inputs,joules\n32,4096,4096,0.002\n",
    "step-joules": "rows,keys,joules\n32,64,0.01\n",
}

# Other values of a key, the first of which mostly makes a difference. Keys without an entry are multiplied.
VALUES = {
    "array.blen": [8, 64, 16, 2], "array.mlen": [32, 64, 128, 256, 1024], "array.vlen": [128, 256, 512, 1024],
    "array.hlen": [64, 16, 32, 128], "array.vector_units": [3], "array.noise_lanes": [32, 0],
    "clock.ghz": [0.7, 1.8], "clock.nominal_ghz": [1.25, 2.5], "clock.nominal_v": [0.72, 0.8],
    "clock.min_v": [0.68, 0.7], "clock.threshold_v": [0.3], "clock.alpha": [1.5],
    "issue.width": [1], "issue.queue": [1], "issue.vector_starts": [1], "issue.chaining": [0],
    "issue.accumulators": [1],
    "sram.matrix_tiles": [8, 2, 1], "sram.vector_rows": [4096, 256, 64], "sram.fp_words": [8], "sram.int_words": [8],
    "sram.vector_ports": [1], "sram.matrix_ports": [1], "sram.instruction_words": [64],
    "memory.standard": ["hbm2-2000", "lpddr5x-8533", "hbm3-6400"], "memory.stacks": [1, 2, 4],
    "memory.mapping": ["robaracoch"],
    "memory.row_policy": ["closed"], "memory.refresh": ["none"], "memory.dma_gbps": [2, 0.5],
    "memory.frontend_ns": [50], "memory.phy_mm2": [20],
    "prefetch.outstanding": [1],
    "latency.vector_add": [40], "latency.vector_mul": [40], "latency.vector_exp": [40], "latency.vector_reci": [40],
    "latency.vector_max": [40], "latency.shift": [40],
    "numerics.weight": ["mxint8:32:ocp", "q8_0"], "numerics.activation": ["mxint4:16:ocp", "fp16", "bf16"],
    "numerics.kv": ["mxint8:16:ocp", "bf16"], "numerics.logits": ["bf16", "mxfp8_e4m3:32:ocp"],
    "numerics.smooth_keys": ["mean"], "numerics.smooth_values": ["minmax"], "numerics.smooth_alpha": [0.25],
    "host.dispatch_us": [30], "host.batch_us": [70], "host.batch_ops": [3], "host.dequantize_gbps": [1, 0],
    "host.cores": [4, 2], "host.int8_gops": [1], "host.f16_gflops": [1],
    "host.shared_gbps": [62], "host.active_w": [9], "host.idle_w": [0.01],
    "window.bytes": [600000, 150000], "window.staging_bytes": [120000], "window.map_us": [70],
    "window.map_us_per_page": [2], "window.page_bytes": [8192], "window.mapping_bytes": [100000, 40000, 170000, 250000],
    "window.mappings": [2, 1],
    "thermal.resume_k": [0.08], "thermal.start_k": [0.1], "thermal.sustained_w": [8],
    "energy.static_w": [3],
}
# What only other models show than the small one that answers: lanes are shifted for experts, and the length of rows
# decides where sums of more lanes are rounded.
UNREACHED = {(f"{verb} --backend npu --npu-timing simulated", "latency.shift") for verb in ("run", "bench")} | {
    ("run --backend npu --npu-processor host", key) for key in ("array.mlen", "array.vlen")} | {
    # A network of 11 kB has one split into pages.
    ("npu network --plan", "window.staging_bytes"), ("npu network --plan", "window.mapping_bytes"),
    ("npu calibrate", "array.hlen")}  # of a phone, whose tiles are as long as a head
# Of an array, valid together.
GEOMETRY = {"array.blen": 16, "array.mlen": 128, "array.hlen": 64, "array.vlen": 256}
# A processor, a window and heat, for the devices that have none: only together are they a valid profile.
OTHERS = {
    "host.cores": 4, "host.int8_gops": 100, "host.f16_gflops": 50, "host.f32_gflops": 20, "host.memory_gbps": 30,
    "host.shared_gbps": 45, "host.active_w": 4, "host.idle_w": 0.3, "thermal.sustained_w": 3, "thermal.rise_k": 20,
    "thermal.resume_k": 10, "thermal.capacity_j_per_k": 15, "thermal.throttled_ghz": 0.5, "thermal.start_k": 5,
    "window.bytes": 2000000000, "window.staging_bytes": 1000000, "window.mapping_bytes": 1000000000,
}

HOST = {key: value for key, value in OTHERS.items() if key.startswith("host.")}

SLOWER = {"clock.ghz": 0.8}
LARGE = {"memory.standard": "hbm2e-3200", "memory.stacks": 2}
SMALL = {"array.hlen": 32, **SLOWER}
DRAWS = {"array.noise_lanes": 8}
SMOOTH = {"numerics.smooth_keys": "minmax", "numerics.smooth_values": "mean", "numerics.smooth_alpha": 0.5}
PHONE = {"clock.ghz": 1.9, "memory.dma_gbps": 0}
BUSY = {**PHONE, "array.macs_per_pe": 0.02}  # its array limits every product
# Passes of a small model heat it above the limit or let it cool, each within a pass.
HOT = {**PHONE, "thermal.sustained_w": 1.5, "thermal.rise_k": 0.15, "thermal.resume_k": 0.12,
       "thermal.capacity_j_per_k": 0.001, "thermal.throttled_ghz": 1.0}
HOT_HOST = {**HOT, "thermal.sustained_w": 5, "thermal.rise_k": 0.5, "thermal.resume_k": 0.4}
NARROW = {**PHONE, "window.bytes": 700000, "window.staging_bytes": 200000, "window.map_us": 200,
          "window.mapping_bytes": 400000}
# For blocks: it holds the activations of a warm step of two sequences, and stages most of the weights.
BLOCK_WINDOW = {**PHONE, "window.bytes": 345000, "window.staging_bytes": 80000, "window.map_us": 200,
                "window.map_us_per_page": 0.15, "window.mapping_bytes": 190000, "window.mappings": 4}
NARROWER = {**PHONE, "window.bytes": 200000, "window.staging_bytes": 80000, "window.map_us": 200,
            "window.mapping_bytes": 60000}
# For a network of 11 kB.
TIGHT = {"window.bytes": 16384, "window.staging_bytes": 8192, "window.map_us": 200, "window.map_us_per_page": 0.15,
         "window.mapping_bytes": 8192, "window.mappings": 4}


REFRESHED = ("Ben has 12 pens. Ben gets 3 more.", "--canvas-length", 32, "--algorithm", "revision", "--cache", "dual",
             "--visible-threshold", 0.3, "--stable-threshold", 2, "--refresh-path", "second")


class Workload(typing.NamedTuple):
    """A command, and its device: a shipped profile with changes."""

    base: str
    changes: dict
    words: tuple


def workloads(here):
    small, experts = ("--shape", here / "small.toml"), ("--shape", here / "experts.toml")
    step, whole = ("--batch", 2, "--rows", 8, "--context", 40), ("--batch", 1, "--rows", 40, "--context", 40)
    block = ("--block", 8, "--context", 64, "--batch", 2)
    drawn = ("--reduced-head", "--temperature", 1)
    sample = ("--batch", 2, "--block", 8, "--vocab", 2000)
    recorded = ("-n", 32, "-p", 16, "--replay", RECORDINGS / "harder-fast.json")
    refreshed = ("-n", 128, "-p", 16, "--replay", RECORDINGS / "second-system.json")
    answer, short = ("he", "--canvas-length", 24, "--block-length", 8), ("he", "--canvas-length", 8)
    flags = {name: f"--{name}" for name in TABLES if name != "few"} | {"shared": "--shared-steps"}
    tables = [word for name, flag in flags.items() for word in (flag, here / f"{name}.csv")]
    data = ("--load", f"hbm@0={here / 'data.bin'}", "--load", f"vram@0={here / 'rows.bin'}", "--hazards",
            *(word for piece in ("vram@8192:12288", "vram@0:1024", "int@0:32", "hbm@0+8192:1024:mxfp8_e4m3:8:plena")
              for word in ("--dump", piece)))

    def npu(verb, base, changes, *words):
        return Workload(base, changes, ("npu", verb, *words))

    def timed_step(base, changes, *words):
        return npu("step", base, changes, "--timing-cache", "off", *words)

    def network(base, changes, name, *words):
        return npu("network", base, changes, NETWORKS / f"{name}.safetensors", "--timing-cache", "off", *words)

    def answers(verb, base, changes, *words):
        return Workload(base, changes, (*verb.split(), "--backend", "npu", *words))

    def programs(verb, *words, common=()):
        sources = [PROGRAMS / f"{name}.asm" for name in ("flash_attention", "sampling", "gemm")] + [here / "lanes.asm"]
        return [*(npu(verb, "plena-64", SLOWER | DRAWS | LARGE, source, *words, *common) for source in sources),
                npu(verb, "mobile-sm8750", PHONE, here / "packed.asm", *common)]

    return {
        "npu run": programs("run", *data),
        "npu run --timing": programs("run", common=["--timing"]),
        "npu trace": programs("trace"),
        "npu compile": [npu("compile", "plena-64", SMALL | SMOOTH, *small, *whole),
                        npu("compile", "plena-64", SMALL | DRAWS, *experts, *step, *drawn),
                        npu("compile", "plena-64", SMALL, *small, *step),
                        npu("compile", "mobile-sm8750", PHONE, *small, *step)],
        "npu compile --mapping search": [npu("compile", base, changes, *shape, *step, "--mapping", "search")
                                         for base, changes, shape in (("plena-64", SMALL, experts),
                                                                      ("plena-64", SMALL, small),
                                                                      ("mobile-sm8750", PHONE, small))],
        "npu step": [timed_step("plena-64", SMALL | SMOOTH | DRAWS, *small, *whole),
                     timed_step("mobile-sm8750", PHONE, *small, *step),
                     timed_step("plena-64", SMALL, *experts, *step)],
        "npu step --temperature": [timed_step("plena-64", SMALL | DRAWS, *experts, *step, *drawn)],
        "npu step --analytic": [timed_step("plena-64", SMALL, *experts, *step, "--analytic"),
                                timed_step("plena-64", SMALL, *small, *step, "--analytic"),
                                timed_step("mobile-sm8750", PHONE, *small, *step, "--analytic")],
        "npu network": [network("plena-64", SLOWER | SMOOTH, "bert"), network("plena-64", SLOWER, "vit"),
                        network("mobile-sm8750", PHONE, "decoder")],
        "npu network --analytic": [network("plena-64", SLOWER, "bert", "--analytic"),
                                   network("mobile-sm8750", PHONE, "decoder", "--analytic")],
        "npu network --plan": [network("mobile-sm8750", PHONE | TIGHT, "bert", "--plan"),
                               network("mobile-sm8750", BUSY | TIGHT, "bert", "--plan")],
        "npu sampling": [npu("sampling", "plena-64", SLOWER | DRAWS, *sample),
                         npu("sampling", "mobile-sm8750", PHONE, *sample),
                         npu("sampling", "plena-64", SLOWER, *sample, "--issue", "serial", "--published", "no")],
        "npu sampling --temperature": [npu("sampling", "plena-64", SLOWER | DRAWS, *sample, "--temperature", 1)],
        "npu dram": [npu("dram", "dart-512", {}, "--requests", 2000, "--pattern", "random", "--bytes", 32, "--writes",
                         0.3),
                     npu("dram", "dart-512", {}, "--trace", here / "requests.txt")],
        "npu analyze": [npu("analyze", "plena-64", SMALL | DRAWS, *experts, *block),
                        npu("analyze", "plena-64", SMALL, *small, *block),
                        npu("analyze", "mobile-sm8750", BLOCK_WINDOW, *small, *block)],
        "npu analyze --unfused-head": [npu("analyze", "mobile-sm8750", PHONE, *small, *block, "--unfused-head")],
        "npu sweep": [npu("sweep", "plena-64", SMALL | DRAWS, *experts), npu("sweep", "plena-64", SMALL, *small),
                      npu("sweep", "mobile-sm8750", BLOCK_WINDOW, *small)],
        "npu plan": [npu("plan", base, changes, *small, "--rows", 40, "--context", 40) for base, changes in (
            ("mobile-sm8750", NARROWER), ("mobile-sm8750", BUSY | NARROWER),
            ("plena-64", SMALL | {"array.macs_per_pe": 0.02, "window.bytes": 400000,
                                            "window.staging_bytes": 100000}))] + [
            npu("plan", "plena-64", SMALL | SMOOTH | {"window.bytes": 1500000, "window.staging_bytes": 200000}, *experts,
                "--rows", 40, "--context", 40)],
        "npu plan --program": [npu("plan", "mobile-sm8750", NARROWER | {"window.mapping_bytes": 0},
                                   "--program", here / "program.toml")],
        "npu calibrate": [npu("calibrate", "mobile-sm8750", PHONE | DRAWS, *small, *tables),
                          npu("calibrate", "mobile-sm8750", BUSY | NARROWER | {"memory.dma_gbps": 90}, *small,
                              "--steps", here / "few.csv")],
        "bench --backend npu": [answers("bench generate", "mobile-sm8750", HOT, *recorded),
                                answers("bench generate", "mobile-sm8750", BUSY | NARROW, *recorded),
                                answers("bench generate", "mobile-sm8750", PHONE, *refreshed),
                                answers("bench generate", "plena-64", SMALL | DRAWS, *recorded)],
        "bench --backend npu --npu-timing simulated": [
            answers("bench generate", base, changes, *recorded, "--answers", 1, "--npu-timing", "simulated")
            for base, changes in (("plena-64", SMALL), ("mobile-sm8750", HOT))],
        "bench --backend npu --npu-processor host": [
            answers("bench generate", "mobile-sm8750", HOT_HOST, *recorded, "--npu-processor", "host")],
        "run --backend npu": [answers("run", "mobile-sm8750", HOT, *answer),
                              answers("run", "plena-64", SMALL | SMOOTH | DRAWS, *answer),
                              answers("run", "mobile-sm8750", NARROW, *answer),
                              answers("run", "mobile-sm8750", PHONE, *answer, *REFRESHED)],
        "run --backend npu --npu-values machine": [
            answers("run", "plena-64", SMALL, *short, "--npu-values", "machine")],
        "run --backend npu --npu-timing simulated": [
            answers("run", base, changes, *short, "--npu-timing", "simulated")
            for base, changes in (("plena-64", SMALL), ("mobile-sm8750", HOT))],
        "run --backend npu --npu-processor host": [
            answers("run", "mobile-sm8750", HOT_HOST, *answer, "--npu-processor", "host"),
            answers("run", "plena-64", SMALL | SMOOTH | HOST, *answer, "--npu-processor", "host")],
    }


# Of results: the command, the machine that simulates, its clock, and the profile itself.
ECHOES = {"command", "version", "host", "device", "set", "compile_ms", "simulate_ms", "instructions_per_second",
          "stats", "from_cache", "hash", "config", "host_seconds", "time"}


def result_of(value, path=()):
    if isinstance(value, dict):
        return {key: result_of(one, (*path, key)) for key, one in value.items()
                if key not in ECHOES and (*path, key) not in (("timing", "simulation", "seconds"), ("seconds",))}
    if isinstance(value, list):
        return [result_of(one, path) for one in value]
    return float(f"{value:.11g}") if isinstance(value, float) else value  # without rounding errors


class Keys(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, text in (("small.toml", DENSE), ("experts.toml", EXPERTS), ("lanes.asm", LANES),
                           ("packed.asm", PACKED),
                           ("requests.txt", "R 0 64 0\nW 8192 64 1000\nR 0 64 5000\n"), ("program.toml", PROGRAM),
                           *((f"{name}.csv", text) for name, text in TABLES.items())):
            (cls.dir / name).write_text(text)
        (cls.dir / "data.bin").write_bytes(DATA)
        (cls.dir / "rows.bin").write_bytes(ROWS)
        cls.list = json.loads(run("npu", "devices", "--keys", "-o", "json").stdout)
        cls.keys = {key["key"]: key for key in cls.list["keys"] if key["models"] != ["checks"]}
        cls.shipped = {one["name"]: one for one in json.loads(run("npu", "devices", "-o", "json").stdout)}
        cls.workloads = workloads(cls.dir)

    def profile(self, base, changes):
        tables = {}
        for key, value in changes.items():
            section, name = key.split(".")
            tables.setdefault(section, []).append(f"{name} = {json.dumps(value)}\n")
        text = f'base = "{base}"\nname = "d"\nsummary = ""\n'
        file = self.dir / "d.toml"
        file.write_text(text + "".join(f"[{section}]\n" + "".join(lines) for section, lines in tables.items()))
        return file

    def result(self, workload, changes):
        """A workload's result with more changes: (exit code, result or message)."""
        file = self.profile(workload.base, workload.changes | changes)
        form = ("--emit", "json") if "compile" in workload.words else ("-o", "json")
        words = [*workload.words, "--device", file, *form]
        if "sweep" in workload.words:
            spec = self.dir / "spec.toml"
            spec.write_text(f'name = "s"\nmodel = "{workload.words[3]}"\n[device]\nbase = "{file}"\n[workload]\n'
                            "batch = [2]\nblock = [8]\ncontext = [64]\n")
            words = ["npu", "sweep", spec, "--db", self.dir / "s.sqlite", "-o", "json"]
            (self.dir / "s.sqlite").unlink(missing_ok=True)
        found = run(*words, XDG_CACHE_HOME=str(self.dir / "cache"))
        self.assertNotIn(f"{file}:", found.stderr, f"an invalid profile: {changes}")
        if found.returncode != 0:
            return found.returncode, re.sub(r"'[^']*'", "", found.stderr)
        return 0, result_of(json.loads(found.stdout))

    def others(self, key, workload):
        """Other values of a key than the workload's."""
        section, name = key.split(".")
        now = workload.changes.get(key, self.shipped[workload.base][section][name])
        if key in VALUES:
            return [value for value in VALUES[key] if value != now]
        if now == 0:
            return [OTHERS.get(key, 1)]
        return [2 * now, max(1, now // 2)] if isinstance(now, int) else [1.5 * now, 0.6 * now]

    def changes_it(self, key, cases, plain):
        for workload, before in zip(cases, plain):
            for value in self.others(key, workload):
                if self.valid(workload, {key: value}) and self.result(workload, {key: value}) != before:
                    return True
        return False

    def valid(self, workload, changes):
        return run("npu", "devices", self.profile(workload.base, workload.changes | changes)).returncode == 0

    def check_verb(self, verb):
        row = next(one for one in self.list["verbs"] if one["verb"] == verb)
        cases = self.workloads[verb]
        plain = [self.result(workload, {}) for workload in cases]
        self.assertEqual([text for code, text in plain if code != 0], [])
        known = [key for key in row["reads"] if key in self.keys and (verb, key) not in UNREACHED]
        blind = [key for key in known if not self.changes_it(key, cases, plain)]
        unread = [key for key in self.keys if key not in row["reads"]]
        if row["option"]:  # the keys of its verb are tested there
            verbs = [one for one in self.list["verbs"] if verb.startswith(one["verb"] + " --") and not one["option"]]
            unread = [key for key in unread if key not in verbs[0]["reads"] or key in row["except"]]
        read = {key for workload, before in zip(cases, plain) for key in self.read_of(workload, before, unread)}
        self.maxDiff = None
        self.assertEqual({"changes nothing": blind, "changes the result": sorted(read)},
                         {"changes nothing": [], "changes the result": []}, f"keys that {verb} reads, and others")

    def read_of(self, workload, before, unread):
        """Those of the keys, all of which should be without effect, that have one."""
        together = self.changed_together(workload, unread)
        if self.result(workload, together) == before:
            return []
        return [key for key, value in together.items() if self.valid(workload, {key: value})
                and self.result(workload, {key: value}) != before] or unread

    def changed_together(self, workload, keys):
        """Changes of many keys that make a valid profile: all of them if possible."""
        first = {}
        for key in keys:
            section, name = key.split(".")
            now = workload.changes.get(key, self.shipped[workload.base][section][name])
            others = [value for value in [OTHERS.get(key, now), *self.others(key, workload)] if value != now]
            if others:
                first[key] = others[0]
        if set(GEOMETRY) <= set(keys):
            first |= GEOMETRY
        if self.valid(workload, first):
            return first
        changes = {key: value for key, value in first.items() if key in OTHERS or key in GEOMETRY}
        if not self.valid(workload, changes):
            changes = {}
        for key in keys:
            fits = [value for value in self.others(key, workload) if self.valid(workload, changes | {key: value})]
            if key not in changes and fits:
                changes[key] = fits[0]
        return changes

    def test_every_verb_has_workloads(self):
        self.assertEqual([one["verb"] for one in self.list["verbs"] if one["verb"] not in self.workloads], [])


def add_tests():
    for verb in workloads(pathlib.Path()):
        # Thousands of runs of code that other sanitized tests run too.
        @unittest.skipIf(sanitized(), "the tests of the optimised program change every key")
        def test(self, verb=verb):
            self.check_verb(verb)
        setattr(Keys, "test_" + re.sub(r"\W+", "_", verb), test)


add_tests()

if __name__ == "__main__":
    unittest.main()
