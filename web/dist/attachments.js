// Images that go with the next message. They are named, not shown: the page's policy lets nothing but the server's own
// files be displayed.
import { button, element, find } from "./dom.js";
const TYPES = ["image/png", "image/jpeg", "image/webp"];
const MOST_BYTES = 32 << 20;
/** The bytes of a file as a data: URL, which is how a message carries them. */
function dataUrl(file) {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result));
        reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
        reader.readAsDataURL(file);
    });
}
export class Attachments {
    tell;
    attach = find("attach", HTMLButtonElement);
    input = find("image", HTMLInputElement);
    list = find("images", HTMLElement);
    images = [];
    constructor(tell) {
        this.tell = tell;
        this.attach.addEventListener("click", () => this.input.click());
        this.input.addEventListener("change", () => {
            void this.add([...(this.input.files ?? [])]).then(() => {
                this.input.value = "";
            });
        });
    }
    /** Whether the model reads images; if not, those that are waiting are dropped. */
    allow(allowed) {
        this.attach.hidden = !allowed;
        if (!allowed)
            this.put([]);
    }
    get allowed() {
        return !this.attach.hidden;
    }
    /** Whether such a file is an image that the server reads. */
    reads(file) {
        return this.allowed && TYPES.includes(file.type);
    }
    async add(files) {
        for (const file of files) {
            if (!TYPES.includes(file.type))
                this.tell(`${file.name}: PNG, JPEG and WebP images are read.`);
            else if (file.size > MOST_BYTES)
                this.tell(`${file.name}: an image has at most ${MOST_BYTES >> 20} MiB.`);
            else
                this.put([...this.images, { name: file.name, url: await dataUrl(file) }]);
        }
    }
    /** The images, which are then gone from here. */
    take() {
        const taken = this.images;
        this.put([]);
        return taken;
    }
    put(images) {
        this.images = [...images];
        this.list.hidden = images.length === 0;
        this.list.replaceChildren(...images.map((image) => element("li", {}, image.name, button("\u00d7", { class: "quiet", "aria-label": `Remove ${image.name}` }, () => {
            this.put(this.images.filter((one) => one !== image));
            this.attach.focus();
        }))));
    }
}
