// The page: connects its parts.

import { Attachments } from "./attachments.js";
import { Chat } from "./chat.js";
import type { AnswerView } from "./chat.js";
import { button, element, find, remember, remembered, setText } from "./dom.js";
import { MethodForm } from "./method_form.js";
import { Server, ServerError } from "./server.js";
import type { ServedModel, ServerFacts } from "./server.js";
import { Stage } from "./stage.js";
import { parseTrace, traceText } from "./trace.js";
import type { Image, OptionValue, Run } from "./trace.js";

const LARGEST_TRACE = 64 << 20;
const EXAMPLES = [
  "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?",
  "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?",
  "Reverse: a b c d",
  "Solve 17+4.",
];

const server = new Server();
const stage = new Stage();
const chat = new Chat((answer) => stage.show(answer.runs, "end"));
const prompt = find("prompt", HTMLTextAreaElement);
const send = find("send", HTMLButtonElement);
const compare = find("compare", HTMLInputElement);
const problem = find("problem", HTMLElement);
const status = find("status", HTMLElement);
const attachments = new Attachments(tell, () => chat.imageBytes);

let facts: ServerFacts = {
  name: "",
  architecture: "",
  context: 0,
  embedded: false,
  images: false,
  limit: 0,
  program: "dllm",
  defaults: {},
};
let served: ServedModel[] = [];
let forms: MethodForm[] = [];
let running: AbortController | null = null;

function tell(text: string): void {
  problem.hidden = text === "";
  setText(problem, text);
}

function explain(error: unknown): string {
  if (error instanceof ServerError && error.field !== null) return `${error.field}: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}

// --- the server

/** Counts attempts: a slower one for a model chosen before must not replace what a later one has shown. */
let attempts = 0;

async function connect(): Promise<void> {
  server.key = remembered("key", true);
  const mine = ++attempts;
  try {
    const models = await server.models();
    if (mine !== attempts) return;
    served = models;
    server.model = chosenModel();
    showModels();
    const found = await server.facts(served);
    const list = await server.options();
    if (mine !== attempts) return;
    facts = found;
    forms = [
      new MethodForm("A", list, facts.defaults, {}),
      new MethodForm("B", list, facts.defaults, { algorithm: "low-confidence" }),
    ];
    find("methods", HTMLElement).replaceChildren(...forms.map((form) => form.node));
    showModel();
    attachments.allow(facts.images, facts.limit);
    document.title = `${facts.name} \u2013 dllm`;
    send.disabled = false;
    showForms();
    showExamples();
    tell("");
  } catch (error) {
    if (mine !== attempts) return;
    if (error instanceof ServerError && error.status === 401) return askKey();
    tell(`${explain(error)} Traces can be opened without it.`);
  }
}

// --- the models of a server with several

/** Loaded ones answer at once, so one of these is chosen unless the user has chosen. "": there is no choice. */
function chosenModel(): string {
  if (served.length < 2) return "";
  const wanted = remembered("model");
  return (served.find((one) => one.name === wanted) ?? served.find((one) => one.loaded) ?? served[0])?.name ?? "";
}

function showModels(): void {
  const box = find("models", HTMLSelectElement);
  box.hidden = served.length < 2;
  find("model", HTMLElement).hidden = !box.hidden;
  box.replaceChildren(
    ...served.map((one) =>
      element("option", { value: one.name }, one.loaded ? one.name : `${one.name} (loaded when chosen)`),
    ),
  );
  box.value = server.model;
}

function showModel(): void {
  setText(find("model", HTMLElement), [facts.name, facts.architecture].filter((one) => one !== "").join(" \u00b7 "));
  served = served.map((one) => (one.name === server.model ? { ...one, loaded: true } : one));
  showModels();
}

/** What has been said before goes to the new model too. */
async function choose(name: string): Promise<void> {
  running?.abort();
  remember("model", name);
  send.disabled = true;
  setText(status, `Loading ${name}.`);
  await connect();
  if (!send.disabled) setText(status, `${name} answers now.`);
}

function askKey(): void {
  const dialog = find("key-dialog", HTMLDialogElement);
  const input = find("key", HTMLInputElement);
  const use = (): void => {
    remember("key", input.value, true);
    dialog.close();
    void connect();
  };
  find("use-key", HTMLButtonElement).onclick = use;
  input.onkeydown = (event) => {
    if (event.key === "Enter") use();
  };
  dialog.showModal();
}

function showForms(): void {
  const [a, b] = forms;
  a?.node.classList.toggle("alone", !compare.checked);
  if (b !== undefined) b.node.hidden = !compare.checked;
}

function showExamples(): void {
  const box = find("examples", HTMLElement);
  // The embedded model only knows such tasks; nothing is known about other models.
  const texts = facts.embedded && chat.messages.length === 0 ? EXAMPLES : [];
  box.hidden = texts.length === 0;
  box.replaceChildren(...texts.map((text) => button(text, { class: "example" }, () => void ask(text))));
}

/** In one column the canvas is below the conversation. */
function showStage(): void {
  if (matchMedia("(max-width: 999px)").matches) find("controls", HTMLElement).scrollIntoView({ block: "start" });
}

// --- questions

async function ask(content: string): Promise<void> {
  if (running !== null || send.disabled || forms.length === 0 || content.trim() === "") return;
  const controller = new AbortController();
  running = controller;
  tell("");
  const images = attachments.take();
  chat.ask(content, images);
  showExamples();
  prompt.value = "";
  sizePrompt();
  send.textContent = "Stop";
  const wanted = forms.slice(0, compare.checked ? 2 : 1).map((form) => form.fields());
  const runs: Run[] = wanted.map((options) => ({
    model: { name: facts.name, architecture: facts.architecture },
    messages: [...chat.messages],
    options: { algorithm: String(facts.defaults["algorithm"] ?? "answer"), ...options },
    steps: [],
    result: null,
  }));
  const view = chat.answer(runs);
  stage.show(runs, "start");
  showStage();
  try {
    for (const [i, run] of runs.entries()) await make(run, i, wanted[i] ?? {}, view, controller.signal);
    if (runs.length > 1) showStage(); // both are replayed now, and the answers have moved them down
    chat.accept(view);
    const first = runs[0]?.result;
    if (first) setText(status, `Answer complete: ${first.nfe} passes.`);
  } catch (error) {
    leave(error, runs, view, content, images);
  } finally {
    running = null;
    send.textContent = "Send";
    stage.end();
  }
}

async function make(
  run: Run,
  index: number,
  options: Readonly<Record<string, OptionValue>>,
  view: AnswerView,
  signal: AbortSignal,
): Promise<void> {
  stage.begin(run);
  await server.chat(
    run.messages,
    options,
    {
      onStep: (step) => {
        run.steps.push(step);
        stage.grown();
      },
      onThought: (more) => view.think(index, more),
      onText: (more) => view.append(index, more),
      onEnd: (result, resolved) => {
        run.result = result;
        run.options = resolved;
        stage.retitle();
      },
    },
    signal,
  );
  view.close(index);
}

/** The answer was stopped, or there was none. */
function leave(
  error: unknown,
  runs: readonly Run[],
  view: AnswerView,
  content: string,
  images: readonly Image[],
): void {
  runs.forEach((_, i) => view.close(i));
  if (error instanceof DOMException && error.name === "AbortError") {
    setText(status, "Stopped.");
    if (view.text !== "") chat.accept(view);
    else chat.withdraw();
    return;
  }
  chat.withdraw();
  view.node.remove();
  chat.note(explain(error));
  if (prompt.value === "") prompt.value = content;
  attachments.giveBack(images);
  if (error instanceof ServerError && error.status === 401) askKey();
}

function sizePrompt(): void {
  prompt.style.height = "auto";
  prompt.style.height = `${Math.min(prompt.scrollHeight + 2, 200)}px`;
}

// --- traces

function open(source: string, name: string): void {
  try {
    const trace = parseTrace(source);
    running?.abort();
    const view = chat.restore(trace.runs);
    stage.show(view.runs, "end");
    showExamples();
    tell("");
    setText(
      status,
      `${name}: ${trace.runs.length} ${trace.runs.length === 1 ? "answer" : "answers"} by ${trace.program}.`,
    );
  } catch (error) {
    tell(`${name}: ${explain(error)}`);
  }
}

async function openFile(file: File | undefined): Promise<void> {
  if (file === undefined) return;
  if (file.size > LARGEST_TRACE) return tell(`${file.name}: a trace has at most ${LARGEST_TRACE >> 20} MiB`);
  open(await file.text(), file.name);
}

function save(): void {
  if (stage.runs.length === 0) return tell("There is no answer to save yet.");
  const blob = new Blob([traceText(facts.program, stage.runs)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "dllm-trace.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function watchDrops(): void {
  const isFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
  document.addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!isFile(event)) return;
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    const images = attachments.among(files);
    if (images.length > 0) void attachments.add(images);
    else void openFile(files[0]);
  });
}

// --- the rest of the page

const THEMES = ["auto", "light", "dark"] as const;

function setTheme(name: string): void {
  const theme = THEMES.find((one) => one === name) ?? "auto";
  document.documentElement.dataset["theme"] = theme;
  setText(find("theme", HTMLButtonElement), `Theme: ${theme}`);
  remember("theme", theme);
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return running?.abort();
  const target = event.target instanceof Element ? event.target : document.body;
  if (target.closest("input, textarea, select, dialog, summary") !== null) return;
  const onControl = target.closest("button:not(.cell)") !== null;
  const actions: Record<string, () => void> = {
    "[": () => stage.player.move(-1),
    "]": () => stage.player.move(1),
    "/": () => prompt.focus(),
    c: () => stage.focus(),
    ...(onControl ? {} : { " ": () => stage.player.toggle() }),
  };
  const action = actions[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

find("composer", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  if (running !== null) running.abort();
  else void ask(prompt.value);
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void ask(prompt.value);
});
prompt.addEventListener("input", sizePrompt);
prompt.addEventListener("paste", (event) => {
  const images = attachments.among([...(event.clipboardData?.files ?? [])]);
  if (images.length === 0) return;
  event.preventDefault();
  void attachments.add(images);
});
const models = find("models", HTMLSelectElement);
models.addEventListener("change", () => void choose(models.value));
compare.checked = remembered("compare") === "yes";
compare.addEventListener("change", () => {
  remember("compare", compare.checked ? "yes" : "no");
  showForms();
});
find("new", HTMLButtonElement).addEventListener("click", () => {
  running?.abort();
  chat.clear();
  showExamples();
  prompt.focus();
});
find("save", HTMLButtonElement).addEventListener("click", save);
const file = find("file", HTMLInputElement);
find("open", HTMLButtonElement).addEventListener("click", () => file.click());
file.addEventListener("change", () => {
  void openFile(file.files?.[0]).then(() => {
    file.value = "";
  });
});
find("theme", HTMLButtonElement).addEventListener("click", () => {
  const now = THEMES.findIndex((one) => one === document.documentElement.dataset["theme"]);
  setTheme(THEMES[(now + 1) % THEMES.length] ?? "auto");
});
document.addEventListener("keydown", onKey);
// A page with the engine inside has models that it did not have before (web/src/wasm/files.ts).
document.addEventListener("dllm-model", (event) => {
  if (event instanceof CustomEvent) void choose(String(event.detail));
});
setTheme(remembered("theme"));
watchDrops();
void connect();
