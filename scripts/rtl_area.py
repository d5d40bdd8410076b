#!/usr/bin/env python3
"""Gate equivalents, flip-flops and longest paths of the units in rtl/ by Yosys, as a Markdown table.

    scripts/rtl_area.py                 the table of docs/design/rtl.md (about ten minutes of CPU)
    scripts/rtl_area.py --quick         each unit once, at its smallest
    scripts/rtl_area.py max_index:64    one unit at one VLEN

A gate equivalent is a two-input NAND. Other gates count by their area in ASAP7 (7.5 tracks, x1): inverter 0.5, NAND,
NOR, AND, OR 1, XOR, XNOR 1.5, flip-flop 3.33; a multiplexer, which that library lacks, as an AOI with an inverter and a
NAND, 2.5. SRAM is not included. Levels are consecutive gates, without wires or sizing.
"""

import argparse
import pathlib
import re
import subprocess
import sys

RTL = pathlib.Path(__file__).resolve().parent.parent / "rtl"
# Not among the sources: the package comes first, and Yosys unrolls the issue stage for longer than anyone waits.
APART = {"dllm_isa_pkg.sv", "issue_stage.sv"}
WEIGHTS = {"NOT": 0.5, "NAND": 1, "NOR": 1, "AND": 1, "OR": 1, "XOR": 1.5, "XNOR": 1.5, "MUX": 2.5, "ANDNOT": 1,
           "ORNOT": 1}
FLOP = 3.33
NAND_UM2 = 0.08748  # ASAP7, NAND2x1

# Units: parameter that is swept (or none), its values, fixed parameters.
UNITS: dict[str, tuple[str, list[int], dict[str, int]]] = {
    "max_index": ("VLEN", [8, 16, 64], {}),
    "row_sum": ("VLEN", [8, 16], {}),
    "top_mask": ("LANES", [8, 16, 64], {}),
    "vector_lanes": ("VLEN", [8], {}),
    "more_lanes": ("VLEN", [8], {}),
    "row_scan": ("VLEN", [8], {}),
    "row_shift": ("VLEN", [8], {}),
    "hadamard_row": ("VLEN", [8], {}),
    "router": ("", [0], {}),  # of 8 lanes, its default: Yosys 0.23 aborts when it is given a parameter
    "select_int": ("LANES", [8, 64], {}),
    "fp_add": ("MAN", [7, 23], {}),
    "bf16_exp": ("", [0], {}),
    "bf16_reciprocal": ("", [0], {}),
    "bf16_sqrt": ("", [0], {}),
    "scalar_fp": ("", [0], {}),
    "sequencer": ("", [0], {}),
    "mx_pe": ("", [0], {"A_WIDTH": 8, "W_WIDTH": 4}),
    "pe_column": ("BLEN", [4, 8], {}),
}


def synthesise(top: str, parameters: dict[str, int]) -> tuple[float, int, int]:
    """Gate equivalents without flip-flops, flip-flops, levels."""
    sources = " ".join(["dllm_isa_pkg.sv", *sorted(f.name for f in RTL.glob("*.sv") if f.name not in APART)])
    settings = "".join(f" -chparam {name} {value}" for name, value in parameters.items())
    script = (f"read_verilog -sv -I. {sources}; hierarchy -check -top {top}{settings}; blackbox sram_rows sram_words; "
              "proc; flatten; opt; wreduce; alumacc; opt; memory -nomap; memory_map; techmap; opt -fast; "
              "dfflegalize -cell $_DFF_P_ x -cell $_DFF_PN0_ x; simplemap; abc -fast -g simple; opt_clean; "
              "check; stat; ltp -noff")
    run = subprocess.run(["yosys", "-p", script], cwd=RTL, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"rtl_area: yosys fails for {top}:\n{run.stdout[-800:]}{run.stderr}")
    report = run.stdout[run.stdout.rindex("Printing statistics"):]
    gates, flops = 0.0, 0
    for kind, count in re.findall(r"\$_([A-Z0-9_]+)_\s+(\d+)", report):
        if kind.startswith("DFF"):
            flops += int(count)
        elif kind in WEIGHTS:
            gates += WEIGHTS[kind] * int(count)
        else:
            sys.exit(f"rtl_area: {top} has cells of unknown kind {kind}")
    levels = re.search(r"Longest topological path in \S+ \(length=(\d+)\)", report)
    return gates, flops, int(levels.group(1)) if levels else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="gate equivalents, flip-flops and levels of the units in rtl/")
    parser.add_argument("units", nargs="*", metavar="UNIT[:N]")
    parser.add_argument("--quick", action="store_true", help="each unit once, at its smallest")
    arguments = parser.parse_args()
    work = [(top, value) for top, (_, values, _) in UNITS.items() for value in values]
    if arguments.quick:
        work = [(top, values[0]) for top, (_, values, _) in UNITS.items()]
    if arguments.units:
        work = []
        for text in arguments.units:
            top, _, value = text.partition(":")
            if top not in UNITS:
                sys.exit(f"rtl_area: no unit {top!r} (known: {', '.join(UNITS)})")
            work += [(top, int(value))] if value else [(top, v) for v in UNITS[top][1]]
    print("| Unit | Size | Gates (GE) | Flip-flops | Total (GE) | As NANDs, µm² | Levels |")
    print("|---|---|---|---|---|---|---|")
    for top, value in work:
        name, _, fixed = UNITS[top]
        gates, flops, levels = synthesise(top, fixed | ({name: value} if name else {}))
        total = gates + FLOP * flops
        size = f"{name} {value}" if name else "–"
        print(f"| `{top}` | {size} | {gates:,.0f} | {flops:,} | {total:,.0f} | {total * NAND_UM2:,.0f} | {levels} |",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
