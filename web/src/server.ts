// The server's routes that the page uses (docs/guide/serving.md). Addresses are relative: a proxy may add a prefix.

import { EventReader } from "./events.js";
import { parseOptions, parseResult, parseStep, TraceError } from "./trace.js";
import { send } from "./transport.js";
import type { Message, OptionValue, Result, Step } from "./trace.js";

export interface OptionInfo {
  readonly key: string;
  readonly type: "boolean" | "integer" | "number" | "choice";
  readonly meaning: string;
  readonly unit?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly choices?: readonly string[];
  readonly default?: string | number | boolean;
  readonly default_text?: string;
  readonly condition?: string;
}

export interface MethodInfo {
  readonly name: string;
  readonly meaning: string;
  /** The loaded model supports it. */
  readonly usable: boolean;
  readonly options: readonly OptionInfo[];
}

export interface OptionList {
  readonly common: readonly OptionInfo[];
  readonly parts: readonly {
    readonly key: string;
    readonly meaning: string;
    readonly methods: readonly MethodInfo[];
  }[];
  readonly presets: readonly { readonly name: string; readonly meaning: string; readonly usable: boolean }[];
}

/** A model that the server has, or can load. */
export interface ServedModel {
  readonly name: string;
  readonly architecture: string;
  /** Loading it takes a while. */
  readonly loaded: boolean;
}

export interface ServerFacts {
  readonly name: string;
  readonly architecture: string;
  readonly context: number;
  readonly embedded: boolean;
  /** The model reads images. */
  readonly images: boolean;
  /** Bytes that a request may have. */
  readonly limit: number;
  readonly program: string;
  readonly defaults: Readonly<Record<string, OptionValue>>;
}

/** An error response of the server. `status` 0: the server did not respond. */
export class ServerError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly field: string | null = null,
  ) {
    super(message);
  }
}

export interface StreamListener {
  onStep(step: Step): void;
  /** What the model thinks before it answers; follows what it has thought so far. */
  onThought(more: string): void;
  /** Final text that follows the previous text. */
  onText(more: string): void;
  onEnd(result: Result, options: Record<string, OptionValue>): void;
}

/** The fields that a stream's chunk may have; each is checked before it is used. */
interface Chunk {
  choices?: { delta?: { content?: unknown; reasoning_content?: unknown } }[];
  diffusion?: { final?: unknown; result?: unknown; options?: unknown };
  error?: { message?: unknown };
}

export class Server {
  key = "";
  /** Answers requests; "": the server's own choice. */
  model = "";

  private async call(path: string, init: RequestInit = {}): Promise<Response> {
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (this.key !== "") headers["Authorization"] = `Bearer ${this.key}`;
    let response: Response;
    try {
      response = await send(path, { ...init, headers });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new ServerError("The server does not answer.", 0);
    }
    if (response.ok) return response;
    const text = await response.text();
    throw refusal(text, response.status);
  }

  /** The path of a route that asks for the chosen model's facts. */
  private about(path: string): string {
    return this.model === "" ? path : `${path}?model=${encodeURIComponent(this.model)}`;
  }

  async models(): Promise<ServedModel[]> {
    const list = (await (await this.call("v1/models")).json()) as {
      data: { id: string; meta: { architecture: string }; status?: { value: string } }[];
    };
    return list.data.map((one) => ({
      name: one.id,
      architecture: one.meta.architecture,
      loaded: (one.status?.value ?? "loaded") === "loaded",
    }));
  }

  /** Facts about the chosen model, which a server with several loads for that. */
  async facts(models: readonly ServedModel[]): Promise<ServerFacts> {
    const props = (await (await this.call(this.about("props"))).json()) as Record<string, unknown>;
    const chosen = models.find((one) => one.name === this.model) ?? models[0];
    return {
      name: String(props["model_alias"] ?? chosen?.name ?? ""),
      architecture: chosen?.architecture ?? "",
      context: Number(props["n_ctx"] ?? 0),
      embedded: props["model_path"] === "",
      images: (props["modalities"] as { vision?: unknown } | undefined)?.vision === true,
      limit: Number(props["max_body_bytes"] ?? 0),
      program: String(props["build_info"] ?? "dllm"),
      defaults: parseOptions(props["default_generation_settings"], "props"),
    };
  }

  async options(): Promise<OptionList> {
    return (await (await this.call(this.about("options"))).json()) as OptionList;
  }

  /** An answer with all its steps. Aborting `signal` rejects the promise and ends the request at the server. */
  async chat(
    messages: readonly Message[],
    options: Readonly<Record<string, OptionValue>>,
    listener: StreamListener,
    signal: AbortSignal,
  ): Promise<void> {
    const model = this.model === "" ? {} : { model: this.model };
    const body = { ...options, ...model, messages: messages.map(withParts), stream: true, diffusion_events: true };
    const response = await this.call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
    if (response.body === null) throw new ServerError("The answer has no body.", response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    let ended = false;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      for (const data of events.push(value)) if (hear(data, listener)) ended = true;
    }
    if (!ended) throw new ServerError("The stream ended before the answer.", response.status);
  }
}

/** A message as the server reads it: images are parts before its text. */
export function withParts(message: Message): object {
  const { images, ...rest } = message;
  if (images === undefined || images.length === 0) return rest;
  const parts = images.map((image) => ({ type: "image_url", image_url: { url: image.url } }));
  return { ...rest, content: [...parts, { type: "text", text: message.content }] };
}

export function refusal(text: string, status: number): ServerError {
  try {
    const { error } = JSON.parse(text) as { error: { message: unknown; param?: unknown } };
    if (typeof error.message === "string") {
      return new ServerError(error.message, status, typeof error.param === "string" ? error.param : null);
    }
  } catch {
    // Not the server's format: something between the page and the server has answered.
  }
  return new ServerError(`The server answered with status ${status}.`, status);
}

/** Forwards one event. True: it was the answer's last step. */
export function hear(data: string, listener: StreamListener): boolean {
  if (data === "[DONE]") return false;
  const chunk = JSON.parse(data) as Chunk;
  if (chunk.error !== undefined) throw new ServerError(String(chunk.error.message), 200);
  const delta = chunk.choices?.[0]?.delta;
  if (typeof delta?.reasoning_content === "string" && delta.reasoning_content !== "")
    listener.onThought(delta.reasoning_content);
  if (typeof delta?.content === "string" && delta.content !== "") listener.onText(delta.content);
  const facts = chunk.diffusion;
  if (facts === undefined) return false;
  if (facts.final !== true) {
    listener.onStep(parseStep(facts, "step"));
    return false;
  }
  if (facts.result === undefined) throw new TraceError("result: it is missing");
  listener.onEnd(parseResult(facts.result, "result"), parseOptions(facts.options, "options"));
  return true;
}
