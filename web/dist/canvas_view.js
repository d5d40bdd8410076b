// One run's canvas: a grid in which every position keeps its place from the first step to the last.
import { element, setText } from "./dom.js";
import { confidenceClass, controlName, historyOf, percent, Replay, visibleText } from "./replay.js";
import { seconds } from "./timeline.js";
const EVENT_WORDS = { commit: "committed", revise: "revised", remask: "masked again" };
export class CanvasView {
    run;
    label;
    listener;
    node;
    title = element("h2", { class: "run-title" });
    facts = element("p", { class: "run-facts" });
    grid = element("div", { class: "grid", role: "group" });
    replay;
    cells = [];
    focused = 0;
    shown = 0;
    constructor(run, label, listener) {
        this.run = run;
        this.label = label;
        this.listener = listener;
        this.replay = new Replay(run);
        this.node = element("section", { class: "run", "aria-label": `Canvas ${label}`.trim() });
        this.node.append(element("header", { class: "run-head" }, this.title, this.facts), this.grid);
        this.grid.addEventListener("keydown", (event) => this.onKey(event));
        this.grid.addEventListener("pointerleave", () => this.listener.onLook(this, null));
    }
    setTitle(text) {
        setText(this.title, this.label === "" ? text : `${this.label}  ${text}`);
    }
    /** The canvas after the first `shown` steps. */
    show(shown, live) {
        this.shown = Math.min(shown, this.run.steps.length);
        const cells = this.replay.seek(this.shown);
        if (this.cells.length !== cells.length)
            this.build(cells.length);
        const now = this.run.steps[this.shown - 1] ?? this.run.steps[0];
        const [begin, end] = now?.window ?? [0, 0];
        cells.forEach((cell, i) => this.draw(i, cell, i >= begin && i < end));
        this.drawFacts(live);
    }
    build(count) {
        this.grid.classList.toggle("dense", count > 64);
        this.grid.setAttribute("aria-label", `${count} positions; arrow keys move between them`);
        this.cells = Array.from({ length: count }, (_, position) => {
            const text = element("span", { class: "token" });
            const mark = element("span", { class: "mark", "aria-hidden": "true" });
            const pips = element("span", { class: "pips", "aria-hidden": "true" });
            const node = element("button", { type: "button", class: "cell", tabindex: position === 0 ? 0 : -1 }, text, mark, pips);
            node.addEventListener("pointerenter", () => this.listener.onLook(this, position));
            node.addEventListener("focus", () => {
                this.moveTab(position);
                this.listener.onLook(this, position);
            });
            return { node, text, mark, key: "" };
        });
        this.focused = 0;
        this.grid.replaceChildren(...this.cells.map((one) => one.node));
    }
    draw(position, cell, inWindow) {
        const shown = this.cells[position];
        if (shown === undefined)
            return;
        const key = [cell.id, cell.confidence, cell.event, cell.revisions, cell.remasks, inWindow].join();
        if (shown.key === key)
            return;
        const { node } = shown;
        node.className = "cell";
        if (shown.key !== "" && cell.event !== "none")
            void node.offsetWidth; // restarts the animation
        shown.key = key;
        const masked = cell.id < 0;
        node.classList.add(masked ? "masked" : `c${confidenceClass(cell.confidence)}`);
        if (inWindow)
            node.classList.add("in-window");
        if (cell.event !== "none")
            node.classList.add("now", cell.event);
        if (cell.revisions > 0)
            node.classList.add("was-revised");
        if (cell.remasks > 0)
            node.classList.add("was-remasked");
        const control = controlName(cell.text);
        if (control !== null)
            node.classList.add("control");
        setText(shown.text, masked ? "" : visibleText(control ?? cell.text));
        setText(shown.mark, masked && cell.remasks > 0 ? "\u21ba" : cell.revisions > 0 ? "\u25c6" : "");
        node.setAttribute("aria-label", describe(position, cell));
    }
    drawFacts(live) {
        const step = this.run.steps[this.shown - 1];
        const end = this.run.result;
        const parts = [`NFE ${step?.nfe ?? 0}${end === null ? "" : ` of ${end.nfe}`}`, seconds(step?.seconds ?? 0)];
        if (step !== undefined)
            parts.push(`${step.positions - step.masked} of ${step.positions} decided`);
        if (end === null && live)
            parts.push("denoising\u2026");
        else if (end === null)
            parts.push("stopped");
        setText(this.facts, parts.join(" \u00b7 "));
    }
    moveTab(position) {
        this.cells[this.focused]?.node.setAttribute("tabindex", "-1");
        this.focused = position;
        this.cells[position]?.node.setAttribute("tabindex", "0");
    }
    columns() {
        const top = this.cells[0]?.node.offsetTop ?? 0;
        const count = this.cells.findIndex((one) => one.node.offsetTop !== top);
        return count < 0 ? this.cells.length : count;
    }
    onKey(event) {
        const last = this.cells.length - 1;
        const steps = {
            ArrowLeft: () => this.focused - 1,
            ArrowRight: () => this.focused + 1,
            ArrowUp: () => this.focused - this.columns(),
            ArrowDown: () => this.focused + this.columns(),
            Home: () => 0,
            End: () => last,
        };
        const step = steps[event.key];
        if (step === undefined || event.ctrlKey || event.metaKey || event.altKey)
            return;
        event.preventDefault();
        const target = step();
        if (target >= 0 && target <= last)
            this.cells[target]?.node.focus();
    }
    /** The history of a position up to the shown step. */
    drawHistory(into, position) {
        const entries = historyOf(this.run, position, this.shown);
        const cell = this.replay.seek(this.shown)[position];
        const head = element("p", { class: "look-head" }, element("strong", {}, `${this.label} position ${position}`.trim()), cell === undefined || cell.id < 0 ? " masked" : element("code", {}, visibleText(cell.text)), cell === undefined || cell.id < 0 ? null : ` token ${cell.id} \u00b7 ${percent(cell.confidence)}`);
        const list = element("ol", { class: "look-list" }, ...entries.map((one) => element("li", { class: one.event }, element("span", { class: "look-step" }, `pass ${one.step.nfe}`), ` ${EVENT_WORDS[one.event]} `, one.event === "remask" ? null : element("code", {}, visibleText(one.text)), one.event === "remask" ? null : ` ${percent(one.confidence)}`)));
        into.replaceChildren(head, entries.length > 0 ? list : element("p", { class: "look-none" }, "Nothing has happened here yet."));
    }
}
function describe(position, cell) {
    const what = cell.id < 0 ? "masked" : `\u201c${visibleText(cell.text)}\u201d, ${percent(cell.confidence)}`;
    const now = cell.event === "none" ? "" : `, ${EVENT_WORDS[cell.event]} in this step`;
    const past = [
        cell.revisions > 0 ? `revised ${cell.revisions} times` : "",
        cell.remasks > 0 ? `masked again ${cell.remasks} times` : "",
    ].filter((one) => one !== "");
    return `Position ${position}: ${what}${now}${past.length > 0 ? `, ${past.join(", ")}` : ""}`;
}
export function emptyPane(count) {
    const cells = Array.from({ length: count }, () => element("span", { class: "cell masked" }));
    return element("div", { class: "grid idle", "aria-hidden": "true" }, ...cells);
}
