// Runs a page's module in node as its worker does: run.cjs MODULE.js < a line {args, env} per run > a line {code, out, err, ms} each
const fs = require("fs");
const path = require("path");
const module_ = path.resolve(process.argv[2]);
globalThis.Module = require(module_);
const wasm = new WebAssembly.Module(fs.readFileSync(module_.replace(/js$/, "wasm")));
let finished;
globalThis.postMessage = (said) => said.note === undefined && finished(said);
(0, eval)(fs.readFileSync(path.join(__dirname, "worker.js"), "utf8"));
(async () => {
  for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const result = new Promise((resolve) => { finished = resolve; });
    onmessage({ data: { wasm, ...JSON.parse(line) } });
    console.log(JSON.stringify(await result));
  }
})();
