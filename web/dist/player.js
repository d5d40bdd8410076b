// Plays a timeline frame by frame. Live, it follows the arriving steps, never too fast to watch.
import { Timeline } from "./timeline.js";
export class Player {
    clock;
    changed;
    timeline = new Timeline([], "steps");
    frame = 0;
    playing = false;
    /** More steps will follow: at the end the player waits for them. */
    live = false;
    /** Frames a second. */
    rate = 6;
    timer = null;
    scale = "steps";
    constructor(clock, changed) {
        this.clock = clock;
        this.changed = changed;
    }
    get runs() {
        return this.timeline.runs;
    }
    load(runs, scale = this.scale) {
        this.stopTimer();
        this.scale = scale;
        this.timeline = new Timeline(runs, scale);
        this.frame = Math.min(this.frame, this.timeline.last);
        if (this.playing)
            this.schedule();
        this.changed();
    }
    /** Steps were added to the runs. */
    grown() {
        this.timeline = new Timeline(this.runs, this.scale);
        if (this.playing && this.timer === null)
            this.schedule();
        this.changed();
    }
    /** Changes the scale and keeps the current step of the first run. */
    rescale(scale) {
        const first = this.runs[0];
        const shown = first === undefined ? 0 : this.timeline.shown(first, this.frame);
        const end = this.frame >= this.timeline.last;
        this.load(this.runs, scale);
        this.seek(end || first === undefined ? this.timeline.last : this.timeline.frameOf(first, shown));
    }
    seek(frame) {
        this.frame = Math.max(0, Math.min(frame, this.timeline.last));
        if (this.playing)
            this.schedule();
        this.changed();
    }
    /** One frame forward or back; pauses. */
    move(by) {
        this.pause();
        this.seek(this.frame + by);
    }
    play() {
        if (this.frame >= this.timeline.last && !this.live)
            this.frame = 0;
        this.playing = true;
        this.schedule();
        this.changed();
    }
    pause() {
        this.playing = false;
        this.stopTimer();
        this.changed();
    }
    toggle() {
        if (this.playing)
            this.pause();
        else
            this.play();
    }
    /** No more steps will follow. */
    finish() {
        this.live = false;
        if (this.playing && this.frame >= this.timeline.last)
            this.playing = false;
        this.changed();
    }
    stopTimer() {
        if (this.timer !== null)
            this.clock.cancel(this.timer);
        this.timer = null;
    }
    schedule() {
        this.stopTimer();
        if (this.frame >= this.timeline.last) {
            if (!this.live)
                this.playing = false;
            return;
        }
        this.timer = this.clock.after(this.timeline.pause(this.frame, this.rate), () => {
            this.timer = null;
            ++this.frame;
            this.schedule();
            this.changed();
        });
    }
}
