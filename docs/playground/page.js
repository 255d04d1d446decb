"use strict";
const element = (id) => document.getElementById(id);
const make = (tag, text = "", properties = {}) => Object.assign(document.createElement(tag), { textContent: text }, properties);
const data = JSON.parse(element("data").textContent);
const form = element("form"), fields = [...form.elements].filter((field) => field.name);
const number = (n) => n.toLocaleString("en-US");
const TENSORS = { o: "O", lse: "L", dq: "dQ", dk: "dK", dv: "dV" };
const PLACE = /([\w./-]+\.(?:cuh?|hpp|cpp)):(\d+)/g;

// --- The state: what the form says, and the hash of the address ----------------------------------------------------------

const state = () => Object.fromEntries(fields.map(({ name, value }) => [name, value]));
const broken = () => data.breaks.find(({ id }) => id === form.elements.break.value);
const variantOf = (name) => data.variants.find((variant) => variant.name === name) ?? data.variants[0];
const hashOf = (now) => new URLSearchParams(Object.entries(now).filter(([name, value]) => value !== data.start[name])).toString();

/** The options of a select; the chosen one stays if it is still there. */
function offer(name, choices) {
  const select = form.elements[name], before = select.value;
  select.replaceChildren(...choices.map(([value, text]) => make("option", text ?? value, { value, selected: value === before })));
}

/** What the kernel takes decides what there is to choose. */
function adapt() {
  const { variant, pass, d } = state(), { passes, dtypes, tiles, max_head_dim } = variantOf(variant);
  offer("pass", passes.map((name) => [name]));
  offer("dtype", dtypes.map((name) => [name]));
  form.elements.d.max = max_head_dim;
  const sizes = tiles.find((size) => size.pass === pass && Math.max(...size.head_dims) >= Number(d));
  offer("tiles", [["", "default"], ...(sizes?.choices ?? []).map(({ br, bc }) => [`${br},${bc}`, `${br} × ${bc}`])]);
}

function take(wanted) {
  const next = { ...data.start, ...wanted };
  for (const name of ["variant", "d", "pass"]) { // which decide about others
    form.elements[name].value = next[name];
    adapt();
  }
  for (const field of fields) {
    field.value = next[field.name];
    if (field.tagName === "SELECT" && field.selectedIndex < 0) field.selectedIndex = 0;
  }
  adapt();
}

function argumentsOf({ pass, dtype, N, keys, d, heads, kv, bias, input, tiles, mask }, variant) {
  if (data.lab) return [];
  const options = { device: "cpu", variant, pass, dtype, "seq-q": N, "seq-k": keys || N, "head-dim": d, heads, "kv-heads": kv || heads, bias, input,
    causal: mask === "causal", ...(tiles && { tiles }) };
  return [...Object.entries(options).map(([name, value]) => `--${name}=${value}`), "--json"];
}

// --- Running, in a worker that Stop ends --------------------------------------------------------------------------------

const wasm = data.served ? null : (async () => { // serve.py compiles natively: edit.js
  const packed = Uint8Array.from(atob(element("wasm").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
})();
const script = URL.createObjectURL(new Blob([element("module").textContent], { type: "text/javascript" }));
let worker = null;

function stop() {
  worker?.terminate();
  worker = null;
  element("stop").disabled = true;
}

async function runProgram(now, variant) {
  const mine = (worker ??= data.served ? new Served() : new Worker(script));
  const module = await wasm;
  return new Promise((resolve, reject) => {
    mine.onerror = (event) => reject(new Error(event.message));
    mine.onmessage = ({ data: result }) => resolve(result);
    const env = { FLASH_SIMT_ORDER: now.order, FLASH_SIMT_TARGET: now.target, FLASH_SIMT_STEPS: "16777216" };
    mine.postMessage({ wasm: module, args: argumentsOf(now, variant), env });
  });
}

async function run() {
  stop();
  if (!form.reportValidity()) return;
  const now = state(), mistake = broken();
  history.replaceState(null, "", `#${hashOf(now)}`);
  element("stop").disabled = false;
  element("findings").replaceChildren();
  element("counts").replaceChildren();
  say("", "Running …", "");
  show(now.variant, mistake, new Set());
  try {
    const result = await runProgram(now, mistake?.id ?? now.variant);
    const report = !data.lab && result.out.startsWith("{") ? JSON.parse(result.out) : null; // or it was stopped, and says why in words
    element("stop").disabled = true;
    window.finished = { result, report, state: now }; // for the tests
    const paragraphs = report ? conclude(result, report) : data.lab ? concludeLab(result) : concludeStopped(result);
    paragraphs.splice(report?.threads?.mistakes.length ? 1 : 3); // one cause has many effects
    element("findings").replaceChildren(...paragraphs, ...(mistake ? [make("p", mistake.lesson, { className: "lesson" })] : []));
    const failed = element("verdict").className === "bad" ? element("findings") : element("result"); // of a lab what it prints
    const messages = [...failed.querySelectorAll(".message")].map(({ textContent }) => textContent).join(" ");
    show(now.variant, mistake, new Set(messages.match(PLACE)));
  } catch (error) {
    say("bad", `${data.served ? "The server" : "This browser"} could not run it`, error.message);
  }
}

// --- The result -----------------------------------------------------------------------------------------------------------

function say(mood, title, text) {
  element("verdict").className = mood;
  element("verdict").replaceChildren(make("strong", title), text);
}

const seconds = ({ ms }) => `${(ms / 1000).toFixed(1)} s`;

/** Text whose places in the source are buttons that lead there. */
function withPlaces(text) {
  const paragraph = make("p", "", { className: "message" });
  let end = 0;
  for (const { 0: place, 1: file, 2: line, index } of text.matchAll(PLACE)) {
    const onclick = () => { open(file, Number(line)); element("code").scrollIntoView({ block: "nearest" }); };
    paragraph.append(text.slice(end, index), data.files[file] ? make("button", place, { type: "button", onclick }) : place);
    end = index + place.length;
  }
  paragraph.append(text.slice(end));
  return paragraph;
}

function wrongTensor([name, { worst, max_abs, tolerance, non_finite }]) {
  const short = (value) => (value == null ? "not finite" : String(Number(value.toPrecision(6))));
  const place = `batch ${worst.batch}, head ${worst.head}, row ${worst.row}${name === "lse" ? "" : `, column ${worst.column}`}`;
  const error = non_finite ? `${number(non_finite)} elements are NaN or infinite` : `error ${short(max_abs)}, tolerance ${short(tolerance)}`;
  return `${TENSORS[name]} is wrong: ${error}. Worst at ${place}: ${short(worst.got)}, expected ${short(worst.expected)}.`;
}

const COUNTS = ["read_bytes", "written_bytes", "sectors", "barriers", "warp_operations", "bank_conflicts", "atomics", "tensor_core_products",
  "launches", "blocks", "threads"];

const differs = ([, predicted, counted]) => (predicted ?? counted) !== counted;

function table(rows) {
  const result = make("table"), body = make("tbody"), head = make("tr");
  head.append(...["", "predicted", "counted"].map((text) => make("th", text, { scope: "col" })));
  for (const row of rows) {
    const [name, ...cells] = row, line = make("tr", "", { className: differs(row) ? "differs" : "" });
    line.append(make("th", name, { scope: "row" }), ...cells.map((n) => make("td", n == null ? "–" : number(n))));
    body.append(line);
  }
  result.append(make("caption", "What the kernel did"), head, body);
  return result;
}

/** A lab prints, and its exit code says whether its claims hold; of a plain file serve.py says it. Returns paragraphs, as the others do. */
function concludeLab({ code, verdict, out, err, ms }) {
  const untrue = [...new Set(out.match(/^NOT TRUE.*/gm))];
  say(code ? "bad" : "good", verdict ?? (code ? "Not all its claims hold" : "All its claims hold"), `after ${seconds({ ms })}`);
  const printed = make("div", "", { className: "printed" });
  printed.append(...out.trimEnd().split("\n").map(withPlaces));
  element("counts").replaceChildren(printed);
  return [...untrue, err.trim()].filter(Boolean).map(withPlaces);
}

function concludeStopped(result) {
  const last = (result.err.trim().split("\n").pop() || `exit code ${result.code}`).replace(/^\d\d_\w+: /, "");
  say("bad", result.verdict || (result.code === 1 ? "The simulator stopped it" : "The program refuses this"), `after ${seconds(result)}`);
  return [withPlaces(result.verdict ? result.err : last)];
}

function conclude(result, { threads, check, predicted, counters }) {
  const { mistakes, hints } = threads ?? { mistakes: [], hints: [] };
  const wrong = Object.entries(check.tensors).filter(([, tensor]) => !tensor.passed);
  const rows = COUNTS.map((key) => [key.replaceAll("_", " "), predicted?.[key], counters[key]]);
  const more = rows.filter(differs), names = wrong.map(([name]) => TENSORS[name]).join(", ");
  const parts = [mistakes.length ? "Race" : "", names ? `${names} wrong` : ""].filter(Boolean);
  if (parts.length) say("bad", parts.join(", "), `Found in ${seconds(result)}.`);
  else if (more.length) say("bad", "Right, but at a price", more.map((row) => `${number(row[2])} ${row[0]}, not ${number(row[1])}`).join("; "));
  else say("good", "Right, without a race", `Checked against double precision in ${seconds(result)}${predicted ? "; every count is as predicted" : ""}.`);
  element("counts").replaceChildren(table(rows));
  return [...mistakes.slice(0, 2).map(({ text }) => withPlaces(text)), ...wrong.slice(0, 2).map((tensor) => make("p", wrongTensor(tensor))),
    ...(wrong.length ? hints.slice(0, 3) : []).map((hint) => withPlaces(`Hint: ${hint}`))];
}

// --- The listing -----------------------------------------------------------------------------------------------------------

let shown = { file: "", mistake: undefined, hits: new Set() };

/** [text, number, class] of each line, with those that the mistake takes and adds. */
function linesOf(file, mistake) {
  const old = data.files[file].split("\n"), lines = [];
  let at = 0, count = 0;
  const keep = (to) => { for (; at < to; ++at) lines.push([old[at], ++count, ""]); };
  for (const [first, gone, come] of mistake?.file === file ? mistake.changes : []) {
    keep(first);
    for (const end = at + gone; at < end; ++at) lines.push([old[at], "", "go"]);
    for (const text of come) lines.push([text, ++count, "come"]);
  }
  keep(old.length - 1);
  return lines;
}

/** Shows a file, from the line on that is asked for, or else the mistake or the first marked line. */
function open(file, line = 0) {
  shown.file = file;
  const { mistake, hits } = shown, listing = element("listing");
  const rows = linesOf(file, mistake).map(([text, n, kind]) => {
    const row = make("div", "", { className: hits.has(`${file}:${n}`) ? `hit ${kind}` : kind });
    row.append(make("i", n), text || " ");
    row.dataset.line = n;
    return row;
  });
  listing.replaceChildren(...rows);
  const goal = rows.find((row) => (line ? row.dataset.line === String(line) : /go|come/.test(row.className))) ?? rows.find((row) => row.className);
  listing.scrollTop = goal ? goal.offsetTop - listing.offsetTop - listing.clientHeight / 3 : 0;
  for (const tab of element("files").children) tab.setAttribute("aria-current", tab.dataset.file === file);
  listing.dispatchEvent(new CustomEvent("opened", { detail: { file, line } }));
}

/** The listing for a result: of the file with the mistake, or with the first line that a message names, or the one that is open. */
function show(variant, mistake, hits) {
  const kernel = variantOf(variant).kernel, named = [...hits].map((place) => place.replace(/:\d+$/, ""));
  const stay = shown.kernel === kernel && shown.mistake === mistake && !hits.size && !shown.hits.size;
  shown = { file: shown.file, kernel, mistake, hits };
  if (!stay) open(mistake?.file ?? named.find((file) => data.files[file]) ?? kernel);
}

// --- Begin ------------------------------------------------------------------------------------------------------------------

function fromHash() {
  const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  take({ ...data.breaks.find(({ id }) => id === wanted.break)?.state, ...wanted });
  run();
}

data.start = { ...state(), ...data.start };
document.body.classList.toggle("lab", Boolean(data.lab));
offer("variant", data.variants.map(({ name }) => [name, name.replaceAll("_", " ")]));
offer("break", [["", "nothing"], ...data.breaks.map(({ id, name }) => [id, name])]);
element("breaks").hidden = !data.breaks.length;
element("files").append(...Object.keys(data.files).map((file) => {
  const tab = make("button", file.replace(/^\d\d_\w+?\//, ""), { type: "button", onclick: () => open(file) });
  tab.dataset.file = file;
  return tab;
}));
form.addEventListener("change", ({ target }) => {
  if (target.name === "break") take({ ...broken()?.state, break: target.value }), run();
  else if (target.name === "variant") take({ ...state(), break: "" }), run();
  else adapt();
});
form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
element("stop").addEventListener("click", () => { stop(); say("", "Stopped", "Change something and run it again."); });
addEventListener("hashchange", () => { if (location.hash.slice(1) !== hashOf(state())) fromHash(); });
fromHash();
