// The conversation: messages, and the runs that produced the answers.
import { runTitle } from "./choice.js";
import { button, element, find, setText } from "./dom.js";
import { seconds } from "./timeline.js";
/** What one run has said, apart from what it has thought. */
class AnswerPart {
    body = element("div", { class: "bubble waiting" });
    foot = element("span", {});
    thinking = element("div", { class: "thinking" });
    box = element("details", { class: "thoughts" }, element("summary", {}, "Thoughts"), this.thinking);
    text = "";
    thoughts = "";
    constructor() {
        this.box.hidden = true;
    }
    /** Open while nothing else can be read. */
    think(more) {
        this.thoughts += more;
        this.box.open = this.box.open || (this.box.hidden && this.text === "");
        this.box.hidden = false;
        setText(this.thinking, this.thoughts);
    }
    say(more) {
        if (this.text === "")
            this.box.open = false;
        this.text += more;
        this.body.classList.remove("waiting");
        setText(this.body, this.text);
    }
    /** A run's own text has its thoughts within. */
    said(run) {
        return this.thoughts === "" ? (run?.result?.text ?? this.text) : this.text;
    }
}
/** An answer on the screen; with several runs, the conversation continues with the text of the first. */
export class AnswerView {
    runs;
    node = element("li", { class: "message assistant" });
    parts = [];
    constructor(runs, onShow) {
        this.runs = runs;
        runs.forEach((_, i) => {
            const part = new AnswerPart();
            this.parts.push(part);
            if (runs.length > 1)
                this.node.append(element("span", { class: "who" }, String.fromCharCode(65 + i)));
            this.node.append(part.box, part.body, element("p", { class: "foot" }, part.foot));
        });
        this.node.append(button(runs.length > 1 ? "Show both canvases" : "Show the canvas", { class: "quiet show" }, () => onShow(this)));
    }
    append(index, more) {
        this.parts[index]?.say(more);
    }
    think(index, more) {
        this.parts[index]?.think(more);
    }
    close(index) {
        const part = this.parts[index];
        const run = this.runs[index];
        if (part === undefined || run === undefined)
            return;
        const text = part.said(run);
        part.body.classList.remove("waiting");
        part.body.classList.toggle("empty", text.trim() === "");
        setText(part.body, text.trim() === "" ? (run.result === null ? "Stopped." : "The answer is empty.") : text);
        const facts = run.result;
        setText(part.foot, facts === null ? "stopped" : `${runTitle(run.options)} \u00b7 NFE ${facts.nfe} \u00b7 ${seconds(facts.seconds)}`);
    }
    /** The text with which the conversation continues. */
    get text() {
        return this.parts[0]?.said(this.runs[0]) ?? "";
    }
    get thoughts() {
        return this.parts[0]?.thoughts ?? "";
    }
}
export class Chat {
    onShow;
    list = find("messages", HTMLOListElement);
    messages = [];
    constructor(onShow) {
        this.onShow = onShow;
    }
    /** Bytes of the images that go with every question. */
    get imageBytes() {
        const images = this.messages.flatMap((message) => message.images ?? []);
        return images.reduce((sum, image) => sum + image.url.length, 0);
    }
    clear() {
        this.messages = [];
        this.list.replaceChildren();
    }
    ask(content, images) {
        this.messages.push(images.length === 0 ? { role: "user", content } : { role: "user", content, images });
        const names = images.map((image) => element("li", {}, image.name));
        this.add(element("li", { class: "message user" }, names.length === 0 ? null : element("ul", { class: "images", "aria-label": "Images" }, ...names), element("div", { class: "bubble" }, content)));
    }
    answer(runs) {
        const view = new AnswerView(runs, (one) => {
            this.mark(one);
            this.onShow(one);
        });
        this.add(view.node);
        this.mark(view);
        return view;
    }
    /** Removes and returns the last question, which got no answer. */
    withdraw() {
        return this.messages.pop();
    }
    accept(view) {
        const thoughts = view.thoughts === "" ? {} : { reasoning_content: view.thoughts };
        this.messages.push({ role: "assistant", content: view.text, ...thoughts });
    }
    note(text) {
        this.add(element("li", { class: "message note", role: "alert" }, text));
    }
    /** The conversation of a trace. */
    restore(runs) {
        this.clear();
        for (const message of runs[0]?.messages ?? []) {
            this.messages.push(message);
            const kind = message.role === "user" ? "user" : message.role === "assistant" ? "assistant" : "note";
            this.add(element("li", { class: `message ${kind}` }, element("div", { class: "bubble" }, message.content)));
        }
        const view = this.answer(runs);
        runs.forEach((_, i) => view.close(i));
        this.accept(view);
        return view;
    }
    mark(view) {
        for (const one of this.list.querySelectorAll(".shown"))
            one.classList.remove("shown");
        view.node.classList.add("shown");
    }
    add(node) {
        this.list.append(node);
        node.scrollIntoView({ block: "nearest" });
    }
}
