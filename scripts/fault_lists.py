"""Lists of faults (tests/faults/*.toml) for plant_faults.py: reading them, and whether they fit the code."""

import dataclasses
import hashlib
import pathlib
import tomllib
from typing import Any

TEST_KEYS = {"program", "filter", "python", "cases", "ctest", "command", "targets", "seconds", "arguments"}


class ListError(Exception):
    """A list, or the tree without faults, is not what the tool needs. The message names the place."""


@dataclasses.dataclass(frozen=True)
class Test:
    """Exactly one of program, python, ctest and command is given."""
    name: str
    program: str = ""                  # a test program of GoogleTest; its target has the same name
    filter: str = "*"
    python: str = ""                   # a script of unittest that is given the path of dllm
    cases: tuple[str, ...] = ()        # of the script: Class.test
    ctest: str = ""                    # an expression for ctest -R
    command: tuple[str, ...] = ()      # run in the tree; {build} is the build directory
    targets: tuple[str, ...] = ()      # to build, besides those that the kind implies
    arguments: tuple[str, ...] = ()    # further ones of the program or script
    seconds: float = 0                 # of time limit, where PATIENCE times the usual duration is too short

    def all_targets(self) -> tuple[str, ...]:
        implied = (self.program,) if self.program else ("dllm",) if self.python else ()
        return implied + self.targets


@dataclasses.dataclass(frozen=True)
class Fault:
    id: str
    file: str
    find: str
    replace: str
    breaks: str
    tests: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FaultList:
    path: str
    build: str                  # name of the build directory: lists of one name are configured alike
    cmake: tuple[str, ...]      # flags on top of those of `configure`
    tests: dict[str, Test]
    faults: tuple[Fault, ...]

    def tests_of(self, fault: Fault) -> list[Test]:
        return [self.tests[name] for name in fault.tests]


# ---- lists

def words(value: Any, where: str) -> tuple[str, ...]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ListError(f"{where}: it must be a text or a list of texts")
    return tuple(value)


def read_test(name: str, table: Any, where: str) -> Test:
    if not isinstance(table, dict) or not table.keys() <= TEST_KEYS:
        unknown = sorted(table.keys() - TEST_KEYS) if isinstance(table, dict) else [str(table)]
        raise ListError(f"{where}: unknown: {', '.join(unknown)} (known: {', '.join(sorted(TEST_KEYS))})")
    kinds = [kind for kind in ("program", "python", "ctest", "command") if table.get(kind)]
    if len(kinds) != 1:
        raise ListError(f"{where}: give one of program, python, ctest and command")
    lists = {key: words(table[key], f"{where}.{key}") for key in ("cases", "command", "targets", "arguments") if key in table}
    texts = {key: str(table[key]) for key in ("program", "filter", "python", "ctest") if key in table}
    return Test(name, seconds=float(table.get("seconds", 0)), **texts, **lists)  # type: ignore[arg-type]


def read_fault(table: Any, where: str) -> Fault:
    fields = {field.name for field in dataclasses.fields(Fault)}
    if not isinstance(table, dict) or table.keys() != fields:
        given = set(table) if isinstance(table, dict) else set()
        raise ListError(f"{where}: missing: {sorted(fields - given)}, unknown: {sorted(given - fields)}")
    for key in fields - {"tests", "replace"}:
        if not isinstance(table[key], str) or not table[key].strip():
            raise ListError(f"{where}: {key} is empty")
    tests = words(table["tests"], f"{where}.tests")
    if not tests:
        raise ListError(f"{where}: no test is named")
    texts = {key: str(table[key]) for key in fields - {"tests"}}
    return Fault(tests=tests, **texts)


def read_list(path: pathlib.Path) -> FaultList:
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ListError(f"{path.name}: {error}") from error
    unknown = data.keys() - {"build", "cmake", "test", "fault"}
    if unknown:
        raise ListError(f"{path.name}: unknown: {', '.join(sorted(unknown))}")
    tests = {name: read_test(name, table, f"{path.name}, test {name}") for name, table in data.get("test", {}).items()}
    faults = [read_fault(table, f"{path.name}, fault {table.get('id', i + 1) if isinstance(table, dict) else i + 1}")
              for i, table in enumerate(data.get("fault", []))]
    if not faults:
        raise ListError(f"{path.name}: it has no [[fault]]")
    return FaultList(path.name, data.get("build", "release"), words(data.get("cmake", []), path.name), tests, tuple(faults))


def misfits(root: pathlib.Path, lists: list[FaultList]) -> list[str]:
    """Why the lists do not fit the tree, a line each."""
    problems = []
    seen: dict[str, str] = {}
    flags: dict[str, FaultList] = {}
    for one in lists:
        if flags.setdefault(one.build, one).cmake != one.cmake:
            problems.append(f"{one.path}: build '{one.build}' has other flags in {flags[one.build].path}")
        used = {name for fault in one.faults for name in fault.tests}
        problems += [f"{one.path}: test {name} is not used" for name in one.tests.keys() - used]
        for fault in one.faults:
            where = f"{one.path}, fault {fault.id}"
            if fault.id in seen:
                problems.append(f"{where}: the id is taken in {seen[fault.id]}")
            seen[fault.id] = one.path
            problems += [f"{where}: there is no test '{name}'" for name in fault.tests if name not in one.tests]
            source = root / fault.file
            if not source.is_file():
                problems.append(f"{where}: there is no {fault.file}")
                continue
            count = source.read_text().count(fault.find)
            if count != 1:
                problems.append(f"{where}: the text occurs {count} times in {fault.file}, not once")
            if fault.find == fault.replace:
                problems.append(f"{where}: the replacement changes nothing")
    return problems


def chosen(lists: list[FaultList], only: list[str], sample: int | None, seed: str) -> list[tuple[FaultList, Fault]]:
    """Faults by id; or a sample, which is the same for the same seed and does not change where others are added."""
    every = [(one, fault) for one in lists for fault in one.faults]
    if only:
        unknown = set(only) - {fault.id for _, fault in every}
        if unknown:
            raise ListError(f"there is no fault {', '.join(sorted(unknown))}")
        return [(one, fault) for one, fault in every if fault.id in only]
    if sample is None:
        return every
    drawn = sorted(every, key=lambda pair: hashlib.sha256(f"{seed} {pair[1].id}".encode()).digest())[:sample]
    return [pair for pair in every if pair in drawn]


def in_turn(pairs: list[tuple[FaultList, Fault]], judged: list[str], seed: str) -> list[tuple[FaultList, Fault]]:
    """For a run that judges a part of them: those that no earlier run has judged come first, list by list, so that the
    tests of few lists are built; then the others, the longest ago first. `judged`: ids in the order of earlier runs.
    `seed` draws the order of the lists, so that machines that begin anew do not all judge the same part."""
    last = {fault: place for place, fault in enumerate(judged)}

    def turn(pair: tuple[FaultList, Fault]) -> tuple[int, bytes]:
        return last.get(pair[1].id, -1), hashlib.sha256(f"{seed} {pair[0].path}".encode()).digest()

    return sorted(pairs, key=turn)
