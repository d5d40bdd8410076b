// Traces: how answers were denoised, step by step. `dllm run --trace` writes them, the server's events have the same
// parts (docs/guide/serving.md, "Traces"). A file that is dropped on the page may contain anything, so all is checked.

/** [position in the answer, token id (-1: a mask again), its text, confidence] */
export type Change = readonly [position: number, id: number, text: string, confidence: number];

export interface Step {
  readonly step: number;
  /** Forward passes so far. */
  readonly nfe: number;
  readonly masked: number;
  readonly positions: number;
  /** Since the start of the answer. */
  readonly seconds: number;
  readonly window: readonly [begin: number, end: number];
  readonly changes: readonly Change[];
}

export interface Result {
  readonly text: string;
  readonly finish: string;
  readonly answer_tokens: number;
  readonly nfe: number;
  readonly steps: number;
  readonly seconds: number;
  readonly seed: number;
  readonly hash: string;
}

/** An image of a message. */
export interface Image {
  readonly name: string;
  /** data: */
  readonly url: string;
}

export interface Message {
  readonly role: string;
  readonly content: string;
  /** Of an answer; goes back to the server with it, and into no trace. */
  readonly reasoning_content?: string;
  /** Of a question; in no trace. */
  readonly images?: readonly Image[];
}

export type OptionValue = string | number | boolean | readonly string[];

export interface Run {
  model: { readonly name: string; readonly architecture: string };
  messages: readonly Message[];
  options: Readonly<Record<string, OptionValue>>;
  steps: Step[];
  /** null: the client stopped it. */
  result: Result | null;
}

export interface Trace {
  readonly program: string;
  readonly runs: readonly Run[];
}

const VERSION = 1;
const MOST_POSITIONS = 1 << 16;
const MOST_RUNS = 16;

export class TraceError extends Error {}

function fail(where: string, what: string): never {
  throw new TraceError(`${where}: ${what}`);
}

type Table = Readonly<Record<string, unknown>>;

function table(value: unknown, where: string, keys: readonly string[]): Table {
  if (typeof value !== "object" || value === null || Array.isArray(value)) fail(where, "an object is expected");
  for (const key of Object.keys(value))
    if (!keys.includes(key)) fail(where, `the key '${key.slice(0, 40)}' is not known`);
  for (const key of keys) if (!(key in value)) fail(where, `the key '${key}' is missing`);
  return value as Table;
}

function list(value: unknown, where: string, most = Infinity): readonly unknown[] {
  if (!Array.isArray(value)) fail(where, "a list is expected");
  if (value.length > most) fail(where, `at most ${most} entries are expected`);
  return value;
}

function text(value: unknown, where: string): string {
  if (typeof value !== "string") fail(where, "a text is expected");
  return value;
}

function number(value: unknown, where: string, least: number, most = Infinity): number {
  if (typeof value !== "number" || !(value >= least && value <= most)) {
    fail(
      where,
      most === Infinity ? `a number from ${least} is expected` : `a number from ${least} to ${most} is expected`,
    );
  }
  return value;
}

function integer(value: unknown, where: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
  const found = number(value, where, least, most);
  if (!Number.isInteger(found)) fail(where, "a whole number is expected");
  return found;
}

function change(value: unknown, where: string, positions: number): Change {
  const entry = list(value, where, 4);
  if (entry.length !== 4) fail(where, "[position, token id, text, confidence] is expected");
  return [
    integer(entry[0], `${where}[0]`, 0, positions - 1),
    integer(entry[1], `${where}[1]`, -1),
    text(entry[2], `${where}[2]`),
    number(entry[3], `${where}[3]`, 0, 1),
  ];
}

/** One step, from a trace or a server's event. */
export function parseStep(value: unknown, where: string): Step {
  const keys = ["step", "nfe", "masked", "positions", "seconds", "window", "changes"];
  const found = table(value, where, keys);
  const positions = integer(found["positions"], `${where}.positions`, 1, MOST_POSITIONS);
  const window = list(found["window"], `${where}.window`, 2);
  return {
    step: integer(found["step"], `${where}.step`, 0),
    nfe: integer(found["nfe"], `${where}.nfe`, 0),
    masked: integer(found["masked"], `${where}.masked`, 0, positions),
    positions,
    seconds: number(found["seconds"], `${where}.seconds`, 0),
    window: [
      integer(window[0], `${where}.window[0]`, -MOST_POSITIONS, MOST_POSITIONS),
      integer(window[1], `${where}.window[1]`, -MOST_POSITIONS, MOST_POSITIONS),
    ],
    changes: list(found["changes"], `${where}.changes`).map((one, i) =>
      change(one, `${where}.changes[${i}]`, positions),
    ),
  };
}

export function parseResult(value: unknown, where: string): Result {
  const keys = ["text", "finish", "answer_tokens", "nfe", "steps", "seconds", "seed", "hash"];
  const found = table(value, where, keys);
  return {
    text: text(found["text"], `${where}.text`),
    finish: text(found["finish"], `${where}.finish`),
    answer_tokens: integer(found["answer_tokens"], `${where}.answer_tokens`, 0),
    nfe: integer(found["nfe"], `${where}.nfe`, 0),
    steps: integer(found["steps"], `${where}.steps`, 0),
    seconds: number(found["seconds"], `${where}.seconds`, 0),
    // Seeds have 64 bits; one that a JavaScript number cannot represent is only shown.
    seed: number(found["seed"], `${where}.seed`, 0),
    hash: text(found["hash"], `${where}.hash`),
  };
}

export function parseOptions(value: unknown, where: string): Record<string, OptionValue> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) fail(where, "an object is expected");
  const options: Record<string, OptionValue> = {};
  for (const [key, one] of Object.entries(value)) {
    if (typeof one === "string" || typeof one === "number" || typeof one === "boolean") options[key] = one;
    else options[key] = list(one, `${where}.${key}`).map((entry, i) => text(entry, `${where}.${key}[${i}]`));
  }
  return options;
}

function parseRun(value: unknown, where: string): Run {
  const found = table(value, where, ["model", "messages", "options", "steps", "result"]);
  const model = table(found["model"], `${where}.model`, ["name", "architecture"]);
  const steps = list(found["steps"], `${where}.steps`).map((one, i) => parseStep(one, `${where}.steps[${i}]`));
  steps.forEach((one, i) => {
    const before = steps[i - 1];
    if (before !== undefined && one.positions < before.positions)
      fail(`${where}.steps[${i}]`, "positions may not fall");
    if (before !== undefined && (one.nfe < before.nfe || one.seconds < before.seconds)) {
      fail(`${where}.steps[${i}]`, "passes and seconds may not fall");
    }
  });
  return {
    model: {
      name: text(model["name"], `${where}.model.name`),
      architecture: text(model["architecture"], `${where}.model.architecture`),
    },
    messages: list(found["messages"], `${where}.messages`).map((one, i) => {
      const message = table(one, `${where}.messages[${i}]`, ["role", "content"]);
      return {
        role: text(message["role"], `${where}.messages[${i}].role`),
        content: text(message["content"], `${where}.messages[${i}].content`),
      };
    }),
    options: parseOptions(found["options"], `${where}.options`),
    steps,
    result: found["result"] === null ? null : parseResult(found["result"], `${where}.result`),
  };
}

/** Throws TraceError with the place in the file. */
export function parseTrace(source: string): Trace {
  let value: unknown;
  try {
    value = JSON.parse(source);
  } catch {
    fail("file", "this is not JSON; `dllm run --trace FILE` writes traces");
  }
  if (typeof value !== "object" || value === null || (value as Table)["type"] !== "dllm-trace") {
    fail("file", "this is not a trace; `dllm run --trace FILE` writes traces");
  }
  const version = (value as Table)["version"];
  if (version !== VERSION) fail("version", `version ${VERSION} is expected; another release of dllm wrote this file`);
  const found = table(value, "file", ["type", "version", "program", "runs"]);
  const runs = list(found["runs"], "runs", MOST_RUNS).map((one, i) => parseRun(one, `runs[${i}]`));
  if (runs.length === 0) fail("runs", "there is none");
  return { program: text(found["program"], "program"), runs };
}

export function traceText(program: string, runs: readonly Run[]): string {
  const said = runs.map((run) => ({
    ...run,
    messages: run.messages.map(({ role, content }) => ({ role, content })),
  }));
  return JSON.stringify({ type: "dllm-trace", version: VERSION, program, runs: said }) + "\n";
}
