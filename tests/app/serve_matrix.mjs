// Vercel's AI SDK through all three APIs, and Ollama's client, against `dllm serve`; serve_npm_test.py runs it:
// node serve_matrix.mjs PACKAGES URL QUESTION ANSWER
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, url, prompt, text] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } = require("ai");
const { createAnthropic } = require("@ai-sdk/anthropic");
const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { Ollama } = require("ollama");
const { z } = require("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "secret" });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "secret" });
const compatible = createOpenAICompatible({ name: "dllm", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
const models = {
  chat: openai.chat("gpt-4o"),
  responses: openai.responses("gpt-4o"),
  messages: anthropic("claude-sonnet-4-5"),
  compatible: compatible("tiny-llada"),
};
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.enum(["Ulm", "Bonn"]) }),
  execute: async () => "sunny <|endoftext|>",
});
const count = z.object({ value: z.number().int(), unit: z.string().max(8) });

// What applications describe: each must be accepted, and the answer must be valid, unless the small model runs out of
// room. Anthropic's own provider takes bounds and formats out of a schema.
const schemas = {
  count,
  recipe: z.object({
    recipe: z.object({
      name: z.string(),
      ingredients: z.array(z.object({ name: z.string(), amount: z.string() })),
      steps: z.array(z.string()),
    }),
  }),
  choices: z.object({ genre: z.enum(["action", "comedy"]), good: z.boolean().nullable(), why: z.string().optional() }),
  formats: z.object({ when: z.iso.datetime(), mail: z.email(), id: z.uuid(), url: z.url() }),
  numbers: z.object({
    a: z.number().min(0).max(10),
    b: z.number().int().positive(),
    c: z.number().nonnegative(),
    d: z.number().multipleOf(0.5),
  }),
  unions: z.object({
    x: z.union([z.string(), z.number(), z.object({ k: z.literal("a") })]),
    y: z.discriminatedUnion("t", [
      z.object({ t: z.literal("a"), v: z.number() }),
      z.object({ t: z.literal("b"), w: z.string() }),
    ]),
  }),
  lists: z.object({ a: z.array(z.string()).min(1).max(3), t: z.tuple([z.string(), z.number()]), r: z.record(z.string(), z.number()) }),
  texts: z.object({ s: z.string().min(2).max(500), code: z.string().regex(/^[A-Z]{2}\d+$/) }),
};
const ranOut = (error) => {
  if (error.name === "AI_NoObjectGeneratedError" && error.finishReason === "length") return { object: null };
  throw error;
};

async function plain(model) {
  const whole = await generateText({ model, prompt, maxRetries: 0, maxOutputTokens: 4096 });
  assert.equal(whole.text, text);
  assert.equal(whole.finishReason, "stop");
  assert.equal(whole.usage.totalTokens, whole.usage.inputTokens + whole.usage.outputTokens);
  await generateText({ model, system: "Be brief.", prompt, temperature: 0.7, topP: 0.9, seed: 1, maxRetries: 0 });
}

async function streamed(model) {
  const stream = streamText({ model, prompt, maxRetries: 0 });
  const kinds = [];
  for await (const part of stream.fullStream) {
    if (part.type === "error") throw part.error;
    kinds.push(part.type);
  }
  assert.equal(await stream.text, text);
  assert.ok((await stream.usage).outputTokens > 0);
  assert.equal(kinds.at(-1), "finish");
}

async function tools(model) {
  await generateText({ model, prompt, tools: { weather }, maxRetries: 0 });
  const forced = { model, prompt, tools: { weather }, maxRetries: 0 };
  const one = await generateText({ ...forced, toolChoice: "required" });
  assert.ok(["Ulm", "Bonn"].includes(one.toolCalls[0].input.city));
  const stream = streamText({ ...forced, toolChoice: { type: "tool", toolName: "weather" } });
  const calls = [];
  for await (const part of stream.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "tool-call") calls.push(part.toolName);
  }
  assert.ok(calls.length > 0 && calls.every((name) => name === "weather"));
  const first = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" });
  assert.equal((await generateText({ ...forced, prepareStep: first, stopWhen: stepCountIs(2) })).steps.length, 2);
}

async function structure(model, name) {
  for (const [key, schema] of Object.entries(schemas)) {
    if (name === "messages" && !["count", "recipe", "choices", "unions"].includes(key)) continue;
    const made = await generateObject({ model, prompt, schema, maxRetries: 0, maxOutputTokens: 96 }).catch(ranOut);
    assert.ok(made.object === null || schema.safeParse(made.object).success, key);
  }
  assert.ok(["a", "b"].includes((await generateObject({ model, prompt, output: "enum", enum: ["a", "b"], maxRetries: 0 })).object));
  await generateObject({ model, prompt, output: "array", schema: count, maxRetries: 0, maxOutputTokens: 96 }).catch(ranOut);
  const stream = streamObject({ model, prompt, schema: count, maxRetries: 0 });
  let last;
  for await (const part of stream.partialObjectStream) last = part;
  assert.ok(count.safeParse(last).success, JSON.stringify(last));
  // Calls first, then an object: both in one request.
  if (name !== "messages")
    await generateText({ model, prompt, tools: { weather }, output: Output.object({ schema: count }), stopWhen: stepCountIs(3), maxRetries: 0 });
}

for (const [name, model] of Object.entries(models))
  for (const part of [plain, streamed, tools, structure])
    try {
      await part(model, name);
    } catch (error) {
      error.message = `${name}, ${part.name}: ${error.message} ${error.responseBody ?? ""}`;
      throw error;
    }

const ollama = new Ollama({ host: url });
const messages = [{ role: "user", content: prompt }];
assert.equal((await ollama.chat({ model: "tiny-llada", messages })).message.content, text);
let parts = "";
for await (const part of await ollama.chat({ model: "tiny-llada", messages, stream: true })) parts += part.message.content;
assert.equal(parts, text);
const object = await ollama.generate({ model: "tiny-llada", prompt, format: z.toJSONSchema(count) });
assert.ok(count.safeParse(JSON.parse(object.response)).success);
assert.equal((await ollama.list()).models.length, 1);
