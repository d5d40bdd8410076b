// Runs for tests: a canvas of four positions.

export function step(index, changes, { nfe = index + 1, seconds = (index + 1) / 4 } = {}) {
  return { step: index, nfe, masked: 4, positions: 4, seconds, window: [0, 4], changes };
}

export function run(
  steps,
  result = { text: "ab", finish: "stop", answer_tokens: 2, nfe: 2, steps: 2, seconds: 0.5, seed: 0, hash: "00" },
) {
  return {
    model: { name: "m", architecture: "llada" },
    messages: [{ role: "user", content: "q" }],
    options: { algorithm: "threshold", threshold: 0.9, compat: false, stop: ["x"] },
    steps,
    result,
  };
}
