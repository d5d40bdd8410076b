// Images that go with the next message. They are named, not shown: the page's policy lets nothing but the server's own
// files be displayed.
import { button, element, find } from "./dom.js";
const TYPES = ["image/png", "image/jpeg", "image/webp"];
const REST = 64 << 10; // of a request: its texts and options
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
    sent;
    attach = find("attach", HTMLButtonElement);
    input = find("image", HTMLInputElement);
    list = find("images", HTMLElement);
    images = [];
    limit = 0;
    /** `sent`: bytes of the conversation's images, which go with every question. */
    constructor(tell, sent) {
        this.tell = tell;
        this.sent = sent;
        this.attach.addEventListener("click", () => this.input.click());
        this.input.addEventListener("change", () => {
            void this.add([...(this.input.files ?? [])]).then(() => {
                this.input.value = "";
            });
        });
    }
    /** Whether the model reads images; if not, those that are waiting are dropped. `limit`: bytes of a request. */
    allow(allowed, limit) {
        this.attach.hidden = !allowed;
        this.limit = limit;
        if (!allowed)
            this.put([]);
    }
    get allowed() {
        return !this.attach.hidden;
    }
    /** Those that are meant as images: add() says why it takes one or not. */
    among(files) {
        return this.allowed ? files.filter((one) => one.type.startsWith("image/")) : [];
    }
    async add(files) {
        for (const file of files) {
            try {
                await this.addOne(file);
            }
            catch (error) {
                this.tell(error instanceof Error ? error.message : String(error));
            }
        }
    }
    async addOne(file) {
        if (!TYPES.includes(file.type))
            throw new Error(`${file.name}: PNG, JPEG and WebP images are read.`);
        const url = await dataUrl(file);
        const waiting = this.images.reduce((sum, image) => sum + image.url.length, 0);
        if (this.sent() + waiting + url.length > this.limit - REST) {
            const most = (this.limit / (1 << 20)).toFixed(1);
            throw new Error(`${file.name}: the images of a conversation fit into ${most} MiB here (serve --max-body).`);
        }
        this.put([...this.images, { name: file.name, url }]);
    }
    /** Images that were taken, before those that came since. */
    giveBack(images) {
        this.put([...images, ...this.images]);
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
