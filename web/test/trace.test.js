import assert from "node:assert/strict";
import { test } from "node:test";

import { parseTrace, TraceError, traceText } from "../dist/trace.js";
import { run, step } from "./runs.js";

function document(change = {}) {
  return {
    ...JSON.parse(traceText("dllm 0.1.0", [run([step(0, [[0, 5, "a", 0.9]]), step(1, [[1, 6, "b", 1]])])])),
    ...change,
  };
}

test("a trace that the page writes can be read again", () => {
  const runs = [run([step(0, [[0, 5, "a", 0.9]])]), run([], null)];
  const read = parseTrace(traceText("dllm 0.1.0", runs));
  assert.equal(read.program, "dllm 0.1.0");
  assert.deepEqual(read.runs, runs);
});

const damages = [
  [
    "no trace",
    (d) => {
      d.type = "other";
    },
    /not a trace/,
  ],
  [
    "another version",
    (d) => {
      d.version = 2;
    },
    /^version: version 1/,
  ],
  [
    "an unknown key",
    (d) => {
      d.extra = 1;
    },
    /'extra' is not known/,
  ],
  [
    "a missing key",
    (d) => {
      delete d.runs[0].options;
    },
    /^runs\[0\]: the key 'options' is missing/,
  ],
  [
    "no runs",
    (d) => {
      d.runs = [];
    },
    /there is none/,
  ],
  [
    "a position outside",
    (d) => {
      d.runs[0].steps[1].changes[0][0] = 4;
    },
    /^runs\[0\]\.steps\[1\]\.changes\[0\]\[0\]: a number from 0 to 3/,
  ],
  [
    "half a position",
    (d) => {
      d.runs[0].steps[0].changes[0][0] = 0.5;
    },
    /whole number/,
  ],
  [
    "a token below the mask",
    (d) => {
      d.runs[0].steps[0].changes[0][1] = -2;
    },
    /changes\[0\]\[1\]/,
  ],
  [
    "a text that is none",
    (d) => {
      d.runs[0].steps[0].changes[0][2] = { toString: "x" };
    },
    /a text is expected/,
  ],
  [
    "confidence above 1",
    (d) => {
      d.runs[0].steps[0].changes[0][3] = 1.5;
    },
    /from 0 to 1/,
  ],
  [
    "a change that is too long",
    (d) => {
      d.runs[0].steps[0].changes[0].push(1);
    },
    /at most 4/,
  ],
  [
    "a canvas of no position",
    (d) => {
      d.runs[0].steps[0].positions = 0;
    },
    /positions/,
  ],
  [
    "a canvas that would fill the memory",
    (d) => {
      for (const s of d.runs[0].steps) s.positions = 1e9;
    },
    /positions/,
  ],
  [
    "a canvas that shrinks",
    (d) => {
      d.runs[0].steps[0].positions += 1;
    },
    /may not fall/,
  ],
  [
    "time that runs back",
    (d) => {
      d.runs[0].steps[1].seconds = 0;
    },
    /may not fall/,
  ],
  [
    "options that are no values",
    (d) => {
      d.runs[0].options.x = { y: 1 };
    },
    /options\.x: a list/,
  ],
  [
    "null for a list",
    (d) => {
      d.runs[0].steps = null;
    },
    /a list is expected/,
  ],
];
for (const [name, damage, message] of damages) {
  test(`refused with its place: ${name}`, () => {
    const damaged = document();
    damage(damaged);
    assert.throws(
      () => parseTrace(JSON.stringify(damaged)),
      (error) => error instanceof TraceError && message.test(error.message),
    );
  });
}

test("what is not JSON is refused as such", () => {
  assert.throws(() => parseTrace("{"), /not JSON/);
  assert.throws(() => parseTrace("null"), /not a trace/);
});
