// OpenAI's npm package against `dllm serve`; serve_npm_test.py runs it: node serve_client.mjs PACKAGE URL
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, url] = process.argv.slice(2);
const OpenAI = createRequire(`${folder}/`)("openai");
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret", maxRetries: 0 });
const question = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";
const messages = [{ role: "user", content: question }];

const models = await client.models.list();
const model = models.data[0].id;

const whole = await client.chat.completions.create({ model, messages, max_tokens: 64 });
const text = whole.choices[0].message.content;
assert.equal(whole.choices[0].finish_reason, "stop");
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  model, messages, max_tokens: 64, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);

const helper = client.chat.completions.stream({ model, messages, max_tokens: 64 });
assert.equal((await helper.finalChatCompletion()).choices[0].message.content, text);

const completion = await client.completions.create({ model, prompt: "3 + 4 =", max_tokens: 16, seed: 1 });
let pieces = "";
for await (const chunk of await client.completions.create({ model, prompt: "3 + 4 =", max_tokens: 16, seed: 1, stream: true }))
  pieces += chunk.choices[0].text;
assert.equal(pieces, completion.choices[0].text);

const response = await client.responses.create({ model, input: question, max_output_tokens: 64 });
assert.equal(response.output_text, text);
let events = "";
for await (const event of await client.responses.create({ model, input: question, max_output_tokens: 64, stream: true }))
  if (event.type === "response.output_text.delta") events += event.delta;
assert.equal(events, text);

const tools = [{ type: "function", function: { name: "count", parameters: { type: "object", properties: { n: { type: "integer" } } } } }];
const called = await client.chat.completions.create({ model, messages, tools, tool_choice: "none", max_tokens: 64 });
assert.equal(called.choices[0].message.tool_calls, undefined);

const schema = { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"] };
const structured = await client.chat.completions.create({
  model, messages, max_tokens: 64, response_format: { type: "json_schema", json_schema: { name: "count", schema } },
});
assert.ok([1, 2].includes(JSON.parse(structured.choices[0].message.content).n));

await assert.rejects(client.chat.completions.create({ model, messages, max_tokens: -2 }), OpenAI.BadRequestError);
await assert.rejects(client.chat.completions.create({ model: "another", messages }), OpenAI.NotFoundError);
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
const controller = new AbortController();
const aborted = client.chat.completions.create({ model, messages, max_tokens: 128 }, { signal: controller.signal });
controller.abort();
await assert.rejects(aborted, OpenAI.APIUserAbortError);
console.log("all answers as expected");
