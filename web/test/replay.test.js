import assert from "node:assert/strict";
import { test } from "node:test";

import { confidenceClass, controlName, historyOf, percent, Replay, visibleText } from "../dist/replay.js";
import { run, step } from "./runs.js";

const STORY = [
  step(0, [
    [0, 5, "a", 0.6],
    [2, 7, "c", 0.95],
  ]),
  step(1, [[0, 6, "b", 0.99]]),
  step(2, [[2, -1, "", 0]]),
  step(3, [
    [2, 7, "c", 1],
    [0, 6, "b", 0.5],
  ]),
];

test("a canvas holds what its steps have left", () => {
  const replay = new Replay(run(STORY));
  assert.deepEqual(
    replay.seek(0).map((cell) => cell.id),
    [-1, -1, -1, -1],
  );
  assert.deepEqual(
    replay.seek(1).map((cell) => cell.event),
    ["commit", "none", "commit", "none"],
  );
  assert.deepEqual(
    replay
      .seek(2)
      .map((cell) => [cell.id, cell.event, cell.revisions])
      .slice(0, 1),
    [[6, "revise", 1]],
  );
  const third = replay.seek(3)[2];
  assert.deepEqual([third?.id, third?.event, third?.remasks, third?.confidence], [-1, "remask", 1, 0]);
  const fourth = replay.seek(4);
  assert.deepEqual(
    [fourth[2]?.event, fourth[2]?.remasks, fourth[0]?.event, fourth[0]?.confidence],
    ["commit", 1, "none", 0.5],
  );
});

test("scrubbing back gives what going on gave", () => {
  const forward = new Replay(run(STORY));
  const jumping = new Replay(run(STORY));
  const seen = [0, 1, 2, 3, 4].map((shown) => structuredClone(forward.seek(shown)));
  for (const shown of [4, 1, 3, 0, 2, 4, 0]) assert.deepEqual(jumping.seek(shown), seen[shown]);
});

test("a run that grows while it is shown", () => {
  const live = run([], null);
  const replay = new Replay(live);
  assert.equal(replay.seek(3).length, 0);
  live.steps.push(...STORY.slice(0, 2));
  assert.equal(replay.seek(99)[0]?.text, "b");
  live.steps.push(...STORY.slice(2));
  assert.equal(replay.seek(3)[2]?.id, -1);
});

test("the history of a position", () => {
  const story = run(STORY);
  assert.deepEqual(
    historyOf(story, 2, 4).map((one) => [one.event, one.step.nfe, one.text]),
    [
      ["commit", 1, "c"],
      ["remask", 3, ""],
      ["commit", 4, "c"],
    ],
  );
  assert.deepEqual(
    historyOf(story, 0, 4).map((one) => one.event),
    ["commit", "revise"],
  );
  assert.deepEqual(
    historyOf(story, 0, 1).map((one) => one.event),
    ["commit"],
  );
  assert.deepEqual(historyOf(story, 3, 4), []);
});

test("classes of confidence", () => {
  assert.deepEqual([0, 0.49, 0.5, 0.75, 0.9, 0.98, 0.99, 1].map(confidenceClass), [0, 0, 1, 2, 3, 3, 4, 4]);
  assert.equal(percent(0.99999), ">99.9 %");
  assert.equal(percent(1), "100.0 %");
  assert.equal(percent(0.0123), "1.2 %");
});

test("texts that would hide or turn others are made visible", () => {
  assert.equal(visibleText(" a\n\t\u0007"), "\u00b7a\u21b5\u21e5\u2407");
  assert.equal(visibleText("\u202egnp.exe\u200b"), "\ufffdgnp.exe\ufffd");
  assert.equal(visibleText("<b>\u00e9\u6f22"), "<b>\u00e9\u6f22");
  assert.deepEqual(["<|eot_id|>", "</s>", "<b", "a<b>c", "<img src=x>"].map(controlName), [
    "eot_id",
    "/s",
    null,
    null,
    null,
  ]);
});

test("a canvas that is continued", () => {
  const more = { ...step(1, [[5, 9, "e", 1]]), positions: 6 };
  const replay = new Replay(run([step(0, [[0, 5, "a", 1]])]));
  assert.equal(replay.seek(1).length, 4);
  replay.run.steps.push(more);
  assert.deepEqual(
    replay.seek(2).map((cell) => cell.id),
    [5, -1, -1, -1, -1, 9],
  );
  assert.equal(replay.seek(1).length, 6, "its positions stay");
});
