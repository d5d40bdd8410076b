"""Cells of Liberty files, and the energy of a mapped netlist with random inputs; for scripts/rtl_cells.py."""

import pathlib
import random
import re
import typing

WIRE_FF = 0.3  # assumed, per net
CYCLES, LANES = 48, 256  # cycles that are simulated, and independent inputs in the bits of an integer
ALL = (1 << LANES) - 1


def first(pattern: str, text: str, what: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise SystemExit(f"rtl_cells: {what}: this is not a Liberty file of the form that Liberate writes")
    return found.group(1)


class Cell:
    """Pins with their capacitance (fF), functions of outputs, energy of a switched output (fJ)."""

    def __init__(self, name: str, text: str):
        self.name, self.text = name, text
        self.area = float(first(r"^ *area : ([0-9.e+-]+)", text, f"cell {name} has no area"))
        self.capacitance: dict[str, float] = {}
        self.function: dict[str, str] = {}
        self.energy: dict[str, float] = {}
        state = re.search(r"^    ff \((\w+), ?\w+\) {(.*?)^    }", text, re.MULTILINE | re.DOTALL)
        self.next_state = first(r'next_state : "([^"]+)"', state.group(2), f"cell {name} has no next_state") if state else ""
        self.state = state.group(1) if state else ""
        for pin in re.finditer(r"^    pin \((\w+)\) {(.*?)^    }", text, re.MULTILINE | re.DOTALL):
            name, body = pin.groups()
            power = [self.middle(v) for v in re.findall(r"(?:rise|fall)_power \(\w+\) {.*?values \((.*?)\);", body, re.DOTALL)]
            if "direction : output" in body:
                if function := re.search(r'^ *function : "([^"]+)"', body, re.MULTILINE):
                    self.function[name] = function.group(1)
            elif loads := re.search(r"^ *capacitance : ([0-9.]+)", body, re.MULTILINE):
                self.capacitance[name] = float(loads.group(1))
            # Several arcs and conditions: their mean is what an average transition dissipates.
            self.energy[name] = max(0.0, sum(power) / len(power)) if power else 0.0

    @staticmethod
    def middle(values: str) -> float:
        """Of a table over slopes (and loads): second slope, lowest load."""
        rows = [[float(x) for x in row.split(",")] for row in re.findall(r'"([^"]+)"', values)]
        return rows[1][0] if len(rows) > 1 else rows[0][min(1, len(rows[0]) - 1)]


class Library:
    def __init__(self, paths: list[pathlib.Path]):
        self.cells: dict[str, Cell] = {}
        self.texts = [path.read_text() for path in paths]
        for text in self.texts:
            for match in re.finditer(r"^  cell \((\w+)\) {\n(.*?)^  }", text, re.MULTILINE | re.DOTALL):
                self.cells[match.group(1)] = Cell(match.group(1), match.group(2))
        if not self.cells:
            raise SystemExit("rtl_cells: no cell in the Liberty files")
        self.volts = float(first(r"nom_voltage : ([0-9.]+)", self.texts[0], "no nom_voltage"))

    def driver(self) -> str:
        """An inverter of middle size, which drives the inputs of a unit."""
        inverters = sorted((c.area, c.name) for c in self.cells.values() if c.name.startswith("INV"))
        return inverters[len(inverters) // 2][1]

    def merged(self, unused: re.Pattern) -> str:
        """One library of all files' cells, without the unused: Yosys 0.23 takes one file."""
        head = ""
        templates: dict[str, str] = {}
        for text in self.texts:
            top = text[: text.index("\n  cell (") + 1]
            head = head or top
            for match in re.finditer(r"^  (?:lu_table|power_lut)_template \((\w+)\) {.*?^  }\n", top, re.MULTILINE | re.DOTALL):
                templates.setdefault(match.group(1), match.group(0))
        parts = [head, *(t for name, t in templates.items() if f"({name})" not in head)]
        parts += [f"  cell ({c.name}) {{\n{c.text}  }}\n" for c in self.cells.values() if not unused.match(c.name)]
        return "".join(parts) + "}\n"


def compiled(expression: str, pins: list[str]):
    """A Liberty function as a Python function of integers, a bit per lane."""
    text = expression.replace("*", "&").replace("+", "|").replace("'", "")
    text = re.sub(r"!\s*", "ALL ^ ", text)
    # "ALL ^ A & B" binds as ALL ^ (A & B): each negated operand gets parentheses.
    text = re.sub(r"ALL \^ (\w+)", r"(ALL ^ \1)", text)
    return eval(f"lambda {', '.join(pins)}: {text}", {"ALL": ALL})  # functions of a library


def cycle_energy(library: Library, netlist: dict) -> float:
    """pJ per cycle of the top module with random inputs, clock included."""
    module = next(m for m in netlist["modules"].values() if m.get("attributes", {}).get("top"))
    nets: dict[int, int] = {}
    load: dict[int, float] = {}
    gates, flops, clocked = [], [], 0.0
    for one in module["cells"].values():
        cell, pins = library.cells.get(one["type"]), {p: bits[0] for p, bits in one["connections"].items()}
        if cell is None:
            continue  # a black box, such as SRAM
        for pin, net in pins.items():
            if pin in cell.capacitance:
                load[net] = load.get(net, WIRE_FF) + cell.capacitance[pin]
        if cell.state:
            flops.append((cell, pins))
            clocked += 2 * cell.energy.get("CLK", 0.0) + cell.capacitance["CLK"] * library.volts**2
        else:
            gates += [(cell, pins, out, list(cell.capacitance)) for out in cell.function if out in pins]
    outputs = {pins[out] for _, pins, out, _ in gates} | {pins[o] for c, pins in flops for o in c.function if o in pins}
    inputs = [n for p in module["ports"].values() if p["direction"] == "input" for n in p["bits"] if isinstance(n, int)]
    ordered = topological(gates, outputs)
    toggles = simulate(ordered, flops, inputs, nets)
    total = clocked * CYCLES
    energy = {pins[out]: cell.energy[out] for cell, pins, out, _ in gates}
    energy |= {pins[o]: cell.energy[o] for cell, pins in flops for o in cell.function if o in pins}
    for net, count in toggles.items():
        total += count / LANES * (0.5 * load.get(net, WIRE_FF) * library.volts**2 + energy.get(net, 0.0))
    return total / CYCLES * 1e-3


def topological(gates: list, outputs: set) -> list:
    """Gates after those that drive them."""
    driver = {pins[out]: (cell, pins, out, ins) for cell, pins, out, ins in gates}
    done: set[int] = set()
    ordered = []
    for start in driver:
        stack = [(start, False)]
        while stack:
            net, ready = stack.pop()
            if net in done or net not in driver:
                continue
            if ready:
                done.add(net)
                ordered.append(driver[net])
                continue
            stack.append((net, True))
            stack += [(driver[net][1][p], False) for p in driver[net][3] if driver[net][1][p] not in done]
    return ordered


def simulate(gates: list, flops: list, inputs: list, nets: dict) -> dict[int, int]:
    """Toggles of every net in CYCLES cycles, over all lanes."""
    source = random.Random(1)
    functions: dict[tuple[str, str], typing.Callable[..., int]] = {}
    for cell, _, out, ins in gates:
        functions.setdefault((cell.name, out), compiled(cell.function[out], ins))
    for cell, _ in flops:
        functions.setdefault((cell.name, ""), compiled(cell.next_state, [p for p in cell.capacitance if p != "CLK"]))
    constant = {"0": 0, "1": ALL, "x": 0, "z": 0}
    toggles: dict[int, int] = {}
    value = nets

    def read(net):
        return constant[net] if isinstance(net, str) else value.get(net, 0)

    def settle(count):
        for net in inputs:
            change(net, source.getrandbits(LANES), count)
        for cell, pins, out, ins in gates:
            change(pins[out], functions[cell.name, out](*(read(pins[p]) for p in ins)), count)

    def change(net, now, count):
        if count:
            toggles[net] = toggles.get(net, 0) + (value.get(net, 0) ^ now).bit_count()
        value[net] = now

    held = {}
    for cycle in range(-16, CYCLES):  # the first ones fill registers
        settle(cycle >= 0)
        for index, (cell, pins) in enumerate(flops):
            held[index] = functions[cell.name, ""](*(read(pins[p]) for p in cell.capacitance if p != "CLK"))
        for index, (cell, pins) in enumerate(flops):
            for out in cell.function:
                if out in pins:
                    inverted = cell.function[out] != cell.state
                    change(pins[out], held[index] ^ ALL if inverted else held[index], cycle >= 0)
    return toggles
