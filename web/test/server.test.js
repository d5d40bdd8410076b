import assert from "node:assert/strict";
import { test } from "node:test";

import { methodOptions, requestFields, runTitle } from "../dist/choice.js";
import { EventReader } from "../dist/events.js";
import { hear, refusal, ServerError, withParts } from "../dist/server.js";
import { step } from "./runs.js";

test("events are found however the stream is cut", () => {
  const stream = 'data: {"a": 1}\n\n: ping\n\ndata: two\ndata: lines\r\n\r\ndata: [DONE]\n\nrest';
  for (let size = 1; size < stream.length; ++size) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...reader.push(stream.slice(at, at + size)));
    assert.deepEqual(found, ['{"a": 1}', "two\nlines", "[DONE]"], `pieces of ${size}`);
  }
});

test("images are parts before the text of their message", () => {
  assert.deepEqual(withParts({ role: "user", content: "a", images: [] }), { role: "user", content: "a" });
  const image = { name: "cat.png", url: "data:image/png;base64,AA==" };
  assert.deepEqual(withParts({ role: "user", content: "a", images: [image] }), {
    role: "user",
    content: [
      { type: "image_url", image_url: { url: image.url } },
      { type: "text", text: "a" },
    ],
  });
});

function listener() {
  const heard = [];
  return {
    heard,
    onStep: (one) => heard.push(one),
    onThought: (one) => heard.push(["thought", one]),
    onText: (one) => heard.push(one),
    onEnd: (a, b) => heard.push(a, b),
  };
}

test("a chunk is a step, a text, the end, or an error", () => {
  const one = listener();
  const made = step(0, [[1, 5, "x", 0.5]]);
  assert.equal(hear(JSON.stringify({ choices: [{ delta: { content: "x" } }] }), one), false);
  assert.equal(hear(JSON.stringify({ choices: [{ delta: { reasoning_content: "hm" } }] }), one), false);
  assert.equal(hear(JSON.stringify({ choices: [{ delta: {} }], diffusion: made }), one), false);
  const result = { text: "x", finish: "stop", answer_tokens: 1, nfe: 1, steps: 1, seconds: 1, seed: 0, hash: "0" };
  assert.equal(
    hear(
      JSON.stringify({ choices: [], diffusion: { final: true, nfe: 1, masked: 0, result, options: { a: 1 } } }),
      one,
    ),
    true,
  );
  assert.deepEqual(one.heard, ["x", ["thought", "hm"], made, result, { a: 1 }]);
  assert.equal(hear("[DONE]", one), false);
  assert.throws(() => hear(JSON.stringify({ error: { message: "out of memory" } }), one), ServerError);
  assert.throws(
    () => hear(JSON.stringify({ choices: [], diffusion: { ...made, changes: [[9, 1, "", 1]] } }), one),
    /changes\[0\]\[0\]/,
  );
});

test("refusals keep their field, other answers their status", () => {
  const refused = refusal(JSON.stringify({ error: { message: "no", param: "threshold", type: "x" } }), 400);
  assert.deepEqual([refused.message, refused.field, refused.status], ["no", "threshold", 400]);
  assert.match(refusal("<html>502</html>", 502).message, /status 502/);
});

const list = {
  common: [
    { key: "length", type: "integer", meaning: "" },
    { key: "seed", type: "integer", meaning: "" },
    { key: "exact_length", type: "boolean", meaning: "" },
  ],
  parts: [
    {
      key: "algorithm",
      meaning: "",
      methods: [
        { name: "threshold", meaning: "", usable: true, options: [{ key: "threshold", type: "number", meaning: "" }] },
        {
          name: "low-confidence",
          meaning: "",
          usable: true,
          options: [{ key: "steps", type: "integer", meaning: "" }],
        },
      ],
    },
    {
      key: "cache",
      meaning: "",
      methods: [{ name: "dual", meaning: "", usable: true, options: [{ key: "fresh", type: "boolean", meaning: "" }] }],
    },
  ],
  presets: [],
};
const defaults = { algorithm: "threshold", cache: "none" };

test("a choice becomes fields, and options of other methods stay behind", () => {
  const choice = {
    algorithm: "low-confidence",
    steps: " 8 ",
    threshold: "0.7",
    seed: "18446744073709551615",
    cache: "dual",
    fresh: "false",
    exact_length: "true",
  };
  assert.deepEqual(requestFields(list, choice, defaults), {
    algorithm: "low-confidence",
    cache: "dual",
    steps: "8",
    fresh: false,
    seed: "18446744073709551615",
  });
  assert.deepEqual(requestFields(list, {}, defaults), {});
  assert.deepEqual(
    methodOptions(list, {}, defaults).map((one) => one.key),
    ["threshold"],
  );
  assert.deepEqual(requestFields(list, { threshold: "0.7" }, defaults), { threshold: "0.7" });
});

test("titles name the method and what differs", () => {
  const a = { algorithm: "threshold", threshold: 0.9, window: "block", cache: "dual", seed: 1 };
  assert.equal(runTitle(a), "threshold \u00b7 cache dual");
  assert.equal(runTitle(a, { ...a, threshold: 0.7, seed: 2 }), "threshold \u00b7 cache dual \u00b7 threshold 0.9");
});
