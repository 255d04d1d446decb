/** Stands for page.js's Worker: its messages go to docs/playground/serve.py, which compiles and runs. */
class Served {
  postMessage({ args, env }) {
    ask("run", { args, env }).then((result) => this.onmessage({ data: result }), (error) => this.onerror(error));
  }
  terminate() { this.onmessage = this.onerror = () => {}; }
}

async function ask(what, body) {
  const answer = await fetch(what, { method: "POST", body: JSON.stringify(body) }).catch(() => null);
  if (!answer) throw new Error("The server has ended. Start it again with common/try.sh, and open its new address; copy unsaved text first.");
  const reply = await answer.json();
  if (!answer.ok) throw new Error(reply.error);
  return reply;
}

// page.js follows in the same script: `data`, `element`, `make`, `run` and `shown` are its.
addEventListener("DOMContentLoaded", () => {
  const lines = make("pre", "", { id: "lines" }), area = make("textarea", "", { spellcheck: false, wrap: "off" });
  const editor = make("div", "", { id: "editor" }), bar = make("div", "", { id: "saving" });
  const button = make("button", "Save and run", { type: "button", title: "Ctrl+S" }), status = make("span", "", { role: "status" });
  const drafts = {}; // {file: text that is not saved}
  let file = "";
  lines.setAttribute("aria-hidden", "true");
  editor.append(lines, area);
  bar.append(button, status);
  element("code").append(bar, editor);

  const unsaved = (name) => name in drafts && drafts[name] !== data.files[name];

  function number() {
    const count = area.value.split("\n").length;
    const moved = unsaved(file); // a message speaks of the saved text
    lines.replaceChildren(...Array.from({ length: count }, (_, n) =>
      make("div", n + 1, { className: !moved && shown.hits.has(`${file}:${n + 1}`) ? "hit" : "" })));
    lines.scrollTop = area.scrollTop;
    if (unsaved(file)) status.textContent = "Not saved";
    else if (status.textContent === "Not saved") status.textContent = "";
  }

  function display(name, line) {
    const stays = file === name;
    file = name;
    const text = drafts[name] ?? data.files[name];
    if (area.value !== text) area.value = text;
    area.setAttribute("aria-label", name);
    number();
    const hit = [...shown.hits].find((place) => place.startsWith(`${name}:`))?.split(":")[1];
    const first = line || Number(hit ?? 0);
    if (first || !stays) area.scrollTop = (first - 1) * parseFloat(getComputedStyle(area).lineHeight) - area.clientHeight / 3;
  }

  async function save() {
    const name = file, text = area.value;
    try {
      if (unsaved(name)) await ask("save", { file: name, text, was: data.files[name] });
      data.files[name] = text;
      status.textContent = "Saved";
      number();
      run();
    } catch (error) {
      status.textContent = error.message;
    }
  }

  element("listing").addEventListener("opened", ({ detail }) => display(detail.file, detail.line));
  area.addEventListener("input", () => { drafts[file] = area.value; number(); });
  area.addEventListener("scroll", () => { lines.scrollTop = area.scrollTop; });
  button.addEventListener("click", save);
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") event.preventDefault(), save();
  });
  addEventListener("beforeunload", (event) => { if (Object.keys(data.files).some(unsaved)) event.preventDefault(); });
  display(shown.file, 0);
});
