#!/usr/bin/env python3
"""Writes the tables of rtl/*_rom.sv; --check fails if a file differs.

e^x = 2^(x log2 e). The fraction f of the exponent selects one of 64 chords of 2^f; the few BF16 arguments whose result
the chords would round wrongly are a list of exceptions. docs/design/rtl.md explains the choice of the widths.
"""

import argparse
import decimal
import math
import pathlib
import struct
import sys

RTL = pathlib.Path(__file__).resolve().parent.parent / "rtl"
# Widths in bits: fraction of log2 e, of the exponent, index of a chord, its start, its rise.
LOG2E_BITS, FRACTION, INDEX, START, RISE = 14, 16, 6, 15, 15
LOG2E = round(math.log2(math.e) * 2**LOG2E_BITS)
FIRST = (127 - 9) << 7  # below 2^-9 the result is 1
CLAMP = 0x42B0  # 88


def bf16_value(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def bf16_round(value: float) -> int:
    """A positive finite double, to nearest even."""
    mantissa, exponent = math.frexp(value)
    if exponent - 1 < -126:
        return round(value / 2.0**-133)
    return ((exponent - 1 + 127) << 7) + round(mantissa * 256) - 128


def chords() -> list[tuple[int, int]]:
    result = []
    for i in range(1 << INDEX):
        a, b = 2 ** (i / (1 << INDEX)), 2 ** ((i + 1) / (1 << INDEX))
        # Half way between the chord and the tangent parallel to it.
        offset = (2 ** ((i + 0.5) / (1 << INDEX)) - (a + b) / 2) / 2
        result.append((round((a + offset - 1) * 2**START), round((b - a) * 2**RISE)))
    return result


def approximate(sign: int, magnitude: int, table: list[tuple[int, int]]) -> int:
    """What rtl/bf16_exp.sv computes without the exceptions."""
    product = (128 | magnitude & 127) * LOG2E
    y = (product << ((magnitude >> 7) - 118)) >> (16 + LOG2E_BITS - FRACTION)
    y = -y if sign else y
    fraction = y & ((1 << FRACTION) - 1)
    low = FRACTION - INDEX
    start, rise = table[fraction >> low]
    chord = (1 << START) + start + ((rise * (fraction & ((1 << low) - 1))) >> (low + RISE - START))
    return (((y >> FRACTION) + 127) << 7) + ((chord + (1 << (START - 8))) >> (START - 7)) - 128


def exp_rom() -> str:
    table = chords()
    exceptions = []
    for sign in (0, 1):
        for magnitude in range(FIRST, CLAMP + 1):
            x = bf16_value(magnitude)
            right = bf16_round(math.exp(-x if sign else x))
            if approximate(sign, magnitude, table) != right:
                exceptions.append((sign << 15 | magnitude, right))
    start_bits = max(start for start, _ in table).bit_length()
    rise_bits = max(rise for _, rise in table).bit_length()
    lines = [
        "// Written by scripts/rtl_tables.py. Do not edit.",
        f"// Chords of 2^f over f in [i/{1 << INDEX}, (i+1)/{1 << INDEX}): start and rise; and the {len(exceptions)}",
        "// arguments that they round wrongly.",
        "module bf16_exp_rom (",
        f"  input  logic [{INDEX - 1}:0]  index_i,",
        f"  output logic [{start_bits - 1}:0] start_o,",
        f"  output logic [{rise_bits - 1}:0]  rise_o,",
        "  input  logic [15:0] argument_i,",
        "  output logic        exception_o,",
        "  output logic [14:0] result_o",
        ");",
        "  always_comb begin",
        "    case (index_i)",
    ]
    for i, (start, rise) in enumerate(table):
        label = "default" if i == len(table) - 1 else f"{INDEX}'d{i}"
        lines.append(f"      {label}: {{start_o, rise_o}} = {{{start_bits}'d{start}, {rise_bits}'d{rise}}};")
    lines += ["    endcase", "  end", "", "  always_comb begin", "    exception_o = 1'b1;", "    case (argument_i)"]
    for argument, right in exceptions:
        lines.append(f"      16'h{argument:04x}: result_o = 15'h{right:04x};")
    lines += ["      default: begin", "        exception_o = 1'b0;", "        result_o = 15'h0;", "      end",
              "    endcase", "  end", "endmodule", ""]
    return "\n".join(lines)


def reciprocal_rom() -> str:
    lines = [
        "// Written by scripts/rtl_tables.py. Do not edit.",
        "// 2^18 / (128 + i), rounded to odd: 2 / 1.i with 10 fraction bits and a sticky one.",
        "module bf16_reciprocal_rom (",
        "  input  logic [6:0]  index_i,",
        "  output logic [11:0] quotient_o",
        ");",
        "  always_comb begin",
        "    case (index_i)",
    ]
    for i in range(128):
        # i = 0 is exactly 2; the user of the table handles it separately.
        quotient = min((2**18 // (128 + i)) << 1 | int(2**18 % (128 + i) != 0), 4095)
        label = "default" if i == 127 else f"7'd{i}"
        lines.append(f"      {label}: quotient_o = 12'd{quotient};")
    lines += ["    endcase", "  end", "endmodule", ""]
    return "\n".join(lines)


# The logarithm of draws: bits of fraction, and the distances 2^-s of its second to fourth factor.
LOG_BITS, LOG_WIDTH, LOG_STEPS = 128, 136, (11, 16, 21)


def log_fixed(numerator: int, denominator: int) -> int:
    """ln(numerator / denominator) in units of 2^-LOG_BITS, rounded."""
    with decimal.localcontext() as context:
        context.prec = 60
        value = (decimal.Decimal(numerator) / decimal.Decimal(denominator)).ln() * decimal.Decimal(2) ** LOG_BITS
        return int(value.to_integral_value())


def log_factor(index: int) -> int:
    """256 times the reciprocal of the middle of [index, index + 1) / 128; next to 1 it is 1."""
    return 256 if index in (127, 128) else round(256 * 128 / (index + 0.5))


def log_rom() -> str:
    """Factors that bring a number to 1, and their logarithms."""
    def hexadecimal(value: int) -> str:
        return f"{LOG_WIDTH}'h{value % 2**LOG_WIDTH:x}"

    lines = [
        "// Written by scripts/rtl_tables.py. Do not edit.",
        "// Factor near 1 / x for x in [index / 128, (index + 1) / 128), in 256ths, and logarithms of the factors and of",
        "// 1 - j 2^-s; 128 bits of fraction.",
        "module negative_log_rom (",
        "  input  logic [7:0]        index_i,",
        "  output logic [8:0]        factor_o,",
        f"  output logic [{LOG_WIDTH - 1}:0]      log_o,",
    ]
    for step in LOG_STEPS:
        lines += [f"  input  logic [6:0]        j{step}_i,", f"  output logic [{LOG_WIDTH - 1}:0]      log{step}_o,"]
    lines[-1] = lines[-1].rstrip(",")
    lines += [");", "  always_comb begin", "    case (index_i)"]
    for index in range(90, 182):
        factor = log_factor(index)
        label = "default" if index == 181 else f"8'd{index}"
        lines.append(f"      {label}: {{factor_o, log_o}} = {{9'd{factor}, {hexadecimal(log_fixed(factor, 256))}}};")
    lines += ["    endcase", "  end"]
    for step, most in zip(LOG_STEPS, (34, 34, 18), strict=True):
        lines += ["  always_comb begin", f"    case (j{step}_i)"]
        for j in [*range(-most, 0), *range(1, most + 1)]:
            value = hexadecimal(log_fixed(2**step - j, 2**step))
            lines.append(f"      7'h{j % 128:02x}: log{step}_o = {value};")
        lines += [f"      default: log{step}_o = '0;", "    endcase", "  end"]
    return "\n".join([*lines, "endmodule", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    status = 0
    for name, text in {"bf16_exp_rom.sv": exp_rom(), "bf16_reciprocal_rom.sv": reciprocal_rom(),
                       "negative_log_rom.sv": log_rom()}.items():
        path = RTL / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what scripts/rtl_tables.py writes", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
