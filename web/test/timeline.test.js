import assert from "node:assert/strict";
import { test } from "node:test";

import { Player } from "../dist/player.js";
import { Timeline } from "../dist/timeline.js";
import { run, step } from "./runs.js";

const quick = run([step(0, [], { nfe: 1, seconds: 0.1 }), step(1, [], { nfe: 2, seconds: 0.2 })]);
const slow = run([
  step(0, [], { nfe: 2, seconds: 0.4 }),
  step(1, [], { nfe: 2, seconds: 0.5 }),
  step(2, [], { nfe: 5, seconds: 1 }),
]);

test("steps: each run ends with its own", () => {
  const line = new Timeline([quick, slow], "steps");
  assert.equal(line.last, 3);
  assert.deepEqual(
    [0, 1, 2, 3].map((f) => [line.shown(quick, f), line.shown(slow, f)]),
    [
      [0, 0],
      [1, 1],
      [2, 2],
      [2, 3],
    ],
  );
  assert.equal(line.label(2), "step 2 of 3");
});

test("passes: a step that takes two comes later, one that takes none with the one before", () => {
  const line = new Timeline([quick, slow], "passes");
  assert.deepEqual(
    [0, 1, 2, 3].map((f) => [line.shown(quick, f), line.shown(slow, f)]),
    [
      [0, 0],
      [1, 0],
      [2, 2],
      [2, 3],
    ],
  );
  assert.equal(line.label(3), "pass 5 of 5");
});

test("time: pauses have the lengths of the run's", () => {
  const line = new Timeline([quick, slow], "time");
  assert.deepEqual(
    Array.from({ length: line.last + 1 }, (_, f) => line.shown(slow, f)),
    [0, 0, 0, 1, 2, 3],
  );
  assert.equal(line.label(5), "1.00 s of 1.00 s");
  const pauses = [0, 1, 2, 3, 4].map((f) => line.pause(f, 10));
  assert.ok(Math.abs(pauses.reduce((a, b) => a + b, 0) - 500) < 1e-9);
  assert.ok(Math.abs((pauses[4] ?? 0) - 250) < 1e-9);
});

test("the same moment on another scale", () => {
  const line = new Timeline([slow], "passes");
  assert.equal(line.frameOf(slow, 3), 2);
  assert.equal(line.frameOf(slow, 0), 0);
  assert.equal(new Timeline([], "time").last, 0);
});

/** A clock that a test advances. */
class Clock {
  waiting = new Map();
  next = 0;
  after(_ms, call) {
    this.waiting.set(++this.next, call);
    return this.next;
  }
  cancel(handle) {
    this.waiting.delete(handle);
  }
  tick() {
    assert.ok(this.waiting.size <= 1, "one timer at a time");
    const [[handle, call] = []] = this.waiting;
    if (handle === undefined || call === undefined) return false;
    this.waiting.delete(handle);
    call();
    return true;
  }
}

test("plays to the end, and from the beginning again", () => {
  const clock = new Clock();
  const player = new Player(clock, () => {});
  player.load([slow]);
  player.play();
  while (clock.tick());
  assert.deepEqual([player.frame, player.playing], [3, false]);
  player.play();
  assert.equal(player.frame, 0);
  clock.tick();
  player.move(-1);
  assert.deepEqual([player.frame, player.playing, clock.waiting.size], [0, false, 0]);
  player.seek(99);
  assert.equal(player.frame, 3);
});

test("live, it waits for what comes and stops when all has come", () => {
  const clock = new Clock();
  const player = new Player(clock, () => {});
  const live = run([], null);
  player.load([live]);
  player.live = true;
  player.play();
  assert.equal(clock.tick(), false);
  for (const one of slow.steps.slice(0, 2)) {
    live.steps.push(one);
    player.grown();
  }
  while (clock.tick());
  assert.deepEqual([player.frame, player.playing], [2, true]);
  live.steps.push(...slow.steps.slice(2));
  player.grown();
  player.finish();
  assert.equal(player.playing, true);
  while (clock.tick());
  assert.deepEqual([player.frame, player.playing], [3, false]);
});

test("a moment stays when the scale changes", () => {
  const player = new Player(new Clock(), () => {});
  player.load([quick, slow], "steps");
  player.seek(1);
  player.rescale("time");
  assert.equal(player.timeline.shown(quick, player.frame), 1);
  player.seek(99);
  player.rescale("passes");
  assert.equal(player.frame, player.timeline.last);
});
