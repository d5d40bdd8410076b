// The shown canvases, the timeline below them, and the selected position.
import { CanvasView, emptyPane } from "./canvas_view.js";
import { runTitle } from "./choice.js";
import { find, prefersLessMotion, setText } from "./dom.js";
import { Player } from "./player.js";
import { SCALES } from "./timeline.js";
export class Stage {
    panes = find("panes", HTMLElement);
    play = find("play", HTMLButtonElement);
    slider = find("frame", HTMLInputElement);
    label = find("frame-label", HTMLOutputElement);
    look = find("look", HTMLElement);
    controls = find("controls", HTMLElement);
    scale = find("scale", HTMLSelectElement);
    rate = find("rate", HTMLSelectElement);
    hint = (this.look.textContent ?? "").trim();
    views = [];
    looking = null;
    player = new Player({ after: (ms, call) => window.setTimeout(call, ms), cancel: (id) => window.clearTimeout(id) }, () => this.draw());
    constructor() {
        this.play.addEventListener("click", () => this.player.toggle());
        this.slider.addEventListener("input", () => {
            const wanted = Number(this.slider.value); // pausing draws the old frame
            this.player.pause();
            this.player.seek(wanted);
        });
        find("back", HTMLButtonElement).addEventListener("click", () => this.player.move(-1));
        find("forward", HTMLButtonElement).addEventListener("click", () => this.player.move(1));
        this.scale.addEventListener("change", () => {
            const wanted = SCALES.find((one) => one === this.scale.value);
            if (wanted !== undefined)
                this.player.rescale(wanted);
        });
        this.rate.addEventListener("change", () => {
            this.player.rate = Number(this.rate.value);
        });
        this.panes.replaceChildren(emptyPane(60));
        this.draw();
    }
    get runs() {
        return this.views.map((view) => view.run);
    }
    /** Shows runs from their beginning (`at` "start"), or in their final state. */
    show(runs, at) {
        this.views = runs.map((run, i) => new CanvasView(run, runs.length > 1 ? String.fromCharCode(65 + i) : "", {
            onLook: (view, position) => this.onLook(view, position),
        }));
        this.panes.replaceChildren(...this.views.map((view) => view.node));
        this.panes.classList.toggle("several", runs.length > 1);
        this.looking = null;
        this.look.textContent = this.hint;
        this.look.classList.remove("active");
        this.player.pause();
        this.player.frame = 0;
        this.player.load(runs, this.scale.value);
        if (at === "end")
            this.player.seek(this.player.timeline.last);
        this.retitle();
    }
    /** Steps of `run` follow from now on. Two runs are generated one after the other, so each has the whole machine;
     *  the current one is followed, and both are replayed together at the end. */
    begin(run) {
        this.player.load([run], "steps");
        this.player.frame = 0;
        this.player.live = true;
        this.player.playing = true;
    }
    /** Steps were added to a run. */
    grown() {
        this.player.grown();
        if (prefersLessMotion())
            this.player.seek(this.player.timeline.last);
    }
    /** All runs are complete. */
    end() {
        const several = this.views.length > 1;
        if (several) {
            this.player.load(this.runs, this.scale.value);
            this.player.seek(prefersLessMotion() ? this.player.timeline.last : 0);
            this.player.playing = !prefersLessMotion();
        }
        this.player.finish();
        if (several && this.player.playing)
            this.player.play();
        this.retitle();
    }
    retitle() {
        this.views.forEach((view, i) => {
            const other = this.views.length > 1 ? this.views[i === 0 ? 1 : 0] : undefined;
            view.setTitle(runTitle(view.run.options, other?.run.options));
        });
    }
    /** Moves the keyboard's focus into the canvas. */
    focus() {
        this.panes.querySelector(".cell[tabindex='0']")?.focus();
    }
    draw() {
        const { timeline, frame, playing, live, runs } = this.player;
        for (const view of this.views) {
            // While another run is generated, this one shows its last state.
            const shown = runs.includes(view.run) ? timeline.shown(view.run, frame) : view.run.steps.length;
            view.show(shown, live && runs.includes(view.run));
        }
        this.controls.toggleAttribute("inert", this.views.length === 0);
        this.slider.max = String(timeline.last);
        this.slider.value = String(frame);
        const label = timeline.label(frame);
        this.slider.setAttribute("aria-valuetext", label);
        setText(this.label, this.views.length === 0 ? "" : label);
        setText(this.play, playing ? "Pause" : "Play");
        this.play.classList.toggle("playing", playing);
        if (this.looking !== null)
            this.looking.view.drawHistory(this.look, this.looking.position);
    }
    onLook(view, position) {
        if (position === null) {
            // When the mouse leaves, the position selected by keyboard remains.
            if (view.node.contains(document.activeElement))
                return;
            this.looking = null;
            this.look.textContent = this.hint;
            this.look.classList.remove("active");
            return;
        }
        this.looking = { view, position };
        this.look.classList.add("active");
        view.drawHistory(this.look, position);
    }
}
