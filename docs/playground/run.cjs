// Runs a page's module in node as its worker does: run.cjs MODULE.js, then a line {args, env} per run, each answered by a line {code, out, err, ms}.
const fs = require("fs");
const path = require("path");
const module_ = path.resolve(process.argv[2]);
globalThis.Module = require(module_);
const wasm = new WebAssembly.Module(fs.readFileSync(module_.replace(/js$/, "wasm")));
let finished;
globalThis.postMessage = (said) => said.note === undefined && finished(said);
(0, eval)(fs.readFileSync(path.join(__dirname, "worker.js"), "utf8"));
let earlier = Promise.resolve();
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  earlier = earlier.then(async () => {
    const result = new Promise((resolve) => { finished = resolve; });
    onmessage({ data: { wasm, ...JSON.parse(line) } });
    console.log(JSON.stringify(await result));
    for (const event of ["uncaughtException", "unhandledRejection"]) process.removeAllListeners(event); // which would keep the module's memory
  });
});
