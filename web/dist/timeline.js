// One scale for several runs: frame f shows each run after some number of its steps.
export const SCALES = ["steps", "passes", "time"];
export class Timeline {
    runs;
    scale;
    /** The scale's value at each frame; the first is 0. */
    marks;
    constructor(runs, scale) {
        this.runs = runs;
        this.scale = scale;
        const values = new Set([0]);
        for (const run of runs)
            run.steps.forEach((_, i) => values.add(this.value(run, i)));
        this.marks = [...values].sort((a, b) => a - b);
    }
    value(run, index) {
        const step = run.steps[index];
        if (step === undefined || this.scale === "steps")
            return index + 1;
        return this.scale === "passes" ? step.nfe : step.seconds;
    }
    /** The last frame; the first is 0, where every position is masked. */
    get last() {
        return this.marks.length - 1;
    }
    mark(frame) {
        return this.marks[Math.max(0, Math.min(frame, this.last))] ?? 0;
    }
    /** The number of a run's steps that a frame shows. */
    shown(run, frame) {
        if (frame >= this.last)
            return run.steps.length;
        const now = this.mark(frame);
        let low = 0;
        let high = run.steps.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (this.value(run, middle) <= now)
                low = middle + 1;
            else
                high = middle;
        }
        return now === 0 ? 0 : low;
    }
    /** The first frame that shows `shown` steps of a run. */
    frameOf(run, shown) {
        if (shown <= 0)
            return 0;
        const value = this.value(run, shown - 1);
        return Math.max(0, this.marks.findIndex((mark) => mark >= value));
    }
    label(frame) {
        const [now, end] = [this.mark(frame), this.mark(this.last)];
        if (this.scale === "time")
            return `${seconds(now)} of ${seconds(end)}`;
        return `${this.scale === "steps" ? "step" : "pass"} ${now} of ${end}`;
    }
    /** Milliseconds from a frame to the next one, at `rate` frames a second on average. */
    pause(frame, rate) {
        const each = 1000 / rate;
        if (this.scale !== "time" || this.last < 1)
            return each;
        const share = (this.mark(frame + 1) - this.mark(frame)) / Math.max(this.mark(this.last), 1e-9);
        return share * this.last * each;
    }
}
export function seconds(value) {
    if (value < 0.1)
        return `${(value * 1e3).toFixed(1)} ms`;
    return value < 1 ? `${(value * 1e3).toFixed(0)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`;
}
