// The server's routes that the page uses (docs/guide/serving.md). Addresses are relative: a proxy may add a prefix.
import { EventReader } from "./events.js";
import { parseOptions, parseResult, parseStep, TraceError } from "./trace.js";
import { send } from "./transport.js";
/** An error response of the server. `status` 0: the server did not respond. */
export class ServerError extends Error {
    status;
    field;
    constructor(message, status, field = null) {
        super(message);
        this.status = status;
        this.field = field;
    }
}
export class Server {
    key = "";
    /** Answers requests; "": the server's own choice. */
    model = "";
    async call(path, init = {}) {
        const headers = { "Content-Type": "application/json" };
        if (this.key !== "")
            headers["Authorization"] = `Bearer ${this.key}`;
        let response;
        try {
            response = await send(path, { ...init, headers });
        }
        catch (error) {
            if (error instanceof DOMException && error.name === "AbortError")
                throw error;
            throw new ServerError("The server does not answer.", 0);
        }
        if (response.ok)
            return response;
        const text = await response.text();
        throw refusal(text, response.status);
    }
    /** The path of a route that asks for the chosen model's facts. */
    about(path) {
        return this.model === "" ? path : `${path}?model=${encodeURIComponent(this.model)}`;
    }
    async models() {
        const list = (await (await this.call("v1/models")).json());
        return list.data.map((one) => ({
            name: one.id,
            architecture: one.meta.architecture,
            loaded: (one.status?.value ?? "loaded") === "loaded",
        }));
    }
    /** Facts about the chosen model, which a server with several loads for that. */
    async facts(models) {
        const props = (await (await this.call(this.about("props"))).json());
        const chosen = models.find((one) => one.name === this.model) ?? models[0];
        return {
            name: String(props["model_alias"] ?? chosen?.name ?? ""),
            architecture: chosen?.architecture ?? "",
            context: Number(props["n_ctx"] ?? 0),
            embedded: props["model_path"] === "",
            images: props["modalities"]?.vision === true,
            limit: Number(props["max_body_bytes"] ?? 0),
            program: String(props["build_info"] ?? "dllm"),
            defaults: parseOptions(props["default_generation_settings"], "props"),
        };
    }
    async options() {
        return (await (await this.call(this.about("options"))).json());
    }
    /** An answer with all its steps. Aborting `signal` rejects the promise and ends the request at the server. */
    async chat(messages, options, listener, signal) {
        const model = this.model === "" ? {} : { model: this.model };
        const body = { ...options, ...model, messages: messages.map(withParts), stream: true, diffusion_events: true };
        const response = await this.call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
        if (response.body === null)
            throw new ServerError("The answer has no body.", response.status);
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        const events = new EventReader();
        let ended = false;
        for (;;) {
            const { value, done } = await reader.read();
            if (done)
                break;
            for (const data of events.push(value))
                if (hear(data, listener))
                    ended = true;
        }
        if (!ended)
            throw new ServerError("The stream ended before the answer.", response.status);
    }
}
/** A message as the server reads it: images are parts before its text. */
export function withParts(message) {
    const { images, ...rest } = message;
    if (images === undefined || images.length === 0)
        return rest;
    const parts = images.map((image) => ({ type: "image_url", image_url: { url: image.url } }));
    return { ...rest, content: [...parts, { type: "text", text: message.content }] };
}
export function refusal(text, status) {
    try {
        const { error } = JSON.parse(text);
        if (typeof error.message === "string") {
            return new ServerError(error.message, status, typeof error.param === "string" ? error.param : null);
        }
    }
    catch {
        // Not the server's format: something between the page and the server has answered.
    }
    return new ServerError(`The server answered with status ${status}.`, status);
}
/** Forwards one event. True: it was the answer's last step. */
export function hear(data, listener) {
    if (data === "[DONE]")
        return false;
    const chunk = JSON.parse(data);
    if (chunk.error !== undefined)
        throw new ServerError(String(chunk.error.message), 200);
    const delta = chunk.choices?.[0]?.delta;
    if (typeof delta?.reasoning_content === "string" && delta.reasoning_content !== "")
        listener.onThought(delta.reasoning_content);
    if (typeof delta?.content === "string" && delta.content !== "")
        listener.onText(delta.content);
    const facts = chunk.diffusion;
    if (facts === undefined)
        return false;
    if (facts.final !== true) {
        listener.onStep(parseStep(facts, "step"));
        return false;
    }
    if (facts.result === undefined)
        throw new TraceError("result: it is missing");
    listener.onEnd(parseResult(facts.result, "result"), parseOptions(facts.options, "options"));
    return true;
}
