// Follows emscripten's script, which defines Module. One message is one run of the program, in a module of its own.
onmessage = async ({ data: { wasm, args, env } }) => {
  const began = performance.now();
  let out = "", err = "", code = null;
  const module = await Module({
    print: (line) => { out += line + "\n"; },
    printErr: (line) => { err += line + "\n"; },
    preRun: [(module) => Object.assign(module.ENV, env)],
    quit: (status, thrown) => { code = status; throw thrown; },
    instantiateWasm: (imports, done) => { WebAssembly.instantiate(wasm, imports).then(done); return {}; },
  });
  try {
    module.callMain(args);
  } catch (thrown) {
    if (code === null) err += `${thrown}\n`; // what no program expects, such as a stack that overflows
  }
  postMessage({ code: code ?? 1, out, err, ms: performance.now() - began });
};
