"use strict";
const element = (id) => document.getElementById(id);
const make = (tag, text = "", properties = {}) => Object.assign(document.createElement(tag), { textContent: text }, properties);
const data = JSON.parse(element("data").textContent);
const form = element("form");
const fields = [...form.elements].filter((field) => field.name);
const number = (n) => n.toLocaleString("en-US");
const TENSORS = { o: "O", lse: "L", dq: "dQ", dk: "dK", dv: "dV" };
const PLACE = /([\w./]+\.(?:cuh|hpp|cpp)):(\d+)/g;

// --- The state: what the form says, and the hash of the address ----------------------------------------------------------

const chosen = (name) => form.elements[name].value;
const broken = () => data.breaks.find((mistake) => mistake.id === chosen("break"));
const variantOf = (name) => data.variants.find((variant) => variant.name === name) ?? data.variants[0];

function state() {
  return Object.fromEntries([...new Set(fields.map((field) => field.name))].map((name) => [name, chosen(name)]));
}

function hashOf(now) {
  return new URLSearchParams(Object.entries(now).filter(([name, value]) => value !== data.start[name])).toString();
}

/** The options of a select; the chosen one stays if it is still there. */
function offer(name, choices) {
  const select = form.elements[name], before = select.value;
  select.replaceChildren(...choices.map(([value, text]) => make("option", text ?? value, { value })));
  if (choices.some(([value]) => value === before)) select.value = before;
}

/** What the kernel takes, or its broken copy, decides what there is to choose. */
function adapt() {
  const variant = { ...variantOf(chosen("variant")), ...broken() };
  offer("pass", variant.passes.map((pass) => [pass]));
  offer("dtype", variant.dtypes.map((dtype) => [dtype]));
  form.elements.d.max = variant.max_head_dim;
  const sizes = variant.tiles.find(({ pass, head_dims }) => pass === chosen("pass") && Math.max(...head_dims) >= Number(chosen("d")));
  offer("tiles", [["", "default"], ...(sizes?.choices ?? []).map(({ br, bc }) => [`${br},${bc}`, `${br} × ${bc}`])]);
  form.elements.tiles.disabled = !sizes;
  element("link").href = `#${hashOf(state())}`;
}

function take(wanted) {
  const next = { ...data.start, ...wanted };
  if (!data.breaks.some(({ id }) => id === next.break)) next.break = "";
  for (const radio of form.querySelectorAll("[name=break]")) radio.checked = radio.value === next.break; // Chromium sets no group to ""
  for (const name of ["variant", "d", "pass"]) { // which decide about others
    form.elements[name].value = next[name];
    adapt();
  }
  for (const [name, value] of Object.entries(next)) if (form.elements[name]) form.elements[name].value = value;
  for (const field of fields) if (field.tagName === "SELECT" && field.selectedIndex < 0) field.selectedIndex = 0;
  adapt();
}

function argumentsOf(now, variant) {
  if (data.lab) return ["--variant", variant, "--device", "cpu", ...(now.arguments ? ["--", now.arguments] : [])];
  const pairs = {
    device: "cpu", variant, pass: now.pass, dtype: now.dtype, "seq-q": now.N, "seq-k": now.keys || now.N, "head-dim": now.d,
    heads: now.heads, "kv-heads": now.kv || now.heads, bias: now.bias, input: now.input, seed: now.seed,
  };
  if (now.tiles) pairs.tiles = now.tiles;
  const list = Object.entries(pairs).flatMap(([name, value]) => [`--${name}`, value]);
  return [...list, ...(now.mask === "causal" ? ["--causal"] : []), "--json"];
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
    mine.onmessage = ({ data: said }) => said.note === undefined ? resolve(said) : (element("told").textContent = said.note);
    const env = { FLASH_SIMT_ORDER: now.order, FLASH_SIMT_TARGET: now.target, FLASH_SIMT_STEPS: "16777216" };
    mine.postMessage({ wasm: module, args: argumentsOf(now, variant), env });
  });
}

function reportOf(result) {
  try {
    return JSON.parse(result.out);
  } catch {
    return null; // it was stopped, and says why in words
  }
}

/** Brings the verdict and what it says into view; a page around a frame stays where it is. */
function reveal() {
  const top = element("verdict").getBoundingClientRect().top, bottom = element("told").getBoundingClientRect().bottom;
  scrollBy(0, Math.min(top, Math.max(0, bottom - innerHeight)));
}

/** One run, and, of a kernel that is broken but right, one of the kernel as it is, to compare their counts. `asked`: by the reader. */
async function run(asked = true) {
  stop();
  if (!form.reportValidity()) return;
  const now = state(), mistake = broken(), hash = hashOf(now);
  if (location.hash.slice(1) !== hash) location.replace(`#${hash}`);
  element("stop").disabled = false;
  element("told").replaceChildren();
  element("counts").replaceChildren();
  say("", "Running …", "");
  show(chosen("variant"), mistake, new Set());
  if (asked) reveal();
  try {
    const result = await runProgram(now, mistake?.id ?? now.variant), report = data.lab ? null : reportOf(result);
    const usual = mistake && report?.check.passed ? reportOf(await runProgram(now, now.variant)) : null;
    element("stop").disabled = true;
    window.finished = { result, report, usual, state: now }; // for the tests
    data.lab ? concludeLab(result, mistake) : conclude(result, report, usual, mistake);
    if (asked) reveal();
  } catch (error) {
    say("bad", `${data.served ? "The server" : "This browser"} could not run it`, error.message);
  }
}

// --- The result -----------------------------------------------------------------------------------------------------------

function say(mood, title, text) {
  element("verdict").className = mood;
  element("verdict").replaceChildren(make("strong", title), text);
}

/** Text whose places in the source are buttons that lead there. */
function withPlaces(text, className = "message") {
  const paragraph = make("p", "", { className });
  let end = 0;
  for (const found of text.matchAll(PLACE)) {
    const [place, file, line] = found;
    const known = data.files[file], onclick = () => { open(file, Number(line)); element("code").scrollIntoView({ block: "nearest" }); };
    paragraph.append(text.slice(end, found.index), known ? make("button", place, { type: "button", onclick }) : place);
    end = found.index + place.length;
  }
  paragraph.append(text.slice(end));
  return paragraph;
}

const short = (value) => (value == null ? "not finite" : String(Number(value.toPrecision(6))));

function wrongTensor([name, { worst, max_abs, tolerance, non_finite }]) {
  const place = `batch ${worst.batch}, head ${worst.head}, row ${worst.row}${name === "lse" ? "" : `, column ${worst.column}`}`;
  const error = non_finite ? `${number(non_finite)} elements are NaN or infinite` : `error ${short(max_abs)}, tolerance ${short(tolerance)}`;
  return `${TENSORS[name]} is wrong: ${error}. Worst at ${place}: ${short(worst.got)}, expected ${short(worst.expected)}.`;
}

/** [name, predicted, counted, counted of the kernel as it is] */
function countsOf({ predicted, counters }, usual) {
  const row = (name, key) => [name, predicted?.[key], counters[key], usual?.counters[key]];
  const names = { read_bytes: "bytes read", written_bytes: "bytes written", sectors: "sectors of 32 bytes", barriers: "barriers",
    warp_operations: "warp operations", bank_conflicts: "bank conflicts", atomics: "atomics", tensor_core_products: "tensor-core products",
    launches: "launches", blocks: "blocks", threads: "threads" };
  return Object.entries(names).map(([key, name]) => row(name, key));
}

const expected = ([, predicted, , usual]) => predicted ?? usual;
const differs = (row) => (expected(row) ?? row[2]) !== row[2];

function table(title, rows, usual) {
  const heads = ["", "predicted", ...(usual ? ["unbroken"] : []), "counted"];
  const result = make("table");
  result.append(make("caption", title), make("thead"), make("tbody"));
  result.tHead.append(make("tr"));
  result.tHead.rows[0].append(...heads.map((head) => make("th", head, { scope: "col" })));
  for (const row of rows) {
    const [name, predicted, counted, before] = row;
    const cells = [predicted, ...(usual ? [before] : []), counted].map((n) => make("td", n == null ? "–" : number(n)));
    const line = make("tr", "", { className: differs(row) ? "differs" : "" });
    line.append(make("th", name, { scope: "row" }), ...cells);
    result.tBodies[0].append(line);
  }
  return result;
}

/** A lab has no report: it prints, and its exit code says whether its claims hold. Marked are the lines that a failure names, or else all that it prints. */
function concludeLab({ code, out, err, ms }, mistake) {
  const seconds = `${(ms / 1000).toFixed(1)} s`, untrue = [...new Set(out.match(/^NOT TRUE.*/gm))];
  if (code === 0) say("good", "All its claims hold", `Done in ${seconds}.`);
  else say("bad", err ? "The simulator stopped it" : `${untrue.length === 1 ? "A claim is" : `${untrue.length} claims are`} not true`, `after ${seconds}`);
  element("told").replaceChildren(...[...untrue, err.trim()].filter(Boolean).map((text) => withPlaces(text)),
    ...(mistake ? [make("p", mistake.lesson, { className: "lesson" })] : []));
  const printed = make("div", "", { className: "printed" });
  printed.append(...out.trimEnd().split("\n").map((line) => withPlaces(line, line.length > 100 ? "long" : "")));
  element("counts").replaceChildren(printed);
  const places = (text) => [...text.matchAll(PLACE)].map(([place]) => place);
  show(chosen("variant"), mistake, new Set(code === 0 ? places(out) : places([...untrue, err].join(" ")).slice(0, 2)));
}

function conclude(result, report, usual, mistake) {
  const told = [], seconds = `${(result.ms / 1000).toFixed(1)} s`;
  if (report === null) {
    const said = result.said ? result.err : (result.err.trim().split("\n").pop() || `exit code ${result.code}`).replace(/^\d\d_\w+: /, "");
    say("bad", result.said || (result.code === 1 ? "The simulator stopped it" : "The program refuses this"), `after ${seconds}`);
    told.push(withPlaces(said));
  } else {
    const { mistakes, hints } = report.threads ?? { mistakes: [], hints: [] };
    const wrong = Object.entries(report.check.tensors).filter(([, check]) => !check.passed);
    const rows = countsOf(report, usual), more = rows.filter(differs);
    const names = wrong.map(([name]) => TENSORS[name]).join(", ");
    const parts = [mistakes.length ? "Race" : "", names ? `${names} wrong` : ""].filter(Boolean);
    if (parts.length) say("bad", parts.join(", "), `Found in ${seconds}.`);
    else if (more.length) say("bad", "Right, but at a price", more.map((row) => `${number(row[2])} ${row[0]}, not ${number(expected(row))}`).join("; "));
    else say("good", "Right, without a race", `Checked against double precision in ${seconds}${report.predicted ? "; every count is as predicted" : ""}.`);
    told.push(...mistakes.slice(0, 2).map((text) => withPlaces(text)), ...wrong.slice(0, 2).map((check) => make("p", wrongTensor(check))));
    if (wrong.length) told.push(...hints.slice(0, 5).map((hint) => withPlaces(`Hint: ${hint.replace("FLASH_SIMT_ORDER=", "Thread order ")}${hint.endsWith("?") ? "" : "."}`)));
    const tensors = Object.entries(report.counters.tensors).flatMap(([name, moved]) => ["read", "written"].map((way) =>
      [`${name} ${way}`, report.predicted?.tensors[name]?.[`${way}_bytes`], moved[`${way}_bytes`], usual?.counters.tensors[name]?.[`${way}_bytes`]]));
    const perTensor = make("details");
    perTensor.append(make("summary", "Bytes per tensor"), table("", tensors.filter((row) => row[1] || row[2]), usual));
    element("counts").replaceChildren(table("What the kernel did", rows, usual), perTensor);
  }
  const first = report?.threads?.mistakes.length ? 1 : 3, rest = told.splice(first); // one cause has many effects
  if (rest.length) {
    const more = make("details");
    more.append(make("summary", `${rest.length} more ${rest.length === 1 ? "message" : "messages"}`), ...rest);
    told.push(more);
  }
  if (mistake) told.push(make("p", mistake.lesson, { className: "lesson" }));
  element("told").replaceChildren(...told);
  const text = [...element("told").querySelectorAll(".message")].map((part) => part.textContent).join(" ");
  const places = [...text.matchAll(PLACE)].map(([place]) => place);
  show(chosen("variant"), mistake, new Set(places));
}

// --- The listing -----------------------------------------------------------------------------------------------------------

const SYNTAX = /(\/\/.*)|(^\s*#\s*\w+|\b(?:auto|bool|break|char|const|constexpr|continue|double|else|extern|false|float[24]?|for|half|if|inline|int|long|namespace|nullptr|operator|return|short|sizeof|static|struct|template|true|typename|unsigned|using|void|while|__\w+)\b)|\b(\d[\w.]*)/g;
let shown = { file: "", mistake: undefined, hits: new Set() };

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(SYNTAX)) {
    parts.push(text.slice(end, found.index), make("span", found[0], { className: found[1] ? "remark" : found[2] ? "word" : "number" }));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

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
    row.append(make("i", n), ...coloured(text), text ? "" : " ");
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

function fromHash(asked) {
  const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const mistake = data.breaks.find(({ id }) => id === wanted.break);
  take({ ...mistake?.state, ...wanted });
  run(asked);
}

document.body.classList.toggle("lab", Boolean(data.lab));
if (data.lab) form.elements.variant.parentElement.firstChild.data = "Program ";
offer("arguments", [["", "none"], ...(data.arguments ?? []).map((name) => [name])]);
form.elements.arguments.parentElement.hidden = !data.arguments?.length;
offer("variant", [...data.variants.map(({ name }) => [name, name.replaceAll("_", " ")]), ...data.elsewhere.map(([kernel, page]) => [page, `${kernel} …`])]);
element("breaks").append(...[{ id: "", name: "nothing" }, ...data.breaks].map(({ id, name }) => {
  const label = make("label");
  label.append(make("input", "", { type: "radio", name: "break", value: id }), name[0].toUpperCase() + name.slice(1));
  return label;
}));
fields.push(...form.querySelectorAll("[name=break]"));
element("files").append(...Object.keys(data.files).map((file) => {
  const tab = make("button", file.replace(/^\d\d_\w+?\//, ""), { type: "button", onclick: () => open(file) });
  tab.dataset.file = file;
  return tab;
}));
form.addEventListener("change", ({ target }) => {
  if (target.name === "break") {
    take({ ...broken()?.state, break: chosen("break") });
    run();
  } else if (target.name === "variant") {
    if (!data.variants.some(({ name }) => name === target.value)) location.href = target.value;
    else take({ ...state(), break: "" }), run();
  } else {
    adapt();
  }
});
form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
element("stop").addEventListener("click", () => { stop(); say("", "Stopped", "Change something and run it again."); });
addEventListener("hashchange", () => { if (location.hash.slice(1) !== hashOf(state())) fromHash(true); });
fromHash(location.hash.length > 1);
