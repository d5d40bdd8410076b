// The contents of a canvas after any of its steps, and the history of each position.
function emptyCell() {
    return { id: -1, text: "", confidence: 0, event: "none", revisions: 0, remasks: 0 };
}
/** The event when a position that shows `before` gets `id`. */
export function eventOf(before, id) {
    if (before === id)
        return "none";
    if (id < 0)
        return "remask";
    return before < 0 ? "commit" : "revise";
}
/** The canvas may be continued while the answer is made; it never gets shorter. */
export function positionsOf(run) {
    return run.steps[run.steps.length - 1]?.positions ?? 0;
}
/** The canvas of a run after its first `shown` steps. Steps may be added to the run meanwhile. */
export class Replay {
    run;
    list = [];
    done = 0;
    constructor(run) {
        this.run = run;
    }
    /** The cells belong to the replay and change with the next call. */
    seek(shown) {
        const target = Math.max(0, Math.min(shown, this.run.steps.length));
        if (target < this.done || this.list.length !== positionsOf(this.run)) {
            this.list = Array.from({ length: positionsOf(this.run) }, emptyCell);
            this.done = 0;
        }
        while (this.done < target)
            this.apply(this.run.steps[this.done++]);
        return this.list;
    }
    apply(step) {
        for (const cell of this.list)
            cell.event = "none";
        for (const [position, id, text, confidence] of step?.changes ?? []) {
            const cell = this.list[position];
            if (cell === undefined)
                continue;
            cell.event = eventOf(cell.id, id);
            if (cell.event === "revise")
                ++cell.revisions;
            if (cell.event === "remask")
                ++cell.remasks;
            cell.id = id;
            cell.text = text;
            cell.confidence = confidence;
        }
    }
}
/** Everything that the first `shown` steps did at a position. */
export function historyOf(run, position, shown) {
    const found = [];
    let before = -1;
    run.steps.slice(0, Math.max(0, shown)).forEach((step, at) => {
        for (const [where, id, text, confidence] of step.changes) {
            if (where !== position)
                continue;
            const event = eventOf(before, id);
            before = id;
            if (event !== "none")
                found.push({ event, at, step, id, text, confidence });
        }
    });
    return found;
}
/** Confidence in five classes, for both colour and shape: 0 below 50 %, 4 from 99 %. */
export const CLASS_BOUNDS = [0.5, 0.75, 0.9, 0.99];
export function confidenceClass(confidence) {
    return CLASS_BOUNDS.filter((bound) => confidence >= bound).length;
}
/** Makes white space visible; control characters become their symbols (U+2400 and up). */
export function visibleText(text) {
    return (text
        .replace(/ /g, "\u00b7")
        .replace(/\n/g, "\u21b5")
        .replace(/\t/g, "\u21e5")
        .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
        // Marks that are invisible or would reverse the direction of the surrounding text.
        .replace(/[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "\ufffd"));
}
/** The name of a control token, `<|name|>` or `<name>`; null if it is none. */
export function controlName(text) {
    return /^<\|?([\w/ -]+)\|?>$/.exec(text)?.[1] ?? null;
}
export function percent(confidence) {
    const value = confidence * 100;
    // 99.96 must not be shown as 100.
    return `${value >= 99.95 && confidence < 1 ? ">99.9" : value >= 10 ? value.toFixed(1) : value.toPrecision(2)} %`;
}
